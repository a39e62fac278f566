"""Which sub-topologies run on columns, what they say of it, and what goes wrong in them."""

from __future__ import annotations

import json
import struct
import weakref
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from support.vectorised import (
    SETTINGS,
    Columns,
    Gathered,
    JoinColumns,
    JoinRules,
    Result,
    Row,
    Rules,
    State,
    columns_of,
)

from suiro.errors import FatalError
from suiro.registry import Schema, registry_client
from suiro.streams import (
    EmitStrategy,
    StreamsBuilder,
    TimeWindows,
    aggregate,
    col,
    concat,
    explain,
    left,
    record_value,
    right,
    serdes,
)
from suiro.streams import struct as struct_of
from suiro.streams.errors import ProcessingError
from suiro.streams.operators.context import TaskSettings
from suiro.streams.stores import OrderedMap
from suiro.streams.vectorised import key_index, stream_table_join
from suiro.streams.vectorised.aggregate import NumberRows
from suiro.streams.vectorised.by_rules import ColumnContext
from suiro.streams.vectorised.numbers import Numbers
from suiro.streams.vectorised.plan import columnar_form_of
from suiro.streams.vectorised.stateless import FALLBACK, Reason
from suiro.streams.vectorised.stream_table_join import Arrived, InputChunks
from suiro.streams.vectorised.table import TableRows


def _stream(builder: StreamsBuilder, value: Any = serdes.long) -> Any:
    return builder.stream("in", key=serdes.string, value=value)


def _long(value: int) -> bytes:
    return struct.pack(">q", value)


def test_what_runs_on_columns_is_said_for_each_operator() -> None:
    builder = StreamsBuilder()
    _stream(builder).filter(record_value() > 1).group_by_key().count().to_stream().to("out")
    assert explain(builder.build()).split("\n") == [
        "sub-topology 0: on columns",
        "  KSTREAM-AGGREGATE-0000000003: columns, count combined in the source task",
        "  KSTREAM-FILTER-0000000001: columns",
        "  KSTREAM-SINK-0000000005: columns",
    ]


def test_a_join_says_that_its_joiner_is_python() -> None:
    builder = StreamsBuilder()
    table = builder.table("table", key=serdes.string, value=serdes.string)
    _stream(builder, serdes.string).join(table, lambda one, other: one + other).to("out")
    assert any("its joiner is Python, called for each pair" in line for line in explain(builder.build()).split("\n"))


def _python_filter(builder: StreamsBuilder) -> None:
    _stream(builder).filter(lambda key, value: value > 1).to("out")


def _python_reducer(builder: StreamsBuilder) -> None:
    _stream(builder).group_by_key().reduce(lambda one, other: one + other).to_stream().to("out")


def _emits_final(builder: StreamsBuilder) -> None:
    group = _stream(builder).group_by_key().windowed_by(TimeWindows.of_size(10))
    group.emit_strategy(EmitStrategy.on_window_close()).count().to_stream().to("out")


def _filtered_table(builder: StreamsBuilder) -> None:
    _stream(builder).group_by_key().count().filter(record_value() > 1).to_stream().to("out")


def _chosen_topic(builder: StreamsBuilder) -> None:
    _stream(builder).to(lambda key, value, origin: "out")


def _topic_twice(builder: StreamsBuilder) -> None:
    stream = _stream(builder)
    stream.to("out")
    stream.map_values(record_value() + 1).to("out")


def _extractor(builder: StreamsBuilder) -> None:
    builder.stream("in", key=serdes.string, value=serdes.long, timestamp=lambda record, time: 1).to("out")


def _float_keys(builder: StreamsBuilder) -> None:
    builder.stream("in", key=serdes.double, value=serdes.long).group_by_key().count().to_stream().to("out")


