"""Opens a log on disk: a cleanly closed log as it is, any other log after a scan and repair.

After a clean stop the newest snapshot stands at the log's end: nothing is scanned but the headers
behind the last index entry, which tell the end offset. After a crash every segment from the recovery
point on is read with its CRCs; the first batch that is torn, altered or out of order ends the log
there, and indexes, transaction index and producer state are rebuilt from what is left. What is cut off,
and the segments behind it, are kept aside (`damage`). Offsets before the recovery point were synced to
disk and are trusted.

In both cases the indexes of a segment are rebuilt if its offset index is missing or its transaction index is
damaged. This costs a clean start little: the names of the files are listed anyway, and only few segments have a
transaction index, which is small. Gaps in the offsets are reported and stay: to end the log there would lose more.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from suiro.config import MAX_LONG
from suiro.errors import CorruptRecordError
from suiro.log import producer_snapshot
from suiro.log.config import LogConfig
from suiro.log.damage import forget_older, keep_segment, keep_tail
from suiro.log.errors import DamagedLogError
from suiro.log.files import read_file
from suiro.log.producer_state import NO_EPOCH, ProducerStates
from suiro.log.segment import LOG_SUFFIX, Segment
from suiro.log.swap import complete_swaps
from suiro.log.transaction_index import AbortedTransaction, is_sound
from suiro.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header, verify
from suiro.protocol.records import CONTROL_VALUE, control_type

logger = logging.getLogger(__name__)

_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
_READ_BYTES = 1 << 20
_GAPS_MAX = 20


@dataclass(slots=True, kw_only=True)
class Opened:
    """An opened log. There is at least one segment; the last one takes the appends."""

    segments: list[Segment]
    producers: ProducerStates
    log_end_offset: int
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, first offset) of the batches that were read again, as they rise."""
    as_closed: bool = False
    """Whether a clean stop left the log like this, with a snapshot at its end."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """(first missing offset, offset behind the last) among the batches that were read again. Compaction leaves gaps,
    too."""


def open_segments(
    directory: Path,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
) -> Opened:
    names = _sweep(directory)
    stems = (name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX))
    bases = sorted(int(stem) for stem in stems if stem.isdigit())
    segments = [Segment(directory, base, config, created_ms=now_ms) for base in bases]
    if not segments:
        return _empty_at(directory, log_start_offset, config, now_ms=now_ms)
    end = _end_of(segments[-1]) if clean else None
    for number, why in _with_bad_indexes(segments, names, end):
        _rebuild_indexes(directory, segments, number, why, now_ms=now_ms)
    if clean:
        if end is not None:
            closed = producer_snapshot.load(directory, end)
            segments[-1].release()
            return Opened(
                segments=segments,
                producers=_producers_at(directory, segments, end, now_ms=now_ms)
                if closed is None
                else ProducerStates(closed),
                log_end_offset=end,
                as_closed=closed is not None,
            )
        logger.warning("%s was closed cleanly but its tail is not whole; it is recovered", directory)
        recovery_point = segments[-1].base_offset
    opened = _recover(directory, segments, recovery_point, now_ms=now_ms)
    if opened.log_end_offset >= log_start_offset:
        return opened
    # Everything that is left is before the log's start. Going on at the recovered end would give out used offsets
    # again, so the log is empty from its start on.
    logger.error("%s: nothing is left from its start at %d on", directory, log_start_offset)
    kept = [_set_segment_aside(segment, now_ms) for segment in opened.segments]
    forget_older(directory, kept)
    return _empty_at(directory, log_start_offset, config, now_ms=now_ms)


def replay_batch(
    producers: ProducerStates, segment: Segment, position: int, header: BatchHeader, *, now_ms: int
) -> AbortedTransaction | None:
    """Add a batch of the log to the producer state. Returns the transaction that it aborted, or None."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        # The log does not say when the batch was appended. The current time may keep a producer for too long, but
        # forgets none whose retry may still come.
        producers.add_batch(header, first_offset=header.base_offset, timestamp=now_ms)
        return None
    if header.count == 0:
        # Nothing is left of the transaction, nor of its marker; the batch was kept to tell the producer's epoch.
        known = producers.entries.get(header.producer_id)
        coordinator_epoch = NO_EPOCH if known is None else known.coordinator_epoch
        kind = None
    else:
        marker = segment.records(position, header)[0]
        kind = control_type(marker)
        if kind is None or marker.value is None:
            return None
        if len(marker.value) < CONTROL_VALUE.size:
            raise segment.damaged(position, f"a transaction marker has a value of {len(marker.value)} bytes")
        coordinator_epoch = CONTROL_VALUE.unpack_from(marker.value)[1]
    first_offset = producers.add_marker(header.producer_id, header.producer_epoch, coordinator_epoch, timestamp=now_ms)
    if first_offset is None or kind != "abort":
        return None
    first_unstable = producers.first_unstable_offset
    stable = header.next_offset if first_unstable is None else first_unstable
    return AbortedTransaction(header.producer_id, first_offset, header.last_offset, stable)


