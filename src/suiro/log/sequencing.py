"""Compares an append with the producer state: new, duplicate, or out of order.

The rules are in `producer_state`. This module looks up what they need from the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from suiro.log.errors import OutOfOrderSequenceError
from suiro.log.lookup import last_batches_of
from suiro.log.producer_state import AppendedBatch, ProducerStates
from suiro.log.segments import Segments
from suiro.protocol.record_batch import BatchHeader


def check_batch(
    producers: ProducerStates, segments: Segments, header: BatchHeader, *, sequenced: bool
) -> AppendedBatch | None:
    """Returns the batch that this one repeats, or None if it may be appended. Raises a LogError otherwise.

    A coordinator's own batches carry no sequences (`sequenced` is false); their epoch counts.
    """
    if sequenced:
        duplicate = producers.duplicate_of(header)
        if duplicate is not None:
            return duplicate
    try:
        producers.check_batch(header, sequenced=sequenced)
    except OutOfOrderSequenceError:
        # After a restart the snapshot knows only the last of the five batches. The client may be repeating an
        # older one whose answer was lost, so the log is searched before the batch is refused.
        entry = producers.entries[header.producer_id]
        if entry.whole:
            raise
        # Later batches are other producers'.
        last_offset = entry.batches[-1].last_offset
        until = [segment for segment in segments if segment.base_offset <= last_offset]
        entry.refill(last_batches_of(until, entry.producer_id, entry.producer_epoch))
        duplicate = producers.duplicate_of(header)
        if duplicate is None:
            raise
        return duplicate
    return None


def check_together(producers: ProducerStates, headers: Sequence[BatchHeader], *, offset: int, sequenced: bool) -> None:
    """Try several batches on a copy, so that none is written if one is refused. Raises a LogError."""
    trial = producers.copy_of(header.producer_id for header in headers)
    for header in headers:
        if header.producer_id >= 0:
            trial.check_batch(header, sequenced=sequenced)
            trial.add_batch(header, first_offset=offset, timestamp=0)
        offset += header.last_offset_delta + 1
