"""Runs one sink: committed records of its topics in batches, and the offsets behind each batch.

An `OffsetStoringSink` stores the offsets itself, atomically with the batch: exactly once. For other sinks, a
transaction commits the offsets of the group `suiro-connect-NAME` after the batch, together with the dead letters: at
least once. It also fences an earlier process that still runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from suiro.client import EARLIEST, LATEST, Client
from suiro.connect.connectors import (
    ERROR_PREFIX,
    BadRecordError,
    DatasetReporter,
    OffsetStoringSink,
    Sink,
    SinkBatch,
    SinkRecord,
    short_reason,
)
from suiro.connect.datasets import topics_of
from suiro.connect.dead_letters import DeadLetters, LetterLimit
from suiro.connect.positions import (
    POSITIONS_TOPIC,
    position_partition,
    read_topic_ids,
    topic_ids_record,
    transactional_id,
)
from suiro.connect.schema_fields import Fields, fields_reader
from suiro.connect.spans import sink_spans
from suiro.connect.task import TRANSACTION_TIMEOUT_MS, Ended, Outgoing, TaskContext, Topics, batches_of, one_transaction
from suiro.connect.values import decoder
from suiro.errors import DataLossError, OffsetOutOfRangeError, RefusedError, UnknownTopicError
from suiro.foundation.settings import SettingError, require_least, require_one_of
from suiro.foundation.types import TopicPartition
from suiro.protocol import columnar, compression
from suiro.telemetry import Datasets

FETCH_WAIT_MS = 500
FETCH_BYTES = 4 * 1024 * 1024  # of a partition
FETCH_BYTES_IN_ALL = 8 * 1024 * 1024
GATHER_BYTES = 32 * 1024 * 1024  # of records that linger; decoded, they are several times as large
LARGEST_FETCH_BYTES = 1 << 30
LOOK_FOR_PARTITIONS_MS = 30_000
LOOK_FOR_TOPICS_S = 1.0
COMMIT_AGAIN_MS = 600_000
"""Brokers forget the offsets of a group without members some days after their commit (offsets.retention.minutes), even
for a partition that has had no record since. Also for offsets behind aborted records and markers."""
FROM = {"earliest": EARLIEST, "latest": LATEST}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Settings that every sink has in addition to its own."""

    topics: tuple[str, ...]
    format: str = "json"
    key_format: str = "string"
    start: str = "earliest"
    max_records: int = 10_000  # in a batch
    linger_ms: int = 0  # how long to gather records for a larger batch
    on_data_loss: str = "fail"
    dead_letter_topic: str | None = None

    def __post_init__(self) -> None:
        if not self.topics:
            raise SettingError("topics", "names no topic")
        if self.dead_letter_topic in self.topics:
            raise SettingError("dead_letter_topic", "is one of topics: its records would be read and rejected again")
        require_one_of("start", self.start, FROM)
        require_one_of("on_data_loss", self.on_data_loss, ("fail", "continue"))
        require_least(self, max_records=1, linger_ms=0)


class SinkTask:
    """A sink with what every sink has. Runs again and again, each time from the offsets that were stored."""

    def __init__(self, sink: Sink, settings: SinkSettings) -> None:
        self.sink = sink
        self.settings = settings
        self.limit = LetterLimit()
        self.ids = _TopicIds()

    def datasets(self, context: TaskContext) -> Datasets:
        dead = [self.settings.dead_letter_topic] if self.settings.dead_letter_topic else []
        outside = self.sink.datasets() if isinstance(self.sink, DatasetReporter) else ()
        return Datasets(
            inputs=topics_of(context.bootstrap_servers, context.registry, self.settings.topics),
            outputs=(*outside, *topics_of(context.bootstrap_servers, None, dead)),
        )

    def run(self, context: TaskContext) -> None:
        with context.client() as client:
            try:
                _Running(self, context, client).loop()
            finally:
                self.sink.close()


