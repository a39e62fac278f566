"""Source tasks and tasks without Spark: what runs on columns gives what the rules give, whatever waits for what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.share import examples

from suiro.protocol.columnar import HEADERS_TYPE
from suiro.spark import OffsetRange, SinkOptions, SourceOptions
from suiro.streams import (
    Grouped,
    Materialized,
    StreamsBuilder,
    TimeWindows,
    aggregate,
    left,
    record_key,
    record_value,
    right,
    serdes,
    when,
)
from suiro.streams.errors import ProcessingError
from suiro.streams.operators.context import TaskSettings
from suiro.streams.topology.topology import Topology
from suiro.streams.vectorised import key_index
from suiro.streams.vectorised.stateless import Reason
from suiro.streams.vectorised.table import TableRows
from suiro.streams_spark import column_task
from suiro.streams_spark.columnar_forms import columnar_forms_of
from suiro.streams_spark.input_reader import InputReader
from suiro.streams_spark.outputs import Topics
from suiro.streams_spark.plan import plan
from suiro.streams_spark.program import Program
from suiro.streams_spark.reports import Counts, TaskReport, unpack_reports
from suiro.streams_spark.run_task import run_task
from suiro.streams_spark.shuffle_message import STAGED, InputRange
from suiro.streams_spark.source_task import input_rows
from suiro.streams_spark.state_log import StateCache, StateLog, read_columns

PARTITIONS = 2
KAFKA = {"kafka.bootstrap.servers": "nowhere:1"}

Row = tuple[str | None, int | None, int]
Batch = dict[tuple[str, int], tuple[list[Row], bool]]
"""By topic and partition: rows, and whether there are more in the log."""


@dataclass
class Stage:
    """Keeps what would be staged."""

    rows: list[tuple[str, bytes | None, bytes | None, int, int | None]] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        columns = [batch.column(name) for name in ("topic", "key", "value", "timestamp", "partition")]
        columns[3] = columns[3].cast(pa.int64())
        self.rows += zip(*(column.to_pylist() for column in columns), strict=True)

    def partition_count(self, topic: str) -> int:
        return PARTITIONS

    def finish(self) -> None:
        return None


@dataclass
class Handle:
    directory: bytes | None = None
    segments: dict[int, bytes] = field(default_factory=dict)

    def get(self) -> bytes | None:
        return self.directory

    def put(self, directory: bytes) -> None:
        self.directory = directory

    def get_segment(self, number: int) -> bytes | None:
        return self.segments.get(number)

    def put_segment(self, number: int, data: bytes) -> None:
        self.segments[number] = data

    def remove_segment(self, number: int) -> None:
        del self.segments[number]


class Log(InputReader):
    """The records of a micro-batch."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, lambda: True)
        self.chunks: dict[tuple[str, int], list[pa.RecordBatch]] = {}

    def read(self, records: OffsetRange, *, is_replayed: bool) -> Iterator[pa.RecordBatch]:
        return iter(self.chunks[records.place])


