"""Dead letters: records that a topology or a connector put aside, with headers for the reason and the source.

`redrives` sends them back. The dead letters that are done need not be a prefix: an operator may choose some, and some
cannot be sent back. So everything before the committed offset of a redrive's group is done, and the metadata of the
offset has the ranges after it that are done (`Done`). Brokers forget offsets some days after their commit
(offsets.retention.minutes), so the journal has them, too.

Anyone who may write to the dead-letter topic can write any headers. A header with an invalid topic name is ignored,
and reasons of any number and length are counted in bounded memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import index
from typing import NamedTuple

from suiro.client import Client, TopicInfo
from suiro.console.records import LogRecord, Start, read_records, records_at, size_of
from suiro.console.topics import ranges_of, topic_info
from suiro.errors import FatalError, OffsetOutOfRangeError, RefusedError, UsageError
from suiro.foundation.nesting import parse_json
from suiro.numerals import natural

PREFIXES = ("__streams.errors.", "__connect.errors.")
"""Prefixes of headers: those of Kafka Streams (KIP-1034) and of Kafka Connect."""
JOURNAL_TOPIC = "suiro.redrives"
"""The topic of the journal: one record for each transaction of a redrive, with time, user, dead letters, targets, and
what is done then."""
JOURNAL_RECORDS = 10_000
"""The newest records of the journal, which a user who waits for the answer gets."""
JOURNAL_BYTES = 32 * 1024 * 1024
METADATA_CHARS_MAX = 4_000
"""The longest metadata with the ranges after a committed offset. Brokers accept 4,096."""
GROUPS_MAX = 1_000
"""The most groups of a summary. Dead letters with further reasons are counted as `OTHER_REASONS`."""
OTHER_REASONS = "other reasons"
TEXT_CHARS = 500
"""The longest exception and reason in a summary."""
TARGETS_OF_KAFKA = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
_TOPIC_HEADERS = frozenset(prefix + "topic" for prefix in PREFIXES)
_PLACE_HEADERS = _TOPIC_HEADERS | {prefix + name for prefix in PREFIXES for name in ("partition", "offset")}
_NAME = re.compile(r"dead|dlq", re.IGNORECASE)
_LEGAL_TOPIC = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")
_DIGITS = re.compile(r"\d+")
_RANGES = re.compile(r"suiro:((\d+-\d+)(,\d+-\d+)*)?")


class Origin(NamedTuple):
    topic: str
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """`of_operator`: the record is the one that an operator got, not the one of the source. `refusal` is the reason why
    its headers do not allow to send it back, or None."""

    record: LogRecord
    exception: str
    reason: str
    origin: Origin | None
    origin_timestamp: str
    of_operator: bool
    refusal: str | None


def dead_letter_of(record: LogRecord) -> DeadLetter:
    """Uses the headers of the last error. Others are of an earlier error, or forged."""
    headers = record.headers
    said = {
        name: (headers[at][1] or b"").decode(errors="backslashreplace") for name, at in _last_error(headers).items()
    }
    topic, partition = said.get("topic"), natural(said.get("partition", ""))
    origin = None
    if topic and _LEGAL_TOPIC.fullmatch(topic) and partition is not None:
        origin = Origin(topic, partition, natural(said.get("offset", "")))
    of_operator = said.get("stage") == "processing"
    refusal = None
    if origin is None:
        refusal = "its headers name no topic and partition that it comes from"
    elif origin.topic in TARGETS_OF_KAFKA:
        refusal = f"its headers name {origin.topic}, which belongs to Kafka"
    elif "cut" in said:
        refusal = "it was too large for its topic and is cut; the whole record is where it comes from"
    elif of_operator and origin.offset is None:
        refusal = "it failed behind a repartition, or where records wait, so its headers name no record of a source"
    elif origin.topic == record.topic:
        refusal = "its headers name the topic of dead letters itself"
    return DeadLetter(
        record=record,
        exception=said.get("exception") or said.get("exception.class.name") or said.get("connector.name", ""),
        reason=said.get("message") or said.get("exception.message", ""),
        origin=origin,
        origin_timestamp=said.get("timestamp", "")[:20],
        of_operator=of_operator,
        refusal=refusal,
    )


def origin_topics(record: LogRecord) -> set[str]:
    """Returns the source topics that the headers name, unchecked: several if the source is a dead letter itself."""
    return {
        (value or b"").decode(errors="backslashreplace") for name, value in record.headers if name in _TOPIC_HEADERS
    }


def before_error(headers: tuple[tuple[str, bytes | None], ...]) -> tuple[tuple[str, bytes | None], ...]:
    """Returns the headers that the record had at its source. If that has dead letters, too, these are headers of an
    earlier error."""
    gone = set(_last_error(headers).values())
    return tuple(header for at, header in enumerate(headers) if at not in gone)


def _last_error(headers: tuple[tuple[str, bytes | None], ...]) -> dict[str, int]:
    """Returns where the headers of the last error are, by their names without the prefix. They are written together,
    behind those that the record had."""
    found: dict[str, int] = {}
    last: str | tuple[str, ...] = PREFIXES
    for at in range(len(headers) - 1, -1, -1):
        name = headers[at][0]
        if not name.startswith(last):
            continue
        last = next(one for one in PREFIXES if name.startswith(one))
        name = name.removeprefix(last)
        if name in found:
            break
        found[name] = at
    return found


def without_error(headers: tuple[tuple[str, bytes | None], ...], instead: str) -> tuple[tuple[str, bytes | None], ...]:
    """Replaces the values of headers that describe the error, except those for the source of the record."""
    data = instead.encode()
    return tuple(
        (name, data if name.startswith(PREFIXES) and name not in _PLACE_HEADERS else value) for name, value in headers
    )


@dataclass(slots=True)
class Done:
    """The done dead letters of one partition: those before `position`, and those in `ranges` of (first, end)."""

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
        """Raises `ValueError` if no redrive wrote the metadata."""
        if offset < 0 or len(metadata) > METADATA_CHARS_MAX or _RANGES.fullmatch(metadata) is None:
            raise ValueError(metadata)
        ranges = []
        for part in filter(None, metadata.removeprefix("suiro:").split(",")):
            first, size = map(int, part.split("-"))
            ranges.append((offset + first, offset + first + size))
        return cls(offset, ranges)


def redrive_group(topic: str) -> str:
    """The group whose committed offsets tell which dead letters of a topic are done."""
    return f"suiro-redrive-{topic}"


def done_of(
    client: Client, topic: str, group: str, *, require_stable: bool, whole_journal: bool = True
) -> dict[int, Done]:
    """Returns what is done, by partition. Without `require_stable`, the open transaction of a redrive, which may have
    been killed, does not count. Without `whole_journal`, what brokers have forgotten and only old lines tell counts as
    not done."""
    info = topic_info(client, topic)
    places = [(topic, one.partition) for one in info.partitions]
    ranges = ranges_of(client, places)
    offsets = client.offset_fetch(group, places, require_stable=require_stable)
    journaled = _journaled(client, info, group, whole=whole_journal) if None in offsets.values() else {}
    found: dict[int, Done] = {}
    for place, committed in offsets.items():
        first, end = ranges[place]
        made = journaled.get(place[1]) or Done(0)
        if made.position > end:  # no redrive wrote that, or the log has lost its end
            made = Done(0)
        if committed is not None:
            try:
                made = Done.parse(committed.offset, committed.metadata)
            except ValueError:
                raise UsageError(
                    f"group {group!r} has committed {committed.offset} for {place[0]}-{place[1]} and no redrive wrote "
                    "that; give another --group"
                ) from None
        if made.position > end:
            raise UsageError(
                f"group {group!r} is at offset {made.position} of {place[0]}-{place[1]}, which ends at {end}: the "
                f"topic was recreated. Delete the group (`suiro group delete {group}`), and every dead letter of the "
                "topic counts as waiting"
            )
        made.add(0, first)  # retention removed them
        found[place[1]] = made
    return found


def journal_lines(client: Client, topic: str, *, whole: bool) -> Iterator[LogRecord]:
    """Yields the lines about a topic, oldest first: all, or those in the newest part of the journal."""
    if JOURNAL_TOPIC not in client.metadata([JOURNAL_TOPIC]):
        return
    place = (JOURNAL_TOPIC, 0)
    begins, ends = ranges_of(client, [place])[place]
    start = {0: begins if whole else max(begins, ends - JOURNAL_RECORDS)}
    left = JOURNAL_BYTES
    for record in read_records(client, JOURNAL_TOPIC, start=start, partitions=[0]):
        left -= size_of(record)
        if left < 0 and not whole:
            return
        if record.key == topic.encode():
            yield record


def _journaled(client: Client, info: TopicInfo, group: str, *, whole: bool) -> dict[int, Done]:
    """Returns what the journal says is done, by partition. A topic that was created again has another id."""
    found: dict[int, Done] = {}
    try:
        for record in journal_lines(client, info.name, whole=whole) if info.topic_id is not None else ():
            found |= _progress_of(record.value or b"", group, str(info.topic_id))
    except RefusedError:
        pass  # whoever may write to the journal need not be allowed to read it
    return found


def _progress_of(line: bytes, group: str, topic_id: str) -> dict[int, Done]:
    """Anyone who may write to the journal could have written the line."""
    try:
        said = parse_json(line, allow_nan=False, allow_half_pairs=False)
        if (said["group"], said["topic_id"]) != (group, topic_id):
            return {}
        return {int(partition): Done.parse(index(at), ranges) for partition, (at, ranges) in said["done"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Dead letters of a topic with the same reason, apart from numbers in it."""

    origin_topic: str | None
    exception: str
    reason: str
    records: int
    waiting: int  # not redriven
    first: tuple[int, int]  # partition and offset
    last_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`groups` has the most frequent first. `read` dead letters were counted; without `complete` there are more."""

    groups: tuple[DeadLetterGroup, ...]
    read: int
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterTopic:
    """`records` is computed from offsets; None while a partition has no leader."""

    name: str
    records: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The limit for reading a topic: its newest records, shared between the partitions, and of these so many bytes."""

    records: int
    bytes: int


