"""A death at every file operation of a cleaning, and of the start that mends it: nothing is lost, none comes back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.cleaning import clean_log, committed_records, latest_values
from support.logs import NOW_MS, open_log
from support.share import IS_WHOLE

from suiro.clock import ManualClock
from suiro.log import LogConfig, PartitionLog
from suiro.log.swap import end_swap
from suiro.protocol.records import Record, encode_batch

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, cleanup_policy=("compact",), delete_retention_ms=1000)
OPERATIONS = (
    "rename",
    "unlink",
    "open",
    "pwritev",
    "pwrite",
    "fsync",
    "utime",
    "truncate",
    "ftruncate",
    "replace",
)


class Death(BaseException):
    """Not an Exception: nothing in the code may catch it."""


@contextmanager
def dies_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The operation number `step` does not happen (a write: by half), nor does any later one."""
    done: list[str] = []
    with monkeypatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, _counted(name, getattr(os, name), step, done))
        yield done


def _counted(name: str, real: Callable[..., Any], step: int, done: list[str]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if name == "open" and not arguments[1] & (os.O_CREAT | os.O_TRUNC):
            return real(*arguments, **options)  # Reading changes nothing.
        if len(done) >= step:
            if len(done) == step and name == "pwritev":
                descriptor, (buffer, *_), position = arguments
                os.lseek(descriptor, position, os.SEEK_SET)
                os.write(descriptor, bytes(buffer)[: len(buffer) // 2])
            raise Death(name)
        done.append(name)
        return real(*arguments, **options)

    return call


def written(directory: Path) -> PartitionLog:
    """Overwritten keys, deleted ones, a committed and an aborted transaction, over a dozen segments."""
    log = open_log(directory, config=CONFIG, clock=ManualClock(wall_ms=NOW_MS))
    for number in range(24):
        value = None if number % 5 == 4 else b"value-%d" % number
        records = [
            Record(offset=place, timestamp=NOW_MS + number, key=b"key-%d" % (number * 3 % 7 + place), value=value)
            for place in range(3)
        ]
        transactional = number % 6 in (1, 2)
        log.append(
            encode_batch(
                records,
                producer_id=7 if transactional else -1,
                producer_epoch=0 if transactional else -1,
                base_sequence=(number // 6 * 2 + number % 6 - 1) * 3 if transactional else -1,
                transactional=transactional,
                compression=number % 2 * 4,
            )
        )
        if number % 6 == 2:
            log.append_control(number % 12 == 2, 7, 0, 0, NOW_MS)
    log.roll()
    log.flush()
    return log


def view(log: PartitionLog) -> tuple[dict[bytes, bytes], int, int]:
    return latest_values(committed_records(log)), log.log_end_offset, log.last_stable_offset


def reopened(directory: Path, recovery_point: int) -> PartitionLog:
    return open_log(directory, config=CONFIG, clock=ManualClock(wall_ms=NOW_MS + 5000), recovery_point=recovery_point)


@pytest.mark.sampled
def test_a_death_at_any_step_of_a_cleaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(tmp_path / "log")
    clean_log(log, NOW_MS)  # The second cleaning has tombstones and markers whose time is over.
    expected, end = view(log), log.log_end_offset
    log.close()
    seen: set[str] = set()
    step, finished = 0, False
    while not finished:
        directory = tmp_path / f"step-{step}"
        shutil.copytree(tmp_path / "log", directory)
        log = reopened(directory, end)
        with dies_at(step, monkeypatch) as done:
            try:
                clean_log(log, NOW_MS + 5000)
                finished = True
            except Death:
                pass
        seen.update(done)
        log.abandon()
        crashed = tmp_path / "crashed"
        shutil.copytree(directory, crashed)
        assert_mended(directory, end, expected)
        if step % (3 if IS_WHOLE else 12) == 0:  # And a death at each step of the mending.
            assert_mended_after_deaths(crashed, end, expected, tmp_path, monkeypatch)
        shutil.rmtree(crashed)
        shutil.rmtree(directory)
        step += 1
    assert step > 40
    assert {"rename", "open", "pwritev", "fsync", "utime"} <= seen


def assert_mended(directory: Path, end: int, expected: object) -> PartitionLog:
    log = reopened(directory, end)
    assert view(log) == expected
    leftovers = [path.name for path in directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
    assert leftovers == []
    log.abandon()
    # The next cleaning finds nothing that it cannot read, and changes nothing that counts.
    log = reopened(directory, end)
    clean_log(log, NOW_MS + 9000)
    assert view(log) == expected
    log.abandon()
    return log


def assert_mended_after_deaths(
    crashed: Path, end: int, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, finished = 0, False
    while not finished:
        directory = tmp_path / "again"
        shutil.copytree(crashed, directory)
        with dies_at(step, monkeypatch):
            try:
                reopened(directory, end).abandon()
                finished = True
            except Death:
                pass
        assert_mended(directory, end, expected)
        shutil.rmtree(directory)
        step += 1


def test_what_a_killed_cleaner_has_left_condemns_no_later_cleaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the cleaning process alone (it took too much memory); later the node dies while a segment is put in place."""
    log = written(tmp_path / "log")
    expected, end = view(log), log.log_end_offset
    log.close()
    deaths, finished = 0, False
    while not finished:
        directory = tmp_path / f"death-{deaths}"
        shutil.copytree(tmp_path / "log", directory)
        log = reopened(directory, end)
        for suffix in (".log", ".index"):
            (directory / f"{1:020d}{suffix}.cleaned").write_bytes(b"half")
        swaps: list[int] = []

        def dying(directory: Path, base: int, swaps: list[int] = swaps, last: int = deaths) -> None:
            if len(swaps) == last:
                raise Death
            swaps.append(base)
            end_swap(directory, base)

        with monkeypatch.context() as patch:
            patch.setattr("suiro.log.upkeep.end_swap", dying)
            try:
                clean_log(log, NOW_MS)
                finished = True
            except Death:
                deaths += 1
        log.abandon()
        assert_mended(directory, end, expected)
    assert deaths > 2
