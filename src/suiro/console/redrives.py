"""Redrives: sends dead letters back to their source topics, and keeps a journal.

**A redrive sends each record exactly once**, whichever process is killed. One transaction has the copies, a line in
the journal topic, and the offsets of the finished dead letters, committed for the redrive's group. The next redrive
starts with the same transactional id: the coordinator first completes or aborts an open transaction, then the offsets
of the group tell what remains. Of two concurrent redrives, the later one fences the earlier one.

A dead letter is sent to the topic and partition that its headers name. In place of one that an operator got, which its
source may not be able to read, the record of the source is sent again. Anyone who may write to the dead-letter topic
can write these headers. So Kafka's internal topics are never written to, and the plan names every target topic.
"""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import replace

from suiro.client import Client, TopicInfo, TransactionalBatch, TransactionalProducer
from suiro.clock import Clock, SystemClock
from suiro.console.dead_letters import (
    JOURNAL_TOPIC,
    METADATA_CHARS_MAX,
    TEXT_CHARS,
    Bound,
    DeadLetter,
    Done,
    Letters,
    Origin,
    Seen,
    Selection,
    before_error,
    dead_letter_of,
    done_of,
    journal_lines,
    redrive_group,
)
from suiro.console.records import LogRecord, read_records, records_at, size_of
from suiro.console.text import iso_time
from suiro.console.topics import create_topic, require_partition, topic_info
from suiro.errors import FatalError, RefusedError, SuiroError, TransientError, UsageError
from suiro.foundation.nesting import parse_json
from suiro.foundation.parts import in_parts
from suiro.foundation.types import TopicPartition
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.records import Record, encode_batch

TRANSACTION_RECORDS = 500
TRANSACTION_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 512 * 1024
"""It is smaller than max.message.bytes of most topics."""
TOPICS_MAX = 1_000
"""The most topics that the dead letters of one redrive may name, existing or not: each costs a request."""
REASONS_MAX = 100
"""The most reasons for refused dead letters. Those with further reasons are counted together."""
LOOK_BACK = 100
"""The number of offsets before a chosen place that are read with it, so that transaction markers in between are done
with it and need no ranges."""
HISTORY_LINES = 200
LETTERS_TOGETHER = 1_000
LETTERS_BYTES = 16 * 1024 * 1024
"""The most dead letters whose source records are looked for together, and their bytes."""
ORIGINALS_BYTES = 32 * 1024 * 1024
"""The most bytes of source records that are held. One more may be."""

