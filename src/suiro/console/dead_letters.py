"""Dead letters: records that a topology or a connector put aside, with the headers that say why and whence; and their
way back.

**A redrive sends each record once**, whatever is killed on the way. One transaction holds the copies, a line in the
journal topic, and the offsets that say which dead letters are done, committed for the redrive's group. The next redrive
begins with the same transactional id: the coordinator first decides what was left open, then the group's offsets tell
what is to do. Two at once: the later one fences the earlier.

What is done need not be a prefix: only some may be chosen, and some cannot go back. So the committed offset is where
everything before is done, and its metadata has the ranges behind it that are done, too (`Done`).

A dead letter goes to the topic and partition that its headers name. They are written by whoever may write to the topic
of dead letters, so topics that are internal to Kafka are never written to, and the plan names every target.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from suiro.client import (
    EARLIEST,
    LATEST,
    Client,
    NewTopic,
    TopicInfo,
    TransactionalBatch,
    TransactionalProducer,
)
from suiro.clock import Clock, SystemClock
from suiro.console.records import LogRecord, Start, read_records
from suiro.console.text import iso_time
from suiro.console.topics import topic_info
from suiro.errors import OffsetOutOfRangeError, SuiroError, UsageError
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.records import Record, encode_batch

__all__ = [
    "JOURNAL_TOPIC",
    "DeadLetter",
    "DeadLetterGroup",
    "Done",
    "Origin",
    "Plan",
    "Selection",
    "dead_letter_of",
    "find_topics",
    "origin_record",
    "plan_redrive",
    "read_dead_letters",
    "redrive",
    "redrive_group",
    "summarise",
]

PREFIXES = ("__streams.errors.", "__connect.errors.")
"""Of headers: Kafka Streams' (KIP-1034), and Kafka Connect's."""
JOURNAL_TOPIC = "suiro.redrives"
"""One record for each transaction of a redrive: when, who, which dead letters, where to."""

TRANSACTION_RECORDS = 500
TRANSACTION_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 512 * 1024
"""Smaller than the max.message.bytes of most topics."""
METADATA_CHARS_MAX = 4_000
"""Of the ranges behind a committed offset; brokers take 4,096."""
TARGETS_OF_KAFKA = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
_NAME = re.compile(r"dead|dlq", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_RANGES = re.compile(r"suiro:((\d+-\d+)(,\d+-\d+)*)?")


class Origin(NamedTuple):
    topic: str
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """`refusal`: why it cannot be sent back by what its headers say; None where it can, as far as they tell."""

    record: LogRecord
    exception: str
    reason: str
    origin: Origin | None
    refusal: str | None


def dead_letter_of(record: LogRecord) -> DeadLetter:
    """By the last header of each name: what a record had before is of an earlier error, or somebody's invention."""
    said: dict[str, str] = {}
    for name, value in record.headers:
        for prefix in PREFIXES:
            if name.startswith(prefix):
                said[name.removeprefix(prefix)] = (value or b"").decode(errors="backslashreplace")
    topic, partition = said.get("topic"), said.get("partition", "")
    origin = None
    if topic and _is_number(partition):
        offset = said.get("offset", "")
        origin = Origin(topic, int(partition), int(offset) if _is_number(offset) else None)
    refusal = None
    if origin is None:
        refusal = "its headers name no topic and partition that it comes from"
    elif origin.topic in TARGETS_OF_KAFKA:
        refusal = f"its headers name {origin.topic}, which belongs to Kafka"
    elif origin.topic == record.topic:
        refusal = "its headers name the topic of dead letters itself"
    return DeadLetter(
        record=record,
        exception=said.get("exception") or said.get("exception.class.name") or said.get("connector.name", ""),
        reason=said.get("message") or said.get("exception.message", ""),
        origin=origin,
        refusal=refusal,
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


# -- which are done ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Done:
    """Of one partition: every offset before `position`, and those in `ranges` behind it (first, behind the last)."""

    position: int
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def has(self, offset: int) -> bool:
        return offset < self.position or any(first <= offset < end for first, end in self.ranges)

    def add(self, first: int, end: int) -> None:
        merged: list[tuple[int, int]] = []
        for each in sorted([*self.ranges, (first, end)]):
            if merged and each[0] <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], each[1]))
            else:
                merged.append(each)
        while merged and merged[0][0] <= self.position:
            self.position = max(self.position, merged.pop(0)[1])
        self.ranges = merged

    def metadata(self) -> str:
        return "suiro:" + ",".join(f"{first - self.position}-{end - first}" for first, end in self.ranges)

    @classmethod
    def parse(cls, offset: int, metadata: str) -> Done:
        """Raises `ValueError` for what no redrive wrote."""
        if _RANGES.fullmatch(metadata) is None:
            raise ValueError(metadata)
        ranges = []
        for part in filter(None, metadata.removeprefix("suiro:").split(",")):
            first, size = map(int, part.split("-"))
            ranges.append((offset + first, offset + first + size))
        return cls(offset, ranges)


