"""A columnar form on columns says what the rules say: records, stores, times, for any records, cuts and restarts."""

from __future__ import annotations

import struct as binary
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.share import examples
from support.vectorised import (
    SETTINGS,
    TOPIC,
    Columns,
    Gathered,
    JoinColumns,
    JoinRules,
    Row,
    Rules,
    State,
    columns_of,
)

from suiro.streams import (
    StreamsBuilder,
    TimeWindows,
    aggregate,
    coalesce,
    col,
    greatest,
    least,
    left,
    record_key,
    record_value,
    right,
    serdes,
    struct,
    when,
)
from suiro.streams.records import Origin
from suiro.streams.sources import SourceReader
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES, Task
from suiro.streams.vectorised import aggregate as vectorised_aggregate
from suiro.streams.vectorised import stream_table_join
from suiro.streams.vectorised.key_index import KeyIndex
from suiro.streams.vectorised.plan import columnar_form_of
from suiro.streams.vectorised.stateless import FALLBACK, Reason

KEYS = [b"a", b"b", b"", b"key-that-is-long", b"key-that-is-longer", None]


def _long(value: int) -> bytes:
    return binary.pack(">q", value)


@st.composite
def batches(draw: st.DrawFn, values: st.SearchStrategy[bytes | None]) -> list[list[list[Row]]]:
    """Batches of chunks of rows; mostly in the order of time, sometimes late."""
    now, found = 0, []
    for _ in range(draw(st.integers(1, 4))):
        chunks = []
        for _ in range(draw(st.integers(1, 3))):
            rows: list[Row] = []
            for _ in range(draw(st.integers(0, 8))):
                now += draw(st.sampled_from([0, 0, 1, 3, 30]))
                late = draw(st.sampled_from([0, 0, 0, 2, 9, 40]))
                headers = draw(st.sampled_from([(), (), (), (("h", b"1"),), (("h", None), ("i", b""))]))
                rows.append((draw(st.sampled_from(KEYS)), draw(values), max(0, now - late), headers))
            chunks.append(rows)
        found.append(chunks)
    return found


LONG_VALUES = st.none() | st.integers(-5, 9).map(_long)
JSON_VALUES = st.sampled_from(
    [
        None,
        b'{"n": 1}',
        b'{"n":2}',
        b'{"n":null}',
        b'{"n":7,"m":true}',
        b"{}",
        b'{"n":-3}',
        b'{"n":4,"s":"x"}',
    ]
)


def _prefixes() -> dict[str, Callable[[Any], Any]]:
    def parted(stream: Any) -> Any:
        branches = stream.split().branch(record_value() > 3, "big").default_branch("rest")
        found = list(branches.values())
        return found[0].map_values(record_value() + 1, value=serdes.long).merge(found[1])

    return {
        "nothing": lambda stream: stream,
        "filter": lambda stream: stream.filter(record_value() % 3 != 0),
        "filter_not": lambda stream: stream.filter_not(record_value() > 2),
        "key": lambda stream: stream.filter(record_key() != "b"),
        "map": lambda stream: stream.map_values(record_value() * 2 - 1, value=serdes.long),
        "null": lambda stream: stream.map_values(when(record_value() > 1, record_value()), value=serdes.long),
        "doubled": lambda stream: stream.merge(stream.map_values(record_value() + 10, value=serdes.long)),
        "parted": parted,
        "everything": lambda stream: stream.merge(stream).filter(record_value().is_not_null()),
    }


def _windows() -> dict[str, Any]:
    return {
        "none": None,
        "tumbling": TimeWindows.of_size(10),
        "grace": TimeWindows.of_size(10, grace=15),
        "hopping": TimeWindows.of_size(10, advance=4, grace=5),
        "uneven": TimeWindows.of_size(7, advance=3),
    }


