"""Opening what is on disk: a clean log as it stands, any other one scanned and mended.

After a clean stop the newest snapshot stands at the log's end: nothing is scanned but the headers
behind the last index entry, which tell the end offset. After a crash every segment from the recovery
point on is read with its CRCs; the first batch that is torn, altered or out of order ends the log
there, and indexes, transaction index and producer state are rebuilt from what is left. Offsets before
the recovery point were synced to disk and are trusted.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suiro.errors import CorruptRecordError
from suiro.log import producer_snapshot
from suiro.log.config import LogConfig
from suiro.log.producer_state import NO_EPOCH, ProducerStates
from suiro.log.segment import LOG_SUFFIX, Segment
from suiro.log.swap import complete_swaps
from suiro.log.transaction_index import AbortedTransaction
from suiro.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header, verify
from suiro.protocol.records import control_type, decode_batch

logger = logging.getLogger(__name__)

_LEFTOVERS = (".tmp",)
_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
_READ_BYTES = 1 << 20
_CONTROL_VALUE = struct.Struct(">hi")  # version, coordinator epoch


@dataclass(slots=True, kw_only=True)
class Opened:
    """What was found: at least one segment, the last one takes the appends."""

    segments: list[Segment]
    producers: ProducerStates
    log_end_offset: int
    leader_epochs: Sequence[tuple[int, int]] = ()
    """(epoch, first offset) of the batches that were read again, as they rise."""
    as_closed: bool = False
    """A clean stop left it so, with a snapshot at its end."""


def open_segments(
    directory: Path,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
) -> Opened:
    bases = _sweep(directory)
    segments = [Segment(directory, base, config, created_ms=now_ms) for base in bases]
    if not segments:
        return _empty_at(directory, log_start_offset, config, now_ms=now_ms)
    if clean:
        end = _end_of(segments[-1])
        if end is not None:
            closed = producer_snapshot.load(directory, end)
            if closed is None:
                producers = _producers_at(directory, segments, end, now_ms=now_ms)
            else:
                producers = ProducerStates(closed)
            segments[-1].release()
            return Opened(
                segments=segments,
                producers=producers,
                log_end_offset=end,
                as_closed=closed is not None,
            )
        logger.warning("%s was closed cleanly but its tail is not whole; it is recovered", directory)
        recovery_point = segments[-1].base_offset
    opened = _recover(directory, segments, recovery_point, now_ms=now_ms)
    if opened.log_end_offset >= log_start_offset:
        return opened
    # All that was left lies before the start that DeleteRecords had moved. Going on at the recovered end
    # would give out offsets again that were in use, so the log begins anew at its start.
    logger.warning("%s: nothing is left from its start at %d on", directory, log_start_offset)
    for segment in opened.segments:
        segment.unlink()
    return _empty_at(directory, log_start_offset, config, now_ms=now_ms)


def replay_batch(
    producers: ProducerStates, segment: Segment, position: int, header: BatchHeader, *, now_ms: int
) -> AbortedTransaction | None:
    """Take a batch of the log into the producer state; the transaction that it aborted, if it did."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        # When it was appended is not written anywhere. Taking now keeps a producer for too long rather
        # than forgetting one whose retry may still come.
        producers.add_batch(
            header.producer_id,
            header.producer_epoch,
            header.last_sequence,
            first_offset=header.base_offset,
            last_offset=header.last_offset,
            timestamp=now_ms,
            transactional=header.is_transactional,
        )
        return None
    if header.count == 0:
        # Nothing is left of the transaction, nor of its marker; the batch was kept to tell the producer's epoch.
        known = producers.entries.get(header.producer_id)
        producers.add_marker(
            header.producer_id,
            header.producer_epoch,
            NO_EPOCH if known is None else known.coordinator_epoch,
            offset=header.last_offset,
            timestamp=now_ms,
            aborted=False,
        )
        return None
    marker = decode_batch(segment.read_batch(position, header))[0]
    kind = control_type(marker)
    if kind is None or marker.value is None:
        return None
    completed = producers.add_marker(
        header.producer_id,
        header.producer_epoch,
        _CONTROL_VALUE.unpack_from(marker.value)[1],
        offset=header.last_offset,
        timestamp=now_ms,
        aborted=kind == "abort",
    )
    if completed is None or not completed.aborted:
        return None
    first_unstable = producers.first_unstable_offset
    stable = completed.last_offset + 1 if first_unstable is None else first_unstable
    return AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)


def _empty_at(directory: Path, offset: int, config: LogConfig, *, now_ms: int) -> Opened:
    producer_snapshot.remove(directory, keep=())
    segment = Segment(directory, offset, config, created_ms=now_ms)
    segment.create()
    return Opened(segments=[segment], producers=ProducerStates(), log_end_offset=offset)


