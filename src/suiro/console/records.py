"""Records of a topic, read from a place on, decoded and filtered; and written.

Reading is one record at a time in plain Python: no more than a person looks at. What is damaged is an error that names
its place. Undecodable keys and values are told of and shown as hex; they end nothing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from suiro.client import EARLIEST, LATEST, Client, Fetched
from suiro.clock import Clock, SystemClock
from suiro.console.text import parse_time, plain
from suiro.console.topics import topic_info
from suiro.errors import CorruptRecordError, DeadlineExceededError, OffsetOutOfRangeError, UsageError
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.record_batch import iter_headers, verify
from suiro.protocol.records import Record, control_type, decode_batch, encode_batch

__all__ = [
    "FORMATS",
    "Decoded",
    "Decoder",
    "LogRecord",
    "OutgoingRecord",
    "Start",
    "decoder",
    "encoder",
    "filter_of",
    "parse_start",
    "produce",
    "read_records",
    "records_of",
    "start_offsets",
]

FORMATS = ("string", "json", "avro", "long", "hex")

FETCH_BYTES = 4 * 1024 * 1024
PARTITION_FETCH_BYTES = 1024 * 1024
FETCH_WAIT_MS = 500
BATCH_BYTES_MAX = 128 * 1024 * 1024
"""What one compressed batch may become; records of strangers must not fill memory."""
EMPTY_FETCHES_MAX = 20
"""That bring nothing although records are promised, each after `FETCH_WAIT_MS`."""
PRODUCE_BATCH_RECORDS = 500
PRODUCE_BATCH_BYTES = 512 * 1024

_LONG = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """A record as it stands in the log. `timestamp` in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


# -- where to begin ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """`value` is an offset, how many records before the end, or a time in ms; nothing of earliest and latest."""

    kind: Literal["earliest", "latest", "offset", "last", "time"]
    value: int = 0


def parse_start(text: str) -> Start:
    """earliest, latest, an offset, -N (N before the end), or a time in ISO 8601. Raises `UsageError`."""
    if text in ("earliest", "latest"):
        return Start(kind="earliest" if text == "earliest" else "latest")
    if text.isascii() and text.removeprefix("-").isdigit():
        number = int(text)
        if number >= 1 << 63:
            raise UsageError(f"{text} is no offset: the largest is 2^63 - 1")
        return (
            Start(kind="last", value=-number) if text.startswith("-") else Start(kind="offset", value=number)
        )
    try:
        return Start(kind="time", value=parse_time(text))
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is no place to start from; give earliest, latest, an offset, -N for the last N records of each "
            "partition, or a time such as 2013-01-01T00:00Z"
        ) from None


def start_offsets(
    client: Client, topic: str, partitions: Sequence[int], start: Start, *, read_committed: bool = True
) -> dict[int, int]:
    """The offset of each partition that `start` means. Raises `OffsetOutOfRangeError`."""
    places = [(topic, partition) for partition in partitions]
    first = client.list_offsets(dict.fromkeys(places, EARLIEST))
    end = client.list_offsets(dict.fromkeys(places, LATEST), read_committed=read_committed)
    by_time = {}
    if start.kind == "time":
        by_time = client.list_offsets(dict.fromkeys(places, max(start.value, 0)))
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
                offset = min(max(offset, begins), ends)  # of several each has its own range
        found[place[1]] = offset
    return found


