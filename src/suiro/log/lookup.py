"""Finding records by their time, and a producer's last batches: the look-ups that read record bytes."""

from __future__ import annotations

from collections.abc import Sequence

from suiro.log.producer_state import BATCHES_REMEMBERED, AppendedBatch
from suiro.log.segment import NO_TIMESTAMP, Segment
from suiro.protocol.records import decode_batch


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, *, log_start_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record at least this late: segment, time index, headers, records."""
    for segment in segments:
        if segment.size == 0 or segment.max_timestamp < timestamp:
            continue
        near = segment.time_index.offset_before(timestamp)
        start = segment.position_of(max(near + segment.base_offset, log_start_offset))
        if start is None:
            continue
        for position, header in segment.headers(start):
            if header.max_timestamp < timestamp:
                continue
            for record in decode_batch(segment.read_batch(position, header)):
                if record.timestamp >= timestamp and record.offset >= log_start_offset:
                    return record.offset, record.timestamp
    return None


def first_latest(segments: Sequence[Segment], *, log_start_offset: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record that has the largest timestamp in the log."""
    largest = max((segment.max_timestamp for segment in segments), default=NO_TIMESTAMP)
    if largest == NO_TIMESTAMP:
        return None
    return first_at_or_after(segments, largest, log_start_offset=log_start_offset)


def last_batches_of(
    segments: Sequence[Segment], producer_id: int, producer_epoch: int
) -> list[AppendedBatch]:
    """A producer's last batches of one epoch as they stand in the log, oldest first."""
    found: list[AppendedBatch] = []
    for segment in reversed(segments):
        here = [
            AppendedBatch(
                header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
            )
            for _, header in segment.headers()
            if header.producer_id == producer_id
            and header.producer_epoch == producer_epoch
            and not header.is_control
        ]
        found = (here + found)[-BATCHES_REMEMBERED:]
        # The epoch's first batch has sequence 0: nothing older can belong to it.
        if len(found) == BATCHES_REMEMBERED or (found and found[0].first_sequence == 0):
            break
    return found
