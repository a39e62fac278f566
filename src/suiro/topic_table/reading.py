"""Reads the committed records of one partition up to an offset that was its end before.

Small responses are decoded without the compiled kernels, because loading the kernels takes half a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from suiro.client import EARLIEST, LATEST, Client, Fetched
from suiro.errors import DeadlineExceededError, OffsetOutOfRangeError
from suiro.foundation.types import TopicPartition
from suiro.protocol.record_batch import iter_headers, verify
from suiro.protocol.records import control_type, decode_batch

if TYPE_CHECKING:
    import pyarrow as pa

FETCH_BYTES, FETCH_BYTES_MAX = 8 << 20, 1 << 30
FETCHES_MAX = 20
"""Fetches in a row that return no records, each after a wait of half a second."""
FEW_BYTES = 1 << 18

R = TypeVar("R")
Pair = tuple[bytes | None, bytes | None]
"""The key and value of a record."""


def batches(
    client: Client,
    place: TopicPartition,
    start: int,
    end: int,
    *,
    compacted: bool,
    read_committed: bool = True,
    headers: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Return the records as Arrow batches, some of which may be empty.

    With `compacted`, reading goes on at the log start if that moves past the reader, because each key has a later
    record. Otherwise `OffsetOutOfRangeError` is raised. Raises `DeadlineExceededError` if no records arrive.
    """

    def decode(part: Fetched, first: int) -> tuple[pa.RecordBatch, int]:
        from suiro.protocol import columnar

        rows = columnar.decode(
            part.data,
            start_offset=first,
            end_offset=end,
            aborted=part.aborted,
            read_committed=read_committed,
            headers=headers,
        )
        return rows.batch, rows.next_offset

    return _read(client, place, start, end, decode, compacted=compacted, read_committed=read_committed)


def pairs(client: Client, place: TopicPartition, start: int, end: int) -> Iterator[Pair]:
    """Return keys and values of a compacted partition."""
    for found in _read(client, place, start, end, partial(decode_pairs, end=end), compacted=True):
        yield from found


def committed_range(client: Client, place: TopicPartition) -> tuple[int, int]:
    """The log start and the last stable offset."""
    start = client.list_offsets({place: EARLIEST})[place].offset
    return start, client.list_offsets({place: LATEST}, read_committed=True)[place].offset


def slices_from_the_end(client: Client, place: TopicPartition, first_look: int) -> Iterator[list[Pair]]:
    """Read a compacted partition backwards: its last `first_look` offsets, then twice as many before, and so on."""
    start, end = committed_range(client, place)
    look = first_look
    while end > start:
        first = max(start, end - look)
        yield list(pairs(client, place, first, end))
        end, look = first, look * 2


def _read(
    client: Client,
    place: TopicPartition,
    start: int,
    end: int,
    decode: Callable[[Fetched, int], tuple[R, int]],
    *,
    compacted: bool,
    read_committed: bool = True,
) -> Iterator[R]:
    max_bytes, nothing_came = FETCH_BYTES, 0
    while start < end:
        try:
            part = client.fetch(
                {place: start},
                read_committed=read_committed,
                max_bytes=max_bytes,
                partition_max_bytes=max_bytes,
            )[place]
        except OffsetOutOfRangeError as error:
            if not compacted or error.log_start_offset <= start:
                raise
            start = error.log_start_offset
            continue
        rows, following = decode(part, start)
        if following > start:
            start, nothing_came = following, 0
            yield rows
            continue
        stable = part.last_stable_offset if read_committed else part.high_watermark
        if compacted and not len(part.data) and stable >= end:
            return  # compaction has removed the rest
        nothing_came += 1
        if max_bytes >= FETCH_BYTES_MAX or nothing_came > FETCHES_MAX:
            raise DeadlineExceededError(
                f"{place[0]}-{place[1]} gives nothing from offset {start} on, although records up to {end} were "
                "read before. Is its broker reachable, and was the topic made anew?"
            )
        if len(part.data):
            max_bytes = min(max_bytes * 4, FETCH_BYTES_MAX)  # a batch larger than what was asked for


def decode_pairs(part: Fetched, start: int, end: int) -> tuple[list[Pair], int]:
    """Return the records with start <= offset < end, and the next offset to read."""
    if len(part.data) <= FEW_BYTES:
        return _one_by_one(part, start, end)
    from suiro.protocol import columnar

    rows = columnar.decode(part.data, start_offset=start, end_offset=end, aborted=part.aborted)
    keys, values = (rows.batch.column(name).to_pylist() for name in ("key", "value"))
    return list(zip(keys, values, strict=True)), rows.next_offset


def _one_by_one(part: Fetched, start: int, end: int) -> tuple[list[Pair], int]:
    """Skips aborted transactions, from the first offset of each to its marker."""
    found: list[Pair] = []
    next_offset = start
    waiting = sorted(part.aborted, key=lambda transaction: transaction[1])
    aborting: set[int] = set()
    for place, header in iter_headers(part.data):
        if header.base_offset >= end:
            return found, end
        while waiting and waiting[0][1] <= header.last_offset:
            aborting.add(waiting.pop(0)[0])
        next_offset = max(next_offset, min(header.next_offset, end))
        if header.is_control:
            verify(part.data, place, header)
            markers = decode_batch(part.data, place)  # none, where the cleaner left only the batch
            if any(control_type(marker) == "abort" for marker in markers):
                aborting.discard(header.producer_id)
        elif header.next_offset > start and not (header.is_transactional and header.producer_id in aborting):
            verify(part.data, place, header)
            records = decode_batch(part.data, place)
            found += [(one.key, one.value) for one in records if start <= one.offset < end]
    return found, next_offset
