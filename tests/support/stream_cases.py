"""The cases of `tests/vectors/streams`: their topologies in the DSL, and what they expect, for any runner.

`build` puts a case into a builder under a prefix of its own, so that many cases can run as one topology.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suiro.streams import (
    EmitStrategy,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)
from suiro.streams.records import Record, Windowed

VECTORS = Path(__file__).parent.parent / "vectors" / "streams"
FOREVER = 1 << 40
HISTORY = "365 days"


@dataclass(frozen=True)
class Case:
    id: str
    topology: Any
    steps: list[dict[str, Any]]

    @property
    def sends(self) -> list[dict[str, Any]]:
        return [step for step in self.steps if "send" in step]

    @property
    def sinks(self) -> list[str]:
        return [item["sink"] for item in self.topology] if isinstance(self.topology, list) else ["out"]

    @property
    def topics(self) -> list[str]:
        return sorted(set(_topics(self.topology)))


def cases() -> list[Case]:
    found = []
    for path in sorted(VECTORS.glob("*.json")):
        for item in json.loads(path.read_text())["cases"]:
            found.append(Case(item["id"], item["topology"], item["steps"]))
    return found


def build(case: Case, builder: StreamsBuilder, prefix: str = "") -> None:
    """Topics of the case and its sinks get the prefix; so does the store of a foreign-key join or aggregate."""
    nodes = _Builder(builder, prefix)
    if isinstance(case.topology, list):
        for item in case.topology:
            _to(nodes.build(item["from"]), prefix + item["sink"])
    else:
        _to(nodes.build(case.topology), prefix + "out")


def store_name(prefix: str = "") -> str:
    return f"{prefix}result".replace("/", ".")


def _to(result: Any, topic: str) -> None:
    (result.to_stream() if hasattr(result, "to_stream") else result).to(topic, value=serdes.json)


class _Builder:
    def __init__(self, builder: StreamsBuilder, prefix: str) -> None:
        self._builder = builder
        self._prefix = prefix
        self._made: dict[str, Any] = {}

    def build(self, node: Any) -> Any:
        # The same node written twice is one: two sinks of a case share what is above them.
        text = json.dumps(node, sort_keys=True)
        if text not in self._made:
            self._made[text] = getattr(self, "_" + node["op"])(node)
        return self._made[text]

    def _stream(self, node: Any) -> Any:
        return self._builder.stream(self._prefix + node["topic"], key=serdes.json, value=serdes.json)

    def _table(self, node: Any) -> Any:
        topic = self._prefix + node["topic"]
        store = None
        if node.get("store") == "versioned":
            store = Materialized.versioned(f"{topic}-store", history=HISTORY)
        return self._builder.table(topic, key=serdes.json, value=serdes.json, materialized=store)

    def _globalTable(self, node: Any) -> Any:
        return self._builder.global_table(self._prefix + node["topic"], key=serdes.json, value=serdes.json)

    def _map(self, node: Any) -> Any:
        return self.build(node["in"]).map(lambda key, value: (key, value), key=serdes.json, value=serdes.json)

    def _flat_map(self, node: Any) -> Any:
        return self.build(node["in"]).flat_map(lambda key, value: [(key, value)], key=serdes.json, value=serdes.json)

    def _select_key(self, node: Any) -> Any:
        return self.build(node["in"]).select_key(lambda key, value: key, key=serdes.json)

    def _repartition(self, node: Any) -> Any:
        return self.build(node["in"]).repartition()

    def _to_stream(self, node: Any) -> Any:
        return self.build(node["in"]).to_stream()

    def _group_by_key(self, node: Any) -> Any:
        return self.build(node["in"]).group_by_key()

    def _group_by(self, node: Any) -> Any:
        parent = self.build(node["in"])
        by = node["by"]
        if by == "key":
            return parent.group_by(lambda key, value: key, key=serdes.json)
        mapper = {
            "(value,key)": lambda key, value: (value, key),
            "(value,value)": lambda key, value: (value, value),
            "(key,int(value))": lambda key, value: (key, int(value)),
        }[by]
        return parent.group_by(mapper, key=serdes.json, value=serdes.json)

    def _windowed_by(self, node: Any) -> Any:
        window = node["window"]
        grace = window["grace"]
        windows: Any
        match window["type"]:
            case "time":
                windows = TimeWindows.of_size(window["size"], advance=window["advance"], grace=grace)
            case "sliding":
                windows = SlidingWindows.of_difference(window["size"], grace=grace)
            case "session":
                windows = SessionWindows.of_gap(window["gap"], grace=grace)
        grouped = self.build(node["in"]).windowed_by(windows)
        if node.get("emit") == "on_window_close":
            grouped = grouped.emit_strategy(EmitStrategy.on_window_close())
        return grouped

    def _count(self, node: Any) -> Any:
        return self.build(node["in"]).count()

    def _cogroup(self, node: Any) -> Any:
        first, *rest = node["inputs"]
        grouped = self.build(first["in"]).cogroup(_aggregator(first["adder"]))
        for item in rest:
            grouped = grouped.cogroup(self.build(item["in"]), _aggregator(item["adder"]))
        return grouped

    def _aggregate(self, node: Any) -> Any:
        grouped = self.build(node["in"])
        start = {"''": "", "'0'": "0", "0": 0}[node["init"]]
        if node["in"]["op"] == "cogroup":
            return grouped.aggregate(lambda: start, value=serdes.json)
        adder = _aggregator(node["adder"])
        other = node.get("merger_or_subtractor")
        if other == "left+right":
            return grouped.aggregate(lambda: start, adder, lambda key, left, right: left + right, value=serdes.json)
        if other is not None:
            store = Materialized.as_(store_name(self._prefix), value=serdes.json)
            return grouped.aggregate(lambda: start, adder, _aggregator(other), materialized=store)
        return grouped.aggregate(lambda: start, adder, value=serdes.json)

    def _reduce(self, node: Any) -> Any:
        grouped = self.build(node["in"])
        adder = {"acc+'+'+value": lambda a, v: f"{a}+{v}", "acc+value": lambda a, v: a + v}[node["adder"]]
        if "subtractor" in node or "merger_or_subtractor" in node:
            return grouped.reduce(adder, lambda a, v: a - v)
        return grouped.reduce(adder)

    def _suppress(self, node: Any) -> Any:
        table = self.build(node["in"])
        if node["until"] == "window_closes":
            return table.suppress(Suppressed.until_window_closes())
        return table.suppress(Suppressed.until_time_limit(FOREVER, max_records=1))

    def _stream_stream_join(self, node: Any) -> Any:
        left, right = self.build(node["left"]), self.build(node["right"])
        window = node["window"]
        windows = JoinWindows.of(before=window["before"], after=window["after"], grace=window["grace"])
        return _join(left, node["join"])(right, _joiner(node["joiner"]), windows)

    def _stream_table_join(self, node: Any) -> Any:
        left, right = self.build(node["left"]), self.build(node["right"])
        options = {"grace": node["grace"]} if "grace" in node else {}
        return _join(left, node["join"])(right, _joiner(node["joiner"]), **options)

    def _stream_globaltable_join(self, node: Any) -> Any:
        left, right = self.build(node["left"]), self.build(node["right"])
        return _join(left, node["join"])(right, _second_token, _joiner(node["joiner"]))

    def _table_table_join(self, node: Any) -> Any:
        left, right = self.build(node["left"]), self.build(node["right"])
        return _join(left, node["join"])(right, _joiner(node["joiner"]))

    def _fk_join(self, node: Any) -> Any:
        left, right = self.build(node["left"]), self.build(node["right"])
        store = Materialized.as_(store_name(self._prefix), value=serdes.json)
        return _join(left, node["join"])(right, _joiner(node["joiner"]), foreign_key=_after_bar, materialized=store)


def _join(left: Any, kind: str) -> Callable[..., Any]:
    return {"inner": left.join, "left": left.left_join, "outer": getattr(left, "outer_join", None)}[kind]  # type: ignore[return-value]


def _aggregator(text: str) -> Callable[[Any, Any, Any], Any]:
    return {
        "acc+value": lambda key, value, aggregate: aggregate + value,
        "acc+1": lambda key, value, aggregate: aggregate + 1,
        "acc+'+'+value": lambda key, value, aggregate: f"{aggregate}+{value}",
        "acc+'-'+value": lambda key, value, aggregate: f"{aggregate}-{value}",
    }[text]


def _joiner(text: str) -> Callable[[Any, Any], Any]:
    if text == "sum":
        return lambda left, right: left + right
    if text == "'('+l+','+r+')'":
        return lambda left, right: f"({_text(left)},{_text(right)})"
    separator = text.removeprefix("concat('").removesuffix("')")
    return lambda left, right: f"{_text(left)}{separator}{_text(right)}"


def _text(value: Any) -> str:
    return "null" if value is None else str(value)


def _second_token(key: Any, value: Any) -> Any:
    tokens = str(value).split(",")
    return tokens[1] if len(tokens) > 1 else None


def _after_bar(value: Any) -> Any:
    found = str(value).partition("|")[2]
    return None if found == "returnNull" else found


def _topics(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _topics(item)
    elif isinstance(node, dict):
        if "topic" in node:
            yield node["topic"]
        for value in node.values():
            yield from _topics(value)


# -- what a case expects -------------------------------------------------------------------------------------

Row = tuple[Any, Any, Any, Any]  # key, window, value, timestamp (None: not said)


def expected_row(case: Case, item: dict[str, Any]) -> Row:
    window = tuple(item["w"]) if "w" in item else None
    if "w_start" in item:
        window = (item["w_start"], item["w_start"] + _window_size(case.topology))
    return (_plain(item["k"]), window, _plain(item["v"]), item.get("ts"))


def actual_row(record: Record) -> Row:
    key, window = record.key, None
    if isinstance(key, Windowed):
        key, window = key.key, (key.start, key.end)
    return (_plain(key), window, _plain(record.value), record.timestamp)


def _window_size(node: Any) -> int:
    while "window" not in node:
        node = node["in"]
    return int(node["window"]["size"])


def _plain(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def matches(expected: Row, actual: Row) -> bool:
    return expected[:3] == actual[:3] and expected[3] in (None, actual[3])


@dataclass
class Check:
    """Follows a case step by step, each expectation as written (the strict comparator)."""

    case: Case
    everything: dict[str, list[Row]] = field(default_factory=dict)
    since: dict[str, list[Row]] = field(default_factory=dict)

    def came_out(self, sink: str, records: list[Record]) -> None:
        rows = [actual_row(record) for record in records]
        self.everything.setdefault(sink, []).extend(rows)
        self.since.setdefault(sink, []).extend(rows)

    def step(self, step: dict[str, Any], *, store: Callable[[], dict[Any, Any]], dropped: int | None) -> None:
        sink = step.get("sink", self.case.sinks[0])
        if "dropped_total" in step:
            assert dropped is None or dropped == step["dropped_total"]
            return
        mode = step["mode"]
        if "expect_map" in step:
            wanted = step["expect_map"]
            if mode == "store":
                assert store() == wanted
            else:
                found = {row[0]: row[2] for row in self._since(sink)}
                assert found == wanted
            return
        expected = [expected_row(self.case, item) for item in step["expect"]]
        match mode:
            case "ordered":
                self._same(expected, self._since(sink))
            case "unordered":
                found = self._since(sink)
                assert Counter(row[:3] for row in found) == Counter(row[:3] for row in expected)
                assert all(any(matches(want, row) for row in found) for want in expected)
            case "all_ordered":
                self._same(expected, self.everything.get(sink, []))
            case "prefix":
                self._same(expected, self._since(sink)[: len(expected)])
            case "last_by_key_subset":
                last = {row[:2]: row for row in self._since(sink)}
                for want in expected:
                    assert matches(want, last[want[:2]]), (want, last.get(want[:2]))
            case "final_last":
                assert matches(expected[0], self.everything[sink][-1])
            case "store_get":
                rows = store()
                for want in expected:
                    assert rows[want[0]] == want[2]
            case _:
                raise AssertionError(f"unknown mode {mode}")

    def _since(self, sink: str) -> list[Row]:
        return self.since.pop(sink, [])

    @staticmethod
    def _same(expected: list[Row], found: list[Row]) -> None:
        same = len(expected) == len(found) and all(map(matches, expected, found))
        assert same, f"expected {expected}\nfound    {found}"
