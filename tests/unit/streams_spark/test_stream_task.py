"""Single tasks without Spark: what they tell those behind them, and what only one of them tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from suiro.clock import SystemClock
from suiro.errors import DeadlineExceededError, UnknownTopicError
from suiro.protocol.columnar import HEADERS_TYPE
from suiro.protocol.records import decode_batch
from suiro.spark import OffsetRange, SinkOptions
from suiro.spark.encoding import encoded_rows
from suiro.spark.staging import StagingWriter
from suiro.streams import (
    EmitStrategy,
    JoinWindows,
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyError,
    record_key,
    record_value,
    serdes,
)
from suiro.streams.blocks import BlockTask, Parcel
from suiro.streams.errors import ProcessingError
from suiro.streams.operators.context import TaskSettings
from suiro.streams.vectorised import stream_table_join
from suiro.streams_spark import outputs, partition_group, record_readers, state_log, taking
from suiro.streams_spark.input_reader import InputReader, range_columns
from suiro.streams_spark.outputs import Topics
from suiro.streams_spark.record_queue import RecordQueue
from suiro.streams_spark.run_task import run_task
from suiro.streams_spark.shuffle_message import InputPartition, ShuffleMessage
from suiro.streams_spark.state_log import StateLog
from suiro.testing import TopologyTestDriver
from tests.unit.streams_spark.test_column_task import PARTITIONS, Batch, Engine, Handle, Row, Stage

SLIDING = SlidingWindows.of_difference(1)


@pytest.mark.parametrize("rules", [False, True])
def test_a_count_at_a_rebuilds_boundary_is_paused_and_not_behind(rules: bool) -> None:
    builder = StreamsBuilder()
    counts = builder.stream("stream", key=serdes.string, value=serdes.long).group_by_key().count().to_stream()
    counts.select_key(record_value() % 2, key=serdes.long).group_by_key().count().to_stream().to("out")
    engine = Engine(builder.build(), f"paused {rules}")
    engine.only_rules(rules)
    source = engine.plan.topology.sub_topologies[0].inputs[0].name
    tick = ShuffleMessage(
        kind="tick", input_partition=InputPartition("stream", 0), input=source, replayed=True, paused=-1
    )
    log = StateLog(Handle(), engine.cache, "bucket")
    rows = run_task(engine.program, 0, 0, [tick.pack()], log, Topics(Stage()))  # type: ignore[arg-type]
    told = [ShuffleMessage.unpack(data) for number, _, data in rows if number == 1]
    assert [(item.behind, item.paused) for item in told] == [(False, -1)] * PARTITIONS


def test_a_range_without_records_tells_of_its_micro_batch() -> None:
    """As one of markers of transactions. Those that get messages from the task must know that state is rebuilt, and its
    processors what time it is."""
    times: list[int] = []

    class Asking(Processor):
        def init(self, context: ProcessorContext) -> None:
            times.append(context.current_system_time_ms())

    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long)
    stream.process_values(Asking, value=serdes.long).group_by_key().reduce(max).to_stream().to("out")
    engine = Engine(builder.build(), "markers")
    times.clear()
    source = engine.plan.topology.sub_topologies[0].inputs[0].name
    marker = ShuffleMessage(
        kind="range",
        input_partition=InputPartition("stream", 0),
        input=source,
        replayed=True,
        clock=5,
        columns=range_columns(OffsetRange(topic="stream", partition=0, start=1, end=2)),
    )
    engine.log.chunks["stream", 0] = []
    topics = Topics(Stage())  # type: ignore[arg-type]
    log = StateLog(Handle(), engine.cache, "bucket")
    list(run_task(engine.program, 0, 0, [marker.pack()], log, topics, engine.log))
    assert topics.is_replayed
    assert topics.clock == 5
    assert times == [5]


def test_records_of_a_topic_are_staged_in_their_order_and_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "ROWS_MAX", 2)
    stage = Stage()
    topics = Topics(stage)  # type: ignore[arg-type]

    def add(value: bytes) -> None:
        topics.add_parcel(Parcel(topic="out", keys=[b"k"], values=[value], timestamps=[1]))

    add(b"1")
    topics.add_columns("out", pa.array([b"k"], pa.binary()), pa.array([b"2"], pa.binary()), pa.array([1], pa.int64()))
    add(b"3")
    add(b"4")
    assert [value for _, _, value, *_ in stage.rows] == [b"1", b"2", b"3", b"4"]


def test_ranges_are_read_in_one_order_whatever_the_shuffle_gives() -> None:
    """A task has spans for its first records only, and writes the same headers when it runs again."""
    builder = StreamsBuilder()
    builder.stream("stream", key=serdes.string, value=serdes.long).group_by_key().reduce(max).to_stream().to("out")
    read: list[OffsetRange] = []

    class Noting(InputReader):
        def read(self, records: OffsetRange, *, is_replayed: bool) -> Iterator[pa.RecordBatch]:
            read.append(records)
            return iter(())

    ranges = [
        OffsetRange(topic=topic, partition=0, start=1, end=2, topic_id=topic_id)
        for topic, topic_id in (("a", "07"), ("b", None))
    ]
    messages = [
        ShuffleMessage(kind="range", input_partition=InputPartition(each.topic, 0), columns=range_columns(each))
        for each in ranges
    ]
    reader = Noting(Engine(builder.build(), "order").program, lambda: True)
    tick = ShuffleMessage(kind="tick", input_partition=None)
    assert list(reader.read_ranges([*messages, tick])) == list(reader.read_ranges([*messages[::-1], tick])) == [tick]
    assert read == [*ranges, *ranges]


def test_a_task_tells_the_size_of_its_stores_and_which_records_wait() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(name, key=serdes.string, value=serdes.long) for name in ("left", "right"))
    left.merge(right).group_by_key().count(materialized=Materialized.as_("counts")).to_stream().to("out")
    engine = Engine(builder.build(), "reports")
    engine.only_rules(True)
    rows = [("a", 1, 10), ("b", 2, 20), ("a", 3, 30)]
    engine.batch({("left", 0): (rows, False), ("right", 0): ([("a", 1, 15)], True)}, 10)
    (told,) = engine.reports
    # What is behind may bring records from 15 on.
    assert (told.stores["counts"][0], sum(told.buffered.values()), told.condition) == (1, 2, "idling")
    assert told.stores["counts"][1] > len(b"a")
    engine.batch({("right", 0): ([("c", 1, 40)], False)}, 10)
    (told,) = engine.reports
    assert (told.stores["counts"][0], told.buffered, told.condition) == (3, {}, "running")


def test_records_that_were_looked_at_one_by_one_go_in_blocks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the micro-batch after it."""
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    builder.stream("left").merge(builder.stream("right")).group_by_key().count().to_stream().to("out")
    engine = Engine(builder.build(), "blocks again")
    engine.only_rules(True)
    rows: list[Row] = [("a", 1, 10), ("b", 2, 20), ("a", 3, 30)]
    with monkeypatch.context() as patch:
        patch.setattr(RecordQueue, "fill", lambda queue: False)
        engine.batch({("left", 0): (rows, False), ("right", 0): ([("a", 1, 15)], True)}, 10)
    monkeypatch.setattr(partition_group, "taken", lambda *_: pytest.fail("one by one"))
    found = engine.batch({("right", 0): ([("c", 1, 40)], False)}, 10)
    assert [key for topic, key, *_ in found if topic == "out"] == [b"b", b"a", b"c"]


