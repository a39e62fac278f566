"""The output of a task: encodes and stages records for topics, and packs records for other tasks.

Records are collected as columns. `Outputs` is what a task forwards blocks into; one serves all tasks of one Spark task
that share an input partition. No record of a sink ever reaches the JVM: what leaves is one row that says where the
encoded records are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suiro.foundation.parts import in_parts
from suiro.protocol import columnar
from suiro.protocol.murmur2 import partition_for_key
from suiro.spark import StageOfTask
from suiro.streams.blocks import Block, Parcel
from suiro.streams.records import Headers, Origin, Record
from suiro.streams.sources import DeadLetter, letter_of
from suiro.streams.topology.nodes import Node, Repartition, Sink
from suiro.streams.vectorised.by_rules import ColumnContext
from suiro.streams.vectorised.columnar_aggregate import ColumnarAggregate
from suiro.streams.vectorised.columns import headers_array, headers_in
from suiro.streams.vectorised.emission import Emission, changelog_columns
from suiro.streams_spark.columnar_forms import columnar_forms_of
from suiro.streams_spark.condition import Condition
from suiro.streams_spark.encoding import Failing, encoded, encoded_for, parcel_of
from suiro.streams_spark.program import Program
from suiro.streams_spark.record_readers import CarriedReader, RecordReader, records_of
from suiro.streams_spark.reports import Counts, pack_report
from suiro.streams_spark.shuffle_message import STAGED, InputPartition, Row, ShuffleMessage
from suiro.streams_spark.state_log import Changes, pieces_of

ROWS_MAX = 100_000
"""Records of one topic or repartition that wait in memory; then they are encoded."""
BYTES_MAX = 64 * 1024 * 1024
"""Of their keys and values. A column of Arrow takes 2 GiB."""

_SPARK_MS_MAX = ((1 << 63) - 1) // 1000


class Topics:
    """Records for topics of the log, staged in a Spark task."""

    def __init__(self, stage: StageOfTask) -> None:
        self._stage = stage
        self.is_replayed = False
        """Records are left out: they are there already, or are written when the rebuild ends (`run_task`)."""
        self.clock: int | None = None
        """The wall clock of the micro-batch, for those that get records from here."""
        self._waiting: dict[str, _Waiting] = {}
        self.dropped: Counter[str] = Counter()
        """Records that the task left out, by reason."""
        self.rows: Counter[str] = Counter()
        """Rows that came to nodes, by node."""

    def drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] += count

    def note_rows(self, counts: Mapping[str, int]) -> None:
        self.rows.update(counts)

    def add_parcel(self, parcel: Parcel) -> None:
        topic = parcel.topic
        if len(parcel) == 0 or self.is_replayed:
            return
        waiting = self._waiting.setdefault(topic, _Waiting())
        partitions = parcel.partitions or repeat(None, len(parcel))
        waiting.add(parcel.keys, parcel.values, parcel.timestamps, partitions, parcel.headers)
        if waiting.is_full:
            self._stage_all(topic)

    def _stage_all(self, topic: str) -> None:
        for columns in self._waiting.pop(topic).columns():
            self._stage.add(_topic_batch(topic, **columns))

    def add_columns(
        self,
        topic: str,
        keys: pa.Array,
        values: pa.Array,
        timestamps: pa.Array,
        *,
        headers: pa.Array | None = None,
        partitions: pa.Array | None = None,
    ) -> None:
        """Stages whole columns: binary, binary, int64 ms, int32 (null: the key decides)."""
        if len(keys) == 0 or self.is_replayed:
            return
        if topic in self._waiting:
            self._stage_all(topic)
        if partitions is None:
            partitions = pa.nulls(len(keys), pa.int32())
        self._stage.add(_topic_batch(topic, keys, values, timestamps, partitions, headers))

    def partition_count(self, topic: str) -> int:
        return self._stage.partition_count(topic)

    def waits_on(self) -> bool:
        """Whether a wait for the log goes on."""
        return self._stage.waits_on()

    def finish(self) -> Iterator[Row]:
        """Stages the rest, and returns the task's reports to the driver."""
        for topic in list(self._waiting):
            self._stage_all(topic)
        message = self._stage.finish()
        if message is not None:
            yield STAGED, 0, pack_report(message)
        for found in (Counts("dropped", self.dropped), Counts("rows", self.rows)):
            if found.counts:
                yield STAGED, 0, pack_report(found)


