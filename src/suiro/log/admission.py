"""Checks batches before they are appended, and sets their fields.

`admit` needs no knowledge of the log. Its checks are those of Kafka's LogValidator that need only the header and the
CRC. Single records are not checked: the CRC says that they are what the producer wrote, and whoever decodes a batch
finds out if they contradict its header. `check_batch` and `check_together` look up in the log what the rules of
`producer_state` need.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Literal

from suiro.errors import CorruptRecordError
from suiro.log.config import LogConfig
from suiro.log.errors import (
    BatchesTooLargeError,
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    InvalidTimestampError,
    OutOfOrderSequenceError,
)
from suiro.log.producer_state import BATCHES_REMEMBERED, AppendedBatch, ProducerStates
from suiro.log.segment import Segment
from suiro.log.segments import Segments
from suiro.protocol.compression import CODEC_NAMES
from suiro.protocol.crc32c import crc32c
from suiro.protocol.record_batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    pack_header,
    read_header,
    verify,
)

_PREFIX = struct.Struct(">qii")  # base offset, length, leader epoch: what stands before the magic byte

Origin = Literal["client", "coordinator"]


def admit(
    data: bytes | bytearray | memoryview, config: LogConfig, *, origin: Origin, now_ms: int
) -> list[tuple[int, BatchHeader]]:
    """Returns (position, header) of each batch in `data`, all of them whole and valid. Raises a LogError."""
    batches: list[tuple[int, BatchHeader]] = []
    position, end = 0, len(data)
    while position < end or not batches:
        try:
            header = read_header(data, position)
            verify(data, position, header)
        except CorruptRecordError as error:
            raise CorruptBatchError(str(error)) from error
        _check_sizes(header, config, origin=origin)
        if origin == "client":
            _check_client_header(header, config, now_ms)
        batches.append((position, header))
        position += header.size
    if len(batches) > 1 and end > config.segment_bytes:
        raise BatchesTooLargeError(f"{end} bytes in one append, segment.bytes is {config.segment_bytes}")
    return batches


def _check_sizes(header: BatchHeader, config: LogConfig, *, origin: Origin) -> None:
    # A coordinator limits its own records. Refusing them here would stop a group or a transaction.
    if header.size > config.max_message_bytes and origin == "client":
        raise BatchTooLargeError(f"the batch has {header.size} bytes, max.message.bytes is {config.max_message_bytes}")
    if header.size > config.segment_bytes:
        raise BatchesTooLargeError(f"the batch has {header.size} bytes, segment.bytes is {config.segment_bytes}")


def _check_client_header(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.is_control:
        raise InvalidBatchError("clients may not write control batches")
    if header.base_offset != 0:
        raise InvalidBatchError(f"a producer's batch starts at offset 0, this one at {header.base_offset}")
    if header.count <= 0 or header.last_offset_delta != header.count - 1:
        raise InvalidBatchError(
            f"the batch claims {header.count} records and a last offset delta of {header.last_offset_delta}"
        )
    if header.compression not in CODEC_NAMES:
        raise InvalidBatchError(f"no compression has the number {header.compression}")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidBatchError(
            f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence "
            f"{header.base_sequence}; both must be 0 or more"
        )
    if config.message_timestamp_type == "LogAppendTime":
        if header.is_log_append_time:
            raise InvalidTimestampError("the batch claims to bear the log's time, which only the log can give")
    else:
        latest = now_ms + config.message_timestamp_after_max_ms
        earliest = now_ms - config.message_timestamp_before_max_ms
        if header.max_timestamp > latest or (header.max_timestamp < earliest and header.max_timestamp >= 0):
            raise InvalidTimestampError(
                f"the batch's largest timestamp {header.max_timestamp} is outside {earliest} to {latest} "
                "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)"
            )


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
        entry.refill(_last_batches_of(until, entry.producer_id, entry.producer_epoch))
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


def _last_batches_of(segments: Sequence[Segment], producer_id: int, producer_epoch: int) -> list[AppendedBatch]:
    """A producer's last batches of one epoch as they stand in the log, oldest first."""
    found: list[AppendedBatch] = []
    for segment in reversed(segments):
        here = [
            AppendedBatch(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
            for _, header in segment.headers()
            if header.producer_id == producer_id and header.producer_epoch == producer_epoch and not header.is_control
        ]
        found = (here + found)[-BATCHES_REMEMBERED:]
        # The epoch's first batch has sequence 0: nothing older can belong to it.
        if len(found) == BATCHES_REMEMBERED or (found and found[0].first_sequence == 0):
            break
    return found


def placed(
    batch: memoryview, header: BatchHeader, base_offset: int, leader_epoch: int
) -> tuple[bytes | memoryview, ...]:
    """Returns the batch with its place in the log, as buffers to write. Only the first 16 bytes are copied."""
    return _PREFIX.pack(base_offset, header.length, leader_epoch), batch[_PREFIX.size :]


def stamped_with_time(
    batch: memoryview, header: BatchHeader, base_offset: int, leader_epoch: int, now_ms: int
) -> tuple[bytes | memoryview, ...]:
    """Returns the same with the time of the append for every record (`message.timestamp.type=LogAppendTime`)."""
    stamped = dataclasses.replace(
        header,
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        attributes=header.attributes | LOG_APPEND_TIME_BIT,
        max_timestamp=now_ms,
    )
    records = batch[HEADER_SIZE:]
    return pack_header(stamped, crc_tail=crc32c(records)), records