def test_records_that_come_in_many_small_parts_go_in_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a repartition that many partitions feed."""
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    builder.stream("left").merge(builder.stream("right")).group_by_key().count().to_stream().to("out")
    engine = Engine(builder.build(), "small parts")
    engine.only_rules(True)
    blocks: list[int] = []
    process = BlockTask.process_block

    def counted(task: BlockTask, taken: Any) -> None:
        blocks.append(len(taken))
        process(task, taken)

    monkeypatch.setattr(BlockTask, "process_block", counted)
    rows: list[Row] = [("a", 1, number) for number in range(100)]
    found = engine.batch({("left", 0): (rows, False), ("right", 0): (rows, False)}, 1)
    assert blocks == [200]
    assert [value for topic, _, value, *_ in found if topic == "out"] == [(200).to_bytes(8)]


@pytest.mark.parametrize(("inputs", "singly"), [(1, False), (2, False), (2, True)])
def test_large_records_go_in_small_blocks(inputs: int, singly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each record, a flat map makes many, which are in memory together."""
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    extractor = (lambda record, partition_time: record.timestamp) if singly else None
    stream = builder.stream(["left", "right"][:inputs], timestamp=extractor)
    many = stream.flat_map_values(lambda value: [value] * 100, value=serdes.long)
    many.to("out")
    many.group_by_key().count()
    engine = Engine(builder.build(), f"large {inputs} {singly}")
    engine.only_rules(True)
    blocks: list[int] = []
    process = BlockTask.process_block

    def sized(task: BlockTask, taken: Any) -> None:
        blocks.append(sum(map(len, taken.keys)))
        process(task, taken)

    monkeypatch.setattr(BlockTask, "process_block", sized)
    monkeypatch.setattr(record_readers, "BLOCK_BYTES", 10_000)
    monkeypatch.setattr(taking, "BLOCK_BYTES", 10_000)
    rows: list[Row] = [(str(number).zfill(1_000), 1, number) for number in range(100)]
    found = engine.batch({(topic, 0): (rows, False) for topic in engine.plan.inputs}, 100)
    assert sum(1 for topic, *_ in found if topic == "out") == inputs * 10_000
    assert sum(blocks) == inputs * 100_000
    assert max(blocks) <= 10_000