# -- reading -------------------------------------------------------------------------------------------------


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
    """From `start` (or the offset of each partition) to the end that each partition has now; with `follow` for ever.

    With `follow`, `idle` is asked whenever nothing came, and ends it by False.
    """
    known = [one.partition for one in topic_info(client, topic).partitions]
    chosen = known if partitions is None else list(dict.fromkeys(partitions))
    for partition in chosen:
        if partition not in known:
            raise UsageError(f"topic {topic!r} has partitions 0 to {len(known) - 1}, not {partition}")
    if isinstance(start, Start):
        start = start_offsets(client, topic, chosen, start, read_committed=read_committed)
    positions = {(topic, partition): start[partition] for partition in chosen}
    ends = {}
    if not follow:
        latest = client.list_offsets(dict.fromkeys(positions, LATEST), read_committed=read_committed)
        ends = {place: latest[place].offset for place in positions}
    empty = 0
    while True:
        asked = {place: at for place, at in positions.items() if follow or at < ends[place]}
        if not asked:
            return
        answers = client.fetch(
            asked,
            read_committed=read_committed,
            max_bytes=FETCH_BYTES,
            partition_max_bytes=PARTITION_FETCH_BYTES,
            max_wait_ms=FETCH_WAIT_MS,
        )
        moved = False
        for place in asked:
            for record, following in records_of(*place, asked[place], answers[place], read_committed):
                moved = moved or following > positions[place]
                positions[place] = following
                if record is not None and (follow or record.offset < ends[place]):
                    yield record
        empty = 0 if moved else empty + 1
        if follow:
            if not moved and not idle():
                return
        elif empty > EMPTY_FETCHES_MAX:
            left = ", ".join(f"{name}-{number} from {at}" for (name, number), at in asked.items())
            raise DeadlineExceededError(
                f"nothing comes of {left}, although the brokers say that there is more; was the topic made anew?"
            )


def records_of(
    topic: str, partition: int, position: int, fetched: Fetched, read_committed: bool
) -> Iterator[tuple[LogRecord | None, int]]:
    """(record, where to go on behind it), and (None, where to go on) behind each batch. Raises `CorruptRecordError`."""
    try:
        yield from _records_of(topic, partition, position, fetched, read_committed)
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{topic}-{partition} is damaged: {error}") from error


def _records_of(
    topic: str, partition: int, position: int, fetched: Fetched, read_committed: bool
) -> Iterator[tuple[LogRecord | None, int]]:
    aborted = sorted(fetched.aborted, key=lambda item: item[1]) if read_committed else []
    ended: set[int] = set()  # producers whose transaction here was aborted
    for at, header in iter_headers(fetched.data):
        if header.next_offset <= position:
            continue
        verify(fetched.data, at, header)
        while aborted and aborted[0][1] <= header.last_offset:
            ended.add(aborted.pop(0)[0])
        if header.is_control:
            marker = decode_batch(fetched.data, at, limit=BATCH_BYTES_MAX)
            if marker and control_type(marker[0]) == "abort":
                ended.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in ended):
            for record in decode_batch(fetched.data, at, limit=BATCH_BYTES_MAX):
                if record.offset >= position:
                    made = LogRecord(
                        topic=topic,
                        partition=partition,
                        offset=record.offset,
                        timestamp=record.timestamp,
                        key=record.key,
                        value=record.value,
                        headers=record.headers,
                    )
                    yield made, record.offset + 1
        yield None, header.next_offset


# -- values --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """`value` for programs, `text` for people; with `error` both are the bytes in hex."""

    value: Any
    text: str
    error: str | None = None


Decoder = Callable[[bytes | None], Decoded]


def decoder(name: str, registry: str | None = None) -> Decoder:
    """For keys or values in one of `FORMATS`; avro needs the URL of a registry."""
    decode = _decode_of(name, registry)

    def decoded(data: bytes | None) -> Decoded:
        if data is None:
            return Decoded(value=None, text="null")
        try:
            return decode(data)
        except (ValueError, RecursionError) as error:
            text = data.hex()
            return Decoded(value=text, text=f"0x{text}", error=str(error) or type(error).__name__)

    return decoded


def _decode_of(name: str, registry: str | None) -> Callable[[bytes], Decoded]:
    match name:
        case "string":
            return _string
        case "json":
            return _json
        case "long":
            return _long
        case "hex":
            return lambda data: Decoded(value=data.hex(), text=data.hex())
        case "avro":
            return _avro(registry)
    raise UsageError(f"there is no format {name!r}; use one of {', '.join(FORMATS)}")


