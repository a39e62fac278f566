"""Runs one micro-batch of one task, on columns if the whole task has columnar operators.

Micro-batches that only rebuild state (`rebuild`, `replacement`) write no changelogs. The first one that writes has
every task make its changelogs say what the stores hold: all rows, and tombstones. It does so in its own transaction, so
that readers of the topic see the rows of the run before or those of the rebuilt state, never of both: rows may be gone
with what retention has removed, or with another topology.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from suiro.clock import SystemClock
from suiro.spark import OffsetRange, ReadSettings, RetryingClient, Waiting, lease, read_columns
from suiro.streams_spark.column_task import ColumnTask
from suiro.streams_spark.columnar_forms import columnar_forms_of
from suiro.streams_spark.input_reader import InputReader
from suiro.streams_spark.outputs import Topics
from suiro.streams_spark.program import Program
from suiro.streams_spark.reports import pack_report
from suiro.streams_spark.shuffle_message import STAGED, Row, ShuffleMessage
from suiro.streams_spark.state_log import Changes, StateLog
from suiro.streams_spark.stream_task import StreamTask

_NEVER_READ = "stream-join"
"""No reader has a copy of such a store, and retention empties its topic."""


def run_task(
    program: Program,
    number: int,
    partition: int,
    messages: Iterable[bytes],
    log: StateLog,
    topics: Topics,
    reader: InputReader | None = None,
) -> Iterator[Row]:
    """`reader`: reads the records of which messages have the offsets; by default from the log.

    One micro-batch of one task. Gives its messages to others as soon as they are large: all of them may be many
    times what came. It is over when this is exhausted."""
    columnar = columnar_forms_of(program).of(number)
    if columnar is None or columnar.kind == "stateless":
        running = StreamTask(program, number, partition, log.load(), topics)
    else:
        running = ColumnTask(
            program, number, partition, log.load({columnar.store: columnar.new_rows}), topics, columnar
        )
    unpacked = list(map(ShuffleMessage.unpack, messages))
    topics.is_replayed = any(item.replayed for item in unpacked)
    topics.clock = max((item.clock for item in unpacked if item.clock is not None), default=None)
    rewrites = any(item.rewrites for item in unpacked)
    reader = reader or InputReader(program, topics.waits_on)
    # All of it, because the ends of all inputs decide which records are taken. `maxBytesPerTrigger` is its limit.
    unpacked = list(reader.read_ranges(unpacked))
    yield from running.take(unpacked)
    yield from running.finish()
    changes = log.save()
    if rewrites:
        for spec in running.logged:
            for part in rewritten(program, spec, partition, log, topics.waits_on):
                running.outputs.changelog(spec, part, running.now)
        changes = {}
    for spec in running.logged:
        if spec in changes:
            running.outputs.changelog(spec, changes[spec], running.now)
    yield from topics.finish()
    yield from reader.report()
    report = running.report()
    if report is not None:
        yield STAGED, 0, pack_report(report)


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