@pytest.mark.parametrize("rules", [False, True])
def test_what_goes_to_other_tasks_is_not_all_in_memory(rules: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flat map behind a join may make many times what came."""
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    table = builder.table("table")
    joined = builder.stream("stream").left_join(table, lambda value, row: value)
    joined.select_key(record_value() % 2, key=serdes.long).repartition(value=serdes.long).to("out")
    engine = Engine(builder.build(), f"ready {rules}")
    engine.only_rules(rules)
    monkeypatch.setattr(outputs, "ROWS_MAX", 1_000)
    monkeypatch.setattr(stream_table_join, "ROWS_AT_ONCE", 1_000)
    monkeypatch.setattr(record_readers, "BLOCK_ROWS", 500)
    waiting: list[int] = []
    ready = outputs.Outputs.ready_rows

    def counted(self: outputs.Outputs) -> Any:
        waiting.append(sum(len(records) for one in self._carriers.values() for records, _ in one._ready))
        return ready(self)

    monkeypatch.setattr(outputs.Outputs, "ready_rows", counted)
    engine.batch({("stream", 0): ([("a", number, number) for number in range(5_000)], False)}, 5_000)
    assert 0 < max(waiting) <= 1_000


@pytest.mark.parametrize("rules", [False, True])
def test_columns_and_rules_tell_the_same_rows(rules: bool) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long)
    stream.group_by_key().count(materialized=Materialized.as_("counts")).to_stream().to("out")
    engine = Engine(builder.build(), f"sizes {rules}")
    engine.only_rules(rules)
    engine.batch({("stream", 0): ([("a", 1, 10), ("b", 2, 20), ("a", 3, 30)], False)}, 10)
    (told,) = engine.reports
    assert (told.stores["counts"][0], told.stores["counts"][1] > 0, told.buffered) == (2, True, {})


def test_a_record_left_out_of_a_global_table_is_one_dead_letter() -> None:
    builder = StreamsBuilder()
    table = builder.global_table("table", key=serdes.string, value=serdes.long)
    for topic in ("stream", "other"):
        stream = builder.stream(topic, key=serdes.string, value=serdes.long)
        joined = stream.join(table, lambda key, value: key, lambda one, other: one + other)
        joined.group_by_key().reduce(lambda one, other: one + other).to_stream().to(f"{topic}-out")
    engine = Engine(builder.build(), "letters")
    program = replace(engine.program, on_deserialization_error="dead-letter:dead")
    columns = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"]),
            "value": pa.array([b"no long"]),
            "offset": pa.array([0], pa.int64()),
            "timestamp": pa.array([1], pa.int64()),
            "headers": pa.array([[]], HEADERS_TYPE),
        }
    )
    stage = Stage()
    handles: dict[tuple[int, int], Handle] = defaultdict(Handle)
    for sub, node in engine.plan.global_inputs["table"]:
        message = ShuffleMessage(
            kind="raw", input_partition=InputPartition("table", 0), input=node.name, columns=columns
        ).pack()
        for partition in range(sub.tasks):
            topics = Topics(stage)  # type: ignore[arg-type]
            log = StateLog(handles[sub.number, partition], engine.cache, (sub.number, partition))
            list(run_task(program, sub.number, partition, [message], log, topics))
    assert len(handles) == 2 * PARTITIONS
    assert [(topic, key, value) for topic, key, value, *_ in stage.rows] == [("dead", b"k", b"no long")]


@pytest.mark.parametrize("waits", [0, 1, 3])
def test_the_time_of_a_record_that_waits_is_asked_for_once(waits: int) -> None:
    def grows(record: object, partition_time: int) -> int:
        return partition_time + 10

    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long, timestamp=grows)
    other = builder.stream("table", key=serdes.string, value=serdes.long)
    stream.merge(other).group_by_key().count().to_stream().to("out")
    engine = Engine(builder.build(), f"extracted {waits}")
    rows: list[Row] = [("a", 1, 0), ("b", 1, 0), ("c", 1, 0)]
    found = []
    for number in range(waits + 1):
        batch: Batch = {("table", 0): ([("z", 1, 0)], number < waits)}
        if number == 0:
            batch["stream", 0] = rows, False
        found += engine.batch(batch, 100)
    times = {key: timestamp // 1000 for topic, key, _, timestamp, _ in found if topic == "out"}
    assert times == {b"a": 9, b"b": 19, b"c": 29, b"z": 0}


def test_times_beyond_what_spark_can_hold_are_written_as_they_are() -> None:
    class Keeps:
        def __init__(self) -> None:
            self.batches: list[pa.RecordBatch] = []

        def add(self, batch: pa.RecordBatch) -> None:
            self.batches.append(batch)

        def finish(self) -> None:
            return None

    stage = Keeps()
    topics = Topics(stage)  # type: ignore[arg-type]
    times = [0, 1_700_000_000_000_000_000, (1 << 63) - 1]  # the second one in nanoseconds
    for time in times:
        topics.add_parcel(Parcel(topic="out", keys=[b"k"], values=[b"v"], timestamps=[time]))
    list(topics.finish())
    with StagingWriter(None, "0-0") as writer:
        parsed = SinkOptions.parse({"kafka.bootstrap.servers": "nowhere:1"})
        counts = {"out": 1}.__getitem__
        for batch in encoded_rows(stage.batches, parsed, partition_count=counts, task_index=0, clock=SystemClock()):
            writer.add(*batch)
        staged = writer.finish()
    found = [record.timestamp for _, _, data, _ in staged.batches() for record in decode_batch(data)]
    assert found == times


def test_which_records_are_unmatched_does_not_depend_on_the_cut() -> None:
    """Of key 1, records come late. The task may have heard before how far their partitions had come with key 3."""
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    sides = (builder.stream(topic).select_key(lambda key, value: value % 10, key=serdes.long) for topic in "lr")
    windows = JoinWindows.of(before=2, after=2, grace=5)
    joined = next(sides).outer_join(next(sides), lambda *pair: str(pair), windows, key=serdes.long, value=serdes.long)
    joined.to("out", value=serdes.string)
    topology = builder.build()
    left: list[Row] = [("x", 1, 88), ("x", 3, 102), ("x", 11, 90)]
    right: list[Row] = [("x", 3, 102), ("x", 21, 90)]
    whole: list[Batch] = [{("l", 0): (left, False), ("r", 0): (right, False)}]
    parts: list[Batch] = [
        {("l", 0): (left[:1], False)},
        {("l", 0): (left[1:2], True), ("r", 0): (right[:1], True)},
        {("l", 0): (left[2:], False), ("r", 0): (right[1:], False)},
    ]
    for run, batches in (("whole", whole), ("parts", parts)):
        engine = Engine(topology, f"unmatched {run}")
        found = [row for batch in batches for row in engine.batch(batch, 10) if row[1] == (1).to_bytes(8)]
        assert sorted(row[2] for row in found) == [b"(1, 21)", b"(1, None)", b"(11, 21)", b"(11, None)"]


def test_a_match_behind_a_null_value_is_found_as_in_the_interpreter() -> None:
    """Time that only a dropped record has advanced lets no unmatched record go: its match may still come."""
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    sides = (builder.stream(topic).select_key(record_key()) for topic in "lr")
    windows = JoinWindows.of(before=2, after=2, grace=5)
    next(sides).outer_join(next(sides), lambda *pair: str(pair), windows).to("out", value=serdes.string)
    topology = builder.build()
    left: list[Row] = [("k", 1, 10)]
    right: list[Row] = [("k", None, 100), ("k", 2, 11)]
    with TopologyTestDriver(topology) as driver:
        for topic, rows in (("l", left), ("r", right)):
            for row in rows:
                driver.create_input_topic(topic).pipe_input(*row)
        assert driver.create_output_topic("out").read_values_to_list() == ["(1, 2)"]
    batch: Batch = {("l", 0): (left, False), ("r", 0): (right, False)}
    assert [row[2] for row in Engine(topology, "null value").batch(batch, 10) if row[0] == "out"] == [b"(1, 2)"]


def test_a_record_comes_to_two_repartitions_in_the_order_of_the_topology_not_of_their_names() -> None:
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    keyed = builder.stream("stream").select_key(record_key())
    totals = keyed.group_by_key().reduce(lambda one, other: one + other)
    keyed.join(totals, lambda one, total: total).to("out")
    engine = Engine(builder.build(), "ties")
    found = engine.batch({("stream", 0): ([("a", 1, 10), ("a", 2, 20)], False)}, 10)
    assert [int.from_bytes(value) for topic, _, value, *_ in found if topic == "out"] == [1, 3]


def test_a_record_comes_to_two_repartitions_in_the_order_of_its_own_topic_where_streams_meet() -> None:
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    first, second = (builder.stream(topic).select_key(record_key()) for topic in ("first", "second"))
    again = second.repartition()
    totals = first.merge(second).group_by_key().reduce(lambda one, other: one + other)
    again.left_join(totals, lambda one, total: total or 0).to("out")
    engine = Engine(builder.build(), "ties of two topics")
    found = engine.batch({("second", 0): ([("a", 1, 10), ("a", 2, 20)], False)}, 10)
    assert [int.from_bytes(value) for topic, _, value, *_ in found if topic == "out"] == [0, 1]


def _final_counts() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long)
    windows = TimeWindows.of_size(10, grace=0)
    keyed = stream.select_key(lambda key, value: value, key=serdes.long).group_by_key().windowed_by(windows)
    keyed.emit_strategy(EmitStrategy.on_window_close()).count().to_stream().to("out")
    return builder.build()


def test_time_that_an_input_partition_told_while_another_was_behind_passes_once_that_one_is_not() -> None:
    engine = Engine(_final_counts(), "told")
    log: list[Row] = [("x", 1, 1), ("x", 1, 2)]
    # Keys 1 and 3 are in different tasks, so 1's hears of the time 50 by the input partition's word alone.
    found = engine.batch({("stream", 0): (log[:1], True), ("stream", 1): ([("y", 3, 50)], False)}, 100)
    found += engine.batch({("stream", 0): (log[1:], False)}, 100)
    assert [(row[2], row[3]) for row in found if row[0] == "out"] == [((2).to_bytes(8), 2000)]


def test_an_input_partitions_time_does_not_go_back_with_its_next_micro_batch() -> None:
    engine = Engine(_final_counts(), "back")
    found = engine.batch({("stream", 0): ([("x", 3, 16)], True), ("stream", 1): ([("y", 1, 4)], False)}, 100)
    found += engine.batch({("stream", 0): ([("x", 3, 8)], False)}, 100)
    assert [(row[2], row[3]) for row in found if row[0] == "out"] == [((1).to_bytes(8), 4000)]


def test_a_changelog_leaves_in_batches_of_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of Arrow takes 2 GiB; what a store takes of one micro-batch may be more."""
    sizes: list[int] = []
    add = Stage.add

    def watched(stage: Stage, batch: pa.RecordBatch) -> None:
        sizes.append(batch.num_rows)
        add(stage, batch)

    monkeypatch.setattr(state_log, "SEGMENT_BYTES_MAX", 10 * 2 * 30)  # a row has about 30 bytes
    monkeypatch.setattr(Stage, "add", watched)
    builder = StreamsBuilder()
    builder.stream("stream", key=serdes.string, value=serdes.long).group_by_key().count()
    engine = Engine(builder.build(), "limited")
    engine.only_rules(True)
    records = [(f"key {number}", 1, number) for number in range(25)]
    rows = engine.batch({("stream", 0): (records, False)}, 10)
    assert {key for _, key, _, _, _ in rows} == {key.encode() for key, _, _ in records}
    assert max(sizes) <= 10


@pytest.mark.parametrize("limit", ["ROWS_MAX", "BYTES_MAX"])
def test_what_leaves_a_task_leaves_in_batches_of_limited_size(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records may be large, and one block of a table's updates may have all of its keys."""
    sizes: list[tuple[int, int]] = []
    add = Stage.add

    def watched(stage: Stage, batch: pa.RecordBatch) -> None:
        if not batch.column("topic")[0].as_py().endswith("-changelog"):
            sizes.append((batch.num_rows, sum(batch.column(name).nbytes for name in ("key", "value"))))
        add(stage, batch)

    monkeypatch.setattr(Stage, "add", watched)
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long)
    counts = stream.group_by_key().count().to_stream()
    counts.map_values(lambda count: f"{count:0100}").to("out", value=serdes.string)
    grouped = counts.group_by(lambda key, count: key[:5], key=serdes.string)
    grouped.reduce(lambda one, other: one + other).to_stream().to("more")
    records: list[Row] = [(f"key {number}", 1, number) for number in range(50)]
    found = []
    for is_limited in (False, True):
        engine = Engine(builder.build(), f"limited {limit} {is_limited}")
        engine.only_rules(True)
        if is_limited:
            monkeypatch.setattr(outputs, limit, {"ROWS_MAX": 7, "BYTES_MAX": 1_000}[limit])
            sizes.clear()
        found.append(engine.batch({("stream", 0): (records, False)}, 10))
    by_topic = [
        [[row[1:] for row in rows if row[0] == topic] for topic in sorted({row[0] for row in rows})] for rows in found
    ]
    assert by_topic[0] == by_topic[1]
    assert max(rows for rows, _ in sizes) <= (7 if limit == "ROWS_MAX" else 50)
    assert max(size for _, size in sizes) <= (2_000 if limit == "BYTES_MAX" else 1 << 20)


@pytest.mark.parametrize("windows", [None, TimeWindows.of_size(10), SessionWindows.of_gap(5)])
def test_each_group_of_a_co_group_behind_a_repartition_has_its_own_aggregator(windows: Any) -> None:
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)

    def group(topic: str) -> Any:
        stream = builder.stream(topic)
        return stream.group_by(lambda key, value: "all", key=serdes.string, value=serdes.long, name=topic)

    together = group("stream").cogroup(lambda key, value, total: total + value)
    together = together.cogroup(group("table"), lambda key, value, total: total - value)
    merger = [] if not isinstance(windows, SessionWindows) else [lambda key, one, other: one + other]
    table = (together if windows is None else together.windowed_by(windows)).aggregate(int, *merger, value=serdes.long)
    table.to_stream(lambda key, value: "all").filter(lambda key, value: value is not None).to("out")
    engine = Engine(builder.build(), f"co-group {windows}")
    found = engine.batch({("stream", 0): ([("a", 50, 1)], False), ("table", 0): ([("b", 8, 2)], False)}, 10)
    assert [value for topic, _, value, *_ in found if topic == "out"][-1:] == [(42).to_bytes(8)]


