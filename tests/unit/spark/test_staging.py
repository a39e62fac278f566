from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from suiro.clock import SystemClock
from suiro.errors import FatalError, UsageError
from suiro.foundation.threads import Regularly
from suiro.spark import sink, staging
from suiro.spark.committer import Outcome
from suiro.spark.metrics import SinkCounts
from suiro.spark.options import SinkOptions
from suiro.spark.reports import CommitMessage, MicroBatchIdentity
from suiro.spark.stage import StageOfTask
from suiro.spark.staging import StagedRecords, StagedWrites, StagingArea, StagingWriter

TO_T = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
WAITING = {
    "sql.streaming.queryId": "waiting",
    "streaming.sql.batchId": "0",
    "task": "1",
    "task index": "0",
}
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


def test_a_task_that_finds_no_room_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the buffer of its file finds none at the end, either. The file would keep the disk full."""

    class Full(io.FileIO):
        def write(self, data: Any, /) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", lambda path, mode, buffering: io.BufferedWriter(Full(path, mode), buffering))
    with (
        pytest.raises(OSError, match="No space"),
        StagingWriter(StagingArea(tmp_path), "0-1") as writer,
    ):
        writer.add("a", 0, b"x" * (2 << 20), 1)
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


def kept(area: StagingArea) -> bool:
    """Whether a sweep spares a directory that looked abandoned before."""
    other = StagingArea(area.directory.with_name("other"))
    written(other)
    os.utime(area.directory, (0, 0))
    wait_until(lambda: area.directory.stat().st_mtime > 0, what="a sign of life")
    other.remove_abandoned(SystemClock().wall_ms())
    return area.directory.exists()


@pytest.fixture
def _at_short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "keeper", Regularly("kept", 0.01, staging._keep_all))


@pytest.mark.usefixtures("_at_short_intervals")
def test_what_a_driver_waits_with_for_days_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A micro-batch waits for a log that is away without a limit."""
    waiting = StagingArea(tmp_path / "waiting")

    class WaitingSink:
        is_given_up = is_in_use = was_kept = False

        def process(self, *_: object, **__: object) -> Outcome:
            self.was_kept = kept(waiting)
            return Outcome.PRODUCED

        def give_up(self) -> None: ...

    mine = WaitingSink()
    monkeypatch.setattr(sink, "_Sink", lambda options: mine)
    monkeypatch.setattr(sink, "_sinks", {})
    monkeypatch.setattr(sink, "_planned", lambda *_: (None, None))
    identity = MicroBatchIdentity.of_task(WAITING)
    message = CommitMessage(written(waiting), identity, str(waiting.directory))
    sink.commit_micro_batch([message], 0, SinkOptions.parse(TO_T))
    assert mine.was_kept
    assert staging.keeper._things == []


@pytest.mark.usefixtures("_at_short_intervals")
def test_what_a_task_waits_with_for_days_is_not_removed(tmp_path: Path) -> None:
    """Its rows come from another process, which waits for the log of its source."""
    waiting = StagingArea(tmp_path / "waiting")
    with StageOfTask(SinkOptions.parse(TO_T | {"staging.dir": str(tmp_path)}), WAITING):
        written(waiting)
        assert kept(waiting)
    assert staging.keeper._things == []


def test_a_wait_goes_on_though_its_staged_files_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes the log away may take the shared file system away, too."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "utime", refuse)
    StagingArea(tmp_path / "waiting").keep()


def test_what_is_abandoned_beside_it_and_not_its_own_stays(tmp_path: Path) -> None:
    """staging.dir may be the root of a file system that many share."""
    mine, drop_box = StagingArea(tmp_path / "mine"), tmp_path / "drop-box"
    written(mine)
    drop_box.mkdir()
    now_ms = 1_700_000_000_000
    os.utime(drop_box, (0, 0))
    mine.remove_abandoned(now_ms)
    assert drop_box.is_dir()


def test_what_another_user_has_left_does_not_stop_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users may share a staging.dir. Each may remove only files of their own."""
    mine, old, theirs = (StagingArea(tmp_path / name) for name in ("mine", "old", "theirs"))
    for area in (mine, old, theirs):
        written(area)
        os.utime(area.directory, (0, 0))
    unlink = Path.unlink

    def restricted(path: Path, missing_ok: bool = False) -> None:
        if path.parent == theirs.directory:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", restricted)
    mine.remove_abandoned(1_700_000_000_000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "theirs"]


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


@pytest.mark.parametrize("at", range(0, 330, 3))
def test_what_somebody_else_wrote_is_never_given_to_the_producer(tmp_path: Path, at: int) -> None:
    records = written(StagingArea(tmp_path))
    assert records.path is not None
    path = Path(records.path)
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 0x40
    path.write_bytes(content)
    seen = []
    with pytest.raises(FatalError, match="not what its task wrote"):
        seen.extend(records.batches())
    assert seen == BATCHES[: len(seen)]


def test_frames_that_changed_places_or_were_swapped_are_refused(tmp_path: Path) -> None:
    first, second = written(StagingArea(tmp_path)), written(StagingArea(tmp_path))
    assert first.path is not None
    assert second.path is not None
    content = Path(first.path).read_bytes()
    Path(first.path).write_bytes(content[19:] + content[:19])
    with pytest.raises(FatalError, match="not what its task wrote"):
        list(first.batches())
    assert list(second.batches()) == BATCHES


@pytest.fixture
def shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the temporary directory, to which every user may write."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"suiro-staging-{os.getuid()}"


def test_the_default_directory_is_private(shared_folder: Path) -> None:
    before = os.umask(0)
    try:
        assert staging.default_staging() == shared_folder
    finally:
        os.umask(before)
    assert stat.S_IMODE(shared_folder.stat().st_mode) == 0o700
    shared_folder.chmod(0o777)  # as an earlier version, or a lax umask, has made it
    staging.default_staging()
    assert stat.S_IMODE(shared_folder.stat().st_mode) == 0o700


def test_a_directory_of_another_user_is_not_trusted(shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_folder.mkdir(mode=0o700)
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    shared_folder.rename(shared_folder.with_name(f"suiro-staging-{mine + 1}"))
    with pytest.raises(UsageError, match=rf"user id {mine}.*staging\.dir"):
        staging.default_staging()


def test_metrics_are_not_kept_in_a_folder_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"suiro-metrics-{os.getuid()}").symlink_to(elsewhere)
    SinkCounts.open("query", "run", "sink-1").save()
    assert list(elsewhere.iterdir()) == []
    assert "not a directory of this user" in caplog.text


@pytest.mark.parametrize("what", ["link", "file"])
def test_a_link_or_file_in_its_place_is_not_followed(shared_folder: Path, tmp_path: Path, what: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    if what == "link":
        shared_folder.symlink_to(elsewhere)
    else:
        shared_folder.touch()
    with pytest.raises(UsageError, match=r"staging\.dir"):
        staging.default_staging()
    assert list(elsewhere.iterdir()) == []
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755


def test_messages_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "INLINE_BYTES_MAX", 600)
    inline = written(None)
    StagedWrites([inline]).check_inline_size()
    with pytest.raises(UsageError, match=r"staging\.dir"):
        StagedWrites([inline, inline]).check_inline_size()
    monkeypatch.setattr(staging, "INLINE_BYTES_MAX", 100)
    with pytest.raises(UsageError, match="maxOffsetsPerTrigger"):
        written(None)
