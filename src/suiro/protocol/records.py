"""Records of a batch one at a time, in plain Python: slow, exact, easy to read.

For the small system topics (`__consumer_offsets`, `__transaction_state`), for control batches, and as the
reference that the compiled `columnar` is tested against.

    length varint | attributes i8 | timestampDelta varlong | offsetDelta varint
    | keyLength varint | key | valueLength varint | value | headerCount varint | headers
    header: keyLength varint | key | valueLength varint | value        (a length of -1 is null)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from suiro.errors import CorruptRecordError, UsageError
from suiro.protocol.compression import MAX_DECOMPRESSED_BYTES, NONE, compress, decompress
from suiro.protocol.crc32c import BytesLike, crc32c
from suiro.protocol.fields import put_varint
from suiro.protocol.record_batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_header,
    read_header,
)

_CONTROL_KEY = struct.Struct(">hh")  # version, type
CONTROL_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_INT64_LEAST, _INT64_MOST = -(1 << 63), (1 << 63) - 1
_ABORT = 0
_COMMIT = 1
CHOSEN_FROM = 100
CHOSEN_FROM_BYTES = 32 * 1024
"""The most records that are looked at together, and their bytes. Their reader may stop after each so many."""
_NO_SIZE = ~0x3FFE
"""Bits of numbers that are no sizes, or have more than two bytes. The lowest one is the sign."""
_NULL = 1
"""The size of null, -1, as it is encoded."""


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record. `timestamp` in milliseconds since the epoch. A struct takes a tenth of a dataclass's time to make."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: int = NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    log_append_time: bool = False,
    last_offset_delta: int | None = None,
) -> bytes:
    """One batch of records whose offsets rise from `base_offset` on, with or without gaps.

    `last_offset_delta` is the last record's unless given (compaction keeps the old one, and empty batches
    have nothing else). With `log_append_time` every record reads back with the batch's largest timestamp.
    """
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    body = bytearray()
    previous = -1
    for record in records:
        delta = record.offset - base_offset
        if not previous < delta < 1 << 31:
            raise UsageError(
                f"record offsets must rise from the base offset {base_offset} on: {record.offset} follows"
                f" {base_offset + previous if previous >= 0 else 'the start'}"
            )
        previous = delta
        _put_record(body, record, delta, _int64(record.timestamp - base_timestamp))
    if last_offset_delta is None:
        last_offset_delta = previous
    elif last_offset_delta < previous:
        raise UsageError(f"last_offset_delta {last_offset_delta} is before the last record's {previous}")
    payload = compress(compression, body)
    attributes = compression
    attributes |= LOG_APPEND_TIME_BIT if log_append_time else 0
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    header = BatchHeader(
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return pack_header(header, crc_tail=crc32c(payload)) + payload


def decode_batch(buf: BytesLike, position: int = 0, *, limit: int = MAX_DECOMPRESSED_BYTES) -> tuple[Record, ...]:
    """All records of the batch at `position`, control records too. The CRC is not checked (`verify` does).

    Raises `CorruptRecordError` for a torn batch and for lengths that lie, `TooMuchError` where the records are
    more than `limit` bytes.
    """
    return tuple(iter_batch(buf, position, limit=limit))


def iter_batch(buf: BytesLike, position: int = 0, *, limit: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """Yields the records one by one: a batch of a megabyte may hold millions, and a caller that needs a few takes no
    memory for the others. Raises an error only when it is reached."""
    header = read_header(buf, position)
    view = memoryview(buf)[position : position + header.size]
    if len(view) < header.size:
        raise CorruptRecordError(
            f"the batch at byte {position} (offset {header.base_offset}) is cut: {len(view)} of {header.size} bytes"
        )
    yield from iter_records(decompress(header.compression, view[HEADER_SIZE:], limit=limit), header)


def iter_records(payload: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yields the records of a decompressed payload one by one."""
    at = 0
    try:
        for _ in range(header.count):
            record, at = _get_record(payload, at, header)
            yield record
        _check_end(payload, at, header)
    except CorruptRecordError as error:
        raise _corrupt(header, error) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choose:
    """Chooses records by their `keys` and `values`, of which it gets those that it needs. `which` gets a number of
    records, their keys and their values, and returns the places of those that are wanted, in order."""

    which: Callable[[int, Sequence[bytes | None], Sequence[bytes | None]], Iterable[int]]
    keys: bool
    values: bool


def iter_chosen(payload: bytes, header: BatchHeader, choose: Choose) -> Iterator[tuple[int, Record | None]]:
    """Like `iter_records`, but makes no object of a record that is not wanted. Records are looked at
    together. One with a number of many bytes is always wanted. With each record comes how many there were since the one
    before, itself included; with None, how many since then are not wanted."""
    at, left = 0, header.count
    try:
        while left > 0:
            some = _split(payload, at, min(left, CHOSEN_FROM), keys=choose.keys, values=choose.values)
            count, done = len(some.places), 0
            for place in choose.which(count, some.keys, some.values) if count else ():
                record, _ = _get_record(payload, some.places[place], header)
                yield place + 1 - done, record
                done = place + 1
            yield count - done, None
            at, left = some.end, left - count
            if some.is_cut:
                record, at = _get_record(payload, at, header)
                left -= 1
                yield 1, record
        _check_end(payload, at, header)
    except CorruptRecordError as error:
        raise _corrupt(header, error) from None


