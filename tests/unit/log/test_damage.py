"""Every file of a log, damaged: a reader gets each record or an error, never a part of them as if it were all."""

from __future__ import annotations

import contextlib
import errno
import inspect
import logging
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.logs import NOW_MS, batch, first_found, open_log, region_bytes

from suiro.clock import ManualClock
from suiro.errors import ConfigError, CorruptRecordError
from suiro.log import (
    CleanerSettings,
    DamagedLogError,
    DataDirectory,
    InRemoteTierError,
    LogConfig,
    PartitionLog,
    damage,
    dirtiness,
)
from suiro.log.checkpoints import read_checkpoint
from suiro.log.cleaning import clean as clean_log
from suiro.protocol.messages import ErrorCode
from suiro.protocol.record_batch import iter_headers, read_header
from suiro.protocol.records import Record, encode_batch

TOPIC = uuid4()
CLOCK = ManualClock(wall_ms=NOW_MS)
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=200)
BATCHES = 120
Harm = Callable[[Path], object]


def _filled(folder: Path) -> Path:
    """Several segments of single-record batches; every tenth is of an aborted transaction."""
    log = open_log(folder / "t-0", config=CONFIG)
    sequence = 0
    for number in range(BATCHES):
        if number % 10 == 9:
            data = batch(producer_id=7, epoch=0, sequence=sequence, transactional=True, timestamp=NOW_MS + number)
            sequence += 1
            log.append(data)
            log.append_control(False, 7, 0, 0, NOW_MS)
        else:
            log.append(batch(timestamp=NOW_MS + number))
    log.close()
    return folder / "t-0"


