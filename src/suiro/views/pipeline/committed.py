"""The committed records of one partition between two offsets, batch by batch, however few of them are left there."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from suiro.client import Client
from suiro.errors import DeadlineExceededError
from suiro.foundation.types import TopicPartition
from suiro.protocol import columnar

__all__ = ["committed"]

FETCH_BYTES, FETCH_BYTES_MAX = 8 << 20, 1 << 30
FETCHES_MAX = 20
"""That bring nothing, each after it has waited for half a second."""


def committed(
    client: Client, place: TopicPartition, position: int, end: int, *, headers: bool = False
) -> Iterator[pa.RecordBatch]:
    """Batches may be empty: ends of transactions and what compaction removed have offsets, too. Raises
    `DeadlineExceededError` where the log gives nothing."""
    max_bytes, nothing_came = FETCH_BYTES, 0
    while position < end:
        fetched = client.fetch(
            {place: position}, read_committed=True, max_bytes=max_bytes, partition_max_bytes=max_bytes
        )[place]
        decoded = columnar.decode(
            fetched.data,
            start_offset=position,
            end_offset=end,
            aborted=fetched.aborted,
            read_committed=True,
            headers=headers,
        )
        if decoded.next_offset > position:
            position, nothing_came = decoded.next_offset, 0
            yield decoded.batch
            continue
        nothing_came += 1
        if max_bytes >= FETCH_BYTES_MAX or nothing_came > FETCHES_MAX:
            raise DeadlineExceededError(
                f"{place[0]}-{place[1]} gives nothing from offset {position} on, although records up to {end} were "
                "read before. Is its broker reachable, and was the topic made anew?"
            )
        if len(fetched.data):
            max_bytes *= 4  # a batch larger than what was asked for