@dataclass(slots=True)
class _TopicIds:
    """Ids of a sink's topics, by which it notices that one was deleted and created again. Kept over its runs. Brokers
    before 2.8 tell none."""

    now: dict[str, str] = field(default_factory=dict)
    accepted: dict[str, str] = field(default_factory=dict)  # the records of these topics were read, or may be
    noted: dict[str, str] = field(default_factory=dict)  # in the topic of positions, for the next process


@dataclass(frozen=True, slots=True)
class _Piece:
    """Decoded rows of one partition, and the offset behind them."""

    target: TopicPartition
    rows: pa.RecordBatch
    after: int


class _Running:
    def __init__(self, task: SinkTask, context: TaskContext, client: Client) -> None:
        self._sink = task.sink
        self._settings = settings = task.settings
        self._context = context
        self._client = client
        self._key = decoder("key_format", settings.key_format, context.registry)
        self._value = decoder("format", settings.format, context.registry)
        self._fields = fields_reader(settings.format, context.registry)
        self._key_fields = fields_reader(settings.key_format, context.registry)
        self._group = transactional_id(context.name)
        self._producer = client.transaction(self._group, timeout_ms=TRANSACTION_TIMEOUT_MS)
        self._topics = Topics(client, partitions=1)
        # A record that was compressed may be larger than what a topic takes.
        self._letters = DeadLetters(context, settings.dead_letter_topic, task.limit, self._topics, compression.ZSTD)
        self._ids = task.ids
        self._fetch_bytes = FETCH_BYTES
        self._first = -1
        self._read: dict[TopicPartition, int] = {}  # where to fetch next
        self._stored: dict[TopicPartition, int] = {}  # the offsets that are stored
        self._ends: dict[TopicPartition, int] = {}
        self._waiting: list[_Piece] = []
        self._waiting_since_ms = 0

    def loop(self) -> None:
        clock = self._context.clock
        self._producer.init()
        partitions = self._wait_for_partitions()
        topic_ids = self._ids.now
        self._sink.open()
        self._begin(partitions)
        look_at_ms = clock.monotonic_ms() + LOOK_FOR_PARTITIONS_MS
        commit_at_ms = clock.monotonic_ms() + COMMIT_AGAIN_MS
        while not self._context.stopping.is_set():
            self._fetch()
            if self._due():
                self._flush()
            self._report_progress()
            if clock.monotonic_ms() >= commit_at_ms:
                commit_at_ms = clock.monotonic_ms() + COMMIT_AGAIN_MS
                self._store_positions()
            if clock.monotonic_ms() >= look_at_ms:
                look_at_ms = clock.monotonic_ms() + LOOK_FOR_PARTITIONS_MS
                if self._partitions() != partitions or self._ids.now != topic_ids:
                    raise Ended("partitions were added, or a topic was created again")

    def _wait_for_partitions(self) -> list[TopicPartition]:
        """Waits until the topics exist: a source of the same file may create them in a moment. Raises `Ended` after a
        stop."""
        progress = self._context.progress
        while True:
            try:
                found = self._partitions()
            except UnknownTopicError as error:
                if progress.waits_for != str(error):
                    progress.waits_for = str(error)
                    _log.warning("%s waits: %s", self._context.name, error)
                if self._context.stopping.wait(LOOK_FOR_TOPICS_S):
                    progress.waits_for = None
                    raise Ended("stopped while it waited for a topic") from None
                continue
            progress.waits_for = None
            return found

    def _partitions(self) -> list[TopicPartition]:
        found = self._client.metadata(self._settings.topics)
        for topic in self._settings.topics:
            if topic not in found:
                raise UnknownTopicError(
                    f"topic {topic!r} does not exist; create it, or start what writes to it",
                    "UNKNOWN_TOPIC_OR_PARTITION",
                )
        ids = ((topic, found[topic].topic_id) for topic in self._settings.topics)
        self._ids.now = {topic: str(one) for topic, one in ids if one is not None}
        return [(topic, item.partition) for topic in self._settings.topics for item in found[topic].partitions]

    def _begin(self, partitions: list[TopicPartition]) -> None:
        if isinstance(self._sink, OffsetStoringSink):
            stored = dict(self._sink.offsets(partitions))
        else:
            committed = self._client.offset_fetch(self._group, partitions)
            stored = {target: item.offset for target, item in committed.items() if item is not None}
        again = self._created_again()
        self._check_topics(again & {topic for topic, _ in stored})
        # A partition without an offset is read from where a new sink begins. If others have offsets, or the sink has
        # read one of the topics, the partition is new, or brokers have forgotten its offset.
        was_read = bool(self._ids.noted.keys() & self._ids.now) and not isinstance(self._sink, OffsetStoringSink)
        begin = EARLIEST if stored or again or was_read else FROM[self._settings.start]
        missing = {target: begin for target in partitions if target not in stored}
        listed = self._client.list_offsets(missing, read_committed=True) if missing else {}
        self._stored = {target: stored[target] if target in stored else listed[target].offset for target in partitions}
        self._read = dict(self._stored)
        is_now = begin == LATEST or bool(again and missing)
        if is_now:
            # "now" is this moment, also for partitions whose first record comes after a restart.
            self._store([], dict(self._stored))
        self._ids.accepted |= self._ids.now
        if stored or is_now:
            self._note_topics()

    def _created_again(self) -> set[str]:
        """Returns the topics that are not those that were accepted."""
        ids = self._ids
        if ids.now and not ids.accepted:
            try:
                ids.noted |= read_topic_ids(self._client, self._context.name)
            except RefusedError as error:
                _log.info("%s: topic ids are known to this process only: %s", self._context.name, error)
            ids.accepted |= ids.noted
        return {topic for topic, one in ids.now.items() if ids.accepted.get(topic, one) != one}

    def _note_topics(self) -> None:
        """Keeps the ids of the topics, also for the next process if this role may write to the topic of positions.
        Called once offsets are stored: a sink that has stored none is a new one."""
        now = self._ids.noted | self._ids.now
        if now == self._ids.noted:
            return
        context, producer = self._context, self._producer
        key, value = topic_ids_record(context.name, now)
        try:
            partition = position_partition(self._client, context.name)
            record = Outgoing(POSITIONS_TOPIC, key, value, (), context.clock.wall_ms(), partition)
            batches = batches_of([record], self._topics, turn=0, compression=compression.NONE)
            with one_transaction(context.clock):
                producer.add_partitions([(POSITIONS_TOPIC, partition)])
                producer.produce(batches)
                producer.end()
            producer.renew()
        except RefusedError as error:
            _log.info("%s: topic ids are known to this process only: %s", context.name, error)
            producer.abort()
        self._ids.noted |= now

    def _check_topics(self, again: set[str]) -> None:
        """`again`: the topics that were created again and have stored offsets. Brokers forget those that they have of a
        deleted topic."""
        if again and self._settings.on_data_loss == "fail":
            # They are not noted before the restart: a process that ends now may not have told it to anybody.
            self._ids.accepted |= self._ids.now
            raise DataLossError(
                f"{self._context.name}: topic {', '.join(sorted(again))} was deleted and created again, so the stored "
                "offsets are of other records. To read it from its start, give the connector another name. `suiro "
                "connect restart` continues at the stored offsets"
            )

    def _fetch(self) -> None:
        wait_ms = FETCH_WAIT_MS
        if self._waiting:
            waited_ms = self._context.clock.monotonic_ms() - self._waiting_since_ms
            wait_ms = max(1, min(wait_ms, self._settings.linger_ms - waited_ms))
        try:
            fetched = self._client.fetch(
                self._in_turn(),
                max_bytes=max(FETCH_BYTES_IN_ALL, self._fetch_bytes),
                partition_max_bytes=self._fetch_bytes,
                max_wait_ms=wait_ms,
            )
        except OffsetOutOfRangeError as error:
            self._after_loss(error)
            return
        moved = held = 0
        for target, part in fetched.items():
            self._ends[target] = part.last_stable_offset
            start = self._read[target]
            rows = columnar.decode(
                part.data, start_offset=start, end_offset=1 << 62, aborted=part.aborted, headers=True
            )
            self._read[target] = rows.next_offset
            moved += rows.next_offset - start
            held += len(part.data)
            if rows.batch.num_rows:
                if not self._waiting:
                    self._waiting_since_ms = self._context.clock.monotonic_ms()
                self._waiting += self._pieces(target, rows)
        if held and not moved:
            # There is a batch that is larger than the fetch.
            self._fetch_bytes = min(self._fetch_bytes * 2, LARGEST_FETCH_BYTES)

    def _in_turn(self) -> dict[TopicPartition, int]:
        """Returns where to fetch, with another partition first each time. A broker returns a batch that is larger than
        the limit only for the first partition that has records."""
        self._first = (self._first + 1) % len(self._read)
        places = list(self._read.items())
        return dict(places[self._first :] + places[: self._first])

    def _after_loss(self, error: OffsetOutOfRangeError) -> None:
        name = self._context.name
        if error.offset > error.log_end_offset:
            raise DataLossError(
                f"{name}: {error}. The topic was created again, or lost its last records. To read it from its start, "
                "give the connector another name"
            ) from error
        if self._settings.on_data_loss == "fail":
            raise DataLossError(
                f'{name}: {error}. Retention removed records that were not stored yet; on_data_loss = "continue" '
                "continues after the removed records"
            ) from error
        self._read[error.topic, error.partition] = error.log_start_offset

    def _pieces(self, target: TopicPartition, rows: columnar.DecodedRange) -> Iterator[_Piece]:
        size = self._settings.max_records
        for first in range(0, rows.batch.num_rows, size):
            chunk = rows.batch.slice(first, size)
            last = first + size >= rows.batch.num_rows
            yield _Piece(target, chunk, rows.next_offset if last else chunk.column("offset")[-1].as_py() + 1)

    def _due(self) -> bool:
        if sum(piece.rows.num_rows for piece in self._waiting) >= self._settings.max_records:
            return True
        if sum(piece.rows.nbytes for piece in self._waiting) >= GATHER_BYTES:
            return True
        waited_ms = self._context.clock.monotonic_ms() - self._waiting_since_ms
        return bool(self._waiting) and waited_ms >= self._settings.linger_ms

    def _flush(self) -> None:
        while self._waiting:
            batch: list[_Piece] = []
            count = 0
            for piece in self._waiting:
                if batch and count + piece.rows.num_rows > self._settings.max_records:
                    break
                batch.append(piece)
                count += piece.rows.num_rows
            self._put(batch)
            del self._waiting[: len(batch)]
            if self._context.stopping.is_set():
                return  # the positions of the other pieces are not committed

    def _put(self, pieces: list[_Piece]) -> None:
        began_ms = self._context.clock.wall_ms()
        records = [record for piece in pieces for record in self._decoded(piece)]
        self._store(records, {piece.target: piece.after for piece in pieces})  # the last of each partition
        self._note_topics()
        progress = self._context.progress
        progress.records += sum(piece.rows.num_rows for piece in pieces)
        progress.commits += 1
        traces = self._context.traces
        if traces is not None:
            name, ended_ms = self._context.name, self._context.clock.wall_ms()
            traces.export(
                sink_spans(records, traces, name=name, group=self._group, began_ms=began_ms, ended_ms=ended_ms)
            )

    def _store(self, records: list[SinkRecord], next_offsets: dict[TopicPartition, int]) -> None:
        batch = SinkBatch(
            records=records,
            first_offsets={target: self._stored[target] for target in next_offsets},
            next_offsets=next_offsets,
            reject=self._reject,
            settle=self._settle,
        )
        self._context.reach("before put")
        self._sink.put(batch)
        self._context.reach("after put")
        if isinstance(self._sink, OffsetStoringSink):
            self._settle()  # in case the sink did not call it
        else:
            self._commit(next_offsets)
        self._stored |= next_offsets

    def _store_positions(self) -> None:
        """Stores the offsets behind records that are no part of a batch. Retention may remove such records, too."""
        positions = self._positions()
        if not isinstance(self._sink, OffsetStoringSink):
            self._commit(positions)
        elif behind := {target: at for target, at in positions.items() if at > self._stored[target]}:
            self._store([], behind)
        self._note_topics()

    def _decoded(self, piece: _Piece) -> Iterator[SinkRecord]:
        topic, partition = piece.target
        rows = piece.rows
        columns = (rows.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value", "headers"))
        for offset, timestamp_ms, raw_key, raw_value, headers in zip(*columns, strict=True):
            key: Any = None
            value: Any = None
            fields = key_fields = None
            part, reason = "key", ""
            try:
                key = self._key(raw_key)
                if self._key_fields is not None and raw_key is not None:
                    key_fields = self._key_fields(raw_key)
                part = "value"
                value = self._value(raw_value)
                if self._fields is not None and raw_value is not None:
                    fields = self._fields(raw_value)
            except (ValueError, RecursionError) as error:
                reason = f"{part} cannot be decoded: {error}"
            record = SinkRecord(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp_ms=timestamp_ms,
                key=key,
                value=value,
                headers=tuple((item["key"], item["value"]) for item in headers or ()),
                raw_key=raw_key,
                raw_value=raw_value,
                fields=None if fields is None else fields.types,
                names=_both(fields, key_fields, "names"),
                json_texts=_both(fields, key_fields, "json_texts"),
            )
            if reason:
                self._reject(record, reason)
            else:
                yield record

    def _commit(self, next_offsets: dict[TopicPartition, int]) -> None:
        producer = self._producer
        with one_transaction(self._context.clock):
            producer.add_offsets(self._group)
            self._letters.produce(producer)
            producer.commit_offsets(self._group, {target: (at, "") for target, at in next_offsets.items()})
            producer.end()
        producer.renew()

    def _reject(self, record: SinkRecord, reason: str) -> None:
        reason = short_reason(reason)
        if self._settings.dead_letter_topic is None:
            raise BadRecordError(
                f"{self._context.name}: the record {record.place} cannot be taken: {reason}. Fix the writer and "
                "skip it, or set dead_letter_topic"
            )
        about = {
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "connector.name": self._context.name,
            "exception.message": reason,
        }
        headers = tuple((ERROR_PREFIX + name, text.encode()) for name, text in about.items())
        self._letters.add(record.raw_key, record.raw_value, record.headers, headers, record.timestamp_ms)
        self._context.progress.rejected += 1

    def _settle(self) -> None:
        if self._letters.waiting:
            with one_transaction(self._context.clock):
                self._letters.produce(self._producer)
                self._producer.end()
            self._producer.renew()

    def _positions(self) -> dict[TopicPartition, int]:
        """Returns the offsets behind everything that was stored, and behind aborted records that follow."""
        waiting = {piece.target for piece in self._waiting}
        return {target: self._stored[target] if target in waiting else self._read[target] for target in self._read}

    def _report_progress(self) -> None:
        progress = self._context.progress
        at = self._positions()
        progress.offsets = {f"{topic}-{partition}": offset for (topic, partition), offset in at.items()}
        progress.lag = sum(max(0, end - at[target]) for target, end in self._ends.items())


def _both(fields: Fields | None, key_fields: Fields | None, what: str) -> dict[str, Any]:
    return {
        name: one for found in (fields, key_fields) if found is not None for name, one in getattr(found, what).items()
    }
