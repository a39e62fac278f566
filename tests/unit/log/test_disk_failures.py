"""A disk that fails in the middle of an append: what was answered is true, and what is not known is not answered."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.logs import NOW_MS, TOPIC_ID, batch, first_found, open_log, read_all

from suiro.broker.storage.workers import sync
from suiro.clock import SystemClock
from suiro.log import DataDirectory, LogConfig, LogError, PartitionLog, StorageError, producer_snapshot
from suiro.log.index import PENDING_BYTES
from suiro.log.segments import SEGMENTS_SYNCED_TOGETHER

SYNCED = LogConfig(flush_messages=2)


def failing(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EIO, "Input/output error")


def failing_once() -> Callable[..., None]:
    """Of `producer_snapshot.write`."""
    write = producer_snapshot.write
    calls = iter((failing,))
    return lambda *given: next(calls, write)(*given)


def test_a_failed_sync_takes_the_log_offline_until_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "t-0", config=SYNCED)
    log.append(batch())
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(StorageError) as caught:
            log.append(batch())
    assert caught.value.code is ErrorCode.kafka_storage_error
    # The disk is well again; but what it dropped meanwhile nobody knows.
    for use in (
        lambda: log.append(batch()),
        lambda: log.read(0, max_bytes=100, read_committed=False),
        lambda: log.retention.delete_records_before(1),
    ):
        with pytest.raises(StorageError, match="offline"):
            use()
    log.close()
    assert list((tmp_path / "t-0").glob("*.snapshot")) == []
    again = open_log(tmp_path / "t-0", config=SYNCED)
    assert len(read_all(again)) in (1, 2)
    again.append(batch())


def test_a_sync_beside_a_failed_one_fails_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system tells only one of the two that the bytes are gone. The other one acknowledged the record."""
    log = open_log(tmp_path / "t-0", config=LogConfig(flush_messages=2))
    log.append(batch())
    periodic = log.flush_job()
    real, told = os.fsync, threading.Event()

    def failing_once(handle: int) -> None:
        if told.is_set():
            real(handle)
            return
        told.set()
        failing()

    monkeypatch.setattr(os, "fsync", failing_once)
    with pytest.raises(OSError, match="Input/output error"):
        periodic.run()  # in its thread; the log is not offline before the event loop hears of it
    with pytest.raises(StorageError, match="another sync failed"):
        log.append(batch(2))
    assert (log.offline is not None, log.recovery_point) == (True, 0)


def test_a_log_that_goes_offline_while_it_is_synced_is_not_synced_further(tmp_path: Path) -> None:
    """The next sync might succeed with the bytes gone, and the next start would not check what is before it."""
    log = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=len(batch())))
    for _ in range(SEGMENTS_SYNCED_TOGETHER + 2):
        log.append(batch())

    async def run(job: Callable[[], None]) -> None:
        job()
        log.take_offline("another sync failed")

    with pytest.raises(StorageError, match="offline"):
        asyncio.run(sync(log, run))
    assert log.recovery_point == SEGMENTS_SYNCED_TOGETHER


def test_a_torn_write_that_cannot_be_cut_off_takes_the_log_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(batch(3))

    def half(descriptor: int, buffers: list[bytes], position: int) -> int:
        os.pwrite(descriptor, b"".join(buffers)[:30], position)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", half)
        patch.setattr(os, "ftruncate", failing)
        with pytest.raises(StorageError, match="nor cut off"):
            log.append(batch(3))
    with pytest.raises(StorageError, match="offline"):
        log.append(batch(3))
    log.abandon()
    again = open_log(tmp_path / "t-0")
    assert again.log_end_offset == 3
    assert again.append(batch()).base_offset == 3


def test_a_torn_write_that_is_cut_off_costs_one_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(batch(3))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", failing)
        with pytest.raises(StorageError):
            log.append(batch(3))
    assert log.append(batch(3)).base_offset == 3
    assert len(read_all(log)) == 6


def test_a_file_that_cannot_be_opened_fails_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "t-0", config=replace(SYNCED, index_interval_bytes=1))
    for _ in range(4):
        log.append(batch())
    log.close()
    again = open_log(tmp_path / "t-0", config=SYNCED, clean=True, recovery_point=4)
    size = again.segments[0].path.stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        with pytest.raises(LogError):
            again.append(batch())
    assert again.segments[0].path.stat().st_size == size
    assert again.append(batch()).base_offset == 4