class Engine:
    """All tasks of a topology, one after another."""

    def __init__(self, topology: Topology, run: str, *, coalesces: bool = True) -> None:
        counts = dict.fromkeys(topology.source_topics, PARTITIONS)
        self.plan = plan(topology, "app", counts)
        self.program = Program(
            run=run,
            plan=self.plan,
            settings=TaskSettings(coalesces=coalesces),
            on_deserialization_error="fail",
            source=SourceOptions.parse({**KAFKA, "subscribe": ",".join(topology.source_topics)}),
            sink=SinkOptions.parse(KAFKA),
            parallelism=1,
        )
        self.log = Log(self.program)
        self.columnar_forms = columnar_forms_of(self.program)
        self.handles: dict[tuple[int, int], Handle] = defaultdict(Handle)
        self.cache = StateCache()
        self.runs_rules = False
        self.behind: set[tuple[str, int]] = set()
        self.offset = 0
        self.dropped: Counter[str] = Counter()
        self.reports: list[TaskReport] = []
        """Of the last micro-batch."""

    def only_rules(self, wanted: bool) -> None:
        numbers = range(len(self.plan.subs))
        self.columnar_forms._found = {number: Reason("as asked") for number in numbers} if wanted else {}
        self.runs_rules = wanted
        self.cache = StateCache()  # as after a start with another program

    def batch(self, batch: Batch, chunk: int) -> list[tuple[Any, ...]]:
        stage = Stage()
        self.reports = []
        topics = Topics(stage)  # type: ignore[arg-type]
        rows: list[tuple[int, int, bytes]] = []
        told: Batch = {place: ([], False) for place in self.behind}
        for (topic, partition), (records, behind) in sorted({**told, **batch}.items()):
            place = (topic, partition)
            item = InputRange(
                records=OffsetRange(topic=topic, partition=partition, start=0, end=len(records)),
                behind=behind,
                tells=behind or place in self.behind,
            )
            self.behind.discard(place)
            if behind:
                self.behind.add(place)
            chunks = [self._columns(records[at : at + chunk]) for at in range(0, len(records), chunk)]
            self.log.chunks[place] = chunks
            for found in input_rows(self.program, item, chunks, topics):
                rows += found
        rows += topics.finish()
        for level in range(1, self.plan.levels + 1):
            waiting: dict[tuple[int, int], list[bytes]] = defaultdict(list)
            for number, partition, data in self._told(rows):
                waiting[number, partition].append(data)
            rows = []
            for (number, partition), messages in sorted(waiting.items()):
                if self.plan.subs[number].level != level:
                    rows += [(number, partition, data) for data in messages]
                    continue
                log = StateLog(self.handles[number, partition], self.cache, (number, partition))
                rows += run_task(self.program, number, partition, messages, log, Topics(stage), self.log)  # type: ignore[arg-type]
        assert not self._told(rows)
        return stage.rows

    def _told(self, rows: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
        """Without what is for the driver, of which the counts of dropped records are kept."""
        for number, _, data in rows:
            if number != STAGED:
                continue
            (message,) = unpack_reports([data])
            if isinstance(message, Counts) and message.kind == "dropped":
                self.dropped.update(message.counts)
            elif isinstance(message, TaskReport):
                self.reports.append(message)
        return [row for row in rows if row[0] != STAGED]

    def stores(self) -> dict[tuple[int, int, str], dict[bytes, bytes]]:
        found: dict[tuple[int, int, str], dict[bytes, bytes]] = defaultdict(dict)
        for (number, partition), handle in self.handles.items():
            log = StateLog(handle, StateCache(), "look")
            log.load()
            for segment in log._directory.segments:
                for name, keys, values in read_columns(handle.segments[segment.number]):
                    if name.startswith("$"):
                        continue
                    rows = found[number, partition, name]
                    for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
                        rows.pop(key, None)
                        if value is not None:
                            rows[key] = value
        return {place: rows for place, rows in found.items() if rows}

    def _columns(self, records: list[Row]) -> pa.RecordBatch:
        self.offset += len(records)
        count = len(records)
        return pa.RecordBatch.from_pydict(
            {
                "key": pa.array([None if row[0] is None else row[0].encode() for row in records], pa.binary()),
                "value": pa.array(
                    [None if row[1] is None else row[1].to_bytes(8, signed=True) for row in records],
                    pa.binary(),
                ),
                "offset": pa.array(range(self.offset - count, self.offset), pa.int64()),
                "timestamp": pa.array([row[2] for row in records], pa.int64()),
                "headers": pa.array([[]] * count, HEADERS_TYPE),
            }
        )


def _count(builder: StreamsBuilder, stream: Any) -> None:
    stream.group_by_key().count().to_stream().to("out")


def _windowed(builder: StreamsBuilder, stream: Any) -> None:
    windows = TimeWindows.of_size(10, grace=3)
    stream.filter(record_value() != 3).group_by_key().windowed_by(windows).count().to_stream().to("out")


def _summed_elsewhere(builder: StreamsBuilder, stream: Any) -> None:
    keyed = stream.select_key(record_value() % 3, key=serdes.long)
    keyed.group_by_key().reduce(left() + right()).to_stream().to("out")
    stream.map_values(record_value() * 2, value=serdes.long).to("other")


def _counted_elsewhere(builder: StreamsBuilder, stream: Any) -> None:
    """Null values travel, and are left out where they arrive."""
    stream.select_key(record_key(), key=serdes.string).group_by_key().count().to_stream().to("out")


def _joined(builder: StreamsBuilder, stream: Any) -> None:
    table = builder.table("table", key=serdes.string, value=serdes.long)
    stream.left_join(table, lambda one, other: one * 100 + (other or 0)).to("out", value=serdes.long)


def _counted_after_a_join(builder: StreamsBuilder, stream: Any) -> None:
    table = builder.table("table", key=serdes.string, value=serdes.long)
    joined = stream.join(table, left() + right()).map_values(record_value() - 1, value=serdes.long)
    joined.select_key(record_value() % 2, key=serdes.long).group_by_key().count().to_stream().to("out")


SHAPES: dict[str, Callable[[StreamsBuilder, Any], None]] = {
    "count": _count,
    "windowed": _windowed,
    "summed elsewhere": _summed_elsewhere,
    "counted elsewhere": _counted_elsewhere,
    "joined": _joined,
    "counted after a join": _counted_after_a_join,
}


OF_SEVERAL_INPUTS = ("summed elsewhere", "counted elsewhere", "counted after a join")
"""Rules let input partitions wait for each other there; columns need not, for the order changes nothing in the end."""


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    found: list[Batch] = []
    now = 0
    count = draw(st.integers(1, 4))
    for number in range(count):
        batch: Batch = {}
        for topic in ("stream", "table"):
            for partition in range(PARTITIONS):
                rows: list[Row] = []
                for _ in range(draw(st.integers(0, 5))):
                    now += draw(st.integers(0, 4))
                    # Keys of their own for each partition, as a partitioner would have it.
                    key = draw(st.sampled_from([f"a{partition}", f"b{partition}", f"c{partition}"]))
                    value = draw(st.none() | st.integers(-4, 9))
                    rows.append((key, value, max(0, now - draw(st.integers(0, 12)))))
                behind = draw(st.booleans()) and number < count - 1
                if rows or behind:
                    batch[topic, partition] = (rows, behind)
        found.append(batch)
    return found


@pytest.mark.parametrize("shape", sorted(SHAPES))
@given(data=batches(), chunk=st.integers(1, 5), rules=st.lists(st.booleans(), min_size=4, max_size=4))
@settings(max_examples=examples(60), deadline=None)
def test_columns_and_rules_agree(shape: str, data: list[Batch], chunk: int, rules: list[bool]) -> None:
    builder = StreamsBuilder()
    SHAPES[shape](builder, builder.stream("stream", key=serdes.string, value=serdes.long))
    topology = builder.build()
    wanted, found = Engine(topology, f"{shape} rules"), Engine(topology, f"{shape} columns")
    wanted.only_rules(True)
    found.only_rules(False)
    assert all(found.columnar_forms.of(number) for number in range(len(found.plan.subs)))
    topics = set(topology.source_topics)
    all_columns: dict[Any, Any] = {}
    all_rules: dict[Any, Any] = {}
    for batch, by_rules in zip(data, rules, strict=False):
        if by_rules != found.runs_rules:
            found.only_rules(by_rules)
        given = {place: rows for place, rows in batch.items() if place[0] in topics}
        from_columns, from_rules = by_key(found.batch(given, chunk)), by_key(wanted.batch(given, chunk))
        if shape not in OF_SEVERAL_INPUTS:
            assert from_columns == from_rules
        all_columns.update((key, rows[-1]) for key, rows in from_columns.items())
        all_rules.update((key, rows[-1]) for key, rows in from_rules.items())
    assert all_columns == all_rules
    assert found.stores() == wanted.stores()
    assert found.dropped == wanted.dropped


@pytest.mark.parametrize("graces", [(0, 1_000), (1_000, 0), (5, 20, 0)])
def test_columns_and_rules_agree_on_windows_whose_grace_changed(graces: tuple[int, ...]) -> None:
    """Both go on with the state of the run before: none counts a late record in a window that was closed."""
    found: list[list[Any]] = []
    for rules in (True, False):
        handles: Any = defaultdict(Handle)
        outputs: list[Any] = []
        for turn, grace in enumerate(graces):
            builder = StreamsBuilder()
            stream = builder.stream("stream", key=serdes.string, value=serdes.long)
            counts = stream.group_by_key().windowed_by(TimeWindows.of_size(10, grace=grace)).count()
            counts.to_stream().to("out")
            engine = Engine(builder.build(), f"grace {rules} {graces} {turn}")
            engine.only_rules(rules)
            engine.handles = handles
            rows: list[Row] = [("a0", 1, 100 + turn), ("a0", 1, 200 + turn), ("a0", 1, 101 + turn)]
            outputs.append(by_key(engine.batch({("stream", 0): (rows, False)}, 2)))
            outputs.append(dict(engine.dropped))
            outputs.append(engine.stores())
        found.append(outputs)
    assert found[0] == found[1]
    if graces[0] == 0:  # the window from 100 on was closed
        assert {key[-8:] for topic, key in found[1][3] if topic == "out"} == {(200).to_bytes(8)}


@pytest.mark.parametrize("policy", ["skip", "dead-letter:dead", "fail"])
def test_a_key_that_its_store_cannot_hold_fails_on_its_record(policy: str) -> None:
    """Keys of JSON may be of any type, whoever sends them. The columns of such a chunk go by the rules."""
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.json, value=serdes.long)
    stream.group_by_key(Grouped.with_(key=serdes.string)).count().to_stream().to("out")
    run = f"keys {policy}"
    engine = Engine(builder.build(), run)
    settings = TaskSettings(on_processing_error=policy, coalesces=True)
    engine.program = replace(engine.program, run=f"{run}, columns", settings=settings)
    assert columnar_forms_of(engine.program).of(0) is not None
    batch: Batch = {("stream", 0): ([('"a"', 1, 1), ("5", 1, 2), ('"b"', 1, 3)], False)}
    if policy == "fail":
        with pytest.raises(ProcessingError, match="a record of stream-0 offset 1, key 5, timestamp 2"):
            engine.batch(batch, 10)
        return
    out = by_key(engine.batch(batch, 10))
    assert {key for topic, key in out if topic == "out"} == {b"a", b"b"}
    assert [key for topic, key in out if topic == "dead"] == ([] if policy == "skip" else [(5).to_bytes(8)])
    assert engine.dropped == {"processing error": 1}