def _aggregations() -> dict[str, Callable[[Any], Any]]:
    return {
        "count": lambda group: group.count(),
        "sum": lambda group: group.reduce(left() + right()),
        "min": lambda group: group.reduce(least(right(), left())),
        "max": lambda group: group.reduce(greatest(left(), right())),
        "first": lambda group: group.reduce(left()),
        "last": lambda group: group.reduce(right()),
        "total": lambda group: group.aggregate(lambda: 3, aggregate() + record_value() * 2, value=serdes.long),
        "least": lambda group: group.aggregate(lambda: None, least(record_value(), aggregate()), value=serdes.long),
        "latest": lambda group: group.aggregate(lambda: 0, record_value() - 1, value=serdes.long),
    }


def _suffixes() -> dict[str, Callable[[Any], None]]:
    def two(stream: Any) -> None:
        stream.filter(record_value() > 1).to("big")
        stream.map_values(record_value() * 10).to("out")

    return {
        "to": lambda stream: stream.to("out"),
        "two": two,
        "text": lambda stream: stream.map_values(record_value().cast("string")).to("out", value=serdes.string),
    }


def _compare(builder: StreamsBuilder, data: list[list[list[Row]]], engines: list[int], policy: str) -> None:
    topology = builder.build()
    sub = topology.sub_topologies[0]
    rules = Rules(topology, sub, policy=policy)
    columns = Columns(topology, sub, policy=policy)
    living = Columns(topology, sub, policy=policy, reloads=False)
    by_rules: State = {}
    mixed: State = {}
    for batch, engine in zip(data, engines, strict=False):
        before = {name: dict(rows) for name, rows in by_rules.items()}
        wanted = rules.batch(by_rules, batch)
        if engine == 0:
            found = rules.batch(mixed, batch)
            living.forget()
        else:
            found = (columns if engine == 1 else living).batch(mixed, batch)
            if engine == 1:
                living.forget()
        for result in (wanted, found):
            # A row that came and went in this batch may be deleted where it never was.
            for name, changes in result.changes.items():
                gone = [key for key, row in changes.items() if row is None and key not in before.get(name, {})]
                for key in gone:
                    del changes[key]
        assert found == wanted
        assert mixed == by_rules


@given(
    data=batches(LONG_VALUES),
    prefix=st.sampled_from(sorted(_prefixes())),
    windows=st.sampled_from(sorted(_windows())),
    aggregation=st.sampled_from(sorted(_aggregations())),
    suffix=st.sampled_from(sorted(_suffixes())),
    engines=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    pieces_at_once=st.sampled_from([1, 7, vectorised_aggregate.PIECES_MAX]),
)
@settings(max_examples=examples(120), deadline=None)
def test_aggregates_of_longs(
    data: list[list[list[Row]]],
    prefix: str,
    windows: str,
    aggregation: str,
    suffix: str,
    engines: list[int],
    pieces_at_once: int,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream(TOPIC, key=serdes.string, value=serdes.long)
    group = _prefixes()[prefix](stream).group_by_key()
    window = _windows()[windows]
    if window is not None:
        group = group.windowed_by(window)
    _suffixes()[suffix](_aggregations()[aggregation](group).to_stream())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectorised_aggregate, "PIECES_MAX", pieces_at_once)
        _compare(builder, data, engines, "fail")


@given(
    data=batches(JSON_VALUES | st.just(b"no json")),
    prefix=st.sampled_from(["nothing", "doubled", "parted", "mapped"]),
    windows=st.sampled_from(sorted(_windows())),
    aggregation=st.sampled_from(["count", "sum", "least"]),
    engines=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    policy=st.sampled_from(["skip", "dead-letter:dead"]),
)
@settings(max_examples=examples(150), deadline=None)
def test_aggregates_of_json_that_may_be_broken(
    data: list[list[list[Row]]], prefix: str, windows: str, aggregation: str, engines: list[int], policy: str
) -> None:
    builder = StreamsBuilder()
    group: Any = _of_objects()[prefix](builder.stream(TOPIC, key=serdes.string, value=serdes.json)).group_by_key()
    window = _windows()[windows]
    if window is not None:
        group = group.windowed_by(window)
    table = {
        "count": lambda: group.count(),
        "sum": lambda: group.aggregate(lambda: 0, aggregate() + col("n"), value=serdes.long),
        "least": lambda: group.aggregate(lambda: None, least(aggregate(), col("n")), value=serdes.long),
    }[aggregation]()
    table.to_stream().to("out")
    _compare(builder, data, engines, policy)