def test_a_processor_may_send_a_record_without_a_key_to_a_repartition() -> None:
    class Passes:
        def init(self, context: Any) -> None:
            self.forward = context.forward

        def process(self, record: Record) -> None:
            self.forward(record)

    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    made = builder.stream("stream").process(Passes, key=serdes.string, value=serdes.long)
    made.group_by_key().count().to_stream().to("out")
    engine = Engine(builder.build(), "without a key")
    found = engine.batch({("stream", 0): ([(None, 1, 0), ("a", 1, 1)], False)}, 10)
    assert [key for topic, key, *_ in found if topic == "out"] == [b"a"]


def test_a_foreign_key_finds_rows_whose_keys_are_written_as_another_table_has_them() -> None:
    """The serde of the right table's keys is not known. A join with a further table says how they are written, and so
    in which task each row is."""
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    right = builder.stream("stream").select_key(lambda key, value: f"id {value}").to_table()
    right.join(builder.table("table"), lambda one, other: one).to_stream().to("both")
    joined = builder.table("rows").join(right, lambda one, other: one, foreign_key=lambda value: f"id {value}")
    joined.to_stream().to("out")
    engine = Engine(builder.build(), "foreign")
    rows: list[Row] = [(f"key {number}", number, 1) for number in range(8)]
    found = engine.batch({("stream", 0): (rows, False), ("rows", 1): (rows, False)}, 100)
    assert sorted(key for topic, key, *_ in found if topic == "out") == [key.encode() for key, _, _ in rows]