def _text_sum(builder: StreamsBuilder) -> None:
    total = aggregate() + record_value()
    _stream(builder, serdes.string).group_by_key().aggregate(lambda: 0, total, value=serdes.long)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (_python_filter, "its function is Python"),
        (_python_reducer, "its function is Python"),
        (_emits_final, "emits when windows close"),
        (_filtered_table, "is a table that KTABLE-FILTER"),
        (_chosen_topic, "a callable chooses the topic"),
        (_topic_twice, "several sinks write to out"),
        (_extractor, "a timestamp extractor"),
        (_float_keys, "may be equal and have different bytes"),
        (_text_sum, "no number"),
    ],
)
def test_what_does_not_run_on_columns_says_why(build: Any, reason: str) -> None:
    builder = StreamsBuilder()
    build(builder)
    line, *_ = explain(builder.build()).split("\n")
    assert line.startswith("sub-topology 0: over blocks of values, not on columns (")
    assert reason in line


def test_every_update_is_the_rules_work() -> None:
    builder = StreamsBuilder()
    _stream(builder).group_by_key().count().to_stream().to("out")
    topology = builder.build()
    found = columnar_form_of(topology, topology.sub_topologies[0], TaskSettings(coalesces=False))
    assert isinstance(found, Reason)
    assert "every update is wanted" in str(found)


def test_a_reason_holds_nothing_of_its_callers() -> None:
    """A process keeps it, and the first caller has the records of a micro-batch."""
    builder = StreamsBuilder()
    _python_reducer(builder)
    topology = builder.build()

    def ask() -> tuple[Any, weakref.ref[Any]]:
        records = Gathered()
        return columnar_form_of(topology, topology.sub_topologies[0], SETTINGS), weakref.ref(records)

    found, records = ask()
    assert isinstance(found, Reason)
    assert records() is None


def test_a_sum_beyond_64_bits_stops() -> None:
    builder = StreamsBuilder()
    _stream(builder).group_by_key().reduce(left() + right()).to_stream().to("out")
    topology = builder.build()
    columns = Columns(topology, topology.sub_topologies[0])
    most = (1 << 63) - 1
    state: State = {}
    rows: list[Row] = [(b"a", _long(most), 5, ())]
    columns.batch(state, [rows])
    with pytest.raises(ProcessingError, match=r"KSTREAM-REDUCE.*timestamp 7: the sum does not fit into 64 bits"):
        columns.batch(state, [[(b"a", _long(1), 7, ())]])


def test_what_passes_64_bits_in_one_chunk_only_is_right() -> None:
    builder = StreamsBuilder()
    _stream(builder).group_by_key().reduce(left() + right()).to_stream().to("out")
    topology = builder.build()
    columns = Columns(topology, topology.sub_topologies[0])
    most = (1 << 63) - 1
    rows: list[Row] = [(b"a", _long(number), 5, ()) for number in (-most, most, most)]
    found = columns.batch({}, [rows])
    assert [[row[1] for row in rows] for rows in found.outputs.values()] == [[_long(most)]]


def test_a_number_of_another_kind_is_an_error_of_its_record() -> None:
    builder = StreamsBuilder()
    total = aggregate() + col("n")
    _stream(builder, serdes.json).group_by_key().aggregate(lambda: 0, total, value=serdes.long)
    topology = builder.build()
    columns = Columns(topology, topology.sub_topologies[0])
    with pytest.raises(ProcessingError, match=r"in-0 offset 0, key 'a', timestamp 3: TypeError: 1.5 is no long"):
        columns.batch({}, [[(b"a", b'{"n":1.5}', 3, ())]])


def test_a_chunk_that_columns_cannot_do_is_given_back() -> None:
    builder = StreamsBuilder()
    _stream(builder).map_values(record_value() * record_value()).to("out")
    topology = builder.build()
    columnar = columnar_form_of(topology, topology.sub_topologies[0], SETTINGS)
    assert not isinstance(columnar, Reason)
    assert columnar.kind == "stateless"
    with pytest.raises(FALLBACK):
        columnar.run("KSTREAM-SOURCE-0000000000", columns_of([(b"a", _long(1 << 40), 1, ())]), topic="in")
    with pytest.raises(FALLBACK):
        columnar.run("KSTREAM-SOURCE-0000000000", columns_of([(b"a", b"short", 1, ())]), topic="in")
    with pytest.raises(FALLBACK):
        columnar.run("KSTREAM-SOURCE-0000000000", columns_of([(b"a", _long(1), -1, ())]), topic="in")


