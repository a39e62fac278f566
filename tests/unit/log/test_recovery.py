"""What a crash may leave, byte by byte: the reopened log is the longest whole prefix, with its state."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.batches import owned_header
from support.logs import NOW_MS, batch, open_log, read_all, state_of
from support.share import share_of

from suiro.log import LogConfig, PartitionLog
from suiro.log.producer_snapshot import decode, encode, load_newest, offsets
from suiro.log.producer_state import ProducerStates

CONFIG = LogConfig(index_interval_bytes=100)
Step = Callable[[PartitionLog], object]


def _transactional(producer: int, sequence: int, epoch: int = 0) -> Step:
    data = batch(2, producer_id=producer, epoch=epoch, sequence=sequence, transactional=True)

    def step(log: PartitionLog) -> None:
        log.begin_epoch(epoch)
        log.append(data)

    return step


def _idempotent(producer: int, sequence: int) -> Step:
    return lambda log: log.append(batch(2, producer_id=producer, epoch=0, sequence=sequence))


def _marker(producer: int, *, commit: bool, epoch: int = 0) -> Step:
    return lambda log: log.append_control(commit, producer, epoch, 3, NOW_MS)


HISTORY: list[Step] = [
    lambda log: log.append(batch(3)),
    _transactional(1, 0),
    _idempotent(0, 0),
    _transactional(2, 0),
    _marker(1, commit=False),
    _idempotent(0, 2),
    _transactional(1, 2),
    _marker(2, commit=True),
    _transactional(2, 2),
]
# What the last two batches are matters most: each pair takes another path through the producer state.
TAILS: dict[str, list[Step]] = {
    "idempotent": [_idempotent(0, 4), _idempotent(0, 6)],
    "transactional": [_transactional(1, 4), _transactional(2, 4)],
    "abort": [_transactional(1, 4), _marker(1, commit=False)],
    "commit": [_marker(2, commit=True), _marker(1, commit=True)],
    "abort then plain": [_marker(2, commit=False), lambda log: log.append(batch(4))],
    "new epoch": [_marker(1, commit=False, epoch=1), _transactional(1, 0, epoch=1)],
}


def _written(directory: Path, steps: list[Step]) -> PartitionLog:
    log = open_log(directory, config=CONFIG)
    for step in steps:
        step(log)
    return log


@pytest.mark.sampled
@pytest.mark.parametrize("tail", TAILS)
def test_a_log_cut_at_every_byte_of_its_last_two_batches(tmp_path: Path, tail: str) -> None:
    steps = HISTORY + TAILS[tail]
    never_cut = [_written(tmp_path / f"{n}" / "t-0", steps[:n]) for n in range(len(steps) - 2, len(steps) + 1)]
    sizes = [log.size for log in never_cut]
    states = [state_of(log) for log in never_cut]
    whole = never_cut[-1]
    whole.flush_job()  # indexes are in the files, as at the worst moment
    # The bytes at both ends of each batch, and a share of those between.
    ends = {size + byte for size in sizes for byte in range(-3, 4) if sizes[0] <= size + byte <= sizes[2]}
    for cut in sorted(ends.union(share_of(5, range(sizes[0], sizes[2] + 1)))):
        expected = states[0] if cut < sizes[1] else states[1] if cut < sizes[2] else states[2]
        copy = tmp_path / "cut" / "t-0"
        shutil.copytree(whole.directory, copy)
        with open(copy / "00000000000000000000.log", "r+b") as file:
            file.truncate(cut)
        recovered = open_log(copy, config=CONFIG)
        assert state_of(recovered) == expected, f"cut at {cut}"
        assert (copy / "00000000000000000000.log").stat().st_size == recovered.size
        recovered.append(batch())
        recovered.close()
        reopened = open_log(copy, config=CONFIG, clean=True)
        assert len(read_all(reopened)) == reopened.log_end_offset == recovered.log_end_offset
        shutil.rmtree(tmp_path / "cut")


def test_a_corrupt_byte_in_the_tail_ends_the_log_before_it(tmp_path: Path) -> None:
    before = _written(tmp_path / "before" / "t-0", HISTORY)
    log = _written(tmp_path / "t-0", [*HISTORY, _idempotent(0, 4), _idempotent(0, 6)])
    path = log.segments[0].path
    content = path.read_bytes()
    batch_size = (log.size - before.size) // 2
    # Base offset and leader epoch stand outside the CRC. A lower offset is seen, and one that no index could hold.
    for position in [*range(4), *range(8, 12), *range(16, batch_size)]:
        altered = bytearray(content)
        altered[before.size + position] ^= 0x40
        path.write_bytes(altered)
        recovered = open_log(tmp_path / "t-0", config=CONFIG)
        assert state_of(recovered) == state_of(before), position
        recovered.abandon()


@pytest.mark.parametrize("tail", [b"\0" * 1000, b"\0" * 5, b"garbage" * 30, b"\xff" * 61])
def test_foreign_bytes_behind_the_last_batch_are_cut(tmp_path: Path, tail: bytes) -> None:
    log = _written(tmp_path / "t-0", HISTORY)
    expected = state_of(log)
    with open(log.segments[0].path, "ab") as file:
        file.write(tail)
    for clean in (True, False):
        assert state_of(open_log(tmp_path / "t-0", config=CONFIG, clean=clean)) == expected


def test_a_corrupt_segment_takes_the_later_ones_with_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=CONFIG)
    for _ in range(3):
        log.append(batch(2))
        log.append(batch(2))
        log.roll()
    path = log.segments[1].path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    recovered = open_log(tmp_path / "t-0", config=CONFIG)
    assert recovered.log_end_offset == 6
    assert [segment.base_offset for segment in recovered.segments] == [0, 4]
    assert [path.name for path in (tmp_path / "t-0").glob("*8.*")] == [f"00000000000000000008.log.0.{NOW_MS}.damaged"]
    assert not [*(tmp_path / "t-0").glob("*12.*")], "the next start would go on at 12"
    assert recovered.append(batch()).base_offset == 6


def test_synced_segments_are_trusted_and_not_read(tmp_path: Path) -> None:
    log = _written(tmp_path / "t-0", HISTORY)
    expected = state_of(log)
    log.roll()
    log.flush()
    path = log.segments[0].path
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)
    recovered = open_log(tmp_path / "t-0", config=CONFIG, recovery_point=log.recovery_point)
    assert recovered.log_end_offset == expected["end"]
    assert recovered.last_stable_offset == expected["stable"]


@pytest.mark.parametrize("lost", [".index", ".timeindex", ".txnindex", ".snapshot"])
@pytest.mark.parametrize("clean", [True, False])
def test_lost_files_are_rebuilt_or_done_without(tmp_path: Path, lost: str, clean: bool) -> None:
    log = _written(tmp_path / "t-0", HISTORY)
    log.roll()
    _idempotent(0, 4)(log)
    expected = state_of(log)
    log.close() if clean else log.abandon()
    for path in (tmp_path / "t-0").glob(f"*{lost}"):
        path.unlink()
    found = state_of(open_log(tmp_path / "t-0", config=CONFIG, clean=clean))
    assert found["records"] == expected["records"]
    assert found["stable"] == expected["stable"]
    if not clean:
        assert found == expected


@pytest.mark.parametrize("clean", [True, False])
def test_the_producers_are_those_of_any_snapshot_and_what_follows(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path / "t-0", config=CONFIG)
    for number, step in enumerate(HISTORY + TAILS["new epoch"]):
        step(log)
        if number % 2:
            log.roll()
    log.flush()
    expected = _producers(log)
    log.close() if clean else log.abandon()
    for kept in [-1, *offsets(tmp_path / "t-0")]:
        copy = tmp_path / str(kept) / "t-0"
        shutil.copytree(tmp_path / "t-0", copy)
        for offset in offsets(copy):
            if offset != kept:
                (copy / f"{offset:020d}.snapshot").unlink()
        opened = open_log(copy, config=CONFIG, clean=clean, recovery_point=log.recovery_point)
        assert _producers(opened) == expected, kept


def _producers(log: PartitionLog) -> dict[int, object]:
    """Without the batches that a snapshot leaves out."""
    return {
        entry.producer_id: (
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
            [*entry.batches][-1:],
        )
        for entry in log.producer_states()
    }


def test_a_clean_open_reads_no_batch_but_the_last_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=20_000, index_interval_bytes=1000))
    for sequence in range(500):
        log.append(batch(producer_id=1, epoch=0, sequence=sequence))
    log.close()
    seen = 0

    def counted(segment: object, position: int = 0) -> object:
        nonlocal seen
        for found in headers(segment, position):  # type: ignore[arg-type]
            seen += 1
            yield found

    from suiro.log.segment import Segment

    headers = Segment.headers
    monkeypatch.setattr(Segment, "headers", counted)
    reopened = open_log(tmp_path / "t-0", clean=True)
    assert reopened.log_end_offset == 500
    assert seen <= 14  # those behind the last index entry


def test_offsets_before_the_start_are_never_given_out_again(tmp_path: Path) -> None:
    log = _written(tmp_path / "t-0", HISTORY)
    path = log.segments[0].path
    log.abandon()
    with open(path, "r+b") as file:
        file.truncate(100)
    recovered = open_log(tmp_path / "t-0", config=CONFIG, log_start_offset=10)
    assert (recovered.log_start_offset, recovered.log_end_offset) == (10, 10)
    assert recovered.append(batch()).base_offset == 10


def test_leftovers_of_a_crash_are_swept(tmp_path: Path) -> None:
    log = _written(tmp_path / "t-0", HISTORY)
    log.abandon()
    leftovers = [
        "00000000000000000099.index",
        "00000000000000000099.timeindex",
        "00000000000000000000.log.deleted",
    ]
    for name in leftovers:
        (tmp_path / "t-0" / name).write_bytes(b"x")
    open_log(tmp_path / "t-0", config=CONFIG)
    assert not any((tmp_path / "t-0" / name).exists() for name in leftovers)


def test_a_broken_snapshot_is_passed_over(tmp_path: Path) -> None:
    log = _written(tmp_path / "t-0", HISTORY)
    expected = state_of(log)
    log.close()
    (newest,) = offsets(tmp_path / "t-0")
    path = tmp_path / "t-0" / f"{newest:020d}.snapshot"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert state_of(open_log(tmp_path / "t-0", config=CONFIG, clean=True)) == expected
    assert load_newest(tmp_path / "t-0", at_most=newest) == (-1, [])


def test_a_snapshot_keeps_what_kafka_keeps() -> None:
    states = ProducerStates()
    header = owned_header(10, producer_id=5, epoch=2, sequence=0, transactional=True)
    states.add_batch(header, first_offset=10, timestamp=123)
    states.add_marker(6, 1, 4, timestamp=124)
    data = encode(states.entries.values())
    assert data[:2] == b"\0\1"
    first, second = decode(data)
    assert (first.producer_id, first.producer_epoch, first.transaction_first_offset) == (5, 2, 10)
    assert (first.batches[0].first_sequence, first.batches[0].first_offset) == (0, 10)
    assert (second.producer_id, second.coordinator_epoch, list(second.batches)) == (6, 4, [])