@given(
    data=batches(st.none() | st.floats(width=32, allow_nan=False).map(lambda x: binary.pack(">d", x))),
    windows=st.sampled_from(sorted(_windows())),
    aggregation=st.sampled_from(["sum", "first", "last", "total"]),
    engines=st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
@settings(max_examples=examples(150), deadline=None)
def test_aggregates_of_doubles(data: list[list[list[Row]]], windows: str, aggregation: str, engines: list[int]) -> None:
    builder = StreamsBuilder()
    group: Any = builder.stream(TOPIC, key=serdes.bytes, value=serdes.double).group_by_key()
    window = _windows()[windows]
    if window is not None:
        group = group.windowed_by(window)
    table = {
        "sum": lambda: group.reduce(left() + right()),
        "first": lambda: group.reduce(left()),
        "last": lambda: group.reduce(right()),
        "total": lambda: group.aggregate(lambda: 0.5, aggregate() + record_value() * 0.1, value=serdes.double),
    }[aggregation]()
    table.to_stream().to("out")
    _compare(builder, data, engines, "fail")


@given(data=batches(LONG_VALUES), prefix=st.sampled_from(sorted(_prefixes())))
@settings(max_examples=examples(150), deadline=None)
def test_chains_without_state(data: list[list[list[Row]]], prefix: str) -> None:
    builder = StreamsBuilder()
    stream = _prefixes()[prefix](builder.stream(TOPIC, key=serdes.string, value=serdes.long))
    stream.to("out")
    stream.select_key(record_value() % 4).map_values(record_value().cast("double"), value=serdes.double).to("other")
    stream.select_key(record_value() % 4, key=serdes.long).group_by_key().count()
    topology = builder.build()
    sub = topology.sub_topologies[0]
    columnar = columnar_form_of(topology, sub, SETTINGS)
    assert not isinstance(columnar, Reason)
    assert columnar.kind == "stateless"
    wanted, found = Gathered(), Gathered()
    task = Task(topology, sub, partition=0, maps={TIMES: OrderedMap()}, outputs=wanted, settings=SETTINGS)
    for chunk in (chunk for batch in data for chunk in batch):
        reader = SourceReader(sub.inputs[0], drop=lambda reason: None, dead_letter=wanted.add_dead_letter)
        for key, value, timestamp, headers in chunk:
            record = reader.read(TOPIC, 0, 0, timestamp, key, value, headers)
            assert record is not None
            task.process(sub.inputs[0].name, record, Origin(TOPIC, 0, 0, timestamp, headers))
        found.take(columnar.run(sub.inputs[0].name, columns_of(chunk), topic=TOPIC))
    assert found.by_node == wanted.by_node


OBJECTS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-3, 9),
        "s": st.sampled_from([None, "x", "", 'a"b', "é\n"]),
        "d": st.sampled_from([None, 0.5, 1e300, -0.0]),
        "o": st.sampled_from([None, {"n": 1}, {}, [1, None]]),
    },
).map(lambda value: serdes.json.serialize("t", value))


def _of_objects() -> dict[str, Callable[[Any], Any]]:
    def parted(stream: Any) -> Any:
        branches = stream.split().branch(col("n") > 3, "big").default_branch("rest")
        found = list(branches.values())
        return found[0].merge(found[1].filter(col("s").is_not_null()))

    return {
        "nothing": lambda stream: stream,
        "filter": lambda stream: stream.filter(col("n") % 3 != 0),
        "doubled": lambda stream: stream.merge(stream.filter(col("n") > 3)),
        "parted": parted,
        "mapped": lambda stream: stream.merge(stream.map_values(struct(s=col("s"), n=col("n") + 1), value=serdes.json)),
    }