def _empty_at(directory: Path, offset: int, config: LogConfig, *, now_ms: int) -> Opened:
    producer_snapshot.remove(directory, keep=())
    segment = Segment(directory, offset, config, created_ms=now_ms)
    segment.create()
    return Opened(segments=[segment], producers=ProducerStates(), log_end_offset=offset)


def _sweep(directory: Path) -> set[str]:
    """Finish or remove what a crash left incomplete. Returns the names of the files before the removal."""
    names = set(os.listdir(directory))
    if complete_swaps(directory, names, _end_of_file):
        names = set(os.listdir(directory))
    for name in names:
        is_index = name.endswith(_INDEX_SUFFIXES)
        if name.endswith(".tmp") or (is_index and name.rpartition(".")[0] + LOG_SUFFIX not in names):
            (directory / name).unlink(missing_ok=True)
    return names


def _with_bad_indexes(
    segments: Sequence[Segment], names: set[str], log_end_offset: int | None
) -> Iterator[tuple[int, str]]:
    """Yields (number, what is wrong) of the segments whose indexes are missing or damaged."""
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset or MAX_LONG]
    for number, segment in enumerate(segments):
        stem = f"{segment.base_offset:020d}"  # a start looks at a hundred thousand: no Path is made
        if segment.size and f"{stem}.index" not in names:
            yield number, "its offset index is missing"
        elif f"{stem}.txnindex" in names:
            content = read_file(segment.transaction_index.path) or b""
            if not is_sound(content, base_offset=segment.base_offset, end_offset=ends[number]):
                yield number, "its transaction index is damaged"


def _rebuild_indexes(directory: Path, segments: list[Segment], number: int, why: str, *, now_ms: int) -> None:
    """Rebuild the three indexes of a segment from the producers at its start and from its batches."""
    segment = segments[number]
    logger.warning("%s: its indexes are built again: %s", segment.path, why)
    producers = _producers_at(directory, segments[:number], segment.base_offset, now_ms=now_ms)
    segment.forget()
    try:
        for position, header in segment.headers():
            _replay_and_index(producers, segment, position, header, now_ms=now_ms)
    except DamagedLogError as error:
        logger.error("%s: what is behind cannot be read", error)
    segment.seal()


def _replay_and_index(
    producers: ProducerStates, segment: Segment, position: int, header: BatchHeader, *, now_ms: int
) -> None:
    """Add a batch to the producer state and to the indexes of its segment. Raises DamagedLogError before it does."""
    aborted = replay_batch(producers, segment, position, header, now_ms=now_ms)
    segment.add_to_indexes(position, header.size, last_offset=header.last_offset, max_timestamp=header.max_timestamp)
    if aborted is not None:
        segment.transaction_index.add(aborted)


def _end_of_file(path: Path) -> int:
    """Returns the offset behind the last whole batch of a log file."""
    end, position = int(path.name.split(".", 1)[0]), 0
    with open(path, "rb", buffering=_READ_BYTES) as file:
        while len(data := file.read(HEADER_SIZE)) == HEADER_SIZE:
            header = read_header(data)
            end, position = header.next_offset, position + header.size
            file.seek(position)
    return end


def _end_of(segment: Segment) -> int | None:
    """Returns the offset behind a segment's last batch, from its last index entry on, or None if its tail is torn."""
    end = segment.base_offset
    try:
        for _, header in segment.headers(segment.last_indexed_position()):
            end = header.next_offset
    except DamagedLogError:
        return None
    return end