T = TypeVar("T")
_GONE = "its original record is not in the log any more"
Found = tuple[TopicPartition, LogRecord | None] | str
"""The target of a dead letter and what is sent there, or why nothing is. None: its record was sent for another one."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """The plan or the result of a redrive. `targets` is {(topic, partition): records}. `refused` is {reason: records}
    of those that stay. Without `complete`, only the newest records were read."""

    done_before: int = 0
    targets: dict[TopicPartition, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    complete: bool = True

    @property
    def records(self) -> int:
        return sum(self.targets.values())

    def count(self, found: Found) -> None:
        if not isinstance(found, str):
            self.targets[found[0]] = self.targets.get(found[0], 0) + 1
            return
        if found not in self.refused and len(self.refused) >= REASONS_MAX:
            found = "other reasons"
        self.refused[found] = self.refused.get(found, 0) + 1


class _Targets:
    """Finds the targets of dead letters among the current topics. The source records of near dead letters are read
    together."""

    def __init__(self, client: Client, letters: Letters, *, by_key: bool, only: frozenset[str] | None = None) -> None:
        self._client = client
        self._letters = letters
        self._by_key = by_key
        self._only = only
        self._topics: dict[str, TopicInfo | str] = {}
        self._sent: _Sent | None = None
        self._originals: dict[Origin, LogRecord | str] = {}
        self._held = 0

    def of_each(self, letters: Iterable[tuple[DeadLetter, T]]) -> Iterator[tuple[DeadLetter, T, Found]]:
        """Yields each dead letter with what came with it, and its target."""

        def size(one: tuple[DeadLetter, T]) -> int:
            return size_of(one[0].record)

        try:
            for part in in_parts(letters, size, max_size=LETTERS_BYTES, max_items=LETTERS_TOGETHER):
                self._originals, self._held = {}, 0
                for at, (letter, more) in enumerate(part):
                    yield letter, more, self._of(letter, (one for one, _ in islice(part, at, None)))
        except sqlite3.Error as error:
            raise TransientError(f"a temporary file cannot hold what was sent already: {error}") from error
        finally:
            if self._sent is not None:
                self._sent.close()

    def _of(self, letter: DeadLetter, following: Iterable[DeadLetter]) -> Found:
        """`following`: this one and the next ones."""
        if letter.refusal is not None or letter.origin is None:
            return letter.refusal or ""
        topic, partition, _ = letter.origin
        if self._only is not None and topic not in self._only:
            return f"topic {topic} was not agreed on"
        if topic not in self._topics:
            if len(self._topics) >= TOPICS_MAX:
                return f"more than {TOPICS_MAX} topics are named; choose by the topic that they come from"
            self._topics[topic] = self._look_at(topic)
        info = self._topics[topic]
        if isinstance(info, str):
            return info
        if info.internal:
            return f"topic {topic} is internal to Kafka"
        count = len(info.partitions)
        record: LogRecord | str | None = letter.record
        if letter.of_operator:
            record = _GONE if partition >= count else self._original(letter.origin, letter.origin_timestamp, following)
        if isinstance(record, str):
            return record
        if self._by_key and record is not None and record.key is not None:
            return (topic, partition_for_key(record.key, count)), record
        if partition >= count:
            return f"topic {topic} has {count} partitions, and it comes from {partition}; --by-key finds another"
        return (topic, partition), record

    def _original(self, origin: Origin, timestamp: str, following: Iterable[DeadLetter]) -> LogRecord | str | None:
        """Returns the record of the source, or why it cannot be sent, or None if it was sent."""
        if self._sent is None:
            self._sent = _Sent()
            done = (one for one, is_done in self._letters if is_done and one.of_operator)
            self._sent.add((one.origin, one.origin_timestamp) for one in done if one.origin is not None)
        if self._sent.has(origin, timestamp):
            return None
        if origin not in self._originals:
            near = {one.origin for one in following if one.of_operator and one.origin is not None}
            self._read(origin, {one for one in near if one[:2] == origin[:2]})
        record = self._originals[origin]
        if isinstance(record, str):
            return record
        if str(record.timestamp) != timestamp:
            return _GONE
        self._sent.add([(origin, timestamp)])
        return record

    def _read(self, first: Origin, wanted: set[Origin]) -> None:
        """Reads a source record, then others of its partition that are wanted, as many as may be held."""
        if self._held > ORIGINALS_BYTES:
            self._originals, self._held = {}, 0
        offsets = {one.offset for one in wanted if one.offset is not None}
        before = {offset for offset in offsets if offset < (first.offset or 0)}
        try:
            for part in (offsets - before, before):
                for offset, found in records_at(self._client, first.topic, first.partition, part):
                    said = f"its original record: {found}" if isinstance(found, FatalError) else found or _GONE
                    self._originals[first._replace(offset=offset)] = said
                    self._held += 0 if isinstance(said, str) else size_of(said)
                    if self._held > ORIGINALS_BYTES:
                        return
        except RefusedError as error:
            self._originals |= dict.fromkeys(wanted, f"its original record: {error}")

    def _look_at(self, topic: str) -> TopicInfo | str:
        """Returns the topic, or why it is no target. A forged name must not block the other dead letters."""
        try:
            return self._client.metadata([topic]).get(topic) or f"topic {topic} does not exist"
        except RefusedError as error:
            return f"topic {topic}: {error}"


class _Sent:
    """The source records that were sent. A topic that was made again has others at the same offsets, with other
    timestamps. There may be millions, so SQLite holds them in a temporary file."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect("", check_same_thread=False)
        columns = "topic, partition, position, timestamp"
        self._rows.execute(f"create table sent ({columns}, primary key ({columns})) without rowid")
        self.close = self._rows.close

    def add(self, sent: Iterable[tuple[Origin, str]]) -> None:
        rows = ((*origin, timestamp) for origin, timestamp in sent)
        self._rows.executemany("insert or ignore into sent values (?, ?, ?, ?)", rows)

    def has(self, origin: Origin, timestamp: str) -> bool:
        where = "topic = ? and partition = ? and position = ? and timestamp = ?"
        return self._rows.execute(f"select 1 from sent where {where}", (*origin, timestamp)).fetchone() is not None