@given(data=batches(OBJECTS), prefix=st.sampled_from(sorted(_of_objects())), is_passed_on=st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_chains_over_objects(data: list[list[list[Row]]], prefix: str, is_passed_on: bool) -> None:
    """Only the fields that are needed are read: of all, where values leave as they came."""
    builder = StreamsBuilder()
    stream = _of_objects()[prefix](builder.stream(TOPIC, key=serdes.string, value=serdes.json))
    stream.map_values(struct(more=col("d"))).to("out")
    stream.group_by(col("s"), key=serdes.string).count()
    if is_passed_on:
        stream.to("other")
    topology = builder.build()
    sub = topology.sub_topologies[0]
    columnar = columnar_form_of(topology, sub, SETTINGS)
    assert not isinstance(columnar, Reason)
    assert columnar.kind == "stateless"
    for chunk in (chunk for batch in data for chunk in batch):
        wanted, found = Gathered(), Gathered()
        task = Task(topology, sub, partition=0, maps={TIMES: OrderedMap()}, outputs=wanted, settings=SETTINGS)
        reader = SourceReader(sub.inputs[0], drop=lambda reason: None, dead_letter=wanted.add_dead_letter)
        for key, value, timestamp, headers in chunk:
            record = reader.read(TOPIC, 0, 0, timestamp, key, value, headers)
            assert record is not None
            task.process(sub.inputs[0].name, record, Origin(TOPIC, 0, 0, timestamp, headers))
        try:
            found.take(columnar.run(sub.inputs[0].name, columns_of(chunk), topic=TOPIC))
        except FALLBACK:
            continue
        assert found.by_node == wanted.by_node


@given(
    data=st.lists(st.tuples(batches(OBJECTS), batches(OBJECTS)), min_size=1, max_size=2),
    prefix=st.sampled_from(sorted(_of_objects())),
    is_left=st.booleans(),
)
@settings(max_examples=examples(150), deadline=None)
def test_joins_of_objects(data: Any, prefix: str, is_left: bool) -> None:
    builder = StreamsBuilder()
    stream = _of_objects()[prefix](builder.stream("stream", key=serdes.string, value=serdes.json))
    table = builder.table("table", key=serdes.string, value=serdes.json)
    join = stream.left_join if is_left else stream.join
    join(table, struct(d=left("d"), other=right("n"), s=right("s"))).to("out")
    topology = builder.build()
    sub = topology.sub_topologies[0]
    inputs = sorted(((node.name, node.operator.topics[0]) for node in sub.inputs), key=lambda item: item[1])  # type: ignore[union-attr]
    rules, columns = JoinRules(topology, sub), JoinColumns(topology, sub)
    by_rules: State = {}
    by_columns: State = {}
    for of_stream, of_table in data:
        chunks = [[chunk for batch in batches for chunk in batch] for batches in (of_stream, of_table)]
        rows = [[row for chunk in of_one for row in chunk] for of_one in chunks]
        wanted = rules.merge(by_rules, inputs, rows)
        try:
            found = columns.merge(by_columns, inputs, chunks)
        except FALLBACK:
            return
        assert found == wanted
        assert by_columns == by_rules


def _joiners() -> dict[str, Any]:
    return {
        "python": lambda one, other: one if other is None else one + other,
        "mixed": lambda one, other: one if other is None else str(other) if other > 3 else None,
        "columns": coalesce(left() + right(), left() * 100),
        "left": left(),
        "right": right(),
    }


@given(
    data=st.lists(st.tuples(batches(LONG_VALUES), batches(LONG_VALUES)), min_size=1, max_size=3),
    joiner=st.sampled_from(sorted(_joiners())),
    is_left=st.booleans(),
    prefix=st.sampled_from(sorted(_prefixes())),
    table_first=st.booleans(),
    engines=st.lists(st.integers(0, 2), min_size=3, max_size=3),
    rows_at_once=st.sampled_from([1, 2, 3, stream_table_join.ROWS_AT_ONCE]),
)
@settings(max_examples=examples(300), deadline=None)
def test_a_stream_joined_with_a_table(
    data: Any,
    joiner: str,
    is_left: bool,
    prefix: str,
    table_first: bool,
    engines: list[int],
    rows_at_once: int,
) -> None:
    builder = StreamsBuilder()
    stream = _prefixes()[prefix](builder.stream("stream", key=serdes.string, value=serdes.long))
    table = builder.table("a" if table_first else "z", key=serdes.string, value=serdes.long)
    join = stream.left_join if is_left else stream.join
    result = join(table, _joiners()[joiner])
    result.to("out")
    if joiner != "mixed":
        result.filter(record_value() > 4).to("big")
    topology = builder.build()
    sub = topology.sub_topologies[0]
    inputs = [(node.name, node.operator.topics[0]) for node in sub.inputs]  # type: ignore[union-attr]
    inputs.sort(key=lambda item: item[1])
    rules, living = JoinRules(topology, sub), JoinColumns(topology, sub)
    by_rules: State = {}
    mixed: State = {}
    for pair, engine in zip(data, engines, strict=False):
        input_partitions = [
            [chunk for batch in pair[0 if topic == "stream" else 1] for chunk in batch] for _, topic in inputs
        ]
        rows = [[row for chunk in input_partition for row in chunk] for input_partition in input_partitions]
        wanted = rules.merge(by_rules, inputs, rows)
        if engine == 0:
            found = rules.merge(mixed, inputs, rows)
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(stream_table_join, "ROWS_AT_ONCE", rows_at_once)
                found = (living if engine == 1 else JoinColumns(topology, sub)).merge(mixed, inputs, input_partitions)
        if engine != 1:
            living.rows = None
        assert found == wanted
        assert mixed == by_rules


@given(st.lists(st.lists(st.none() | st.binary(max_size=20) | st.sampled_from([b"", b"\0", b"\0\0"]))))
@settings(deadline=None)
def test_slots_of_keys(columns: list[list[bytes | None]]) -> None:
    index = KeyIndex(1)
    known: dict[bytes, int] = {}
    for keys in columns:
        column = pa.array([b"before", *keys], pa.binary())[1:]
        assert index.find(column).tolist() == [-1 if key is None else known.get(key, -1) for key in keys]
        wanted = [-1 if key is None else known.setdefault(key, len(known)) for key in keys]
        assert index.slots(column).tolist() == wanted
        assert index.keys(np.arange(len(index), dtype=np.int32)).to_pylist() == list(known)


@given(st.integers(1, 40_000), st.integers(1, 3))
@settings(max_examples=10, deadline=None)
def test_an_index_grows(count: int, factor: int) -> None:
    index = KeyIndex(1)
    keys = pa.array([b"%d" % (number * factor) for number in range(count)], pa.binary())
    assert index.slots(keys).tolist() == list(range(count))
    assert index.slots(keys[::-1]).tolist() == list(range(count))[::-1]
    assert index.keys(np.arange(len(index), dtype=np.int32)).equals(keys)


def test_where_keys_lie_is_a_secret_of_each_index() -> None:
    """Else a producer could write keys that all lie in one place, and each is compared with all."""
    for size in (4, 8, 19):
        keys = pa.array([number.to_bytes(size) for number in range(200)], pa.binary())
        one, other = KeyIndex(), KeyIndex()
        assert one.slots(keys).tolist() == other.slots(keys).tolist()
        assert set(one._table.nonzero()[0].tolist()) != set(other._table.nonzero()[0].tolist())