def redrive_group(topic: str) -> str:
    """Whose committed offsets say which dead letters of a topic are done."""
    return f"suiro-redrive-{topic}"


def _done(client: Client, topic: str, group: str, *, require_stable: bool) -> dict[int, Done]:
    """Not `require_stable`: an open transaction of a redrive, which may have been killed, does not count."""
    places = [(topic, one.partition) for one in topic_info(client, topic).partitions]
    begins = client.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(places, LATEST))
    found: dict[int, Done] = {}
    for place, committed in client.offset_fetch(group, places, require_stable=require_stable).items():
        made = Done(0)
        if committed is not None:
            try:
                made = Done.parse(committed.offset, committed.metadata)
            except ValueError:
                raise UsageError(
                    f"group {group!r} has committed {committed.offset} for {place[0]}-{place[1]} and no redrive wrote "
                    "that; give another --group"
                ) from None
        if made.position > ends[place].offset:
            raise UsageError(
                f"group {group!r} is at offset {made.position} of {place[0]}-{place[1]}, which ends at "
                f"{ends[place].offset}: the topic was made anew. Delete the group (`suiro group delete {group}`), and "
                "every dead letter of the topic counts as waiting"
            )
        made.add(0, begins[place].offset)  # what retention removed
        found[place[1]] = made
    return found


# -- looking -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Dead letters with one reason, numbers in it left out."""

    topic: str
    origin_topic: str | None
    exception: str
    reason: str
    records: int
    waiting: int  # not redriven
    first: tuple[int, int]  # partition and offset
    last_timestamp: int


def find_topics(client: Client) -> tuple[str, ...]:
    """Those whose names say that they are of dead letters: with "dead" or "dlq" in them."""
    return tuple(
        sorted(name for name, info in client.metadata().items() if _NAME.search(name) and not info.internal)
    )


def read_dead_letters(
    client: Client, topic: str, *, group: str | None = None
) -> Iterator[tuple[DeadLetter, bool]]:
    """(dead letter, whether it is done) of everything that the topic has now."""
    done = _done(client, topic, group or redrive_group(topic), require_stable=False)
    for record in read_records(client, topic, start=Start(kind="earliest")):
        yield dead_letter_of(record), done[record.partition].has(record.offset)


def summarise(client: Client, topic: str, *, group: str | None = None) -> tuple[DeadLetterGroup, ...]:
    """The most frequent first."""
    found: dict[tuple[str | None, str, str], DeadLetterGroup] = {}
    for letter, is_done in read_dead_letters(client, topic, group=group):
        record = letter.record
        origin = None if letter.origin is None else letter.origin.topic
        key = (origin, letter.exception, _DIGITS.sub("#", letter.reason))
        known = found.get(key)
        found[key] = DeadLetterGroup(
            topic=topic,
            origin_topic=origin,
            exception=letter.exception,
            reason=key[2],
            records=1 + (known.records if known else 0),
            waiting=(not is_done) + (known.waiting if known else 0),
            first=known.first if known else (record.partition, record.offset),
            last_timestamp=max(record.timestamp, known.last_timestamp if known else -1),
        )
    return tuple(sorted(found.values(), key=lambda one: -one.records))