def _sweep(directory: Path) -> list[int]:
    """Finish or remove what a crash left half done; the base offsets of the segments, ascending."""
    names = set(os.listdir(directory))
    if complete_swaps(directory, names, _end_of_file):
        names = set(os.listdir(directory))
    for name in names:
        if name.endswith(_INDEX_SUFFIXES):
            leftover = name.rpartition(".")[0] + LOG_SUFFIX not in names
        else:
            leftover = name.endswith(_LEFTOVERS)
        if leftover:
            (directory / name).unlink(missing_ok=True)
    stems = (name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _end_of_file(path: Path) -> int:
    """The offset behind the last whole batch of a log file."""
    end, position = int(path.name.split(".", 1)[0]), 0
    with open(path, "rb", buffering=_READ_BYTES) as file:
        while len(data := file.read(HEADER_SIZE)) == HEADER_SIZE:
            header = read_header(data)
            end, position = header.next_offset, position + header.size
            file.seek(position)
    return end


def _end_of(segment: Segment) -> int | None:
    """The offset after a segment's last batch, found from its last index entry; None if its tail is torn."""
    last_entry = segment.offset_index.last()
    end, reached = segment.base_offset, 0
    for position, header in segment.headers(0 if last_entry is None else last_entry[1]):
        end, reached = header.next_offset, position + header.size
    return end if reached == segment.size else None


def _producers_at(directory: Path, segments: list[Segment], end: int, *, now_ms: int) -> ProducerStates:
    """The producer state at an offset: the newest snapshot before it, then the headers from there on."""
    start, entries = producer_snapshot.load_newest(directory, at_most=end)
    producers = ProducerStates(entries)
    if start == end:
        return producers
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if next_base <= start or segment.base_offset >= end:
            continue
        first = segment.position_of(start) if start > segment.base_offset else 0
        for position, header in segment.headers(segment.size if first is None else first):
            if start <= header.base_offset < end:
                replay_batch(producers, segment, position, header, now_ms=now_ms)
        segment.release()
    return producers


def _recover(directory: Path, segments: list[Segment], recovery_point: int, *, now_ms: int) -> Opened:
    first = max((i for i, s in enumerate(segments) if s.base_offset <= recovery_point), default=0)
    unindexed = (i for i, s in enumerate(segments[:first]) if s.size and not s.offset_index.path.exists())
    first = min(first, next(unindexed, first))
    base = segments[first].base_offset
    kept = [offset for offset in producer_snapshot.offsets(directory) if offset <= base]
    producer_snapshot.remove(directory, keep=kept)
    producers = _producers_at(directory, segments[:first], base, now_ms=now_ms)
    end = base
    epochs: list[tuple[int, int]] = []
    for number in range(first, len(segments)):
        segment = segments[number]
        if number > first:
            producer_snapshot.write(directory, segment.base_offset, producers.entries.values())
        found = segment.size
        end = _recover_segment(segment, producers, epochs, max(end, segment.base_offset), now_ms=now_ms)
        if segment.size < found:
            logger.warning("%s: cut %d torn bytes, ends at %d", segment.path, found - segment.size, end)
            for later in segments[number + 1 :]:
                logger.warning("%s: removed, it follows a torn segment", later.path)
                later.unlink()
            segments = segments[: number + 1]
            break
        if number + 1 < len(segments):
            segment.seal()
    segments[-1].release()
    return Opened(segments=segments, producers=producers, log_end_offset=end, leader_epochs=epochs)


def _recover_segment(
    segment: Segment, producers: ProducerStates, epochs: list[tuple[int, int]], end: int, *, now_ms: int
) -> int:
    """Rebuild one segment's indexes up to its last valid batch and cut the rest; the offset after it."""
    size, position = segment.size, 0
    segment.forget()
    segment.create()
    while position + HEADER_SIZE <= size:
        try:
            header = read_header(os.pread(segment.handle, HEADER_SIZE, position))
            if position + header.size > size or header.base_offset < end or header.last_offset_delta < 0:
                break
            verify(segment.read_batch(position, header), 0, header)
        except CorruptRecordError:
            break
        aborted = replay_batch(producers, segment, position, header, now_ms=now_ms)
        if header.partition_leader_epoch > (epochs[-1][0] if epochs else -1):
            epochs.append((header.partition_leader_epoch, header.base_offset))
        segment.add_to_indexes(
            position, header.size, last_offset=header.last_offset, max_timestamp=header.max_timestamp
        )
        if aborted is not None:
            segment.transaction_index.add(aborted)
        position += header.size
        end = header.next_offset
    segment.cut(position)
    return end