SHOWN = Bound(records=50_000, bytes=128 * 1024 * 1024)
"""For a user who waits for the answer: a few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Chooses dead letters. None, and empty `places`, choose all.

    - `places`: partition and offset. `origin_topic`: "" chooses those that name no source.
    - `exception`: the whole exception. `reason`: a part of the exception or of the reason, as they are or as in a
      summary.
    - `group_reason`: the whole reason as in a summary. It can choose a group whose reason is a part of another's.
    """

    places: frozenset[tuple[int, int]] = frozenset()
    origin_topic: str | None = None
    reason: str | None = None
    exception: str | None = None
    group_reason: str | None = None

    def chooses(self, letter: DeadLetter) -> bool:
        record = letter.record
        if self.places and (record.partition, record.offset) not in self.places:
            return False
        if self.origin_topic not in (None, "" if letter.origin is None else letter.origin.topic):
            return False
        if self.exception is not None and self.exception not in (
            letter.exception,
            letter.exception[:TEXT_CHARS],
        ):
            return False
        if self.group_reason is not None and self.group_reason != _reason_of_group(letter):
            return False
        if self.reason is None:
            return True
        said = f"{letter.exception}: {letter.reason}"
        return self.reason in said or self.reason in _without_numbers(said)


def is_named_as_dead_letters(topic: str) -> bool:
    return _NAME.search(topic) is not None