def plan_redrive(
    client: Client,
    topic: str,
    selection: Selection,
    *,
    group: str | None = None,
    by_key: bool = False,
    bound: Bound | None = None,
    seen: Seen = lambda letter: letter,
) -> Plan:
    """Returns what `redrive` would do now. Only chosen places are read; of a whole topic, `bound` limits the
    records."""
    group = group or redrive_group(topic)
    targets = _Targets(client, Letters(client, topic, group=group, bound=bound), by_key=by_key)
    plan = Plan()
    letters = Letters(client, topic, group=group, bound=bound, seen=seen)
    found: Iterable[tuple[DeadLetter, bool]] = letters
    if selection.places:
        done = done_of(client, topic, group, require_stable=False)
        near = _chosen(client, topic, done, selection, plan)
        found = ((seen(dead_letter_of(record)), False) for record, _ in near)

    def waiting() -> Iterator[tuple[DeadLetter, None]]:
        for letter, is_done in found:
            if selection.chooses(letter):
                plan.done_before += is_done
                if not is_done:
                    yield letter, None

    for _, _, target in targets.of_each(waiting()):
        plan.count(target)
    plan.complete = letters.complete
    return plan


def _chosen(
    client: Client, topic: str, done: Mapping[int, Done], selection: Selection, plan: Plan
) -> Iterator[tuple[LogRecord, int]]:
    """Yields (record, start) of all that is not done, and for chosen places also of records near them. The offsets from
    start to the record are done with it, because some have no record, such as transaction markers."""
    for partition, reads in _reads(topic, done, selection, plan).items():
        for first, last in reads:
            following = first
            for record in read_records(client, topic, start={partition: first}, partitions=[partition]):
                if last is not None and record.offset > last:
                    break
                begins, following = following, record.offset + 1
                if not done[partition].has(record.offset):
                    yield record, begins


def _reads(
    topic: str, done: Mapping[int, Done], selection: Selection, plan: Plan
) -> dict[int, list[tuple[int, int | None]]]:
    """Returns the offsets to read in each partition, as (first, last); last None: to the end."""
    if not selection.places:
        return {partition: [(one.position, None)] for partition, one in sorted(done.items())}
    reads: dict[int, list[tuple[int, int | None]]] = {}
    for partition, offset in sorted(selection.places):
        require_partition(topic, partition, len(done))
        if done[partition].has(offset):
            plan.done_before += 1
            continue
        mine = reads.setdefault(partition, [])
        first = max(done[partition].position, offset - LOOK_BACK)
        if mine and (mine[-1][1] or 0) >= first - 1:
            mine[-1] = (mine[-1][0], offset)
        else:
            mine.append((first, offset))
    return reads


def redrive(
    client: Client,
    topic: str,
    selection: Selection,
    *,
    by: str,
    group: str | None = None,
    by_key: bool = False,
    only_to: frozenset[str] | None = None,
    transaction_records: int = TRANSACTION_RECORDS,
    progress: Callable[[int], None] = lambda records: None,
    clock: Clock | None = None,
    seen: Seen = lambda letter: letter,
) -> Plan:
    """Sends the chosen dead letters back, `transaction_records` in each transaction. Returns what was done.

    `by` is the user, for the journal. `only_to` has the topics that the user agreed to; a later dead letter that names
    another stays. `progress` is called with the total after each transaction. After an error, committed transactions
    are done, and the next call continues after them.
    """
    group = group or redrive_group(topic)
    # Whoever may write to the journal need not have the right to create it.
    create_topic(client, JOURNAL_TOPIC, partitions=1, configs={"retention.ms": "-1"}, if_not_exists=True)
    producer = client.transaction(f"{group}-{topic}")
    producer.init()  # an open transaction is completed or aborted when this returns
    work = _Redrive(client, producer, topic, group, by, clock or SystemClock())
    targets = _Targets(client, Letters(client, topic, group=group), by_key=by_key, only=only_to)
    plan = Plan()
    near = ((dead_letter_of(record), first) for record, first in _chosen(client, topic, work.done, selection, plan))
    chosen = ((letter, first) for letter, first in near if selection.chooses(seen(letter)))
    for letter, first, target in targets.of_each(chosen):
        plan.count(target)
        if isinstance(target, str):
            continue
        work.take(letter, *target, first)
        if sum(map(len, work.taken.values())) >= transaction_records or work.size >= TRANSACTION_BYTES:
            work.commit()
            progress(work.total)
    if work.taken:
        work.commit()
        progress(work.total)
    if plan.targets:
        producer.init()  # the markers of the last transaction are written then, so readers see its records
    return plan