def test_strings_are_joined_in_columns() -> None:
    builder = StreamsBuilder()
    _stream(builder, serdes.string).map_values(concat(record_value(), "!")).to("out")
    topology = builder.build()
    columnar = columnar_form_of(topology, topology.sub_topologies[0], SETTINGS)
    assert not isinstance(columnar, Reason)
    assert columnar.kind == "stateless"
    gathered = Gathered()
    gathered.take(columnar.run("KSTREAM-SOURCE-0000000000", columns_of([(b"a", b"x", 1, ())]), topic="in"))
    assert gathered.by_node == {"KSTREAM-SINK-0000000002": [(b"a", b"x!", 1, ())]}


def test_json_is_written_anew_for_topics_only() -> None:
    builder = StreamsBuilder()
    stream = _stream(builder, serdes.json).filter(col("n") > 1)
    stream.to("out")
    stream.group_by(col("s"), key=serdes.string).count()
    topology = builder.build()
    columnar = columnar_form_of(topology, topology.sub_topologies[0], SETTINGS)
    assert not isinstance(columnar, Reason)
    assert columnar.kind == "stateless"
    gathered = Gathered()
    data = b'{"s": "x", "n": 2}'
    gathered.take(columnar.run("KSTREAM-SOURCE-0000000000", columns_of([(b"a", data, 1, ())]), topic="in"))
    written, carried = gathered.by_node.values()
    assert written == [(b"a", b'{"n":2,"s":"x"}', 1, ())]
    assert carried == [(b"x", data, 1, ())]


def test_rows_that_are_no_numbers_are_refused() -> None:
    rows = NumberRows(Numbers(op=0, initial=0), operator="count")
    with pytest.raises(FatalError, match="row b'k' of the state of count is no number"):
        rows.load(pa.array([b"k"], pa.binary()), pa.array([b"short"], pa.binary()))


def test_a_table_lets_go_of_rows_that_were_overwritten() -> None:
    rows = TableRows()
    keys = pa.array([b"k%d" % number for number in range(100)], pa.binary())
    for turn in range(50):
        rows.change(keys, pa.array([b"%08d" % turn + bytes(2_000)] * 100, pa.binary()))
        rows.take_changes()
    assert rows.nbytes < 1_500_000
    assert rows.values(rows.look_up(keys.slice(3, 1))).to_pylist() == [bytes(2_000)]
    rows.change(keys, pa.nulls(100, pa.binary()))
    assert len(rows) == 0
    assert rows.values(rows.look_up(keys.slice(3, 1))).to_pylist() == [None]


LATEST = (1 << 63) - 1


@pytest.mark.parametrize("advance", [10, 3])
@pytest.mark.parametrize("value", [_long(1), None], ids=["combined", "one by one"])
def test_windows_at_the_end_of_all_times(advance: int, value: bytes | None) -> None:
    builder = StreamsBuilder()
    group = _stream(builder).group_by_key().windowed_by(TimeWindows.of_size(10, advance=advance))
    group.reduce(left() + right()).to_stream().to("out")
    rows: list[Row] = [(b"a", _long(1), LATEST - 40, ()), (b"a", value, LATEST - 2, ())]
    rows += [(b"a", _long(1), LATEST, ()), (b"a", _long(5), LATEST - 30, ())]
    _same_as_the_rules(builder, rows)


def test_a_grace_without_end_takes_every_record() -> None:
    builder = StreamsBuilder()
    windows = TimeWindows.of_size(10, grace=LATEST - 10)
    _stream(builder).group_by_key().windowed_by(windows).count().to_stream().to("out")
    found = _same_as_the_rules(builder, [(b"a", _long(1), time, ()) for time in (50, 5, LATEST - 1, 6)])
    assert found.dropped == {}


@pytest.mark.parametrize("what", ["initial", "value"])
def test_a_zero_keeps_its_sign(what: str) -> None:
    builder = StreamsBuilder()
    group = _stream(builder, serdes.json).group_by_key()
    if what == "initial":
        table = group.aggregate(lambda: -0.0, aggregate() + col("n"), value=serdes.double)
    else:
        table = group.aggregate(lambda: 1.0, col("n"), value=serdes.double)
    table.to_stream().to("out")
    # A field that is not in all rows sends the chunk to the rules.
    _same_as_the_rules(builder, [(b"a", b'{"n":-0.0}', 1, ()), (b"b", b'{"n":-0.0,"x":1}', 2, ())])


