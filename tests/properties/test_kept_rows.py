"""Stores that keep rows as values until a micro-batch ends answer and write as those that encode each row at once."""

from __future__ import annotations

import datetime
import decimal
import enum
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drawn_topologies import Drawn, drawn
from support.share import examples
from support.spark_streams import encoded

from suiro.streams import StreamsBuilder, serdes
from suiro.streams import task as task_module
from suiro.streams.interpreter import Interpreter
from suiro.streams.serdes.serde import SerializationError
from suiro.streams.stores import OrderedMap, decoded, open_store
from suiro.streams.topology.nodes import StoreSpec

SERDES = {
    "json": serdes.json,
    "tagged": serdes.tagged,
    "long": serdes.long,
    "int": serdes.int,
    "double": serdes.double,
    "boolean": serdes.boolean,
    "string": serdes.string,
    "bytes": serdes.bytes,
}


class Number(enum.IntEnum):
    ONE = 1


class Text(enum.StrEnum):
    A = "a"


atoms = st.one_of(
    st.sampled_from([0, 1, 1.0, True, False, -0.0, 0.0, "", "1", "é", "\ud800", b"", b"1"]),
    st.sampled_from([1 << 31, 1 << 63, -(1 << 63), 1 << 70, float("nan"), float("inf"), 1e300]),
    st.sampled_from([Number.ONE, Text.A, datetime.date(2026, 1, 2), decimal.Decimal("1.5")]),
    st.integers(-9, 9),
)
values = st.recursive(
    atoms | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["b", "a", "ä", "\ud800", 1, None, True]), inner, max_size=3)
        | st.dictionaries(st.sampled_from(["b", Text.A]), inner, max_size=2).map(OrderedDict)
        | st.tuples(inner, inner)
        | st.frozensets(atoms, max_size=2)
    ),
    max_leaves=6,
)
keys = st.sampled_from(["", "a", "a\0", "b", 1, 1.0, True, {"k": 1}, {"k": True}])
times = st.sampled_from([0, 3, 10, 20, 30, True, -(1 << 63), 1 << 63, 1.5, "3"])
steps = st.one_of(
    st.tuples(st.just("put"), keys, values, times),
    st.tuples(st.just("put"), keys, values, times),
    st.tuples(st.just("get"), keys, st.none(), times),
    st.tuples(st.just("some"), keys, st.none(), times),
    st.tuples(st.just("all"), keys, st.none(), times),
    st.tuples(st.just("old"), keys, st.none(), times),
    st.tuples(st.just("changes"), keys, st.none(), times),
    st.tuples(st.just("opened"), keys, st.none(), times),
)


class _Driven:
    def __init__(self, kind: str, spec: StoreSpec, *, keeps: bool) -> None:
        self.kind, self.spec, self.keeps = kind, spec, keeps
        self.rows = OrderedMap(held_max=3)
        self.store = open_store(spec, self.rows, keeps=keeps)

    def step(self, what: str, key: Any, value: Any, time: Any) -> str:
        """What came of it, down to types and the order of fields."""
        try:
            found = getattr(self, f"_{what}")(key, value, time)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        told = repr(found)
        _spoil(found)
        return told

    def _put(self, key: Any, value: Any, time: Any) -> None:
        mine = _copy(value)
        try:
            if self.kind == "key-value":
                self.store.put(key, mine, time)
            elif self.kind == "window":
                self.store.put(key, mine, 10, time)
            else:
                self.store.put(key, mine, 3, time)
        finally:
            _spoil(mine)

    def _get(self, key: Any, value: Any, time: Any) -> Any:
        match self.kind:
            case "key-value":
                return self.store.get_with_timestamp(key)
            case "window":
                return self.store.get_with_timestamp(key, 10)
            case _:
                return self.store.fetch_session(key, 3, time)

    def _some(self, key: Any, value: Any, time: Any) -> Any:
        match self.kind:
            case "key-value":
                return list(self.store.range(key, None))
            case "window":
                return list(self.store.fetch_rows(key, 0, 100, reverse=True))
            case _:
                return list(self.store.find_sessions(key, 0, 100))

    def _all(self, key: Any, value: Any, time: Any) -> Any:
        return list(self.store.all()), self.store.approximate_num_entries()

    def _old(self, key: Any, value: Any, time: Any) -> Any:
        if self.kind == "key-value":
            return self.store.delete(key)
        found = list((self.store.rows_between if self.kind == "window" else self.store.ending_between)(0, 50))
        _spoil(found)
        self.store.remove_before(time)
        return None

    def _changes(self, key: Any, value: Any, time: Any) -> Any:
        return list(self.rows.take_changes().items())

    def _opened(self, key: Any, value: Any, time: Any) -> None:
        self.store = open_store(self.spec, self.rows, keeps=self.keeps)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copy(item) for item in value)
    return value


