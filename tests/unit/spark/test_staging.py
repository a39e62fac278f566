from __future__ import annotations

import os
from pathlib import Path

import pytest

from suiro.errors import FatalError, UsageError
from suiro.spark import staging
from suiro.spark.staging import StagedRecords, StagedWrites, StagingArea, StagingWriter

BATCHES = [("a", 1, b"first", 3), ("b", 0, b"", 1), ("a", 0, b"third" * 100, 2)]


def written(area: StagingArea | None, name: str = "0-1") -> StagedRecords:
    with StagingWriter(area, name) as writer:
        for topic, partition, data, count in BATCHES:
            writer.add(topic, partition, data, count)
        return writer.finish()


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_staged_comes_back_in_order(tmp_path: Path, shared: bool) -> None:
    records = written(StagingArea(tmp_path / "q") if shared else None)
    assert list(records.batches()) == BATCHES
    assert records.record_count == 6
    assert set(records.partitions) == {("a", 0), ("a", 1), ("b", 0)}
    assert (records.path is not None) == shared
    both = StagedWrites([records, StagedRecords(), records])
    assert list(both.batches()) == BATCHES + BATCHES
    assert both.partitions == [("a", 0), ("a", 1), ("b", 0)]


def test_an_empty_task_leaves_no_file(tmp_path: Path) -> None:
    with StagingWriter(StagingArea(tmp_path / "q"), "0-1") as writer:
        assert writer.finish() == StagedRecords()
    assert not (tmp_path / "q").exists()


def test_a_failed_task_leaves_no_file(tmp_path: Path) -> None:
    def failing_task() -> None:
        with StagingWriter(StagingArea(tmp_path), "0-1") as writer:
            writer.add("a", 0, b"x", 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_task()
    assert list(tmp_path.iterdir()) == []


def test_sweeping_spares_later_micro_batches(tmp_path: Path) -> None:
    area = StagingArea(tmp_path / "q")
    for number in (3, 4, 5):
        written(area, f"{number}-7")
    area.remove_until(4)
    assert [path.name.split("-")[0] for path in area.directory.iterdir()] == ["5"]
    area.remove_until(9)
    area.remove_until(9)
    assert not area.directory.exists()


def test_what_killed_drivers_left_is_removed_after_a_day(tmp_path: Path) -> None:
    mine, old, young = (StagingArea(tmp_path / name) for name in ("mine", "old", "young"))
    for area in (mine, old, young):
        written(area)
    now_ms = 1_700_000_000_000
    for area, age_s in ((mine, 10**6), (old, 10**6), (young, 3600)):
        os.utime(area.directory, (now_ms / 1000 - age_s,) * 2)
    mine.remove_abandoned(now_ms)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "young"]


def test_a_file_that_the_driver_cannot_see_or_that_was_cut(tmp_path: Path) -> None:
    records = written(StagingArea(tmp_path))
    assert records.path is not None
    with open(records.path, "r+b") as file:
        file.truncate(10)
    with pytest.raises(FatalError, match="has 10 bytes"):
        list(records.batches())
    staging.remove([records])
    with pytest.raises(UsageError, match=r"staging\.dir"):
        list(records.batches())


def test_messages_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "INLINE_BYTES_MAX", 600)
    inline = written(None)
    StagedWrites([inline]).check_inline_size()
    with pytest.raises(UsageError, match=r"staging\.dir"):
        StagedWrites([inline, inline]).check_inline_size()
    monkeypatch.setattr(staging, "INLINE_BYTES_MAX", 100)
    with pytest.raises(UsageError, match="maxOffsetsPerTrigger"):
        written(None)