def origin_record(client: Client, letter: DeadLetter) -> LogRecord | None:
    """The record that it was made of; None where that is not in the log any more, or not named."""
    origin = letter.origin
    if origin is None or origin.offset is None or origin.topic not in client.metadata([origin.topic]):
        return None
    try:
        start = Start(kind="offset", value=origin.offset)
        found = next(read_records(client, origin.topic, start=start, partitions=[origin.partition]), None)
    except (OffsetOutOfRangeError, UsageError):
        return None
    return found if found is not None and found.offset == origin.offset else None


# -- the way back --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters; what is empty chooses all. `places`: partition and offset."""

    places: frozenset[tuple[int, int]] = frozenset()
    origin_topic: str | None = None
    reason: str | None = None  # a part of the exception or of the reason

    def chooses(self, letter: DeadLetter) -> bool:
        record = letter.record
        if self.places and (record.partition, record.offset) not in self.places:
            return False
        if self.origin_topic is not None and (
            letter.origin is None or letter.origin.topic != self.origin_topic
        ):
            return False
        return self.reason is None or self.reason in f"{letter.exception}: {letter.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`targets`: {(topic, partition): records}. `refused`: {reason: records}: they stay where they are."""

    topic: str
    group: str
    records: int
    done_before: int
    targets: Mapping[tuple[str, int], int]
    refused: Mapping[str, int]


class _Targets:
    """Where a dead letter goes to, by the topics there are now."""

    def __init__(self, client: Client, *, by_key: bool, only: frozenset[str] | None = None) -> None:
        self._client = client
        self._by_key = by_key
        self._only = only
        self._topics: dict[str, TopicInfo | None] = {}

    def of(self, letter: DeadLetter) -> tuple[str, int] | str:
        """The target, or why there is none."""
        if letter.refusal is not None or letter.origin is None:
            return letter.refusal or ""
        topic, partition, _ = letter.origin
        if self._only is not None and topic not in self._only:
            return f"topic {topic} was not agreed on"
        if topic not in self._topics:
            self._topics[topic] = self._client.metadata([topic]).get(topic)
        info = self._topics[topic]
        if info is None:
            return f"topic {topic} does not exist"
        if info.internal:
            return f"topic {topic} is internal to Kafka"
        count = len(info.partitions)
        if self._by_key and letter.record.key is not None:
            return topic, partition_for_key(letter.record.key, count)
        if partition >= count:
            return (
                f"topic {topic} has {count} partitions, and it comes from {partition}; --by-key finds another"
            )
        return topic, partition


def plan_redrive(
    client: Client,
    topic: str,
    selection: Selection,
    *,
    group: str | None = None,
    by_key: bool = False,
) -> Plan:
    """What `redrive` would do now."""
    targets = _Targets(client, by_key=by_key)
    counts: dict[tuple[str, int], int] = {}
    refused: dict[str, int] = {}
    done_before = 0
    for letter, is_done in read_dead_letters(client, topic, group=group):
        if not selection.chooses(letter):
            continue
        if is_done:
            done_before += 1
            continue
        target = targets.of(letter)
        if isinstance(target, str):
            refused[target] = refused.get(target, 0) + 1
        else:
            counts[target] = counts.get(target, 0) + 1
    return Plan(
        topic=topic,
        group=group or redrive_group(topic),
        records=sum(counts.values()),
        done_before=done_before,
        targets=counts,
        refused=refused,
    )


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
) -> int:
    """Sends the chosen dead letters back, as many a transaction as `transaction_records`; returns how many.

    `by`: who does it, for the journal. `only_to`: the topics that somebody agreed to; a dead letter that came later and
    names another stays. `progress` is told after each transaction how many are back. After an error what was
    committed is done, and the next call goes on behind it.
    """
    group = group or redrive_group(topic)
    client.create_topics([NewTopic(JOURNAL_TOPIC, 1, configs={"retention.ms": "-1"})], exist_ok=True)
    producer = client.transaction(f"{group}-{topic}")
    producer.init()  # whatever was open is decided when this returns
    work = _Redrive(client, producer, topic, group, by, clock or SystemClock())
    targets = _Targets(client, by_key=by_key, only=only_to)
    for partition, done in sorted(work.done.items()):
        following = done.position
        for record in read_records(client, topic, start={partition: done.position}, partitions=[partition]):
            # What has no record, such as the ends of transactions, is done with the record behind it.
            first, following = following, record.offset + 1
            letter = dead_letter_of(record)
            if done.has(record.offset) or not selection.chooses(letter):
                continue
            target = targets.of(letter)
            if isinstance(target, str):
                continue
            work.take(letter, target, first)
            if work.records >= transaction_records or work.size >= TRANSACTION_BYTES:
                work.commit()
                progress(work.total)
    if work.records:
        work.commit()
        progress(work.total)
    if work.total:
        producer.init()  # the markers of the last transaction are written then, and readers see its records
    return work.total