def _check_end(payload: bytes, at: int, header: BatchHeader) -> None:
    if header.count < 0:
        raise CorruptRecordError(f"it claims {header.count} records")
    if at != len(payload):
        raise CorruptRecordError(f"{len(payload) - at} bytes are left after the last record")


def _corrupt(header: BatchHeader, reason: CorruptRecordError) -> CorruptRecordError:
    return CorruptRecordError(f"the batch at offset {header.base_offset} is corrupt: {reason}")


def count_without_key(batch: bytes) -> int:
    """How many records of an uncompressed batch have a null key, without making an object of any.

    Raises `CorruptRecordError` where records lead out of the batch, or are not as many as it claims.
    """
    position, end, found, count = HEADER_SIZE, len(batch), 0, 0
    claimed = int.from_bytes(batch[HEADER_SIZE - 4 : HEADER_SIZE], "big", signed=True)
    try:
        while position < end and count <= claimed:
            count += 1
            byte = batch[position]
            position += 1
            length, shift = byte & 0x7F, 7
            while byte > 0x7F:
                byte = batch[position]
                position += 1
                length |= (byte & 0x7F) << shift
                shift += 7
            place = position + 1  # behind the attributes; then the deltas of timestamp and offset
            while batch[place] > 0x7F:
                place += 1
            place += 1
            while batch[place] > 0x7F:
                place += 1
            # Lengths are zigzag-encoded: the lowest bit is the sign, and only null is negative.
            found += batch[place + 1] & 1
            position += length >> 1
    except IndexError:
        raise CorruptRecordError("a record leads out of its batch") from None
    if position != end or count != claimed:
        raise CorruptRecordError(f"the batch claims {claimed} records and does not hold them")
    return found