def _read(log: PartitionLog, *, read_committed: bool = False) -> tuple[list[int], int | None]:
    """Base offsets of the batches that a consumer gets, and where it was stopped by an error (None: at the end)."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            result = log.read(offset, max_bytes=700, read_committed=read_committed)
            before, data = offset, region_bytes(result)
            for _, header in iter_headers(data):
                found.append(header.base_offset)
                offset = header.next_offset
            if offset == before:
                return found, offset
        except DamagedLogError:
            return found, offset
    return found, None


def _each(pattern: str, change: Callable[[bytes], bytes]) -> Harm:
    def harm(folder: Path) -> None:
        for path in folder.glob(pattern):
            path.write_bytes(change(path.read_bytes()))

    return harm


def _entries(change: Callable[[int, bytearray], object], size: int = 8) -> Callable[[bytes], bytes]:
    """Change each entry of an index by its number."""

    def changed(content: bytes) -> bytes:
        found = bytearray()
        for number, start in enumerate(range(0, len(content), size)):
            entry = bytearray(content[start : start + size])
            change(number, entry)
            found += entry
        return bytes(found)

    return changed


def _flip(at: int, bits: int) -> Callable[[int, bytearray], None]:
    def change(_: int, entry: bytearray) -> None:
        entry[at] ^= bits

    return change


def _removed(pattern: str) -> Harm:
    return lambda folder: [path.unlink() for path in folder.glob(pattern)]


DRAWN = random.Random(4)
INDEXES: dict[str, Harm] = {
    "offsets gone": _removed("*.index"),
    "offsets zero": _each("*.index", lambda content: bytes(len(content))),
    "offsets random": _each("*.index", lambda _: DRAWN.randbytes(800)),
    "offsets of odd length": _each("*.index", lambda content: content[:-3]),
    "offsets cut in half": _each("*.index", lambda content: content[: len(content) // 16 * 8]),
    "offsets empty": _each("*.index", lambda _: b""),
    "positions off by one": _each("*.index", _entries(_flip(7, 1))),
    "positions too large": _each("*.index", _entries(_flip(5, 0x40))),
    "positions negative": _each("*.index", _entries(_flip(4, 0x80))),
    "positions of the next entry": _each("*.index", lambda content: content[8:] + content[:8]),
    "offsets too small": _each("*.index", _entries(_flip(3, 0x04))),
    "times gone": _removed("*.timeindex"),
    "times zero": _each("*.timeindex", lambda content: bytes(len(content))),
    "times random": _each("*.timeindex", lambda _: DRAWN.randbytes(1200)),
    "times of odd length": _each("*.timeindex", lambda content: content[:-1]),
    "times cut in half": _each("*.timeindex", lambda content: content[: len(content) // 24 * 12]),
    "times later": _each("*.timeindex", _entries(_flip(5, 0x40), 12)),
    "time's offsets altered": _each("*.timeindex", _entries(_flip(11, 0x08), 12)),
    "transactions random": _each("*.txnindex", lambda _: DRAWN.randbytes(340)),
    "transactions zero": _each("*.txnindex", lambda content: bytes(len(content))),
    "transactions of odd length": _each("*.txnindex", lambda content: content[:-1]),
    "transactions of another version": _each("*.txnindex", _entries(_flip(1, 1), 34)),
    "transactions of another segment": _each("*.txnindex", _entries(_flip(22, 0x40), 34)),
    "all gone": _removed("*index"),
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", INDEXES)
def test_an_index_that_contradicts_its_segment_is_built_again(tmp_path: Path, kind: str, clean: bool) -> None:
    folder = _filled(tmp_path)
    whole = open_log(folder, config=CONFIG, clean=True)
    expected = _answers(whole)
    whole.abandon()
    INDEXES[kind](folder)
    log = open_log(folder, config=CONFIG, clean=clean, recovery_point=100)
    assert _answers(log) == expected
    log.close()
    assert _answers(open_log(folder, config=CONFIG, clean=True)) == expected


def _answers(log: PartitionLog) -> list[object]:
    """All that the indexes have a part in: reads from everywhere, look-ups by time, aborted transactions, ages."""
    times = [first_found(log.lookups_by_time(NOW_MS + number)) for number in range(0, BATCHES, 3)]
    reads = []
    for offset in range(0, log.log_end_offset, 3):
        result = log.read(offset, max_bytes=500, read_committed=True)
        reads.append((region_bytes(result)[:8], result.aborted))
    log.retention.apply()
    return [times, reads, first_found(log.lookups_of_max_timestamp()), _read(log), log.log_start_offset]


def test_a_time_index_that_lies_deletes_nothing(tmp_path: Path) -> None:
    folder = _filled(tmp_path)
    _each("*.timeindex", _entries(lambda _, entry: entry.__setitem__(slice(0, 8), bytes(7) + b"\1"), 12))(folder)
    log = open_log(folder, config=LogConfig(segment_bytes=4000, retention_ms=3_600_000), clean=True)
    assert log.retention.apply() == 0
    assert _read(log)[1] is None


def test_a_disk_that_fails_while_a_time_index_is_checked_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check counted as done, and the next one deleted by the index that lies."""
    folder = _filled(tmp_path)
    _each("*.timeindex", _entries(lambda _, entry: entry.__setitem__(slice(0, 8), bytes(7) + b"\1"), 12))(folder)
    real, left = os.pread, 0

    def failing(*args: Any) -> bytes:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*args)

    monkeypatch.setattr(os, "pread", failing)
    for number in range(1, 1000):
        shutil.copytree(folder, tmp_path / str(number))
        log = open_log(tmp_path / str(number), config=LogConfig(segment_bytes=4000, retention_ms=3_600_000), clean=True)
        left = number
        with contextlib.suppress(OSError):
            assert log.retention.apply() == 0
        if left > 0:
            break  # It did not fail any more.
        assert log.retention.apply() == 0, f"read {number} failed"
        assert first_found(log.lookups_by_time(NOW_MS + BATCHES - 1)) is not None
    assert number > 10