@pytest.mark.parametrize("rules", [True, False])
def test_a_repartition_that_nothing_reads_spreads_its_records(rules: bool) -> None:
    builder = StreamsBuilder()
    builder.stream("stream", key=serdes.string, value=serdes.long).repartition(name="spread", partitions=8)
    engine = Engine(builder.build(), f"spread {rules}")
    engine.only_rules(rules)
    out = engine.batch({("stream", 0): ([(f"key {number}", 1, 1) for number in range(100)], False)}, 100)
    assert {partition for *_, partition in out} == set(range(8))


def test_a_tables_rows_in_chunks_are_kept_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for rules in (True, False):
        builder = StreamsBuilder()
        _joined(builder, builder.stream("stream", key=serdes.string, value=serdes.long))
        engine = Engine(builder.build(), f"chunks {rules}")
        engine.only_rules(rules)
        monkeypatch.setattr(key_index, "PIECE_BYTES", 50)
        rows: list[Row] = [(f"key {number}", number, number) for number in range(40)]
        deleted: list[Row] = [(key, None, time + 50) for key, _, time in rows[:20]]
        left_out = []
        for batch in (rows, deleted):
            left_out.append(by_key(engine.batch({("table", 0): (batch, False), ("stream", 0): (rows, False)}, 10)))
        found.append((left_out, engine.stores()))
    assert found[0] == found[1]


