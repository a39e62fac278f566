"""Reads records of a topic from an offset or a time on, and writes records.

Records are read one at a time in plain Python, which is fast enough for people. A search looks at many together, and
reads those that it may want. A damaged batch is an error that names its offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Literal

import msgspec

from suiro.client import EARLIEST, LATEST, Client, Fetched, ProducerIdentity
from suiro.clock import Clock, SystemClock
from suiro.console.text import parse_time
from suiro.console.topics import require_partition, topic_info
from suiro.errors import (
    BrokerFailureError,
    CorruptRecordError,
    DeadlineExceededError,
    FatalError,
    OffsetOutOfRangeError,
    RefusedError,
    UnsupportedVersionError,
    UsageError,
)
from suiro.foundation.types import TopicPartition
from suiro.protocol.compression import decompress
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.record_batch import HEADER_SIZE, BatchHeader, iter_headers, verify
from suiro.protocol.records import Choose, Record, control_type, decode_batch, encode_batch, iter_chosen, iter_records

FETCH_BYTES = 4 * 1024 * 1024
PARTITION_FETCH_BYTES = 1024 * 1024
FETCH_WAIT_MS = 500
OFFSET_CHARS_MAX = 20
BATCH_BYTES_MAX = 128 * 1024 * 1024
"""The largest uncompressed batch. Records of strangers must not fill memory."""
NEAR_BYTES = 256 * 1024
"""The bytes between two wanted records up to which they are fetched together. More take longer than a request."""
EMPTY_FETCHES_MAX = 20
"""The most fetches without records although the broker reports some, each after `FETCH_WAIT_MS`. For each partition, so
many in a row may find that the next records were deleted."""
PRODUCE_BATCH_RECORDS = 500
PRODUCE_BATCH_BYTES = 512 * 1024
PRODUCER_KEPT_MS = 60 * 60_000
"""After a pause of this length a new producer id is used: brokers forget ids that do not write."""
SEQUENCES = 1 << 31
OFFSETS = 1 << 63
CHOSEN_FROM_LEAST = 5
"""Fewer records are looked at one by one, which takes less time."""


class LogRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record of the log. `timestamp` is in ms. It is a struct, because a search makes millions of them, and a
    dataclass takes ten times as long."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """`value` is an offset, a number of records before the end, or a time in ms. earliest and latest do not use it."""

    kind: Literal["earliest", "latest", "offset", "last", "time"]
    value: int = 0


def parse_start(text: str) -> Start:
    """Parses earliest, latest, an offset, -N (N before the end), or a time in ISO 8601. Raises `UsageError`."""
    if text in ("earliest", "latest"):
        return Start(kind="earliest" if text == "earliest" else "latest")
    if text.isascii() and text.removeprefix("-").isdigit():
        # Python does not convert thousands of digits.
        if len(text) > OFFSET_CHARS_MAX or (number := int(text)) >= 1 << 63:
            raise UsageError(f"{text[:40]} is not an offset: the largest is 2^63 - 1")
        return Start(kind="last", value=-number) if text.startswith("-") else Start(kind="offset", value=number)
    try:
        return Start(kind="time", value=parse_time(text))
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is not a start position; give earliest, latest, an offset, -N for the last N records of each "
            "partition, or a time such as 2013-01-01T00:00Z"
        ) from None


def start_offsets(
    client: Client,
    topic: str,
    partitions: Sequence[int],
    start: Start,
    *,
    read_committed: bool = True,
    leader_wait_ms: int | None = None,
) -> dict[int, int]:
    """Returns the offset of `start` in each partition. Raises `OffsetOutOfRangeError`."""
    places = [(topic, partition) for partition in partitions]
    first = client.list_offsets(dict.fromkeys(places, EARLIEST), leader_wait_ms=leader_wait_ms)
    end = client.list_offsets(
        dict.fromkeys(places, LATEST), read_committed=read_committed, leader_wait_ms=leader_wait_ms
    )
    by_time = {}
    if start.kind == "time":
        by_time = client.list_offsets(dict.fromkeys(places, max(start.value, 0)), leader_wait_ms=leader_wait_ms)
    found = {}
    for place in places:
        begins, ends = first[place].offset, end[place].offset
        match start.kind:
            case "earliest":
                offset = begins
            case "latest":
                offset = ends
            case "last":
                offset = max(ends - start.value, begins)
            case "time":
                offset = by_time[place].offset if by_time[place].offset >= 0 else ends
            case "offset":
                offset = start.value
                if len(places) == 1 and not begins <= offset <= ends:
                    raise OffsetOutOfRangeError(*place, offset, begins, ends)
                offset = min(max(offset, begins), ends)  # each partition has its own range
        found[place[1]] = offset
    return found


def read_records(
    client: Client,
    topic: str,
    *,
    start: Start | Mapping[int, int],
    partitions: Sequence[int] | None = None,
    read_committed: bool = True,
    follow: bool = False,
    idle: Callable[[], bool] = lambda: True,
) -> Iterator[LogRecord]:
    """Reads from `start` (or the offset of each partition) to the current end of each partition; with `follow` forever.
    Goes on behind records that are deleted meanwhile.

    With `follow`, `idle` is called whenever nothing came. If it returns False, reading ends.
    """
    count = len(topic_info(client, topic).partitions)
    chosen = list(dict.fromkeys(range(count) if partitions is None else partitions))
    for partition in chosen:
        require_partition(topic, partition, count)
    if isinstance(start, Start):
        start = start_offsets(client, topic, chosen, start, read_committed=read_committed)
    positions = {(topic, partition): start[partition] for partition in chosen}
    ends = {}
    if not follow:
        latest = client.list_offsets(dict.fromkeys(positions, LATEST), read_committed=read_committed)
        ends = {place: latest[place].offset for place in positions}
    empty = lost = 0
    while True:
        asked = {place: at for place, at in positions.items() if follow or at < ends[place]}
        if not asked:
            return
        try:
            answers = client.fetch(
                asked,
                read_committed=read_committed,
                max_bytes=FETCH_BYTES,
                partition_max_bytes=PARTITION_FETCH_BYTES,
                max_wait_ms=FETCH_WAIT_MS,
            )
        except OffsetOutOfRangeError as error:
            positions[error.topic, error.partition] = behind_deleted(error)
            lost += 1
            if not follow and lost > EMPTY_FETCHES_MAX * len(positions):
                raise
            continue
        moved, lost = False, 0
        for place in asked:
            for record, following in records_of(*place, asked[place], answers[place], read_committed):
                moved = moved or following > positions[place]
                positions[place] = following
                if record is not None and (follow or record.offset < ends[place]):
                    yield record
        if follow and not moved and not idle():
            return
        empty = 0 if moved or follow else empty + 1
        if empty > EMPTY_FETCHES_MAX:
            left = ", ".join(f"{name}-{number} from {at}" for (name, number), at in asked.items())
            raise DeadlineExceededError(
                f"no more records of {left} arrive, although the brokers have more; was the topic recreated?"
            )


def behind_deleted(error: OffsetOutOfRangeError) -> int:
    """Returns the first offset, if retention or an operator deleted the records before it. Raises the error otherwise:
    the log has lost its end, or the topic was created again."""
    if error.offset >= error.log_start_offset:
        raise error
    return error.log_start_offset


def records_at(
    client: Client, topic: str, partition: int, offsets: Iterable[int]
) -> Iterator[tuple[int, LogRecord | FatalError | None]]:
    """Yields (offset, record) of committed records, lowest offset first: None if the log does not have it any more, the
    error if it is damaged. Records that are near each other are fetched together, others with no more than their
    batch."""
    place, left, size = (topic, partition), deque(sorted(set(offsets))), 1
    while left:
        at = reached = left[0]
        fetched = None
        try:
            fetched = client.fetch({place: at}, max_bytes=size, partition_max_bytes=size, max_wait_ms=0)[place]
            for _, record, reached in chosen_of(*place, at, fetched, True, wants=lambda end: left[0] < end):
                while left and left[0] < reached:
                    offset = left.popleft()
                    yield offset, record if record is not None and record.offset == offset else None
                if not left:
                    return
        except OffsetOutOfRangeError as error:
            reached = error.log_start_offset if at < error.log_start_offset else OFFSETS
        except (CorruptRecordError, BrokerFailureError) as error:
            if left[0] == at:  # the batches before the damaged one are read
                yield left.popleft(), error
                size = 1  # the next one may be in the same batch
                continue
        if reached == at:  # it is the end for readers of committed records
            reached = at + 1
        while left and left[0] < reached:
            yield left.popleft(), None
        if left and fetched is not None:
            bytes_per_offset = len(fetched.data) / (reached - at)
            size = PARTITION_FETCH_BYTES if (left[0] - reached) * bytes_per_offset <= NEAR_BYTES else 1


def records_of(
    topic: str, partition: int, position: int, fetched: Fetched, read_committed: bool
) -> Iterator[tuple[LogRecord | None, int]]:
    """Yields (record, next offset), and (None, next offset) after each batch. Raises `CorruptRecordError`."""
    for _, record, following in chosen_of(topic, partition, position, fetched, read_committed):
        yield record, following


def chosen_of(
    topic: str,
    partition: int,
    position: int,
    fetched: Fetched,
    read_committed: bool,
    *,
    end: int = OFFSETS,
    choose: Choose | None = None,
    wants: Callable[[int], bool] = lambda end: True,
) -> Iterator[tuple[int, LogRecord | None, int]]:
    """Like `records_of`, without the records from the offset `end` on. In front is how many records there were since
    the one before, itself included: those that `choose` leaves out are only counted (`iter_chosen`). `wants` tells
    whether a batch that ends before an offset is looked at, damaged or not."""
    reached = position
    try:
        for header, payload in _payloads(position, fetched, read_committed, wants):
            found: Iterable[tuple[int, Record | None]] = ()
            is_whole = position <= header.base_offset and header.last_offset < end
            if payload is not None and choose is not None and is_whole and header.count >= CHOSEN_FROM_LEAST:
                found = iter_chosen(payload, header, choose)
            elif payload is not None:
                found = zip(repeat(1), iter_records(payload, header))
            for count, record in found:
                if record is None or not position <= record.offset < end:
                    yield count - (record is not None), None, reached
                    continue
                reached = record.offset + 1
                made = LogRecord(
                    topic=topic,
                    partition=partition,
                    offset=record.offset,
                    timestamp=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
                yield count, made, reached
            reached = header.next_offset
            yield 0, None, reached
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{topic}-{partition} is damaged: {error}") from error


def _payloads(
    position: int, fetched: Fetched, read_committed: bool, wants: Callable[[int], bool]
) -> Iterator[tuple[BatchHeader, bytes | None]]:
    """Yields the batches with records from the position on, and these, decompressed; None if nobody may or wants to see
    them."""
    aborted = sorted(fetched.aborted, key=lambda item: item[1]) if read_committed else []
    ended: set[int] = set()  # producers whose transaction here was aborted
    for at, header in iter_headers(fetched.data):
        if header.next_offset <= position:
            continue
        is_wanted = header.is_control or wants(header.next_offset)
        if is_wanted:
            verify(fetched.data, at, header)
        while aborted and aborted[0][1] <= header.last_offset:
            ended.add(aborted.pop(0)[0])
        payload = None
        if header.is_control:
            marker = decode_batch(fetched.data, at, limit=BATCH_BYTES_MAX)
            if marker and control_type(marker[0]) == "abort":
                ended.discard(header.producer_id)
        elif is_wanted and not (header.is_transactional and header.producer_id in ended):
            packed = fetched.data[at + HEADER_SIZE : at + header.size]
            payload = decompress(header.compression, packed, limit=BATCH_BYTES_MAX)
        yield header, payload


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    """`partition` None: chosen by the key, as by Kafka's clients. `timestamp` None: now."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None