class Outputs:
    """`suiro.streams.blocks.BlockOutputs` for one input partition.

    `input_times`: the times of this input partition at each repartition, as the micro-batch before left them.
    """

    def __init__(
        self,
        program: Program,
        topics: Topics,
        input_partition: InputPartition,
        input_times: Mapping[str, int] | None = None,
    ) -> None:
        self.program = program
        self.plan = program.plan
        self.topics = topics
        self.input_partition = input_partition
        self._carriers: dict[str, _Carrier] = {}
        self._rows: list[Row] = []
        self.input_times: dict[str, int] = dict(input_times or {})

    # Called by tasks

    def sink(self, node: Node, block: Block, failed: Failing) -> list[Parcel]:
        assert isinstance(node.operator, Sink)
        return encoded_for(node.operator, block, failed, self.topics.partition_count)

    def repartition(self, node: Node, block: Block, failed: Failing) -> None:
        self._carrier(node).add(block, failed)

    def send(self, parcel: Parcel) -> None:
        self.topics.add_parcel(parcel)

    def emit_columns(self, emission: Emission) -> None:
        """Sends the records of a columnar operator to a topic, or on their way through a repartition."""
        operator = emission.node.operator
        self.topics.note_rows({emission.node.name: len(emission)})
        if emission.null_keys:
            self.topics.drop("null key", emission.null_keys)
        if isinstance(operator, Repartition):
            self._carrier(emission.node).add_columns(emission)
            return
        assert isinstance(operator, Sink)
        assert isinstance(operator.topic, str)
        partitions = None
        if emission.partition_keys is not None:
            count = self.topics.partition_count(operator.topic)
            partitions = pa.array(columnar.partitions_of(emission.partition_keys, count))
        self.topics.add_columns(
            operator.topic,
            emission.keys,
            emission.values,
            pa.array(emission.timestamps),
            headers=emission.headers,
            partitions=partitions,
        )

    def letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> Parcel:
        return parcel_of(letter_of(topic, record, origin, error))

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None:
        self.send(self.letter(topic, record, origin, error))

    def add_dead_letter(self, letter: DeadLetter) -> None:
        self.send(parcel_of(letter))

    def changelog(self, store: str, changes: Changes, now: int) -> None:
        """One record for each changed row, its timestamp the row's. In Kafka Streams' format, but for versioned
        stores: there each version is a row of its own, so that any order and any compaction gives the same store."""
        kind = self.plan.topology.store(store).kind
        for keys, rows in pieces_of(changes):
            values, timestamps = changelog_columns(kind, keys, rows, now)
            partitions = pa.array(np.full(len(keys), self.input_partition.partition, np.int32))
            topic = self.plan.changelog(store)
            self.topics.add_columns(topic, keys, values, pa.array(timestamps), partitions=partitions)

    # Called by runners

    def finish(self, cuts: tuple[Node, ...], condition: Condition, *, tells: bool) -> Iterator[Row]:
        """Messages for other tasks. `cuts`: repartitions that this input partition feeds. `tells`: the input partition
        was not running or is not running now, so tasks that get no record must know it, too."""
        for carrier in self._carriers.values():
            yield from carrier.take()
        for node in cuts:
            reader = self.plan.readers.get(node.name)
            if reader is None:
                continue
            sub = self.plan.subs[reader]
            if tells or sub.follows_time:
                tick = ShuffleMessage(
                    kind="tick",
                    input_partition=self.input_partition,
                    input=node.name,
                    sequence=1 << 30,
                    behind=condition is Condition.IDLING,
                    time=self.input_times.get(node.name, -1),
                    clock=self.topics.clock,
                    replayed=self.topics.is_replayed,
                    paused=-1 if condition is Condition.RESTORING else None,
                ).pack()
                for partition in range(sub.tasks):
                    yield reader, partition, tick

    def ready_rows(self) -> Iterator[Row]:
        """Messages that are large enough to go at once."""
        for carrier in self._carriers.values():
            if carrier.is_full:
                yield from carrier.take()

    def combined(
        self, columnar: ColumnarAggregate, columns: pa.RecordBatch, place: InputPartition, reader: RecordReader
    ) -> pa.RecordBatch:
        """Combines the records of a place, or of a repartition's topic, for the tasks of this columnar form."""
        self.topics.note_rows({columnar.source.name: columns.num_rows})
        context = ColumnContext(place.partition, self.dead_letter, self.topics.dropped)
        return columnar.prepare(columns, place.group, partial(records_of, reader), context)

    def _carrier(self, node: Node) -> _Carrier:
        found = self._carriers.get(node.name)
        if found is None:
            found = self._carriers[node.name] = _Carrier(self, node)
        return found