def test_a_whole_number_that_no_double_equals_is_refused() -> None:
    builder = StreamsBuilder()
    group = _stream(builder, serdes.json).group_by_key()
    group.aggregate(lambda: 1.0, col("n"), value=serdes.double).to_stream().to("out")
    topology = builder.build()
    sub = topology.sub_topologies[0]
    rows: list[Row] = [(b"a", b'{"n":0.5}', 1, ()), (b"a", b'{"n":9007199254740993,"x":1}', 2, ())]
    for engine in (Rules(topology, sub), Columns(topology, sub)):
        with pytest.raises(ProcessingError, match="9007199254740993 is too large to be exact"):
            engine.batch({}, [rows])


def _same_as_the_rules(builder: StreamsBuilder, rows: list[Row]) -> Result:
    topology = builder.build()
    sub = topology.sub_topologies[0]
    by_rules: State = {}
    by_columns: State = {}
    wanted = Rules(topology, sub).batch(by_rules, [rows])
    found = Columns(topology, sub).batch(by_columns, [rows])
    assert found.outputs == wanted.outputs
    assert found.dropped == wanted.dropped
    assert by_columns == by_rules
    return found


def _of_avro(url: str) -> Callable[[Any], bytes]:
    schema = ["null", {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}]
    registry_client(url).register("in-value", Schema(json.dumps(schema)))
    serde = serdes.avro.with_(registry=url)
    return lambda value: serde.codec().encode("in", value)


def test_bytes_of_avro_that_are_null_are_a_null_value() -> None:
    url = "mock://null-in-bytes"
    written = _of_avro(url)
    rows: list[Row] = [
        (b"a", written({"n": 1}), 1, ()),
        (b"a", written(None), 2, ()),
        (b"b", written(None), 3, ()),
    ]
    builder = StreamsBuilder()
    stream = _stream(builder, serdes.avro.with_(registry=url))
    stream.group_by_key().count().to_stream().to("out")
    assert _same_as_the_rules(builder, rows).dropped == {"null value": 2}

    builder = StreamsBuilder()
    table = builder.table("table", key=serdes.string, value=serdes.string)
    stream = _stream(builder, serdes.avro.with_(registry=url))
    stream.join(table, lambda one, other: f"{one} {other}").to("out", value=serdes.string)
    topology = builder.build()
    sub = topology.sub_topologies[0]
    inputs = sorted(((node.name, node.operator.topics[0]) for node in sub.inputs), key=lambda one: one[1])
    of_table: list[Row] = [(b"a", b"A", 0, ()), (b"b", b"B", 0, ())]
    wanted = JoinRules(topology, sub).merge({}, inputs, [rows, of_table])
    assert JoinColumns(topology, sub).merge({}, inputs, [[rows], [of_table]]) == wanted
    assert wanted.dropped == {"null value": 2}


def _joined_with_a_table(stream: Any, joiner: Any, value: Any = serdes.json) -> tuple[JoinRules, JoinColumns, Any]:
    """`stream` is the serde of the stream's values, `value` that of the table's."""
    builder = StreamsBuilder()
    table = builder.table("table", key=serdes.string, value=value)
    _stream(builder, stream).left_join(table, joiner).to("out", value=serdes.json)
    topology = builder.build()
    sub = topology.sub_topologies[0]
    inputs = sorted(((node.name, node.operator.topics[0]) for node in sub.inputs), key=lambda one: one[1])
    return JoinRules(topology, sub), JoinColumns(topology, sub), inputs