def produce(
    client: Client,
    topic: str,
    records: Iterable[OutgoingRecord],
    *,
    batch_records: int = PRODUCE_BATCH_RECORDS,
    clock: Clock | None = None,
    progress: Callable[[int], None] = lambda written: None,
) -> int:
    """Returns the number of records after all are acknowledged. Reads `records` as batches fill. Each record is written
    once, even if a response is lost.

    `progress` is called with the total after each acknowledgement. If `records` ends with an error, the records before
    it are written.
    """
    clock = clock or SystemClock()
    count = len(topic_info(client, topic).partitions)
    waiting: dict[int, list[Record]] = {}
    size = written = keyless = 0
    batches_of = _Batches(client, clock)

    def flush() -> None:
        nonlocal size, written
        taken = dict(waiting)
        waiting.clear()  # before sending, so that `finally` does not send a failed batch again
        size = 0
        # One batch for each partition: a batch is written as a whole or not at all.
        client.produce({(topic, number): batches_of.encode(topic, number, batch) for number, batch in taken.items()})
        sent = sum(map(len, taken.values()))
        written += sent
        progress(written)

    try:
        for one in records:
            partition = _partition_of(topic, one, count, keyless=keyless % count)
            keyless += one.partition is None and one.key is None
            timestamp = _timestamp_of(one, clock)
            if waiting and size + size_of(one) > PRODUCE_BATCH_BYTES:
                flush()
            batch = waiting.setdefault(partition, [])
            batch.append(
                Record(offset=len(batch), timestamp=timestamp, key=one.key, value=one.value, headers=one.headers)
            )
            size += size_of(one)
            if len(batch) >= batch_records:
                flush()
    finally:
        if waiting:
            flush()
    return written


