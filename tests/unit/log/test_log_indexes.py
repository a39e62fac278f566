"""The index files: look-ups across disk and memory, formats byte by byte, handles that outlive the log."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from suiro.log import FileHandle
from suiro.log.files import open_handle, write_all
from suiro.log.index import OffsetIndex, TimeIndex
from suiro.log.transaction_index import AbortedTransaction, TransactionIndex, is_sound


@pytest.mark.parametrize("count", [0, 1, 2, 511, 512, 513, 1300])
def test_offset_look_ups_agree_with_a_list(tmp_path: Path, count: int) -> None:
    index = OffsetIndex(tmp_path / "0.index", max_bytes=1 << 20)
    entries = [(10 * n + 5, 100 * n) for n in range(count)]
    for entry in entries:
        index.add(*entry)
    for reopened in (False, True):
        if reopened:
            index.release()
            index = OffsetIndex(tmp_path / "0.index", max_bytes=1 << 20)
        assert index.count == count
        for wanted in [-1, 0, 4, 5, 6, 14, 15, 5105, 5115, 5119, 5125, 5126, 10_000, 20_000]:
            below = [entry for entry in entries if entry[0] <= wanted]
            assert index.entry_before(wanted) == (below[-1] if below else None)
            starts = [entry for entry in entries if entry[1] <= wanted]
            assert index.entry_at_position(wanted) == (starts[-1] if starts else None)


def test_offset_index_bytes_are_kafkas(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "0.index", max_bytes=1 << 20)
    index.add(7, 4321)
    index.release()
    assert (tmp_path / "0.index").read_bytes() == struct.pack(">ii", 7, 4321)


def test_time_index_keeps_only_later_timestamps(tmp_path: Path) -> None:
    index = TimeIndex(tmp_path / "0.timeindex", max_bytes=1 << 20)
    for timestamp, offset in ((100, 3), (100, 9), (90, 12), (200, 15)):
        index.add_if_later(timestamp, offset)
    index.release()
    assert (tmp_path / "0.timeindex").read_bytes() == struct.pack(">qiqi", 100, 3, 200, 15)
    # No record before offset 3 is as late as 101, and none at all may be ruled out for 100.
    assert index.entry_before(100) is None
    assert index.entry_before(101) == (100, 3)
    assert index.entry_before(201) == (200, 15)


def test_an_index_is_full_one_entry_early(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "0.index", max_bytes=24)
    index.add(1, 0)
    assert not index.is_full
    index.add(2, 10)
    assert index.is_full


def test_transaction_index_bytes_are_kafkas(tmp_path: Path) -> None:
    index = TransactionIndex(tmp_path / "0.txnindex")
    assert index.entries == []
    assert not index.path.exists()
    index.add(AbortedTransaction(7, 10, 20, 15))
    index.add(AbortedTransaction(8, 15, 30, 31))
    assert index.path.read_bytes() == struct.pack(">hqqqq", 0, 7, 10, 20, 15) + struct.pack(">hqqqq", 0, 8, 15, 30, 31)
    assert TransactionIndex(index.path).entries == index.entries


@pytest.mark.parametrize(
    ("entries", "sound"),
    [
        ([], True),
        ([(0, 0, 0, 5, 0)], True),
        ([(0, 1, 5, 5, 0), (0, 1, 6, 6, 0), (0, 2, 3, 9, 0)], True),
        ([(1, 1, 5, 5, 0)], False),
        ([(0, -1, 5, 5, 0)], False),
        ([(0, 1, -1, 5, 0)], False),
        ([(0, 1, 7, 6, 0)], False),
        ([(0, 1, 3, 4, 0)], False),
        ([(0, 1, 5, 6, 0), (0, 2, 5, 6, 0)], False),
        ([(0, 1, 5, 10, 0)], False),
    ],
)
def test_transaction_indexes_of_offsets_5_to_9(entries: list[tuple[int, ...]], sound: bool) -> None:
    data = b"".join(struct.pack(">hqqqq", *entry) for entry in entries)
    assert is_sound(data, base_offset=5, end_offset=10) is sound
    assert not is_sound(data + b"\0", base_offset=5, end_offset=10)


def test_a_descriptor_lives_as_long_as_its_last_holder(tmp_path: Path) -> None:
    handle = open_handle(tmp_path / "log", create=True)
    assert isinstance(handle, FileHandle)
    write_all(handle, [b"abc", memoryview(b"def")], 0, 6)
    region = (handle, 0, 6)
    number = int(handle)
    (tmp_path / "log").unlink()
    del handle
    assert os.pread(region[0], 6, 0) == b"abcdef"
    del region
    with pytest.raises(OSError):
        os.fstat(number)
