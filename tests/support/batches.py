"""Record batches for tests, and what a read_committed reader sees of fetched ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from suiro.client import Client, Fetched
from suiro.protocol import compression
from suiro.protocol.crc32c import crc32c
from suiro.protocol.record_batch import (
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    iter_headers,
    pack_header,
    with_producer,
)
from suiro.protocol.records import Record, control_type, decode_batch, encode_batch

TIMESTAMP = 1_700_000_000_000


def batch_of(*values: str, timestamp: int = TIMESTAMP, compression: int = 0) -> bytes:
    """A batch without an identity: one record per value, key = value, one millisecond apart."""
    records = [
        Record(offset=place, timestamp=timestamp + place, key=value.encode(), value=value.encode())
        for place, value in enumerate(values)
    ]
    return encode_batch(records, compression=compression)


def patch_offset(buf: bytearray, position: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `position` its place in the log. Both fields stand outside the CRC."""
    struct.pack_into(">q", buf, position, base_offset)
    struct.pack_into(">i", buf, position + 12, leader_epoch)


LEAST_RECORD = bytes([12, 0, 0, 0, 1, 1, 0])
"""At the offset and time of its batch, with a null key and a null value: what a crafted batch has millions of."""


def crafted_batch(
    payload: bytes, *, count: int, codec: int = 0, packed: bytes | None = None, latest: int = TIMESTAMP
) -> bytes:
    """A batch whose checksum is right, whatever its header says of what is in it. `packed`: as it stands in the batch,
    instead of the payload in the codec."""
    if packed is None:
        packed = compression.compress(codec, payload)
    header = crafted_header(count, size=len(packed), codec=codec, latest=latest)
    return pack_header(header, crc_tail=crc32c(packed)) + packed


def crafted_header(count: int, *, size: int = 0, codec: int = 0, latest: int = TIMESTAMP) -> BatchHeader:
    """The header of a batch that claims so many records, and has `size` bytes of them."""
    return BatchHeader(
        base_offset=0,
        length=HEADER_SIZE - 12 + size,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=max(count - 1, 0),
        base_timestamp=TIMESTAMP,
        max_timestamp=latest,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )


def owned_batch(*values: str, producer_id: int, epoch: int, sequence: int, transactional: bool = False) -> bytes:
    """The same under a producer's id, epoch and sequence."""
    return with_producer(
        batch_of(*values),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def owned_header(
    count: int, *, producer_id: int, epoch: int, sequence: int, transactional: bool = False
) -> BatchHeader:
    """The header of such a batch of so many records."""
    header = crafted_header(count)
    header.producer_id, header.producer_epoch, header.base_sequence = producer_id, epoch, sequence
    header.attributes = TRANSACTIONAL_BIT if transactional else 0
    return header


def values_of(fetched: Fetched, *, committed: bool = True) -> list[str]:
    """Values in offset order; with `committed`, without those of aborted transactions (KIP-98)."""
    values: list[str] = []
    starting = sorted(fetched.aborted, key=lambda item: item[1])
    aborted: set[int] = set()
    for position, header in iter_headers(fetched.data):
        while starting and starting[0][1] <= header.last_offset:
            aborted.add(starting.pop(0)[0])
        if header.is_control:
            (record,) = decode_batch(fetched.data, position)
            if control_type(record) == "abort":
                aborted.discard(header.producer_id)
            continue
        if committed and header.is_transactional and header.producer_id in aborted:
            continue
        values += [(record.value or b"").decode() for record in decode_batch(fetched.data, position)]
    return values


def read_all(client: Client, topic: str, partition: int = 0, *, committed: bool = True, start: int = 0) -> list[str]:
    """Every value of a partition up to its end (with `committed`: up to its last stable offset)."""
    target = (topic, partition)
    end = client.list_offsets({target: -1}, read_committed=committed)[target].offset
    values: list[str] = []
    position = start
    while position < end:
        fetched = client.fetch({target: position}, read_committed=committed)[target]
        headers: Sequence[object] = [header for _, header in iter_headers(fetched.data)]
        if headers:
            values += values_of(fetched, committed=committed)
            position = headers[-1].next_offset  # type: ignore[attr-defined]
    return values