def _filtered(stream: Any) -> Any:
    return stream.filter(lambda key, value: value is not None).group_by_key().windowed_by(TimeWindows.of_size(1))


def _beside_others(stream: Any) -> Any:
    """Time windows take null values, sliding ones do not."""
    grouped = stream.group_by_key()
    grouped.windowed_by(TimeWindows.of_size(1)).count().to_stream(lambda window, _: window.key).to("others")
    return grouped.windowed_by(SLIDING)


def _counted(stream: Any) -> Any:
    return stream.group_by_key().count().to_stream().group_by_key().windowed_by(TimeWindows.of_size(1))


BEHIND_A_REPARTITION: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda stream: stream.group_by_key().windowed_by(SLIDING),
    "peek": lambda stream: stream.peek(lambda key, value: None).group_by_key().windowed_by(SLIDING),
    "map_values": lambda stream: stream.map_values(lambda value: value).group_by_key().windowed_by(SLIDING),
    "filter": _filtered,
    "others beside": _beside_others,
    "count": _counted,
}
"""What is between the repartition and the windows that do not get the first record."""


@pytest.mark.parametrize("shape", BEHIND_A_REPARTITION)
def test_a_record_that_windows_do_not_get_makes_none_late(shape: str) -> None:
    """Behind a repartition, either, whose records carry how far their input partition has come."""
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    stream = builder.stream("stream").repartition()
    stream.to("beside")
    BEHIND_A_REPARTITION[shape](stream).count().to_stream(lambda window, _: window.key).to("out")
    engine = Engine(builder.build(), f"not got {shape}")
    found = engine.batch({("stream", 0): ([("a", None, 40)], False)}, 10)
    found += engine.batch({("stream", 0): ([("b", 1, 20)], False)}, 10)
    assert [(key, timestamp) for topic, key, _, timestamp, _ in found if topic == "out"] == [(b"b", 20_000)]


