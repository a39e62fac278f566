"""Runs one micro-batch of one task, on columns if the whole task has columnar operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from suiro.streams_spark.changelog_rewrite import rewritten
from suiro.streams_spark.column_task import ColumnTask
from suiro.streams_spark.columnar_forms import columnar_forms_of
from suiro.streams_spark.input_reader import InputReader
from suiro.streams_spark.outputs import Topics
from suiro.streams_spark.program import Program
from suiro.streams_spark.reports import pack_report
from suiro.streams_spark.shuffle_message import STAGED, Row, ShuffleMessage
from suiro.streams_spark.state_log import StateLog
from suiro.streams_spark.stream_task import StreamTask


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