class OfJson(Engine):
    """Values are JSON; 9 is a text there, and a chunk of texts and numbers is no column."""

    def _columns(self, records: list[Row]) -> pa.RecordBatch:
        columns = super()._columns(records)
        values = [None if row[1] is None else b'"9"' if row[1] == 9 else b"%d" % row[1] for row in records]
        return columns.set_column(1, "value", pa.array(values, pa.binary()))


def _joined_json() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("table", key=serdes.string, value=serdes.json)
    stream = builder.stream("stream", key=serdes.string, value=serdes.json)
    stream.left_join(table, lambda one, other: [one, other]).to("out", value=serdes.json)
    return builder.build()


@pytest.mark.parametrize("rows_per_record", [-1, 1 << 40])
@given(data=batches(), chunk=st.integers(1, 5))
@settings(max_examples=examples(60), deadline=None)
def test_a_join_by_rules_now_and_then_has_the_rows_of_the_columns(
    rows_per_record: int, data: list[Batch], chunk: int
) -> None:
    """Where data is no column, the rules run. They read single rows of the table (-1), or have all of them."""
    topology = _joined_json()
    wanted, found = (
        OfJson(topology, f"{rows_per_record} rules"),
        OfJson(topology, f"{rows_per_record} columns"),
    )
    wanted.only_rules(True)
    assert found.columnar_forms.of(0) is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_task, "ROWS_PER_RECORD", rows_per_record)
        for batch in data:
            assert by_key(found.batch(batch, chunk)) == by_key(wanted.batch(batch, chunk))
            assert found.stores() == wanted.stores()
    assert found.dropped == wanted.dropped