class _Redrive:
    """The transaction that is being filled, and the dead letters that are done when it commits."""

    def __init__(
        self, client: Client, producer: TransactionalProducer, topic: str, group: str, by: str, clock: Clock
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._group = group
        self._by = by
        self._clock = clock
        self._topic_id = str(topic_info(client, topic).topic_id)
        self.done = done_of(client, topic, group, require_stable=True)
        self.total = 0
        self.records = 0
        self.size = 0
        self._outgoing: dict[TopicPartition, list[LogRecord]] = {}
        self.taken: dict[int, list[tuple[int, int]]] = {}
        self._is_renewed = True

    def take(self, letter: DeadLetter, target: TopicPartition, sent: LogRecord | None, first: int) -> None:
        self.taken.setdefault(letter.record.partition, []).append((first, letter.record.offset + 1))
        if sent is None:
            return
        if not letter.of_operator:
            sent = replace(sent, headers=before_error(sent.headers))
        self._outgoing.setdefault(target, []).append(sent)
        self.records += 1
        self.size += size_of(sent)

    def commit(self) -> None:
        offsets = {}
        for partition, taken in self.taken.items():
            done = self.done[partition]
            for first, end in taken:
                done.add(first, end)
            metadata = done.metadata()
            if len(metadata) > METADATA_CHARS_MAX:
                raise UsageError(
                    f"too many single dead letters of {self._topic}-{partition} are chosen, {len(done.ranges)} ranges: "
                    "redrive those in between as well, or choose by --reason with another --group"
                )
            offsets[self._topic, partition] = (done.position, metadata)
        done_then = {str(partition): at for (_, partition), at in offsets.items()}
        producer, journal = self._producer, (JOURNAL_TOPIC, 0)
        if not self._is_renewed:
            producer.renew()
        self._is_renewed = False
        try:
            producer.add_partitions([*self._outgoing, journal])
            producer.add_offsets(self._group)
            producer.produce(self._batches(done_then))
            producer.commit_offsets(self._group, offsets)
            producer.end()
        except BaseException:
            # Otherwise readers of committed records would wait until the transaction times out.
            with suppress(SuiroError):
                producer.abort()
            raise
        self.total += self.records
        self.records = self.size = 0
        self._outgoing, self.taken = {}, {}

    def _batches(self, done: Mapping[str, tuple[int, str]]) -> Iterator[TransactionalBatch]:
        for (topic, partition), records in self._outgoing.items():
            for part in in_parts(records, size_of, max_size=BATCH_BYTES):
                made = [
                    Record(offset=at, timestamp=one.timestamp, key=one.key, value=one.value, headers=one.headers)
                    for at, one in enumerate(part)
                ]
                yield TransactionalBatch(topic, partition, encode_batch(made), len(made))
        now_ms = self._clock.wall_ms()
        line = {
            "at": iso_time(now_ms),
            "by": self._by,
            "dead_letters": self._topic,
            "topic_id": self._topic_id,
            "group": self._group,
            "records": self.records,
            "from": {str(partition): [end - 1 for _, end in taken] for partition, taken in self.taken.items()},
            "to": {f"{topic}-{partition}": len(records) for (topic, partition), records in self._outgoing.items()},
            "done": done,
        }
        value = json.dumps(line, separators=(",", ":")).encode()
        record = Record(offset=0, timestamp=now_ms, key=self._topic.encode(), value=value)
        yield TransactionalBatch(JOURNAL_TOPIC, 0, encode_batch([record]), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """One transaction of the journal. With `error` the record is not a valid line, and nothing more is known."""

    at: int  # ms
    who: str
    records: int
    targets: tuple[str, ...]  # TOPIC-PARTITION
    group: str
    error: str | None = None


def history(client: Client, topic: str) -> tuple[Redriven, ...]:
    """Returns the redrives of a topic from the last `JOURNAL_RECORDS` of the journal, the newest first."""
    lines = deque(map(_line_of, journal_lines(client, topic, whole=False)), maxlen=HISTORY_LINES)
    return tuple(reversed(lines))


def _line_of(record: LogRecord) -> Redriven:
    """Parses a line. Anyone who may write to the topic could have written it."""
    try:
        line = parse_json(record.value or b"", allow_nan=False, allow_half_pairs=False)
        if not 0 <= _typed(line["records"], int) < 1 << 63:
            raise ValueError("nobody redrives so many records")
        return Redriven(
            at=record.timestamp,
            who=_typed(line["by"], str),
            records=line["records"],
            targets=tuple(map(str, _typed(line["to"], dict))),
            group=_typed(line["group"], str),
        )
    except (ValueError, KeyError, TypeError) as error:
        said = f"offset {record.offset} of {JOURNAL_TOPIC} is no line of a redrive: {error}"
        return Redriven(at=record.timestamp, who="", records=0, targets=(), group="", error=said[:TEXT_CHARS])


def _typed(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{str(value)[:80]!r} is no {kind.__name__}")
    return value