def _producers_at(directory: Path, segments: list[Segment], end: int, *, now_ms: int) -> ProducerStates:
    """Returns the producer state at an offset: that of the newest snapshot before it, with the later headers."""
    start, entries = producer_snapshot.load_newest(directory, at_most=end)
    producers = ProducerStates(entries)
    if start == end:
        return producers
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if next_base <= start or segment.base_offset >= end:
            continue
        try:
            first = segment.position_of(start) if start > segment.base_offset else 0
            for position, header in segment.headers(segment.size if first is None else first):
                if start <= header.base_offset < end:
                    replay_batch(producers, segment, position, header, now_ms=now_ms)
        except DamagedLogError as error:
            logger.error("%s: what its producers did there is not known", error)
        segment.release()
    return producers


def _recover(directory: Path, segments: list[Segment], recovery_point: int, *, now_ms: int) -> Opened:
    first = max((i for i, s in enumerate(segments) if s.base_offset <= recovery_point), default=0)
    base = segments[first].base_offset
    kept = [offset for offset in producer_snapshot.offsets(directory) if offset <= base]
    producer_snapshot.remove(directory, keep=kept)
    producers = _producers_at(directory, segments[:first], base, now_ms=now_ms)
    opened = Opened(segments=segments, producers=producers, log_end_offset=base)
    for number, segment in enumerate(segments[first:], first):
        if number > first:
            with contextlib.suppress(OSError):  # on a full disk the next recovery starts from an older one
                producer_snapshot.write(directory, segment.base_offset, producers.entries.values())
        position = _recover_segment(opened, segment, now_ms=now_ms)
        if position < segment.size:
            _cut(segments[number:], position, opened.log_end_offset, now_ms=now_ms)
            opened.segments = segments[: number + 1]
            break
        if number + 1 < len(segments):
            segment.seal()
    opened.segments[-1].release()
    return opened


def _cut(segments: Sequence[Segment], position: int, end: int, *, now_ms: int) -> None:
    """End the log within the first of the segments. The bytes that are cut off and the later segments are kept."""
    torn, *later = segments
    size = torn.size
    aside = keep_tail(torn.path, torn.handle, position, size, now_ms=now_ms)
    torn.cut(position)
    kept = [] if aside is None else [aside]
    logger.log(
        logging.WARNING if aside is None else logging.ERROR,
        "%s: the %d bytes from %d on are no whole batch with the right CRC; the log ends at offset %d, and they are %s",
        torn.path,
        size - position,
        position,
        end,
        "dropped, being zeros" if aside is None else f"kept in {aside.name}",
    )
    for segment in later:
        if segment.size == 0:
            segment.unlink()
            continue
        aside = _set_segment_aside(segment, now_ms)
        logger.error("%s: it follows a damaged segment, and is %s from now on", segment.path, aside.name)
        kept.append(aside)
    forget_older(torn.path.parent, kept)


def _set_segment_aside(segment: Segment, now_ms: int) -> Path:
    aside = keep_segment(segment.path, now_ms=now_ms)
    segment.unlink()
    return aside


def _recover_segment(opened: Opened, segment: Segment, *, now_ms: int) -> int:
    """Read the next segment up to its last valid batch, and rebuild its indexes. Returns where that batch ends."""
    segment.forget()
    segment.create()
    position = 0
    try:
        for at, header in segment.headers():
            if header.base_offset < opened.log_end_offset:
                break
            verify(segment.read_batch(at, header), 0, header)
            try:
                _replay_and_index(opened.producers, segment, at, header, now_ms=now_ms)
            except DamagedLogError as error:  # of a marker with the right CRC; Kafka ends the log there, too
                logger.error("%s", error)
                break
            _go_on_at(opened, header.base_offset)
            epochs = opened.leader_epochs
            if header.partition_leader_epoch > (epochs[-1][0] if epochs else -1):
                epochs.append((header.partition_leader_epoch, header.base_offset))
            opened.log_end_offset, position = header.next_offset, at + header.size
    except CorruptRecordError:
        pass  # Here the valid batches end.
    if position == 0:
        # The offsets before the segment were given out, and cleaning has removed their batches. The log goes on where
        # the segment begins, because it cannot hold smaller offsets.
        _go_on_at(opened, segment.base_offset)
    return position


def _go_on_at(opened: Opened, offset: int) -> None:
    """If offsets are missing before this one, note it: the first gaps, and the last one, which says how far they
    reach."""
    if offset > opened.log_end_offset:
        del opened.gaps[_GAPS_MAX - 1 :]
        opened.gaps.append((opened.log_end_offset, offset))
        opened.log_end_offset = offset