def test_an_index_that_cannot_be_opened_behind_a_batch_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is written by then: taken for failed, its offset would be given to the next one too."""
    log = open_log(tmp_path / "t-0", config=LogConfig(index_interval_bytes=0))
    count = PENDING_BYTES // 12 + 2  # the time index has handed its entries to the disk, and holds no file open
    for number in range(count):
        log.append(batch(timestamp=NOW_MS + number))
    with monkeypatch.context() as patch:
        patch.setattr("suiro.log.files.open_handle", failing)
        assert log.append(batch(timestamp=NOW_MS + count)).base_offset == count
    assert log.append(batch(timestamp=NOW_MS + count + 1)).base_offset == count + 1
    assert len(read_all(log)) == count + 2
    assert first_found(log.lookups_by_time(NOW_MS + count)) == (count, NOW_MS + count)


@pytest.mark.parametrize("clean", [True, False])
def test_an_abort_counts_though_its_index_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    """Left out of the index, the aborted records would be committed ones to every consumer."""
    log = open_log(tmp_path / "t-0")
    for producer_id in (1, 2):
        log.append(batch(producer_id=producer_id, epoch=0, sequence=0, transactional=True))
    with monkeypatch.context() as patch:
        patch.setattr("suiro.log.transaction_index.read_file", failing)
        assert log.append_control(False, 1, 0, 0) == 2
    assert log.append_control(False, 2, 0, 0) == 3
    assert log.read(0, max_bytes=1000, read_committed=True).aborted == [(1, 0), (2, 1)]
    if clean:
        log.close()
    else:
        log.abandon()
    again = open_log(tmp_path / "t-0", clean=clean)
    assert again.read(0, max_bytes=1000, read_committed=True).aborted == [(1, 0), (2, 1)]


def test_a_read_that_fails_is_a_failure_of_this_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As any other error it would end the whole fetch, and the connection, for all partitions that it names."""
    log = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=300))
    for _ in range(20):
        log.append(batch())
    log.append(batch(producer_id=1, epoch=0, sequence=0, transactional=True))
    log.append_control(False, 1, 0, 0)
    log.close()
    log = open_log(tmp_path / "t-0", clean=True, recovery_point=22)
    for name, offset, read_committed in (("pread", 0, False), ("open", 9, False), ("open", 20, True)):
        log.kept_segments.release()
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            with pytest.raises(StorageError, match=r"cannot read .*t-0: Input/output error"):
                log.read(offset, max_bytes=1000, read_committed=read_committed)
        assert log.read(offset, max_bytes=1000, read_committed=read_committed).size > 0
    assert len([record for record in caplog.records if "cannot read" in record.message]) == 1


def test_a_deletion_that_fails_leaves_a_log_without_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a segment's files have other names then: read, it would be damage, or an empty file in its place."""
    log = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=300))
    for _ in range(20):
        log.append(batch())
    bases = log.kept_segments.bases
    rename = os.rename

    def full(source: Any, target: Any) -> None:
        if str(source).endswith(f"{bases[1]:020d}.index"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(StorageError, match="cannot delete segments"):
            log.retention.delete_records_before(bases[3])
    assert log.log_start_offset == bases[3]
    assert log.kept_segments.bases == bases[2:]
    assert read_all(log)[0].startswith(f"{bases[3]}:")
    log.retention.apply()
    assert log.kept_segments.bases == bases[3:]
    log.close()
    assert read_all(open_log(tmp_path / "t-0", clean=True, log_start_offset=bases[3])) == read_all(log)


def test_a_full_disk_has_room_made_by_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the active segment is to go, which needs a file for the next one."""
    log = open_log(tmp_path / "t-0", config=LogConfig(segment_bytes=300, retention_ms=1))
    for _ in range(20):
        log.append(batch())
    bases = log.kept_segments.bases
    now_ms = log.segments[-1].latest_ms + 1000
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        assert log.retention.apply(now_ms) == len(bases) - 1
    assert log.log_start_offset == bases[-1]
    assert log.retention.apply(now_ms) == 1
    assert log.log_start_offset == 20


def opened(path: Path) -> tuple[DataDirectory, list[PartitionLog]]:
    """Two logs with a record each."""
    directory = DataDirectory.open(path)
    logs = [
        directory.open_partition("t", number, topic_id=TOPIC_ID, config=LogConfig(), clock=SystemClock())
        for number in range(2)
    ]
    for log in logs:
        log.append(batch(timestamp=SystemClock().wall_ms()))
    return directory, logs


def test_a_data_directory_with_an_offline_log_is_not_stopped_cleanly(tmp_path: Path) -> None:
    directory, logs = opened(tmp_path)
    logs[0].take_offline("a failed sync")
    directory.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again = DataDirectory.open(tmp_path)
    assert not again.clean_shutdown
    again.close()


@pytest.mark.parametrize("broken", ["add", "write"])
def test_a_log_that_cannot_be_closed_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """The others were not synced, nothing was written down, and no line named the log."""
    directory, logs = opened(tmp_path)
    with monkeypatch.context() as patch:
        if broken == "add":
            logs[0].leader_epoch = 5
            patch.setattr(logs[0].leader_epochs, "add", failing)
        else:
            patch.setattr(producer_snapshot, "write", failing_once())
        directory.close()
    assert "t-0 is offline until the next start: it cannot be closed: [Errno 5] Input/output error" in caplog.text
    assert list((tmp_path / "t-1").glob("*.snapshot"))
    assert "t 1 1" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    DataDirectory.open(tmp_path).close()