def find_topics(client: Client) -> tuple[str, ...]:
    """Returns the topics with "dead" or "dlq" in their names."""
    return tuple(one.name for one in _found(client))


def count_topics(client: Client) -> tuple[DeadLetterTopic, ...]:
    """Returns the same topics with the number of their records."""
    infos = _found(client)
    places = [(one.name, each.partition) for one in infos for each in one.partitions if each.leader >= 0]
    sizes = {place: max(end - first, 0) for place, (first, end) in ranges_of(client, places).items()}
    found = []
    for one in infos:
        mine = [sizes.get((one.name, each.partition)) for each in one.partitions]
        records = None if None in mine else sum(size or 0 for size in mine)
        found.append(DeadLetterTopic(name=one.name, records=records))
    return tuple(found)


def _found(client: Client) -> list[TopicInfo]:
    return sorted(
        (info for name, info in client.metadata().items() if is_named_as_dead_letters(name) and not info.internal),
        key=lambda info: info.name,
    )


Seen = Callable[[DeadLetter], DeadLetter]
"""Returns a dead letter as the user may see it. Users cannot choose by what they cannot see."""


class Letters:
    """Iterates over (dead letter, whether it is done) up to the current end of the topic, oldest first in each
    partition. After that, `read` is their number, and `complete` tells whether these were all."""

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        group: str | None = None,
        bound: Bound | None = None,
        seen: Seen = lambda letter: letter,
    ) -> None:
        self._seen = seen
        self._client = client
        self._topic = topic
        self._group = group or redrive_group(topic)
        self._bound = bound
        self.read = 0
        self.complete = True

    def __iter__(self) -> Iterator[tuple[DeadLetter, bool]]:
        whole = self._bound is None
        done = done_of(self._client, self._topic, self._group, require_stable=False, whole_journal=whole)
        start: Start | dict[int, int] = Start(kind="earliest")
        if self._bound is not None:
            start = self._newest(list(done), self._bound.records)
        left = 0 if self._bound is None else self._bound.bytes
        for record in read_records(self._client, self._topic, start=start):
            if self._bound is not None:
                left -= size_of(record)
                if left < 0 or self.read >= self._bound.records:
                    self.complete = False
                    return
            self.read += 1
            yield self._seen(dead_letter_of(record)), done[record.partition].has(record.offset)

    def _newest(self, partitions: list[int], records: int) -> dict[int, int]:
        ranges = ranges_of(self._client, [(self._topic, partition) for partition in partitions])
        sizes = {partition: max(end - first, 0) for (_, partition), (first, end) in ranges.items()}
        starts = {}
        # Short partitions leave the rest of their share to longer ones.
        for nth, partition in enumerate(sorted(sizes, key=lambda one: sizes[one])):
            share = min(sizes[partition], records // (len(sizes) - nth))
            records -= share
            starts[partition] = ranges[self._topic, partition][1] - share
            self.complete = self.complete and share == sizes[partition]
        return starts


def summarise(letters: Letters) -> Summary:
    """Counts dead letters by source and reason."""
    found: dict[tuple[str | None, str, str], DeadLetterGroup] = {}
    for letter, is_done in letters:
        record = letter.record
        origin = None if letter.origin is None else letter.origin.topic
        key = (origin, letter.exception[:TEXT_CHARS], _reason_of_group(letter))
        if key not in found and len(found) >= GROUPS_MAX:
            key = (None, "", OTHER_REASONS)
        known = found.get(key)
        found[key] = DeadLetterGroup(
            origin_topic=key[0],
            exception=key[1],
            reason=key[2],
            records=1 + (known.records if known else 0),
            waiting=(not is_done) + (known.waiting if known else 0),
            first=known.first if known else (record.partition, record.offset),
            last_timestamp=max(record.timestamp, known.last_timestamp if known else -1),
        )
    groups = tuple(sorted(found.values(), key=lambda one: -one.records))
    return Summary(groups=groups, read=letters.read, complete=letters.complete)


def _reason_of_group(letter: DeadLetter) -> str:
    return _without_numbers(letter.reason)[:TEXT_CHARS]


def _without_numbers(text: str) -> str:
    return _DIGITS.sub("#", text)


def dead_letter_at(client: Client, topic: str, partition: int, offset: int) -> DeadLetter | None:
    """Returns None if there is no record. Raises `UsageError` if the topic does not have the partition."""
    try:
        start = Start(kind="offset", value=offset)
        record = next(read_records(client, topic, start=start, partitions=[partition]), None)
    except OffsetOutOfRangeError:
        return None
    return dead_letter_of(record) if record is not None and record.offset == offset else None


def origin_record(client: Client, letter: DeadLetter) -> LogRecord | None:
    """Returns the source record; None if the log does not have it any more, or the headers do not name it. Raises
    `RefusedError` if the user may not read it, and a `FatalError` if it is damaged."""
    origin = letter.origin
    if origin is None or origin.offset is None:
        return None
    info = client.metadata([origin.topic]).get(origin.topic)
    if info is None or origin.partition >= len(info.partitions):
        return None
    ((_, found),) = records_at(client, origin.topic, origin.partition, [origin.offset])
    if isinstance(found, FatalError):
        raise found
    return found