def test_many_segments_without_time_indexes_expire_together(tmp_path: Path) -> None:
    """For each that was built again, retention called itself: from a thousand segments on, it failed every time."""
    log = open_log(tmp_path / "t-0")
    for _ in range(300):
        log.append(batch())
        log.roll()
    log.close()
    for path in (tmp_path / "t-0").glob("*.timeindex"):
        path.unlink()
    log = open_log(tmp_path / "t-0", config=LogConfig(retention_bytes=0), clean=True)
    most = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    try:
        assert log.retention.apply() == 300
    finally:
        sys.setrecursionlimit(most)
    assert log.log_start_offset == log.log_end_offset


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", ["gone", "cut at a batch", "cut within a batch", "length", "magic", "offset", "zeros"])
def test_damage_in_a_middle_segment_stops_the_reader_there(
    tmp_path: Path, kind: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _filled(tmp_path)
    logs = sorted(folder.glob("*.log"))
    middle, later = logs[len(logs) // 2], logs[len(logs) // 2 + 1]
    content = middle.read_bytes()
    positions = [position for position, header in iter_headers(content) if header.producer_id < 0]
    at = positions[len(positions) // 2]
    harmed = bytearray(content)
    first_lost = lost_timestamp = 0
    match kind:
        case "gone":
            middle.unlink()
            first_lost = int(middle.stem)
        case "cut at a batch":
            del harmed[at:]
        case "cut within a batch":
            del harmed[at + 70 :]
        case "length":
            harmed[at + 8] ^= 0x40
        case "magic":
            harmed[at + 16] ^= 0x5A
        case "offset":
            harmed[at + 5] ^= 0x5A  # outside of what the CRC covers
        case "zeros":
            harmed[at : at + 300] = bytes(300)
    if kind != "gone":
        middle.write_bytes(harmed)
        lost = read_header(content, at)
        first_lost, lost_timestamp = lost.base_offset, lost.max_timestamp
    end = open_log_end(folder)
    # As after a kill, with all of it synced: recovery trusts what is before its point.
    log = open_log(folder, config=CONFIG, clean=clean, recovery_point=end, gaps_below=0)
    assert log.log_end_offset == end
    found, stopped = _read_checked(log)
    assert stopped == first_lost
    assert found == list(range(first_lost))
    assert sum("damaged" in record.message for record in caplog.records if record.levelno >= logging.ERROR) == 1
    with pytest.raises(DamagedLogError) as caught:
        log.read(first_lost, max_bytes=1000, read_committed=True)
    assert caught.value.code is ErrorCode.corrupt_message
    # A copy in the remote tier was verified when it was made.
    for tiered_end, refusal in ((first_lost, DamagedLogError), (first_lost + 1, InRemoteTierError)):
        log.tiered_end_offset = tiered_end
        with pytest.raises(refusal):
            log.read(first_lost, max_bytes=1000, read_committed=False)
    # What is behind can be read by whoever goes there, and appends go on.
    assert log.read(int(later.stem), max_bytes=1000, read_committed=False).size > 0
    assert log.append(batch()).base_offset == end
    if kind in ("length", "magic", "zeros"):
        with pytest.raises(DamagedLogError):
            first_found(log.lookups_by_time(lost_timestamp))


def open_log_end(folder: Path) -> int:
    last = max(folder.glob("*.log"))
    return max(header.next_offset for _, header in iter_headers(last.read_bytes()))


def _read_checked(log: PartitionLog) -> tuple[list[int], int | None]:
    """As `_read`, but as a consumer that holds offsets against what it asked for, as Kafka's do with the CRC."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            result = log.read(offset, max_bytes=1, read_committed=False)
        except DamagedLogError:
            return found, offset
        ((_, header),) = iter_headers(region_bytes(result))
        found.append(header.base_offset)
        offset = header.next_offset
    return found, None


def test_what_is_whole_is_read_before_the_damage_is_told(tmp_path: Path) -> None:
    folder = _filled(tmp_path)
    path = sorted(folder.glob("*.log"))[1]
    content = bytearray(path.read_bytes())
    positions = [position for position, _ in iter_headers(content)]
    content[positions[9] + 16] ^= 0xFF
    path.write_bytes(content)
    log = open_log(folder, config=CONFIG, clean=True, gaps_below=0)
    first = int(path.stem)
    result = log.read(first, max_bytes=positions[9] + 30, read_committed=False)
    assert len(region_bytes(result)) == positions[9]
    with pytest.raises(DamagedLogError, match=path.name):
        log.read(read_header(region_bytes(result), positions[8]).next_offset, max_bytes=10, read_committed=False)


def test_a_flipped_bit_in_an_unsynced_segment_keeps_what_is_behind_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _filled(tmp_path)
    logs = sorted(folder.glob("*.log"))
    content = logs[1].read_bytes()
    later = {path.name: path.read_bytes() for path in logs[2:]}
    positions = [position for position, _ in iter_headers(content)]
    harmed = bytearray(content)
    harmed[positions[5] + 65] ^= 1
    logs[1].write_bytes(harmed)
    log = open_log(folder, config=CONFIG, gaps_below=0)
    assert log.log_end_offset == read_header(content, positions[5]).base_offset
    kept = {path.name.split(".log")[0] + ".log": path for path in folder.glob("*.damaged")}
    assert kept[logs[1].name].read_bytes() == bytes(harmed[positions[5] :])
    assert {name: kept[name].read_bytes() for name in later} == later
    for path in kept.values():
        assert any(path.name in record.message for record in caplog.records)
    log.append(batch())
    log.close()
    assert _read(open_log(folder, config=CONFIG, clean=True, gaps_below=0))[1] is None


def test_a_log_that_ends_where_a_segment_begins_goes_on_there(tmp_path: Path) -> None:
    """Cleaning has left a gap before a segment whose first batch is torn now: the offsets of the gap were given out,
    and the segment could not hold them."""
    folder = _filled(tmp_path)
    logs = sorted(folder.glob("*.log"))
    content = bytearray(logs[2].read_bytes())
    logs[1].unlink()
    content[65] ^= 1
    logs[2].write_bytes(content)
    log = open_log(folder, config=CONFIG)
    assert log.log_end_offset == int(logs[2].stem)
    appended = log.append(batch()).base_offset
    assert _read(log) == ([*_read(log)[0][:-1], appended], None)
    log.close()
    assert _read(open_log(folder, config=CONFIG, clean=True))[0][-1] == appended


def test_what_is_kept_aside_has_a_limit_and_the_newest_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "KEPT_FILES_MAX", 3)
    log = open_log(tmp_path / "t-0", config=CONFIG)
    log.append(batch())
    log.abandon()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    for number in range(6):
        with path.open("ab") as file:
            file.write(b"garbage %d" % number)
        open_log(tmp_path / "t-0", config=CONFIG).abandon()
        kept = sorted((tmp_path / "t-0").glob("*.damaged"), key=lambda p: p.stat().st_mtime_ns)
        assert len(kept) == min(number + 1, 3)
        assert b"garbage %d" % number in {p.read_bytes() for p in kept}
    monkeypatch.setattr(damage, "KEPT_BYTES_MAX", 12)
    with path.open("ab") as file:
        file.write(b"more than the limit, yet all of this recovery is kept")
    open_log(tmp_path / "t-0", config=CONFIG).abandon()
    assert [p.stat().st_size for p in (tmp_path / "t-0").glob("*.damaged")] == [53]


def test_a_marker_without_its_value_is_told_as_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path / "t-0", config=CONFIG)
    record = Record(offset=0, timestamp=NOW_MS, key=bytes(4), value=b"\0")
    marker = encode_batch([record], producer_id=7, producer_epoch=0, transactional=True, control=True)
    log.append(batch())
    log.append(marker, origin="coordinator")
    log.append(batch())
    log.close()
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    open_log(tmp_path / "t-0", config=CONFIG, clean=True).abandon()
    assert "a transaction marker has a value of 1 bytes: what its producers did" in caplog.text
    log = open_log(tmp_path / "t-0", config=CONFIG)  # Kafka cuts it off, too
    assert log.log_end_offset == 1
    assert re.search(
        r"at byte \d+ of \d+: a transaction marker has a value of 1 bytes\n.* ends at offset 1,",
        caplog.text,
        re.S,
    )
    assert len(list((tmp_path / "t-0").glob("*.damaged"))) == 1
    log.append(batch())
    assert _read(log) == ([0, 1], None)


def _with_garbage(folder: Path, garbage: bytes) -> Path:
    """A log of one batch, with these bytes behind it."""
    log = open_log(folder, config=CONFIG)
    log.append(batch())
    log.abandon()
    path = folder / f"{0:020d}.log"
    with path.open("ab") as file:
        file.write(garbage)
    return path


def test_a_full_disk_cuts_nothing_that_it_cannot_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _with_garbage(tmp_path / "t-0", b"garbage")
    content = path.read_bytes()
    write = os.pwritev

    def full(handle: int, buffers: Any, position: int) -> int:
        """Others take the room that becomes free; what was cut off finds its own again."""
        if os.readlink(f"/proc/self/fd/{handle}") != str(path):
            raise OSError(28, "No space left on device")
        return write(handle, buffers, position)

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="No space"):
        open_log(tmp_path / "t-0", config=CONFIG)
    assert path.read_bytes() == content
    assert not list((tmp_path / "t-0").glob("*.damaged"))


def test_a_full_disk_keeps_a_torn_tail_in_the_room_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One log with a batch that a power failure had torn kept the whole node from starting."""
    monkeypatch.setattr(damage, "_CHUNK_BYTES", 10)
    folder, garbage = tmp_path / "t-0", bytes(range(1, 36))
    path = _with_garbage(folder, garbage)
    end = path.stat().st_size
    write, sync = os.pwritev, os.fsync

    def taken() -> int:
        kept = sum(len(file.read_bytes().replace(b"\0", b"")) for file in folder.glob("*.damaged"))
        return path.stat().st_size + kept  # holes take no room

    def full(handle: int, buffers: Any, position: int) -> int:
        """There is room for as much as there was."""
        grows = position + sum(map(len, buffers)) - os.fstat(handle).st_size
        if grows > 0 and taken() >= end:
            raise OSError(28, "No space left on device")
        return write(handle, buffers, position)

    def full_at_last(handle: int) -> None:
        if taken() > end:
            raise OSError(28, "No space left on device")
        sync(handle)
        synced[os.readlink(f"/proc/self/fd/{handle}")] = len(os.pread(handle, 100, 0).replace(b"\0", b""))

    synced: dict[str, int] = {}
    lost_by_a_power_failure: list[int] = []
    cut = os.ftruncate

    def before_a_cut(handle: int, size: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}") == str(path) and size > end - len(garbage):
            kept = sum(synced.get(str(file), 0) for file in folder.glob("*.damaged"))
            lost_by_a_power_failure.append(end - path.stat().st_size - kept)
        cut(handle, size)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        patch.setattr(os, "fsync", full_at_last)
        patch.setattr(os, "ftruncate", before_a_cut)
        log = open_log(folder, config=CONFIG)
    assert lost_by_a_power_failure == [0, 0, 0]  # before each of the last chunks is cut off
    assert log.log_end_offset == 1
    (aside,) = folder.glob("*.damaged")
    assert aside.read_bytes() == garbage
    assert path.stat().st_size == end - len(garbage)
    assert log.append(batch()).base_offset == 1


def test_synced_records_that_are_gone_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = _filled(tmp_path)
    end = open_log_end(folder)
    max(folder.glob("*.log")).unlink()
    open_log(folder, config=CONFIG, clean=True, recovery_point=end)
    assert any(f"to {end - 1} are lost" in record.message for record in caplog.records)


# Gaps


def _cleaned(directory: DataDirectory) -> PartitionLog:
    """A compacted log with gaps within and between its segments, and records behind that are not cleaned."""
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=1000, index_interval_bytes=200)
    log = directory.open_partition("t", 0, topic_id=TOPIC, config=config, clock=CLOCK)
    for number in range(60):
        log.append(batch(1 + number % 3))
    found = dirtiness(log.cleaning.facts(), config, checkpoint=None, now_ms=NOW_MS)
    job = log.cleaning.begin(found, CleanerSettings(dedupe_buffer_bytes=1 << 20))
    for message in clean_log(job):
        if hasattr(message, "bases"):
            log.cleaning.replace_segments(message.bases)
    log.cleaning.end()
    return log


def test_gaps_that_cleaning_left_are_no_damage_after_a_kill(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    log = _cleaned(directory)
    found, stopped = _read(log)
    assert stopped is None
    assert len(found) < 60
    directory.abandon()  # before the cleaner's own checkpoint
    again = DataDirectory.open(tmp_path)
    log = again.open_partition("t", 0, topic_id=TOPIC, config=CONFIG, clock=CLOCK)
    assert _read(log) == (found, None)
    again.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("left", [0, 30, 100, 500])
def test_a_segment_that_became_shorter_ends_its_cleaning(tmp_path: Path, left: int) -> None:
    """It went on to read the batch that was cut, without end."""
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=1000)
    log = open_log(tmp_path / "t-0", config=config)
    for _ in range(20):
        log.append(batch())
    job = log.cleaning.begin(dirtiness(log.cleaning.facts(), config, checkpoint=None, now_ms=NOW_MS), CleanerSettings())
    os.truncate(log.segments[0].path, left)
    with pytest.raises(CorruptRecordError, match=rf"log ends at byte {left} of \d+"):
        list(clean_log(job))
    log.abandon()


def test_a_gap_behind_what_was_cleaned_is_damage(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    log = _cleaned(directory)
    for _ in range(60):
        log.append(batch())
    lost = log.segments[-3]
    directory.close()
    lost.path.unlink()
    again = DataDirectory.open(tmp_path)
    log = again.open_partition("t", 0, topic_id=TOPIC, config=CONFIG, clock=CLOCK)
    assert _read(log)[1] == lost.base_offset
    again.close()


def test_a_directory_that_an_older_version_made_trusts_the_gaps_that_it_has(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    log = _cleaned(directory)
    found = _read(log)
    directory.close()
    (tmp_path / "gap-offset-checkpoint").unlink()
    for _ in range(2):
        directory = DataDirectory.open(tmp_path)
        log = directory.open_partition("t", 0, topic_id=TOPIC, config=CONFIG, clock=CLOCK)
        directory.all_are_open()
        assert _read(log) == found
        directory.close()
    assert read_checkpoint(tmp_path / "gap-offset-checkpoint", columns=3) == [["t", "0", str(log.log_end_offset)]]


# Checkpoints


GARBAGE = [b"\xff" * 30, b"x" * 30, b"0\n1\nt 0 five\n", b"0\n2\nt 0 5\n", b"\0\1\2"]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "cleaner-offset-checkpoint", "gap-offset-checkpoint"],
)
def test_a_damaged_checkpoint_is_set_aside_and_named(
    tmp_path: Path, name: str, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    directory = DataDirectory.open(tmp_path)
    expected = _read(_cleaned(directory))
    directory.close()
    (tmp_path / name).write_bytes(garbage)
    again = DataDirectory.open(tmp_path)
    log = again.open_partition("t", 0, topic_id=TOPIC, config=CONFIG, clock=CLOCK)
    assert _read(log) == expected
    again.close()
    assert (tmp_path / f"{name}.damaged").read_bytes() == garbage
    assert any(name in record.message for record in caplog.records if record.levelno >= logging.ERROR)


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_files_of_a_partition_are_rebuilt(
    tmp_path: Path, garbage: bytes, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    directory = DataDirectory.open(tmp_path)
    log = directory.open_partition("t", 0, topic_id=TOPIC, config=CONFIG, clock=CLOCK)
    log.begin_epoch(4)
    log.append(batch(producer_id=3, epoch=0, sequence=0))
    log.begin_epoch(6)
    log.append(batch(producer_id=3, epoch=0, sequence=1))
    epochs = log.leader_epochs.entries
    directory.close() if clean else directory.abandon()
    names = ["leader-epoch-checkpoint", "partition.metadata"]
    for name in names:
        (tmp_path / "t-0" / name).write_bytes(garbage)
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.write_bytes(garbage)
    again = DataDirectory.open(tmp_path)
    assert [place.topic_id for place in again.partitions()] == [None]
    log = again.open_partition("t", 0, topic_id=TOPIC, config=CONFIG, clock=CLOCK)
    assert log.leader_epochs.entries == epochs
    assert log.append(batch(producer_id=3, epoch=0, sequence=1)).duplicate
    assert [place.topic_id for place in again.partitions()] == [TOPIC]
    again.close()
    for name in names:
        assert (tmp_path / "t-0" / f"{name}.damaged").read_bytes() == garbage
        assert any(name in record.message for record in caplog.records if record.levelno >= logging.ERROR)


@pytest.mark.parametrize(
    ("name", "content"),
    [("log-start-offset-checkpoint", content) for content in GARBAGE]
    + [("meta.properties", content) for content in (b"\xff" * 30, b"x=y\n", b"node.id=1\n")],
)
def test_what_only_the_operator_can_bring_back_stops_the_start(tmp_path: Path, name: str, content: bytes) -> None:
    DataDirectory.open(tmp_path).close()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=re.compile(f"{name}.*restore it", re.IGNORECASE)):
        DataDirectory.open(tmp_path)
    assert (tmp_path / name).read_bytes() == content


def test_a_missing_first_segment_is_named_after_a_clean_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = DataDirectory.open(tmp_path)
    log = directory.open_partition("t", 0, topic_id=TOPIC, config=CONFIG, clock=CLOCK)
    for _ in range(100):
        log.append(batch())
    first, second, *_ = log.segments
    directory.close()
    first.path.unlink()
    again = DataDirectory.open(tmp_path)
    again.open_partition("t", 0, topic_id=TOPIC, config=CONFIG, clock=CLOCK)
    again.close()
    missing = f"offsets 0 to {second.base_offset - 1} are missing"
    assert any(missing in record.message for record in caplog.records)


def test_a_kafka_folder_with_a_gap_is_imported_only_as_compacted(tmp_path: Path) -> None:
    source = DataDirectory.open(tmp_path / "kafka")
    log = source.open_partition("t", 0, topic_id=TOPIC, config=CONFIG, clock=CLOCK)
    for _ in range(200):
        log.append(batch())
    lost = log.segments[1]
    source.close()
    lost.path.unlink()
    (place,) = DataDirectory.open(tmp_path / "kafka").partitions()
    target = DataDirectory.open(tmp_path / "node")
    with pytest.raises(ConfigError, match=f"has no offsets {lost.base_offset} to"):
        target.check_copy(place, tmp_path / "refused", config=CONFIG, clock=CLOCK)
    compacted = LogConfig(cleanup_policy=("compact",))
    copied = target.check_copy(place, tmp_path / "taken", config=compacted, clock=CLOCK)
    shutil.move(tmp_path / "taken" / "t-0", tmp_path / "node" / "t-0")
    target.adopt([copied])
    target.abandon()
    again = DataDirectory.open(tmp_path / "node")
    log = again.open_partition("t", 0, topic_id=TOPIC, config=CONFIG, clock=CLOCK)
    assert _read(log)[1] is None
    again.close()


def test_a_clean_start_reads_no_more_than_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and the last segment's end: no other segment is opened, and no index is looked into."""
    folder = _filled(tmp_path)
    opened: list[str] = []
    real = os.open

    def counted(path: object, *arguments: object, **named: object) -> int:
        opened.append(os.path.basename(os.fspath(path)))  # type: ignore[call-overload]
        return real(path, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("os.open", counted)
    log = open_log(folder, config=CONFIG, clean=True)
    assert len(log.segments) > 2
    last = log.segments[-1].path.stem
    touched = {name for name in opened if name.endswith((".log", ".index", ".timeindex"))}
    assert touched == {f"{last}.log", f"{last}.index"}