class _Waiting:
    """Single records that wait to become columns. `times`: those of their input partition, for carried records."""

    __slots__ = ("headers", "keys", "partitions", "size", "times", "timestamps", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.times: list[int] = []
        self.partitions: list[int | None] = []
        self.headers: dict[int, Headers] = {}
        self.size = 0

    def add(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        partitions: Iterable[int | None],
        headers: Sequence[Headers] | None,
        times: Sequence[int] = (),
    ) -> None:
        first = len(self.keys)
        self.keys += keys
        self.values += values
        self.timestamps += timestamps
        self.times += times
        self.partitions += partitions
        if headers is not None:
            self.headers.update((first + row, own) for row, own in enumerate(headers) if own)
        self.size += _size(keys) + _size(values)

    @property
    def is_full(self) -> bool:
        return len(self.keys) >= ROWS_MAX or self.size >= BYTES_MAX

    def columns(self) -> Iterator[dict[str, pa.Array]]:
        """All of them, in pieces that are not too large for a column."""
        for rows in _pieces(self.keys, self.values, self.size):
            found = {
                "key": pa.array(self.keys[rows], pa.binary()),
                "value": pa.array(self.values[rows], pa.binary()),
                "timestamp": pa.array(self.timestamps[rows], pa.int64()),
                "partition": pa.array(self.partitions[rows], pa.int32()),
            }
            if self.times:
                found["time"] = pa.array(self.times[rows], pa.int64())
            if self.headers:
                found["headers"] = headers_array([self.headers.get(row, ()) for row in range(rows.start, rows.stop)])
            yield found


def _size(items: Iterable[bytes | None]) -> int:
    return sum(map(len, filter(None, items)))


def _pieces(keys: Sequence[bytes | None], values: Sequence[bytes | None], size: int) -> Iterator[slice]:
    """Rows of one column each. `size`: of all."""
    if size <= BYTES_MAX and len(keys) <= ROWS_MAX:
        yield slice(0, len(keys))
        return

    def size_of(row: int) -> int:
        return len(keys[row] or b"") + len(values[row] or b"")

    for rows in in_parts(range(len(keys)), size_of, max_size=BYTES_MAX, max_items=ROWS_MAX):
        yield slice(rows[0], rows[-1] + 1)


def _topic_batch(
    topic: str,
    key: pa.Array,
    value: pa.Array,
    timestamp: pa.Array,
    partition: pa.Array,
    headers: pa.Array | None = None,
) -> pa.RecordBatch:
    """In the columns that `suiro.spark` encodes."""
    columns = {
        "key": key,
        "value": value,
        "topic": pa.repeat(pa.scalar(topic, pa.string()), len(key)),
        "partition": partition,
        "timestamp": _stamps(timestamp),
    }
    if headers is not None:
        columns["headers"] = headers
    return pa.RecordBatch.from_pydict(columns)


def _stamps(timestamps: pa.Array) -> pa.Array:
    """As Spark has them; those it cannot hold, after the year 294,000, are whole ms."""
    latest = pc.max(timestamps).as_py()
    if latest is not None and latest > _SPARK_MS_MAX:
        return timestamps
    return pc.multiply(timestamps, 1000).cast(pa.timestamp("us", tz="UTC"))


class _Carrier:
    """Records of one input partition on their way through one `Repartition`."""

    def __init__(self, outputs: Outputs, node: Node) -> None:
        assert isinstance(node.operator, Repartition)
        plan = outputs.plan
        self._outputs = outputs
        self._topics = outputs.topics
        self._cut = node.operator
        self._name = node.name
        self._topic = plan.repartition_topic(node.operator)
        reader = plan.readers.get(node.name)
        self._reader = None if reader is None else plan.subs[reader]
        self._columnar = None if reader is None else columnar_forms_of(outputs.program).combining(reader)
        self._tasks = plan.partitions_of(node)
        self._time = outputs.input_times.get(node.name, -1)
        self._ignored = plan.ignoring_nulls.get(node.name, set())
        self._sequence = 0
        self._waiting = _Waiting()
        self._ready: list[tuple[pa.RecordBatch, np.ndarray]] = []

    @property
    def is_full(self) -> bool:
        return len(self._waiting.keys) >= ROWS_MAX or bool(self._ready)

    def add_columns(self, emission: Emission) -> None:
        if len(emission) == 0:
            return
        self._gather()
        counted = emission.timestamps
        for name, column in (("key", emission.keys), ("value", emission.values)):
            if name in self._ignored:
                counted = np.where(column.is_valid().to_numpy(zero_copy_only=False), counted, -1)
        times = np.maximum(np.maximum.accumulate(counted), self._time)
        self._reach(int(times[-1]))
        columns = {
            "key": emission.keys,
            "value": emission.values,
            "timestamp": pa.array(emission.timestamps),
            "time": pa.array(times),
        }
        if emission.headers is not None:
            columns["headers"] = emission.headers
        places = columnar.partitions_of(emission.keys, self._tasks)
        if emission.keys.null_count:
            for row in np.flatnonzero(places < 0).tolist():
                places[row] = _anywhere(None, emission.values[row].as_py(), self._tasks)
        self._ready.append((pa.RecordBatch.from_pydict(columns), places))

    def add(self, block: Block, failed: Failing) -> None:
        cut, topic = self._cut, self._topic
        if not cut.keeps_null_keys and None in block.keys:
            kept, whole = [row for row, key in enumerate(block.keys) if key is not None], failed
            self._topics.drop("null key", len(block) - len(kept))
            block = block.made(kept)

            def failed(row: int, error: Exception) -> None:
                whole(kept[row], error)

        parcel = encoded(cut, topic, block, None, failed, lambda topic: self._tasks)
        keys, values = parcel.keys, parcel.values
        if not keys:
            return
        chosen = [-1] * len(keys)
        if parcel.partitions is not None or None in keys:
            chosen = [
                _anywhere(key, value, self._tasks) if partition is None else partition
                for key, value, partition in zip(keys, values, parcel.partitions or repeat(None), strict=False)
            ]
        counted = parcel.timestamps
        for name, column in (("key", keys), ("value", values)):
            if name in self._ignored:
                counted = [-1 if item is None else time for item, time in zip(column, counted, strict=True)]
        times = list(accumulate(counted, max, initial=self._time))
        self._waiting.add(keys, values, parcel.timestamps, chosen, parcel.headers, times[1:])
        self._reach(times[-1])
        if self._waiting.is_full:
            self._gather()

    def _reach(self, time: int) -> None:
        if time > self._time:
            self._time = self._outputs.input_times[self._name] = time

    def take(self) -> Iterator[Row]:
        self._gather()
        ready, self._ready = self._ready, []
        for records, places in ready:
            if self._cut.asked_for:
                self._topics.add_columns(
                    self._topic,
                    *(records.column(name) for name in ("key", "value", "timestamp")),
                    headers=headers_in(records),
                    partitions=pa.array(places),
                )
            if self._reader is not None:
                yield from self._messages(records, places)

    def _gather(self) -> None:
        """Single records become columns."""
        if not self._waiting.keys:
            return
        for columns in self._waiting.columns():
            chosen = columns.pop("partition").to_numpy()
            places = np.where(chosen < 0, columnar.partitions_of(columns["key"], self._tasks), chosen)
            self._ready.append((pa.RecordBatch.from_pydict(columns), places))
        self._waiting = _Waiting()

    def _messages(self, records: pa.RecordBatch, places: np.ndarray) -> Iterator[Row]:
        assert self._reader is not None
        for partition in np.unique(places).tolist():
            wanted = np.flatnonzero(places == partition)
            part = records if len(wanted) == records.num_rows else records.take(pa.array(wanted))
            message = ShuffleMessage(
                kind="carried",
                input_partition=self._outputs.input_partition,
                input=self._name,
                sequence=self._sequence,
                clock=self._topics.clock,
                replayed=self._topics.is_replayed,
                columns=part,
            )
            if self._columnar is not None:
                reader = CarriedReader(self._cut, self._topic, partition)
                payload = self._outputs.combined(self._columnar, part, InputPartition(self._topic, partition), reader)
                message = replace(message, kind="combined", columns=payload)
            yield self._reader.number, partition, message.pack()
        self._sequence += 1


def _anywhere(key: bytes | None, value: bytes | None, count: int) -> int:
    """Returns -1 if the key decides. A record without a key may go anywhere, but a repetition must send it to the same
    partition, so its value decides."""
    return -1 if key is not None else partition_for_key(value or b"", count)