def size_of(record: LogRecord | OutgoingRecord) -> int:
    """Its approximate size in a batch, in bytes."""
    return bytes_of(record) + 32


def bytes_of(record: LogRecord | OutgoingRecord) -> int:
    """The bytes of its key, value and headers."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def produce_one(client: Client, topic: str, record: OutgoingRecord, *, clock: Clock | None = None) -> tuple[int, int]:
    """Returns (partition, offset)."""
    partition = _partition_of(topic, record, len(topic_info(client, topic).partitions), keyless=0)
    clock = clock or SystemClock()
    timestamp = _timestamp_of(record, clock)
    made = Record(offset=0, timestamp=timestamp, key=record.key, value=record.value, headers=record.headers)
    place = (topic, partition)
    batch = _Batches(client, clock).encode(topic, partition, [made])
    return partition, client.produce({place: batch})[place]


def _partition_of(topic: str, record: OutgoingRecord, count: int, *, keyless: int) -> int:
    """`keyless` is the partition of a record without a key. Raises `UsageError`."""
    if record.partition is not None:
        require_partition(topic, record.partition, count)
        return record.partition
    return keyless if record.key is None else partition_for_key(record.key, count)


def _timestamp_of(record: OutgoingRecord, clock: Clock) -> int:
    if record.timestamp is None:
        return clock.wall_ms()
    if abs(record.timestamp) >= 1 << 63:
        raise UsageError(f"{record.timestamp} is not a timestamp")
    return record.timestamp


class _Batches:
    """Encodes the batches of one idempotent producer: a batch that is resent after a lost response is not written
    twice."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._producer: ProducerIdentity | None = None
        self._renews_ms: int | None = None
        self._sequences: dict[TopicPartition, int] = {}

    def encode(self, topic: str, partition: int, records: Sequence[Record]) -> bytes:
        now_ms = self._clock.monotonic_ms()
        if self._renews_ms is None or now_ms >= self._renews_ms:
            self._producer, self._sequences = _new_producer(self._client), {}
        self._renews_ms = now_ms + PRODUCER_KEPT_MS
        if self._producer is None:
            return encode_batch(records)
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = (sequence + len(records)) % SEQUENCES
        return encode_batch(
            records,
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            base_sequence=sequence,
        )


def _new_producer(client: Client) -> ProducerIdentity | None:
    """Returns None if the broker does not support producer ids, or (before KIP-679) the user does not have the required
    right."""
    try:
        return client.new_producer()
    except UnsupportedVersionError:
        return None
    except RefusedError as error:
        if error.code_name != "CLUSTER_AUTHORIZATION_FAILED":
            raise
        return None
