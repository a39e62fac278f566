"""Compares an append with the producer state: new, duplicate, or out of order.

The rules are in `producer_state`; here is what they need of the log.
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
    """The batch that this one repeats, or None where it may be appended. Raises a LogError otherwise.

    A coordinator's own batches carry no sequences (`sequenced` is false); their epoch counts.
    """
    producer_id, producer_epoch = header.producer_id, header.producer_epoch
    first, last = header.base_sequence, header.last_sequence
    if sequenced:
        duplicate = producers.duplicate_of(producer_id, producer_epoch, first, last)
        if duplicate is not None:
            return duplicate
    try:
        producers.check_batch(
            producer_id,
            producer_epoch,
            first,
            transactional=header.is_transactional,
            check_sequence=sequenced,
        )
    except OutOfOrderSequenceError:
        # After a restart the snapshot knows only the last of the five batches. The client may be
        # repeating an older one whose answer was lost, so the log is asked before it is refused.
        entry = producers.entries[producer_id]
        if entry.whole:
            raise
        last_offset = entry.batches[-1].last_offset  # behind it are others' batches alone
        until = [segment for segment in segments if segment.base_offset <= last_offset]
        batches = last_batches_of(until, producer_id, entry.producer_epoch)
        producers.refill(producer_id, entry.producer_epoch, batches)
        duplicate = producers.duplicate_of(producer_id, producer_epoch, first, last)
        if duplicate is None:
            raise
        return duplicate
    return None


def check_together(
    producers: ProducerStates, headers: Sequence[BatchHeader], *, offset: int, sequenced: bool
) -> None:
    """Try several batches on a copy, so that none is written where one is refused. Raises a LogError."""
    trial = producers.copy_of(header.producer_id for header in headers)
    for header in headers:
        if header.producer_id >= 0:
            trial.check_batch(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                transactional=header.is_transactional,
                check_sequence=sequenced,
            )
            trial.add_batch(
                header.producer_id,
                header.producer_epoch,
                header.last_sequence,
                first_offset=offset,
                last_offset=offset + header.last_offset_delta,
                timestamp=0,
                transactional=header.is_transactional,
            )
        offset += header.last_offset_delta + 1