@pytest.mark.parametrize("rules", [False, True])
@pytest.mark.parametrize("first", [("a", None, 40), (None, 1, 40)])
def test_a_null_that_does_not_wait_in_a_join_with_grace_makes_no_record_late(first: Row, rules: bool) -> None:
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    stream = builder.stream("stream").select_key(record_key(), key=serdes.string)
    table = builder.table("rows", materialized=Materialized.versioned("rows", history=5))
    # It would not wait for the row.
    stream.left_join(table, lambda left, right: left + (right or 0), grace=5).to("out", value=serdes.long)
    engine = Engine(builder.build(), f"nulls {first} {rules}")
    engine.only_rules(rules)
    engine.batch({("stream", 0): ([first, ("b", 1, 20)], False)}, 10)
    found = engine.batch({("rows", 0): ([("b", 1, 20)], False)}, 10)
    found += engine.batch({("stream", 0): ([("b", 1, 26)], False)}, 10)
    assert [(key, timestamp) for topic, key, _, timestamp, _ in found if topic == "out"] == [(b"b", 20_000)]


def test_stream_time_of_a_processor_does_not_depend_on_the_cut() -> None:
    """A record tells its task how far its partition had come, whatever the task was told before."""

    class Tells:
        def init(self, context: Any) -> None:
            self.context = context
            context.schedule(10, "stream-time", lambda now: self.tell("punctuated", now))

        def tell(self, what: str, now: int) -> None:
            self.context.forward(Record(f"{what} {self.context.partition}", now, 0))

        def process(self, record: Record) -> None:
            self.tell("now", self.context.current_stream_time_ms())

    def told(cut: int) -> list[tuple[bytes, int]]:
        builder = StreamsBuilder(key=serdes.string, value=serdes.long)
        other = builder.stream("stream").select_key(lambda key, value: value, key=serdes.long).repartition()
        other.process(Tells, key=serdes.string, value=serdes.long).to("out")
        engine = Engine(builder.build(), f"stream time {cut}")
        log: list[Row] = [("x", 1, 1), ("x", 3, 50), ("x", 1, 30)]  # 1 and 3 are in different tasks
        found = engine.batch({("stream", 0): (log[:cut], True)}, 10)
        found += engine.batch({("stream", 0): (log[cut:], False)}, 10)
        return [(row[1], int.from_bytes(row[2])) for row in found if row[0] == "out"]

    first, second = told(1), told(2)
    assert sorted(first) == sorted(second)
    own = first[0][0].split()[1]  # the task of key 1
    of_one = [(what.split()[0], now) for what, now in first if what.split()[1] == own]
    assert of_one == [(b"now", 1), (b"punctuated", 1), (b"now", 50), (b"punctuated", 50)]


