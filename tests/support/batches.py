"""Record batches for tests, and what a read_committed reader sees of fetched ones."""

from __future__ import annotations

from collections.abc import Sequence

from suiro.client import Client, Fetched
from suiro.protocol.record_batch import iter_headers, with_producer
from suiro.protocol.records import Record, control_type, decode_batch, encode_batch

TIMESTAMP = 1_700_000_000_000


def batch_of(*values: str, timestamp: int = TIMESTAMP, compression: int = 0) -> bytes:
    """A batch without an identity: one record per value, key = value, one millisecond apart."""
    records = [
        Record(offset=place, timestamp=timestamp + place, key=value.encode(), value=value.encode())
        for place, value in enumerate(values)
    ]
    return encode_batch(records, compression=compression)


def owned_batch(
    *values: str, producer_id: int, epoch: int, sequence: int, transactional: bool = False
) -> bytes:
    """The same under a producer's id, epoch and sequence."""
    return with_producer(
        batch_of(*values),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


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


def read_all(
    client: Client, topic: str, partition: int = 0, *, committed: bool = True, start: int = 0
) -> list[str]:
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