def test_a_join_by_rules_reads_no_more_of_a_table_than_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is no column comes in each micro-batch, and the table is large."""
    engine = OfJson(_joined_json(), "a large table")
    rows: list[Row] = [(f"key {number}", number + 10, number) for number in range(1_000)]
    engine.batch({("table", 0): (rows, False)}, 1_000)

    def all_rows(self: TableRows) -> None:
        raise AssertionError("the whole table is read")

    monkeypatch.setattr(TableRows, "rows", all_rows)
    mixed: list[Row] = [("key 1", 9, 2_000), ("key 2", 5, 2_001), ("none", 5, 2_002)]
    out = engine.batch({("stream", 0): (mixed, False), ("table", 0): ([("key 2", None, 1_999)], False)}, 10)
    assert {row[1]: row[2] for row in out if row[0] == "out"} == {
        b"key 1": b'["9",11]',
        b"key 2": b"[5,null]",
        b"none": b"[5,null]",
    }
    out = engine.batch({("stream", 0): ([("key 2", 5, 2_003), ("key 3", 5, 2_004)], False)}, 10)
    assert [row[2] for row in out] == [b"[5,null]", b"[5,13]"]


def test_a_record_that_cannot_be_carried_is_told_where_others_have_no_key() -> None:
    """Those are left out first. The dead letter was a record that was carried, and the one that was not was gone."""
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long)
    keyed = stream.select_key(lambda key, value: None if value == 0 else value, key=serdes.string)
    keyed.map_values(lambda value: f"{value}", value=serdes.string).group_by_key().count()
    engine = Engine(builder.build(), "carried")
    engine.program = replace(
        engine.program,
        run="carried, dead letters",
        settings=TaskSettings(on_processing_error="dead-letter:dead", coalesces=True),
    )
    out = engine.batch({("stream", 0): ([("a", 0, 1), ("b", 0, 2), ("c", 7, 3)], False)}, 10)
    assert [row[2] for row in out if row[0] == "dead"] == [b"7"]


@pytest.mark.parametrize("rules", [True, False])
def test_records_that_lose_their_key_on_the_way_are_counted(rules: bool) -> None:
    """As the interpreter counts them."""
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long)
    counts = stream.group_by(record_key(), key=serdes.string).count().to_stream()
    counts.group_by(when(record_value() > 1, record_value()), key=serdes.long).count()
    engine = Engine(builder.build(), f"null keys {rules}")
    engine.only_rules(rules)
    rows: list[Row] = [("a", 1, 1), (None, 1, 2), ("b", 1, 3), (None, 1, 4), ("b", 1, 5)]
    engine.batch({("stream", 0): (rows, False)}, 10)
    assert engine.dropped == {"null key": 3}


@pytest.mark.parametrize("policy", ["skip", "dead-letter:dead"])
def test_what_is_left_out_behind_an_aggregate_is_counted(policy: str) -> None:
    builder = StreamsBuilder()
    counts = builder.stream("stream", key=serdes.string, value=serdes.long).group_by_key().count()
    counts.to_stream().map_values(record_value() * (1 << 62)).to("out")
    settings = TaskSettings(on_processing_error=policy, coalesces=True)
    found = []
    for rules in (True, False):
        engine = Engine(builder.build(), f"left out {policy} {rules}")
        run = f"{engine.program.run}, as asked"
        engine.program = replace(engine.program, run=run, settings=settings)
        engine.columnar_forms = columnar_forms_of(engine.program)
        engine.only_rules(rules)
        batch: Batch = {("stream", 0): ([("a", 1, 1), ("b", 1, 2), ("b", 1, 3)], False)}
        found.append((by_key(engine.batch(batch, 10)), engine.dropped))
    assert found[0] == found[1]
    assert found[1][1] == {"processing error": 1}


def test_a_sum_of_a_number_beyond_64_bits_is_told_with_its_record() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.json)
    total = stream.group_by_key().aggregate(
        lambda: 0, aggregate() + record_value()["n"], materialized=Materialized.with_(value=serdes.long)
    )
    total.to_stream().to("out")
    engine = Engine(builder.build(), "sums beyond 64 bits")
    assert engine.columnar_forms.of(0) is not None
    columns = engine._columns([("a", 1, 1)])
    numbers = [b'{"n": 1}', b'{"n": 18446744073709551616}']
    wide = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k", b"k"], pa.binary()),
            "value": pa.array(numbers, pa.binary()),
            "offset": pa.array([7, 8], pa.int64()),
            "timestamp": pa.array([1, 2], pa.int64()),
            "headers": pa.array([[], []], columns.column("headers").type),
        }
    )
    item = InputRange(records=OffsetRange(topic="stream", partition=0, start=7, end=9))
    with pytest.raises(ProcessingError, match=r"of stream-0 offset 8.*OverflowError.*does not fit into 64"):
        list(input_rows(engine.program, item, [wide], Topics(Stage())))  # type: ignore[arg-type]


def by_key(rows: list[tuple[Any, ...]]) -> dict[Any, list[tuple[Any, ...]]]:
    """Each key's records: what must be the same however keys interleave."""
    found: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for topic, key, value, timestamp, partition in rows:
        found[topic, key].append((value, timestamp, partition))
    return dict(found)


def test_a_dead_letter_of_a_record_that_waited_since_the_rules_ran() -> None:
    """They ran before the last start, which changed `on_processing_error`."""
    builder = StreamsBuilder()
    builder.stream(["left", "right"], key=serdes.long, value=serdes.long).group_by_key().count()
    engine = Engine(builder.build(), "waiting letters")
    engine.program = replace(engine.program, on_deserialization_error="dead-letter:dead")
    engine.columnar_forms = columnar_forms_of(engine.program)
    engine.only_rules(True)
    left: list[Row] = [("8 bytes.", 1, 20), ("no long", 2, 21)]
    engine.batch({("left", 0): (left, False), ("right", 0): ([("8 bytes!", 1, 15)], True)}, 10)
    engine.only_rules(False)
    found = engine.batch({("right", 0): ([("8 bytes!", 1, 40)], False)}, 10)
    assert [(topic, key) for topic, key, *_ in found if topic == "dead"] == [("dead", b"no long")]
    assert engine.dropped == {"deserialization error": 1}