@pytest.mark.parametrize("cut", [0, 2, 3])
def test_stream_time_does_not_go_back_where_partitions_have_come_to_different_times(cut: int) -> None:
    """Also not where a micro-batch ends."""

    class Tells:
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Record) -> None:
            self.context.forward(Record("now", self.context.current_stream_time_ms(), 0))

    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    other = builder.stream("stream").select_key(lambda key, value: value, key=serdes.long).repartition()
    other.process(Tells, key=serdes.string, value=serdes.long).to("out")
    engine = Engine(builder.build(), f"two partitions {cut}")
    log: list[Row] = [("x", 1, 1), ("x", 3, 50), ("x", 1, 30)]  # 1 and 3 are in different tasks
    late: list[Row] = [("y", 1, 40), ("y", 1, 60)]
    found = engine.batch({("stream", 0): (log[:cut], True), ("stream", 1): (late[:1], False)}, 10)
    found += engine.batch({("stream", 0): (log[cut:], False), ("stream", 1): (late[1:], False)}, 10)
    assert sorted(int.from_bytes(row[2]) for row in found if row[0] == "out") == [1, 50, 50, 50, 60]


@pytest.mark.parametrize("change", ["filter", "source"])
def test_records_that_wait_stay_with_their_topic_when_its_source_gets_another_name(change: str) -> None:
    """Operators without state may come and go, and move the generated names of those behind them."""

    def engine(*, is_changed: bool) -> Engine:
        builder = StreamsBuilder(key=serdes.string, value=serdes.long)
        stream = builder.stream("stream")
        if is_changed and change == "filter":
            stream = stream.filter(lambda key, value: True)
        elif is_changed:
            builder.stream("other").to("copies")
        late = builder.stream("late", timestamp=lambda record, partition_time: partition_time + 10)
        together = stream.merge(late).group_by_key()
        together.count(materialized=Materialized.as_("counts"), name="counted").to_stream().to("out")
        found = Engine(builder.build(), f"named {change} {is_changed}")
        found.only_rules(True)
        return found

    first, second = engine(is_changed=False), engine(is_changed=True)
    waiting: list[Row] = [("a", 1, 0), ("b", 1, 0), ("c", 1, 0)]
    assert not first.batch({("stream", 0): ([], True), ("late", 0): (waiting, False)}, 10)
    second.handles, second.behind = first.handles, first.behind
    found = second.batch({("stream", 0): ([("z", 1, 100)], False), ("late", 0): ([("d", 1, 0)], False)}, 10)
    times = {key: timestamp // 1000 for topic, key, _, timestamp, _ in found if topic == "out"}
    assert times == {b"a": 9, b"b": 19, b"c": 29, b"d": 39, b"z": 100}
    assert not second.batch({("stream", 0): ([], False)}, 10)


def test_records_that_wait_for_an_input_which_is_gone_are_told() -> None:
    def engine(*, is_changed: bool) -> Engine:
        builder = StreamsBuilder(key=serdes.string, value=serdes.long)
        stream, late = builder.stream("stream"), builder.stream("late")
        if is_changed:
            late.to("copies")
        together = (stream if is_changed else stream.merge(late)).group_by_key()
        together.count(materialized=Materialized.as_("counts"), name="counted").to_stream().to("out")
        found = Engine(builder.build(), f"gone {is_changed}")
        found.only_rules(True)
        return found

    first, second = engine(is_changed=False), engine(is_changed=True)
    first.batch({("stream", 0): ([], True), ("late", 0): ([("a", 1, 0)], False)}, 10)
    second.handles, second.behind = first.handles, first.behind
    with pytest.raises(TopologyError, match=r"records of late-0 wait for .*, which .*\. Put it back.*rebuild"):
        second.batch({("stream", 0): ([("z", 1, 100)], False)}, 10)


class _PassesOn:
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record)


