"""Hypothesis draws topologies and inputs for them; each topology has topics of its own, so many run as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

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
from support.spark_streams import Sent

KEYS = ["a", "b", "c", "d", "", "key with a longer name"]


@dataclass(frozen=True)
class Drawn:
    """`build(builder, prefix)` adds it to a builder; its inputs are `prefix + topic`, its output `prefix + "out"`."""

    text: str
    topics: tuple[str, ...]
    build: Callable[[StreamsBuilder, str], None]
    records: tuple[tuple[str, str | None, int | None, int], ...]

    def sent(self, prefix: str) -> list[Sent]:
        return [Sent(prefix + topic, key, value, timestamp) for topic, key, value, timestamp in self.records]

    def __repr__(self) -> str:
        return f"{self.text} over {self.records}"


@st.composite
def drawn(draw: st.DrawFn, *, size: int = 40, null_keys: bool = True) -> Drawn:
    text, topics, build = draw(st.sampled_from(_SHAPES))(draw)
    return Drawn(text, topics, build, tuple(draw(records(topics, size=size, null_keys=null_keys))))


def is_varied(cases: list[Drawn]) -> bool:
    """The first list that hypothesis draws has the simplest case, as often as there are any: nothing is found by it."""
    return len({case.text for case in cases}) > len(cases) // 2 and any(case.topics != ("in",) for case in cases)


@st.composite
def records(
    draw: st.DrawFn, topics: tuple[str, ...], *, size: int, null_keys: bool
) -> list[tuple[str, str | None, int | None, int]]:
    """Mostly in order of time, sometimes late, sometimes a jump; null keys and values among them."""
    keys = st.sampled_from([*KEYS, None] if null_keys else KEYS)
    now, found = 0, []
    for _ in range(draw(st.integers(1, size))):
        now += draw(st.sampled_from([0, 0, 1, 1, 2, 5, 30]))
        late = draw(st.sampled_from([0, 0, 0, 0, 1, 3, 12]))
        value = draw(st.one_of(st.integers(-5, 20), st.none()))
        found.append((draw(st.sampled_from(topics)), draw(keys), value, max(0, now - late)))
    return found


Build = Callable[[StreamsBuilder, str], None]
Shape = tuple[str, tuple[str, ...], Build]


def _stream(builder: StreamsBuilder, prefix: str, topic: str) -> Any:
    return builder.stream(prefix + topic, key=serdes.string, value=serdes.json)


def _table(builder: StreamsBuilder, prefix: str, topic: str, store: Any = None) -> Any:
    return builder.table(prefix + topic, key=serdes.string, value=serdes.json, materialized=store)


def _prepared(draw: st.DrawFn) -> tuple[str, Callable[[Any], Any]]:
    """Operations without state, before another one."""
    steps: dict[str, Callable[[Any], Any]] = {
        "nothing": lambda stream: stream,
        "filter": lambda stream: stream.filter(lambda key, value: value is None or value % 3 != 0),
        "map_values": lambda stream: stream.map_values(
            lambda value: None if value is None else value * 2, value=serdes.json
        ),
        "flat_map_values": lambda stream: stream.flat_map_values(lambda value: [value, value], value=serdes.json),
        "merge": lambda stream: stream.filter(lambda key, value: key == "a").merge(
            stream.filter_not(lambda key, value: key == "a")
        ),
    }
    name = draw(st.sampled_from(sorted(steps)))
    return name, steps[name]


def _grouping(draw: st.DrawFn) -> tuple[str, Callable[[Any], Any]]:
    if draw(st.booleans()):
        return "group_by_key", lambda stream: stream.group_by_key()
    return "group_by", lambda stream: stream.group_by(
        lambda key, value: None if value is None else KEYS[value % 3], key=serdes.string, value=serdes.json
    )


def _aggregation(draw: st.DrawFn, *, merger: bool = False) -> tuple[str, Callable[[Any], Any]]:
    name = draw(st.sampled_from(["count", "reduce", "aggregate"]))
    if name == "count":
        return name, lambda grouped: grouped.count()
    if name == "reduce":
        return name, lambda grouped: grouped.reduce(_plus)
    # In which order values came shows in the result.
    add = lambda key, value, aggregate: f"{aggregate},{value}"  # noqa: E731
    if merger:
        return name, lambda grouped: grouped.aggregate(
            lambda: "", add, lambda key, left, right: f"{left}|{right}", value=serdes.json
        )
    return name, lambda grouped: grouped.aggregate(lambda: "", add, value=serdes.json)


def _plus(left: Any, right: Any) -> Any:
    return (left or 0) + (right or 0)


def _joined(left: Any, right: Any) -> Any:
    return f"{left}+{right}"


def _stateless(draw: st.DrawFn) -> Shape:
    name, prepare = _prepared(draw)

    def build(builder: StreamsBuilder, prefix: str) -> None:
        prepare(_stream(builder, prefix, "in")).to(prefix + "out")

    return name, ("in",), build


def _aggregate(draw: st.DrawFn) -> Shape:
    (first, prepare), (second, group) = _prepared(draw), _grouping(draw)
    third, aggregate = _aggregation(draw)

    def build(builder: StreamsBuilder, prefix: str) -> None:
        stream = prepare(_stream(builder, prefix, "in"))
        aggregate(group(stream)).to_stream().to(prefix + "out")

    return f"{first} {second} {third}", ("in",), build


def _windowed(draw: st.DrawFn) -> Shape:
    (first, prepare), (second, group) = _prepared(draw), _grouping(draw)
    grace = draw(st.sampled_from([0, 1, 10, 100]))
    kind = draw(st.sampled_from(["tumbling", "hopping", "sliding", "session"]))
    windows: Any = {
        "tumbling": lambda: TimeWindows.of_size(10, grace=grace),
        "hopping": lambda: TimeWindows.of_size(10, advance=4, grace=grace),
        "sliding": lambda: SlidingWindows.of_difference(6, grace=grace),
        "session": lambda: SessionWindows.of_gap(5, grace=grace),
    }[kind]()
    third, aggregate = _aggregation(draw, merger=kind == "session")
    ends = draw(st.sampled_from(["updates", "emit on close", "suppress", "suppress for a while"]))
    carried = draw(st.booleans())

    def build(builder: StreamsBuilder, prefix: str) -> None:
        stream = _stream(builder, prefix, "in")
        grouped = group(prepare(stream.repartition() if carried else stream)).windowed_by(windows)
        if ends == "emit on close":
            grouped = grouped.emit_strategy(EmitStrategy.on_window_close())
        table = aggregate(grouped)
        if ends == "suppress":
            table = table.suppress(Suppressed.until_window_closes())
        elif ends == "suppress for a while":
            table = table.suppress(Suppressed.until_time_limit(7))
        table.to_stream().to(prefix + "out")

    return f"{first} {second} {kind} grace={grace} {third} {ends} carried={carried}", ("in",), build


def _stream_stream(draw: st.DrawFn) -> Shape:
    kind = draw(st.sampled_from(["join", "left_join", "outer_join"]))
    before, after, grace = (draw(st.sampled_from([0, 2, 10])) for _ in range(3))

    def build(builder: StreamsBuilder, prefix: str) -> None:
        left, right = _stream(builder, prefix, "left"), _stream(builder, prefix, "right")
        windows = JoinWindows.of(before=before, after=after, grace=grace)
        getattr(left, kind)(right, _joined, windows).to(prefix + "out", value=serdes.json)

    return f"stream {kind} -{before} +{after} grace={grace}", ("left", "right"), build


def _stream_table(draw: st.DrawFn) -> Shape:
    kind = draw(st.sampled_from(["join", "left_join"]))
    versioned = draw(st.booleans())
    grace = draw(st.sampled_from([None, 0, 4])) if versioned else None

    def build(builder: StreamsBuilder, prefix: str) -> None:
        store = Materialized.versioned(f"{prefix}versions", history=50) if versioned else None
        table = _table(builder, prefix, "table", store)
        options = {} if grace is None else {"grace": grace}
        joined = getattr(_stream(builder, prefix, "in"), kind)(table, _joined, **options)
        joined.to(prefix + "out", value=serdes.json)

    return f"stream-table {kind} versioned={versioned} grace={grace}", ("in", "table"), build


def _table_table(draw: st.DrawFn) -> Shape:
    kind = draw(st.sampled_from(["join", "left_join", "outer_join"]))
    versioned = draw(st.booleans())
    filters = [draw(st.sampled_from(["none", "unnamed", "named", "versioned"])) for _ in range(2)]
    last = draw(st.booleans())

    def build(builder: StreamsBuilder, prefix: str) -> None:
        sides = []
        for topic, filtered in zip(("left", "right"), filters, strict=True):
            store = Materialized.versioned(f"{prefix}{topic}", history=50) if versioned else None
            kept = {
                "named": Materialized.as_(f"{prefix}{topic}-kept"),
                "versioned": Materialized.versioned(f"{prefix}{topic}-kept", history=20),
            }.get(filtered)
            table = _table(builder, prefix, topic, store)
            if filtered != "none":
                table = table.filter(lambda key, value: value % 2 == 0, materialized=kept)
            sides.append(table)
        joined = getattr(sides[0], kind)(sides[1], _joined, value=serdes.json)
        if last:
            joined = joined.filter(lambda key, value: "2" in value)
        joined.to_stream().to(prefix + "out", value=serdes.json)

    text = f"table {kind} versioned={versioned} filters={filters} last={last}"
    return text, ("left", "right"), build


def _table_aggregate(draw: st.DrawFn) -> Shape:
    name = draw(st.sampled_from(["count", "reduce", "aggregate"]))

    def build(builder: StreamsBuilder, prefix: str) -> None:
        table = _table(builder, prefix, "in")
        grouped = table.group_by(
            lambda key, value: None if value > 15 else (KEYS[value % 3], value),
            key=serdes.string,
            value=serdes.json,
        )
        if name == "count":
            result = grouped.count()
        elif name == "reduce":
            result = grouped.reduce(_plus, lambda aggregate, value: aggregate - value)
        else:
            result = grouped.aggregate(
                lambda: 0,
                lambda key, value, aggregate: aggregate + value,
                lambda key, value, aggregate: aggregate - value,
                value=serdes.json,
            )
        result.to_stream().to(prefix + "out", value=serdes.json)

    return f"table group_by {name}", ("in",), build


def _foreign_key(draw: st.DrawFn) -> Shape:
    kind = draw(st.sampled_from(["join", "left_join"]))

    def build(builder: StreamsBuilder, prefix: str) -> None:
        left, right = _table(builder, prefix, "left"), _table(builder, prefix, "right")
        joined = getattr(left, kind)(right, _joined, foreign_key=lambda value: KEYS[value % 4])
        joined.to_stream().to(prefix + "out", value=serdes.json)

    return f"foreign key {kind}", ("left", "right"), build


def _expressions(draw: st.DrawFn) -> Shape:
    """Nothing but expressions: what may run vectorised."""
    from suiro.streams import record_value

    window = draw(st.sampled_from([None, 10]))

    def build(builder: StreamsBuilder, prefix: str) -> None:
        stream = builder.stream(prefix + "in", key=serdes.string, value=serdes.json)
        grouped = stream.filter(record_value().is_not_null() & (record_value() > -3)).group_by_key()
        if window is not None:
            grouped = grouped.windowed_by(TimeWindows.of_size(window, grace=5))
        grouped.count().to_stream().to(prefix + "out")

    return f"expressions window={window}", ("in",), build


_SHAPES = [
    _stateless,
    _aggregate,
    _aggregate,
    _windowed,
    _windowed,
    _windowed,
    _stream_stream,
    _stream_table,
    _table_table,
    _table_table,
    _table_aggregate,
    _foreign_key,
    _expressions,
]