@pytest.mark.parametrize(
    "joiner",
    [lambda one, other: {**one, "other": other}, struct_of(n=left("n"), other=right("n")), right()],
    ids=["python", "fields", "whole"],
)
def test_rows_of_a_table_that_are_no_column_together_are_joined(joiner: Any) -> None:
    """Each came with a micro-batch of its own. When a record meets them, the table has changed."""
    rules, columns, inputs = _joined_with_a_table(serdes.json, joiner)
    by_rules: State = {}
    by_columns: State = {}
    for number, data in enumerate([b'{"n":"text","s":1}', b'{"n":2}', b'{"n":[{"n":1},2]}']):
        of_table: list[Row] = [(b"%d" % number, data, 0, ())]
        wanted = rules.merge(by_rules, inputs, [[], of_table])
        if number < 2:
            assert columns.merge(by_columns, inputs, [[], [of_table]]) == wanted
    by_columns.update({name: dict(rows) for name, rows in by_rules.items()})
    columns.rows = None
    rows: list[Row] = [(b"%d" % number, b'{"n":%d}' % number, 1, ()) for number in range(4)]
    of_table = [(b"0", b'{"n":0.5}', 2, ())]
    wanted = rules.merge(by_rules, inputs, [rows, of_table])
    assert columns.merge(by_columns, inputs, [[rows], [of_table]]) == wanted
    assert by_columns == by_rules


def test_many_records_may_meet_a_large_row() -> None:
    """All that records of one micro-batch meet is more than an array of Arrow takes."""
    rules, columns, inputs = _joined_with_a_table(serdes.long, left(), serdes.bytes)
    of_table: list[Row] = [(b"a", bytes(1 << 20), 0, ())]
    rows: list[Row] = [(b"a", _long(number), 1, ()) for number in range(2_100)]
    wanted = rules.merge({}, inputs, [rows, of_table])
    assert columns.merge({}, inputs, [[rows], [of_table]]) == wanted


def test_results_leave_before_later_records_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """All results of a micro-batch may be more than fits into memory."""
    calls: list[int] = []

    def joiner(left: int, right: bytes) -> int:
        calls.append(left)
        return left

    _, columns, inputs = _joined_with_a_table(serdes.long, joiner, serdes.bytes)
    monkeypatch.setattr(stream_table_join, "ROWS_AT_ONCE", 2)
    columnar = columns.columnar
    assert columnar.kind == "join"
    of_table: list[Row] = [(b"a", b"row", 0, ())]
    rows: list[Row] = [(b"a", _long(number), 1, ()) for number in range(6)]
    chunks = [
        InputChunks(input=name, topic=topic, columns=[columns_of(of_table if topic == "table" else rows)])
        for name, topic in inputs
    ]
    arrived, table = Arrived(columnar, chunks), columnar.new_rows()
    results = columnar.run(arrived, table, OrderedMap(), ColumnContext(0, Gathered().dead_letter, {}))
    found = [(len(result), list(calls)) for result in results]
    assert found == [(2, [0, 1]), (2, [0, 1, 2, 3]), (2, [0, 1, 2, 3, 4, 5])]


def test_more_of_a_table_than_an_array_takes_is_the_rules_work() -> None:
    """Told before the table changes."""
    _, columns, inputs = _joined_with_a_table(serdes.long, left(), serdes.bytes)
    of_table = columns_of([(b"%d" % number, bytes(1 << 20), 0, ()) for number in range(100)])
    chunks = [
        InputChunks(input=name, topic=topic, columns=[of_table] * 22 if topic == "table" else [])
        for name, topic in inputs
    ]
    assert columns.columnar.kind == "join"
    with pytest.raises(FALLBACK):
        Arrived(columns.columnar, chunks)


def test_rows_of_a_table_are_given_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, or those of one micro-batch, may be more than an array of Arrow takes."""
    monkeypatch.setattr(key_index, "PIECE_BYTES", 100)
    rows = TableRows()
    keys = pa.array([b"k%d" % number for number in range(30)], pa.binary())
    values = pa.array([None if number % 7 == 3 else bytes(8 + number) for number in range(30)], pa.binary())
    for given in (values, pa.array([None] * 20 + [bytes(9)] * 10, pa.binary())):
        rows.change(keys, given)
        changed = rows.take_changes()
        assert changed[0].num_chunks > 1
        assert [column.to_pylist() for column in changed] == [keys.to_pylist(), given.to_pylist()]
    assert dict(zip(*(column.to_pylist() for column in rows.rows()), strict=True)) == {
        key: bytes(9) for key in keys.to_pylist()[20:]
    }