@pytest.mark.parametrize("is_island", [False, True])
@pytest.mark.parametrize("policy", ["skip", "dead-letter:dead"])
@pytest.mark.parametrize(
    "error",
    [
        DeadlineExceededError("no broker answers"),
        UnknownTopicError("it is deleted", "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_no_record_is_left_out_while_the_log_is_away(
    error: Exception, policy: str, is_island: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the log knows how many partitions the topic of a sink has."""

    def away(stage: Stage, topic: str) -> int:
        raise error

    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    stream = builder.stream("stream")
    stream = stream.process(_PassesOn) if is_island else stream.map_values(lambda value: value)
    stream.to("out", partitioner=lambda topic, key, value, count: 0, value=serdes.long)
    engine = Engine(builder.build(), f"away {error} {policy} {is_island}")
    engine.program = replace(engine.program, settings=TaskSettings(on_processing_error=policy))
    monkeypatch.setattr(Stage, "partition_count", away)
    with pytest.raises((type(error), ProcessingError), match=str(error.args[0])):
        engine.batch({("stream", 0): ([("a", 1, 1)], False)}, 10)


def test_windows_are_not_left_out_when_their_topic_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    def deleted(stage: Stage, topic: str) -> int:
        raise UnknownTopicError("it is deleted", "UNKNOWN_TOPIC_OR_PARTITION")

    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    counts = builder.stream("stream").group_by_key().windowed_by(TimeWindows.of_size(10)).count()
    counts.to_stream().to("out")
    engine = Engine(builder.build(), "deleted")
    engine.only_rules(True)
    engine.program = replace(engine.program, settings=TaskSettings(on_processing_error="skip"))
    monkeypatch.setattr(Stage, "partition_count", deleted)
    with pytest.raises(UnknownTopicError):
        engine.batch({("stream", 0): ([("a", 1, 1)], False)}, 10)