class _Redrive:
    """The transaction that is being filled, and what is done once it is committed."""

    def __init__(
        self, client: Client, producer: TransactionalProducer, topic: str, group: str, by: str, clock: Clock
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._group = group
        self._by = by
        self._clock = clock
        self.done = _done(client, topic, group, require_stable=True)
        self.total = 0
        self.records = 0
        self.size = 0
        self._outgoing: dict[tuple[str, int], list[LogRecord]] = {}
        self._taken: dict[int, list[tuple[int, int]]] = {}
        self._is_renewed = True

    def take(self, letter: DeadLetter, target: tuple[str, int], first: int) -> None:
        record = letter.record
        self._outgoing.setdefault(target, []).append(record)
        self._taken.setdefault(record.partition, []).append((first, record.offset + 1))
        self.records += 1
        self.size += _size(record)

    def commit(self) -> None:
        offsets = {}
        for partition, taken in self._taken.items():
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
        producer, journal = self._producer, (JOURNAL_TOPIC, 0)
        if not self._is_renewed:
            producer.renew()
        self._is_renewed = False
        try:
            producer.add_partitions([*self._outgoing, journal])
            producer.add_offsets(self._group)
            producer.produce(self._batches())
            producer.commit_offsets(self._group, offsets)
            producer.end()
        except BaseException:
            # Else readers of committed records would wait for the transaction's timeout.
            with suppress(SuiroError):
                producer.abort()
            raise
        self.total += self.records
        self.records = self.size = 0
        self._outgoing, self._taken = {}, {}

    def _batches(self) -> Iterator[TransactionalBatch]:
        for (topic, partition), records in self._outgoing.items():
            for part in _parts(records):
                yield _batch(
                    topic,
                    partition,
                    [
                        Record(
                            offset=at,
                            timestamp=one.timestamp,
                            key=one.key,
                            value=one.value,
                            headers=tuple(
                                (name, value) for name, value in one.headers if not name.startswith(PREFIXES)
                            ),
                        )
                        for at, one in enumerate(part)
                    ],
                )
        now_ms = self._clock.wall_ms()
        line = {
            "at": iso_time(now_ms),
            "by": self._by,
            "dead_letters": self._topic,
            "group": self._group,
            "records": self.records,
            "from": {
                str(partition): [end - 1 for _, end in taken] for partition, taken in self._taken.items()
            },
            "to": {
                f"{topic}-{partition}": len(records) for (topic, partition), records in self._outgoing.items()
            },
        }
        value = json.dumps(line, separators=(",", ":")).encode()
        record = Record(offset=0, timestamp=now_ms, key=self._topic.encode(), value=value)
        yield _batch(JOURNAL_TOPIC, 0, [record])


def _batch(topic: str, partition: int, records: Sequence[Record]) -> TransactionalBatch:
    return TransactionalBatch(topic, partition, encode_batch(records), len(records))


def _parts(records: Sequence[LogRecord]) -> Iterator[list[LogRecord]]:
    part: list[LogRecord] = []
    size = 0
    for record in records:
        if part and size + _size(record) > BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append(record)
        size += _size(record)
    yield part


def _size(record: LogRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + 32
