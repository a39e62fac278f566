"""Makes a changelog topic say what the store holds, after a run before wrote it: all rows, and tombstones.

Micro-batches that only rebuild state (`rebuild`, `replacement`) write no changelogs. The first one that writes has
every task do this, in its own transaction, so that readers of the topic see the rows of the run before or those of the
rebuilt state, never of both: rows may be gone with what retention has removed, or with another topology.
"""

from __future__ import annotations

from collections.abc import Callable

from suiro.clock import SystemClock
from suiro.spark import OffsetRange, ReadSettings, RetryingClient, Waiting, lease, read_columns
from suiro.streams_spark.program import Program
from suiro.streams_spark.state_log import Changes, StateLog

_NEVER_READ = "stream-join"
"""No reader has a copy of such a store, and retention empties its topic."""


def rewritten(
    program: Program, store: str, partition: int, log: StateLog, waits_on: Callable[[], bool]
) -> list[Changes]:
    """The rows of a store, and deletions of what only its topic has. `waits_on`: whether a wait for the log goes on."""
    rows = log.rows_of(store)
    if program.plan.topology.store(store).kind == _NEVER_READ:
        return [rows]
    there = _keys(program, program.plan.changelog(store), partition, waits_on)
    there.difference_update(rows[0].to_pylist() if isinstance(rows, tuple) else rows)
    return [rows, dict.fromkeys(sorted(there))]


def _keys(program: Program, topic: str, partition: int, waits_on: Callable[[], bool]) -> set[bytes]:
    """Of the partition's rows, as they are committed now."""
    from suiro.client import EARLIEST, LATEST

    place = (topic, partition)
    bootstrap_servers, settings = program.connection
    clock, found = SystemClock(), set[bytes]()
    with lease(bootstrap_servers, settings) as client:
        waiting = Waiting(clock=clock, limit_ms=program.source.waiting_limit_ms, is_wanted=waits_on)
        patient = RetryingClient(client, waiting)
        first = patient.list_offsets({place: EARLIEST})[place].offset
        end = patient.list_offsets({place: LATEST}, read_committed=True)[place].offset
        if first >= end:
            return found
        wanted = OffsetRange(topic=topic, partition=partition, start=first, end=end)
        # Its first records may be compacted away, or removed by retention, while they are read.
        reading = ReadSettings(fail_on_data_loss=False, max_fetch_bytes=program.source.max_fetch_bytes)
        for columns in read_columns(patient, wanted, reading, clock):
            keys, is_row = columns.column("key").to_pylist(), columns.column("value").is_valid().to_pylist()
            for key, is_there in zip(keys, is_row, strict=True):
                if key is not None:
                    (found.add if is_there else found.discard)(key)
    return found