def control_batch(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
) -> bytes:
    """The marker that ends a transaction in one partition (one record, never delivered to readers)."""
    record = Record(
        offset=base_offset,
        timestamp=timestamp,
        key=_CONTROL_KEY.pack(0, _COMMIT if commit else _ABORT),
        value=CONTROL_VALUE.pack(0, coordinator_epoch),
    )
    return encode_batch(
        (record,),
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_type(record: Record) -> Literal["abort", "commit"] | None:
    """Returns how a control record ends a transaction, or None for types that end none (KRaft has some)."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        return None
    _, kind = _CONTROL_KEY.unpack_from(record.key)
    if kind == _ABORT:
        return "abort"
    return "commit" if kind == _COMMIT else None


def _put_record(out: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    body = bytearray(1)  # attributes: no bit is in use
    put_varint(body, timestamp_delta)
    put_varint(body, offset_delta)
    _put_bytes(body, record.key)
    _put_bytes(body, record.value)
    put_varint(body, len(record.headers))
    for name, value in record.headers:
        _put_bytes(body, name.encode())
        _put_bytes(body, value)
    put_varint(out, len(body))
    out += body


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        put_varint(out, -1)
    else:
        put_varint(out, len(value))
        out += value


def _get_record(data: bytes, at: int, header: BatchHeader) -> tuple[Record, int]:  # noqa: C901, PLR0915
    """Returns the record at a place, and the place behind it. Most numbers have one byte or two, so these cases are
    handled here: a search reads millions of records."""
    try:
        if (byte := data[at]) < 0x80:
            size, at = (byte >> 1) ^ -(byte & 1), at + 1
        elif (second := data[at + 1]) < 0x80:
            size, at = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1), at + 2
        else:
            size, at = _varint(data, at)
        end = at + size
        if size < 0 or end > len(data):
            raise CorruptRecordError(f"a record claims {size} bytes, {len(data) - at} are left")
        at += 1  # the attributes
        if (byte := data[at]) < 0x80:
            delta, at = (byte >> 1) ^ -(byte & 1), at + 1
        elif (second := data[at + 1]) < 0x80:
            delta, at = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1), at + 2
        else:
            delta, at = _varint(data, at, 64)
        timestamp = header.base_timestamp + delta
        if (byte := data[at]) < 0x80:
            delta, at = (byte >> 1) ^ -(byte & 1), at + 1
        elif (second := data[at + 1]) < 0x80:
            delta, at = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1), at + 2
        else:
            delta, at = _varint(data, at)
        offset = header.base_offset + delta
        if (byte := data[at]) < 0x80:
            length, at = (byte >> 1) ^ -(byte & 1), at + 1
        else:
            length, at = _varint(data, at)
        key = None
        if length >= 0:
            stop = at + length
            if stop > len(data):
                raise _too_long(length, data, at)
            key, at = data[at:stop], stop
        if (byte := data[at]) < 0x80:
            length, at = (byte >> 1) ^ -(byte & 1), at + 1
        elif (second := data[at + 1]) < 0x80:
            length, at = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1), at + 2
        else:
            length, at = _varint(data, at)
        value = None
        if length >= 0:
            stop = at + length
            if stop > len(data):
                raise _too_long(length, data, at)
            value, at = data[at:stop], stop
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if data[at]:
            headers, at = _get_headers(data, at)
        else:
            at += 1
    except IndexError:
        raise CorruptRecordError("it ends inside a number") from None
    if at != end:
        raise CorruptRecordError(f"a record claims {size} bytes and has {size + at - end}")
    if header.attributes & LOG_APPEND_TIME_BIT:
        timestamp = header.max_timestamp
    if not (_INT64_LEAST <= offset <= _INT64_MOST and _INT64_LEAST <= timestamp <= _INT64_MOST):
        offset, timestamp = _int64(offset), _int64(timestamp)
    return Record(offset=offset, timestamp=timestamp, key=key, value=value, headers=headers), at


class _Some(NamedTuple):
    """Where records begin, their keys and values, and the place behind the last one. `is_cut`: the next one must be
    read alone."""

    places: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    end: int
    is_cut: bool = True


def _split(data: bytes, at: int, most: int, *, keys: bool, values: bool) -> _Some:  # noqa: C901, PLR0915
    """Finds the records from a place on. Ends before one with a number of many bytes, and before one that
    `_get_record` refuses."""
    found = _Some([], [], [], 0)
    add_place, add_key, add_value = found.places.append, found.keys.append, found.values.append
    begin, last, is_cut = at, at + CHOSEN_FROM_BYTES, True
    try:
        for _ in range(most):
            if at > last:
                is_cut = False
                break
            size = data[at]
            if size > 0x7F:
                at += 1
                size = size & 0x7F | data[at] << 7
                if size & _NO_SIZE:
                    break
            elif size & 1:
                break
            end = at + 1 + (size >> 1)
            at += 2  # the size, and the attributes
            if data[at] > 0x7F:
                at += 1
                if data[at] > 0x7F:
                    at = _last_byte(data, at)
            at += 1
            if data[at] > 0x7F:
                at += 1
                if data[at] > 0x7F:
                    at = _last_byte(data, at)
            at += 1
            size = data[at]
            at += 1
            if size > 0x7F:
                size, at = size & 0x7F | data[at] << 7, at + 1
            if not size & _NO_SIZE:
                stop = at + (size >> 1)
                if keys:
                    add_key(data[at:stop])
                at = stop
            elif size != _NULL:
                break
            elif keys:
                add_key(None)
            size = data[at]
            at += 1
            if size > 0x7F:
                size, at = size & 0x7F | data[at] << 7, at + 1
            if not size & _NO_SIZE:
                stop = at + (size >> 1)
                if values:
                    add_value(data[at:stop])
                at = stop
            elif size != _NULL:
                break
            elif values:
                add_value(None)
            if data[at]:
                _, at = _get_headers(data, at)
            else:
                at += 1
            if at != end:
                break
            add_place(begin)
            begin = at
        else:
            is_cut = False
    except (IndexError, CorruptRecordError):
        pass
    count = len(found.places)
    del found.keys[count:], found.values[count:]
    return found._replace(end=begin, is_cut=is_cut)


def _last_byte(data: bytes, at: int) -> int:
    """Returns the place of the last byte of a number of up to five bytes, of which `at` is the second one."""
    for last in range(at + 1, at + 4):
        if data[last] < 0x80:
            return last
    raise IndexError


def _varint(data: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """Returns a number and the place behind it. Raises `IndexError` if the data ends inside it."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    if (second := data[at + 1]) < 0x80:
        value = byte & 0x7F | second << 7
        return (value >> 1) ^ -(value & 1), at + 2
    value = shift = 0
    while True:
        byte = data[at]
        if shift >= bits:
            raise CorruptRecordError(f"a number has more than {bits} bits")
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << bits) - 1
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _piece(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(data):
        raise _too_long(size, data, at)
    return data[at : at + size], at + size


def _too_long(size: int, data: bytes, at: int) -> CorruptRecordError:
    return CorruptRecordError(f"a length says {size}, {len(data) - at} bytes are left")


def _get_headers(data: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = _varint(data, at)
    if not 0 <= count <= len(data) - at:
        raise CorruptRecordError(f"a record claims {count} headers")
    headers = []
    for _ in range(count):
        size, at = _varint(data, at)
        if size < 0:
            raise CorruptRecordError("a header has no name")
        name, at = _piece(data, at, size)
        size, at = _varint(data, at)
        value, at = _piece(data, at, size) if size >= 0 else (None, at)
        # Java reads names that are not UTF-8 with the replacement character; a reader must get past them.
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), at


def _int64(value: int) -> int:
    return (value - _INT64_LEAST) % (1 << 64) + _INT64_LEAST
