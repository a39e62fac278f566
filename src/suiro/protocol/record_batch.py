"""Record batch v2 from outside: its 61-byte header, its CRC, and what may be patched in place.

Nothing here looks at records; `records` and `columnar` do. `buf` is any buffer that holds one batch after
another, as a log segment, a produce request and a fetch response do; `position` is a byte place in it.

    baseOffset i64 | length i32 | partitionLeaderEpoch i32 | magic i8 | crc u32 | attributes i16
    | lastOffsetDelta i32 | baseTimestamp i64 | maxTimestamp i64 | producerId i64 | producerEpoch i16
    | baseSequence i32 | count i32 | records

`length` counts everything behind itself. The CRC covers everything from the attributes on, so the base offset
and the leader epoch may change without touching it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from suiro.errors import CorruptRecordError, UsageError
from suiro.protocol.crc32c import BytesLike, combine, crc32c

HEADER_SIZE = 61
LOG_OVERHEAD = 12  # base offset and length: what stands before the bytes that `length` counts
MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD
MIN_RECORD_SIZE = 7  # seven one-byte fields: the smallest record there can be, its length included
MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

COMPRESSION_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_OFFSET = struct.Struct(">q")
_INT = struct.Struct(">i")
_CRC = struct.Struct(">I")
CRC_START = 21  # the attributes: the first byte that the CRC covers
_SEQUENCES = 1 << 31


@dataclass(slots=True)
class BatchHeader:
    """The header's fields as they stand in the bytes (Kafka's names; `count` is its recordsCount).

    Nobody changes one. It is not frozen only because making a frozen one takes twice as long, and every batch that is
    written, read or recovered has one made.
    """

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Where the next batch starts, which holds after compaction and for empty batches too."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The last record's sequence; sequences go on at 0 after 2^31 - 1. -1 where there is none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return next_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_BITS

    @property
    def is_log_append_time(self) -> bool:
        """Every record's timestamp is then `max_timestamp`, whatever its delta says."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """`base_timestamp` is then the delete horizon; deltas still count from it (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)


def next_sequence(sequence: int, count: int) -> int:
    """`count` sequences further, wrapping to 0 after 2^31 - 1."""
    return (sequence + count) % _SEQUENCES


def read_header(buf: BytesLike, position: int = 0) -> BatchHeader:
    """The header at `position`. Raises `CorruptRecordError` if it is torn, not magic 2, or too short."""
    try:
        header = BatchHeader(*_HEADER.unpack_from(buf, position))
    except struct.error:
        raise CorruptRecordError(
            f"no batch header at byte {position}: {len(memoryview(buf)) - position} bytes are left,"
            f" a header has {HEADER_SIZE}"
        ) from None
    if header.magic != MAGIC:
        raise CorruptRecordError(
            f"the batch at byte {position} (offset {header.base_offset}) has magic {header.magic}; only"
            f" record batches of magic {MAGIC} (Kafka 0.11 and later) can be read"
        )
    if header.length < MIN_LENGTH:
        raise CorruptRecordError(
            f"the batch at byte {position} (offset {header.base_offset}) claims a length of {header.length},"
            f" less than its own header of {MIN_LENGTH}"
        )
    return header


def iter_headers(buf: BytesLike) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch. Ends at a torn tail; garbage raises."""
    end = len(memoryview(buf))
    position = 0
    while end - position >= HEADER_SIZE:
        header = read_header(buf, position)
        size = header.size
        if size > end - position:
            return
        yield position, header
        position += size


def crc_of(buf: BytesLike, position: int, header: BatchHeader) -> int:
    """The CRC that the batch's bytes have. The batch must be whole."""
    return crc32c(memoryview(buf)[position + CRC_START : position + header.size])


def verify(buf: BytesLike, position: int, header: BatchHeader) -> None:
    """Raise `CorruptRecordError` unless the batch at `position` is whole and its CRC is right."""
    left = len(memoryview(buf)) - position
    if header.size > left:
        raise CorruptRecordError(
            f"the batch at byte {position} (offset {header.base_offset}) is cut: {left} of {header.size} bytes"
        )
    crc = crc_of(buf, position, header)
    if crc != header.crc:
        raise CorruptRecordError(
            f"the batch at byte {position} (offset {header.base_offset}, {header.size} bytes) has CRC"
            f" {crc:08x}, its header says {header.crc:08x}"
        )


def pack_header(header: BatchHeader, *, crc_tail: int) -> bytes:
    """The header's 61 bytes; its CRC is worked out from the fields and `crc_tail`, the CRC of the records."""
    after_crc = _AFTER_CRC.pack(
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )
    crc = combine(crc32c(after_crc), crc_tail, header.size - HEADER_SIZE)
    return b"".join(
        (
            _OFFSET.pack(header.base_offset),
            _INT.pack(header.length),
            _INT.pack(header.partition_leader_epoch),
            bytes((header.magic,)),
            _CRC.pack(crc),
            after_crc,
        )
    )


def with_producer(
    batch: BytesLike,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
    crc_tail: int | None = None,
) -> bytes:
    """A copy of `batch`, which is exactly one batch, that a producer owns.

    `crc_tail` is the CRC of `batch[61:]` (`EncodedBatch.crc_tail`); with it the records are not read again.
    """
    view = memoryview(batch)
    header = read_header(view)
    if header.size != len(view):
        raise UsageError(f"one whole batch is wanted: it has {header.size} bytes, {len(view)} were given")
    records = view[HEADER_SIZE:]
    owned = replace(
        header,
        attributes=header.attributes & ~TRANSACTIONAL_BIT | (TRANSACTIONAL_BIT if transactional else 0),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return pack_header(owned, crc_tail=crc32c(records) if crc_tail is None else crc_tail) + records
