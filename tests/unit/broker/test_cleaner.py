"""The log cleaner and its process, with real logs: what goes wrong with one log does nothing to another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.cleaning import committed_records, latest_values
from support.logs import NOW_MS, open_log
from support.share import one_of

from suiro.broker.storage.cleaner import FAILURES_A_ROUND, Cleaner, CleanerHost
from suiro.clock import ManualClock
from suiro.config import NodeSettings
from suiro.log import LogConfig, LogError, PartitionLog
from suiro.protocol.record_batch import HEADER_SIZE
from suiro.protocol.records import Record, encode_batch

CONFIG = LogConfig(segment_bytes=2000, cleanup_policy=("compact",))


def dirty_log(directory: Path, appends: int) -> PartitionLog:
    log = open_log(directory, config=CONFIG)
    for number in range(appends):
        value = b"%d" % number * 50
        log.append(encode_batch([Record(offset=0, timestamp=NOW_MS, key=b"%d" % (number % 3), value=value)]))
    log.roll()
    return log


def clean_all(logs: list[PartitionLog]) -> Cleaner:
    """One check of the cleaner over these logs, to its end."""

    async def clean() -> Cleaner:
        host = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            settings=NodeSettings(),
            clock=ManualClock(wall_ms=NOW_MS),
            topics=SimpleNamespace(partitions=lambda: [SimpleNamespace(log=log) for log in logs]),
            tier=None,
            write_cleaner_offsets=lambda: None,
        )
        cleaner = Cleaner(cast(CleanerHost, host))
        cleaner.check()
        assert cleaner._task is not None
        await asyncio.wait_for(cleaner._task, 300)  # the first one compiles its kernels
        cleaner.stop()
        return cleaner

    return asyncio.run(clean())


def test_a_topic_deleted_while_it_is_cleaned_leaves_no_answer_for_the_next_log(tmp_path: Path) -> None:
    doomed, other = dirty_log(tmp_path / "doomed-0", 100), dirty_log(tmp_path / "other-0", 90)
    logs = [doomed, other]
    expected, before = latest_values(committed_records(other)), other.size
    put_in_place = doomed.cleaning.replace_segments

    def deleted_meanwhile(bases: Any) -> None:
        logs.remove(doomed)
        doomed.delete()
        put_in_place(bases)

    doomed.cleaning.replace_segments = deleted_meanwhile  # type: ignore[method-assign]

    clean_all(logs)
    assert logs == [other]
    assert other.offline is None
    assert other.cleaned_offset == other.log_end_offset
    assert other.size < before / 10
    assert latest_values(committed_records(other)) == expected


def test_a_log_that_cannot_be_cleaned_is_set_aside_and_the_next_one_is_cleaned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged, other = dirty_log(tmp_path / "damaged-0", 100), dirty_log(tmp_path / "other-0", 90)
    segment = sorted((tmp_path / "damaged-0").glob("*.log"))[0]
    with segment.open("r+b") as file:
        file.seek(HEADER_SIZE)  # the first record's length
        file.write(b"\xff" * 10)
    cleaner = clean_all([damaged, other])
    assert cleaner.uncleanable_partitions == 1
    assert other.cleaned_offset == other.log_end_offset
    assert "damaged-0 cannot be compacted and is left as it is until the next start" in caplog.text


def test_a_disk_that_refuses_is_told_and_the_log_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = dirty_log(tmp_path / "log-0", 100)
    begin = log.cleaning.begin
    log.cleaning.begin = lambda *given: replace(begin(*given), directory=tmp_path / "gone")  # type: ignore[method-assign]
    cleaner = clean_all([log])
    assert cleaner.uncleanable_partitions == 0
    assert "cleaning log-0 failed, it is tried again later: OSError" in caplog.text
    del log.cleaning.begin
    clean_all([log])
    assert log.cleaned_offset == log.log_end_offset


@pytest.mark.parametrize("error", one_of(2, [OSError("no such device"), RuntimeError("a mistake")]))
def test_a_log_that_fails_keeps_no_other_one_from_being_cleaned(tmp_path: Path, error: Exception) -> None:
    failing, other = dirty_log(tmp_path / "failing-0", 100), dirty_log(tmp_path / "other-0", 90)
    tried = []

    def refused(bases: Any) -> None:
        tried.append(bases)
        raise error

    put_in_place = failing.cleaning.replace_segments
    failing.cleaning.replace_segments = refused  # type: ignore[method-assign]
    clean_all([failing, other])
    assert len(tried) == 1  # once a round
    assert failing.cleaned_offset != failing.log_end_offset
    assert other.cleaned_offset == other.log_end_offset
    failing.cleaning.replace_segments = put_in_place  # type: ignore[method-assign]
    clean_all([failing, other])
    assert failing.cleaned_offset == failing.log_end_offset


def test_a_round_ends_where_it_is_not_the_logs(tmp_path: Path) -> None:
    logs = [dirty_log(tmp_path / f"log-{number}", 60 + number) for number in range(5)]
    tried = []
    for log in logs:

        def refused(settings: Any, *given: Any, log: PartitionLog = log) -> Any:
            tried.append(log)
            raise LogError("not now")

        log.cleaning.begin = refused  # type: ignore[assignment, method-assign]
    clean_all(logs)
    assert len(tried) == len(set(tried)) == FAILURES_A_ROUND
