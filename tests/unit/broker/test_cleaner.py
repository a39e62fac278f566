"""The log cleaner and its process, with real logs: what goes wrong with one log does nothing to another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from support.cleaning import committed_records, latest_values
from support.logs import NOW_MS, open_log

from suiro.broker.broker import Broker
from suiro.broker.cleaner import Cleaner
from suiro.clock import ManualClock
from suiro.config import NodeSettings
from suiro.log import LogConfig, PartitionLog
from suiro.protocol.records import Record, encode_batch

CONFIG = LogConfig(segment_bytes=2000, cleanup_policy=("compact",))


def dirty_log(directory: Path, appends: int) -> PartitionLog:
    log = open_log(directory, config=CONFIG)
    for number in range(appends):
        value = b"%d" % number * 50
        log.append(encode_batch([Record(offset=0, timestamp=NOW_MS, key=b"%d" % (number % 3), value=value)]))
    log.roll()
    return log


def test_a_topic_deleted_while_it_is_cleaned_leaves_no_answer_for_the_next_log(tmp_path: Path) -> None:
    doomed, other = dirty_log(tmp_path / "doomed-0", 100), dirty_log(tmp_path / "other-0", 90)
    logs = [doomed, other]
    expected, before = latest_values(committed_records(other)), other.size
    put_in_place = doomed.replace_segments

    def deleted_meanwhile(bases: Any) -> None:
        logs.remove(doomed)
        doomed.delete()
        put_in_place(bases)

    doomed.replace_segments = deleted_meanwhile  # type: ignore[method-assign]

    async def clean() -> None:
        broker = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            settings=NodeSettings(),
            clock=ManualClock(wall_ms=NOW_MS),
            topics=SimpleNamespace(partitions=lambda: [SimpleNamespace(log=log) for log in logs]),
            tier=None,
            write_cleaner_offsets=lambda: None,
        )
        cleaner = Cleaner(cast(Broker, broker))
        cleaner.check()
        assert cleaner._task is not None
        await asyncio.wait_for(cleaner._task, 60)
        cleaner.stop()

    asyncio.run(clean())
    assert logs == [other]
    assert other.offline is None
    assert other.cleaned_offset == other.log_end_offset
    assert other.size < before / 10
    assert latest_values(committed_records(other)) == expected