def _spoil(value: Any) -> None:
    """Changes everything in it that can be changed, as a user's function may."""
    if isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value["spoilt"] = 1
    elif isinstance(value, list | tuple):
        for item in value:
            _spoil(item)
        if isinstance(value, list):
            value.append("spoilt")


@pytest.mark.parametrize("kind", ["key-value", "window", "session"])
@pytest.mark.parametrize("serde", sorted(SERDES))
@given(doing=st.lists(steps, max_size=25))
@settings(max_examples=examples(40), deadline=None)
def test_a_store_that_keeps_values_is_a_store(kind: Any, serde: str, doing: list[Any]) -> None:
    spec = StoreSpec(name="s", kind=kind, key=serdes.tagged, value=SERDES[serde], window_size_ms=10)
    plain, keeping = _Driven(kind, spec, keeps=False), _Driven(kind, spec, keeps=True)
    for step in doing:
        assert keeping.step(*step) == plain.step(*step), step
    assert keeping.step("changes", "", None, 0) == plain.step("changes", "", None, 0)
    assert keeping.step("all", "", None, 0) == plain.step("all", "", None, 0)


@pytest.mark.parametrize("value", [{np.str_("k"): 1}, [np.str_("k")], [Text.A], {"a": [OrderedDict(b=1)]}])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_tagged_value_of_a_derived_class_is_refused_when_it_is_put(value: Any, keeps: bool) -> None:
    spec = StoreSpec(name="s", kind="key-value", key=serdes.string, value=serdes.tagged)
    store = open_store(spec, OrderedMap(), keeps=keeps)
    with pytest.raises(SerializationError):
        store.put("k", value)


@given(
    doing=st.lists(
        st.tuples(st.sampled_from(["put", "delete", "restore", "range"]), st.binary(max_size=2)), max_size=60
    )
)
@settings(max_examples=examples(300), deadline=None)
def test_an_ordered_map_has_its_rows_in_order_whenever_asked(doing: list[tuple[str, bytes]]) -> None:
    rows, wanted = OrderedMap([(b"m", b"0")]), {b"m": b"0"}
    for number, (what, key) in enumerate(doing):
        row = str(number).encode()
        match what:
            case "put":
                rows.put(key, row)
                wanted[key] = row
            case "delete":
                rows.put(key, None)
                wanted.pop(key, None)
            case "restore":
                rows.restore([(key, row), (key + b"!", None)])
                wanted[key] = row
                wanted.pop(key + b"!", None)
            case _:
                assert list(rows.range(key, None)) == sorted((k, v) for k, v in wanted.items() if k >= key)
                assert list(rows.range(None, key, reverse=True)) == sorted(
                    ((k, v) for k, v in wanted.items() if k < key), reverse=True
                )
        assert len(rows) == len(wanted)
    assert list(rows.range()) == sorted(wanted.items())


def _run(case: Drawn, every: int, *, keeps: bool) -> Any:
    """Everything that a topology gives and keeps."""
    builder = StreamsBuilder()
    case.build(builder, "")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(task_module, "open_store", lambda spec, rows: open_store(spec, rows, keeps=keeps))
        interpreter = Interpreter(builder.build())
        changes: list[Any] = []
        for number, record in enumerate(case.sent("")):
            if number and number % every == 0:
                interpreter.end_of_batch()
                changes += [(place, list(rows.take_changes().items())) for place, rows in interpreter.maps.items()]
            key, value = encoded(interpreter.topology, record)
            interpreter.pipe(record.topic, record.timestamp, key, value)
        interpreter.end_of_batch()
    changes += [(place, list(rows.take_changes().items())) for place, rows in interpreter.maps.items()]
    outputs = [(item.topic, item.key, item.value, item.record) for item in interpreter.outputs]
    return outputs, changes, interpreter.dropped_total


@settings(max_examples=examples(100), deadline=None)
@given(drawn(), st.integers(1, 20))
def test_a_topology_over_kept_rows_gives_and_keeps_the_same(case: Drawn, every: int) -> None:
    assert _run(case, every, keeps=True) == _run(case, every, keeps=False)


def test_a_row_that_changes_often_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    encode = decoded.encode_block
    monkeypatch.setattr(
        decoded, "encode_block", lambda serde, rows, topic: written.extend(rows) or encode(serde, rows, topic)
    )
    spec = StoreSpec(name="s", kind="key-value", key=serdes.string, value=serdes.json)
    rows = OrderedMap()
    store = open_store(spec, rows, keeps=True)
    for number in range(5):
        row = store.get("k") or []
        row.append(number)
        store.put("k", row, number)
    assert written == []
    assert list(rows.take_changes()) == [b"k"]
    assert written == [[0, 1, 2, 3, 4]]
    assert store.get("k") == [0, 1, 2, 3, 4]
    assert rows.take_changes() == {}
    assert written == [[0, 1, 2, 3, 4]]