def _string(data: bytes) -> Decoded:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: {error.reason} at byte {error.start}") from None
    return Decoded(value=text, text=text)


def _json(data: bytes) -> Decoded:
    from suiro.foundation.nesting import parse_json

    # As it was written for people: a number would lose digits on its way through a float.
    return Decoded(value=parse_json(data), text=data.decode())


def _long(data: bytes) -> Decoded:
    if len(data) != _LONG.size:
        raise ValueError(f"is no long: it has {len(data)} bytes, a long has {_LONG.size}")
    (number,) = _LONG.unpack(data)
    return Decoded(value=number, text=str(number))


def _avro(registry: str | None) -> Callable[[bytes], Decoded]:
    from suiro.registry import CodecSettings, Undecodable, codec_of

    if registry is None:
        raise UsageError("format avro needs a registry; give --registry URL")
    codec = codec_of("AVRO", CodecSettings(registry=registry))

    def decode(data: bytes) -> Decoded:
        from suiro.connect import plain_json

        try:
            value = codec.decode(data)
        except Undecodable as error:
            raise ValueError(str(error)) from None
        text = json.dumps(plain(value), default=plain_json, ensure_ascii=False)
        return Decoded(value=json.loads(text), text=text)

    return decode


def encoder(name: str, registry: str | None = None, *, subject: str = "") -> Callable[[Any], bytes | None]:
    """The other way: of text (or of a value of JSON). Null stays null. Raises `UsageError`."""
    if name == "avro":
        from suiro.registry import CodecSettings, codec_of

        if registry is None:
            raise UsageError("format avro needs a registry; give --registry URL")
        codec = codec_of("AVRO", CodecSettings(registry=registry, subject=subject))

    def encode(value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            match name:
                case "string":
                    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
                case "json":
                    text = value if isinstance(value, str) else json.dumps(value)
                    json.loads(text)
                    return text.encode()
                case "long":
                    return _LONG.pack(int(value))
                case "hex":
                    return bytes.fromhex(value)
                case "avro":
                    return codec.encode(subject, json.loads(value) if isinstance(value, str) else value)
        except (ValueError, TypeError, RecursionError, struct.error) as error:
            raise UsageError(f"{value!r} cannot be written as {name}: {error}") from None
        raise UsageError(f"there is no format {name!r}; use one of {', '.join(FORMATS)}")

    return encode


def filter_of(text: str) -> Callable[[Any, Any, int], bool]:
    """A function of value, key and timestamp. The language is that of the connectors' `when` rules: it compares, and
    cannot do anything else."""
    from suiro.connect import rule

    return rule("filter", text)


# -- writing -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    """`partition` None: by the key as Kafka clients do it. `timestamp` None: now."""

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
) -> int:
    """Returns how many, once all are acknowledged. `records` is read as batches fill."""
    clock = clock or SystemClock()
    count = len(topic_info(client, topic).partitions)
    waiting: dict[int, list[Record]] = {}
    size = written = keyless = 0

    def flush() -> None:
        nonlocal size
        # One after the other by partition: each batch is whole or not there.
        client.produce({(topic, number): encode_batch(batch) for number, batch in waiting.items()})
        waiting.clear()
        size = 0

    for one in records:
        partition = one.partition
        if partition is None:
            partition = keyless % count if one.key is None else partition_for_key(one.key, count)
            keyless += one.key is None
        if not 0 <= partition < count:
            raise UsageError(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
        batch = waiting.setdefault(partition, [])
        timestamp = clock.wall_ms() if one.timestamp is None else one.timestamp
        batch.append(
            Record(offset=len(batch), timestamp=timestamp, key=one.key, value=one.value, headers=one.headers)
        )
        size += len(one.key or b"") + len(one.value or b"")
        written += 1
        if size >= PRODUCE_BATCH_BYTES or len(batch) >= batch_records:
            flush()
    if waiting:
        flush()
    return written
