"""Hypothesis draws graphs of operators on streams whose paths fork and meet: what `drawn_topologies` has few of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from suiro.streams import Materialized, StreamsBuilder, TimeWindows, serdes
from suiro.streams.records import Record

TOPICS = ["one", "two", "letters"]
"""`letters` is also where dead letters go."""


class Scheduling:
    """A processor that keeps a count, forwards twice what it then changes, and speaks as stream time passes."""

    def __init__(self, store: str | None, *, late: bool) -> None:
        self._name, self._late = store, late

    def init(self, context: Any) -> None:
        self._context = context
        self._store = None if self._name is None else context.get_state_store(self._name)
        self._seen = 0
        self._is_scheduled = False
        if not self._late:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._context.schedule(7, "stream-time", self._speak)
        self._context.schedule(40, "wall-clock-time", self._speak)

    def _speak(self, now: int) -> None:
        self._context.forward(Record("clock", [now, self._seen], max(0, now)))

    def process(self, record: Record) -> None:
        self._seen += 1
        if self._late and not self._is_scheduled and record.value == 4:
            self._schedule()
        where = self._context.record_metadata()
        told = [record.value, self._context.current_stream_time_ms(), None if where is None else where.offset]
        if self._store is not None and record.key is not None:
            told.append((self._store.get(record.key) or 0) + 1)
            self._store.put(record.key, told[-1])
        self._context.forward(record.with_value(told))
        told.append("changed")
        self._context.forward(record.with_value(told))
        if record.value == 5:
            raise ValueError("five")


def _bad(value: Any) -> Any:
    if value == 3:
        raise ValueError("three")
    return value


def _number(value: Any) -> Any:
    return value if isinstance(value, int) else 1


KINDS = (
    *("filter", "map", "map_values", "flat_map", "flat_map_values", "select_key", "peek", "branch"),
    *("merge", "merge", "merge", "to", "to", "to", "to_chosen", "global_join", "process"),
    *("process_values", "aggregate", "windowed", "final", "hopping", "table_join", "table", "shared"),
    *("stream_join", "group", "session", "map_values_async", "map_async", "filter_async"),
    *("flat_map_values_async", "peek_async", "map_batches"),
)
JOINS = (
    *("filter", "flat_map_values", "select_key", "branch", "merge", "to", "map_values", "process_values"),
    *("table", "to_table", "table_filter", "table_values", "table_stream", "to_table", "table_filter"),
    *("table_join", "shared", "shared", "shared", "shared", "aggregate", "flat_map", "table_table"),
    *("table_group", "table_group"),
)
"""Tables, and joins with them."""
TABLES = (
    *("to_table", "to_table", "table_group", "table_group", "table_group", "table_group", "table_stream"),
    *("table_table", "table_filter", "shared"),
)
"""Tables of tables."""
WINDOWS = (
    *("filter", "flat_map_values", "select_key", "branch", "merge", "to", "process_values"),
    *("session", "session", "windowed", "final", "hopping", "stream_join", "stream_join", "shared"),
)
"""What event time matters to."""


@st.composite
def graphs(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> Callable[[StreamsBuilder], None]:
    """Each step: which stream it is on, what it does, a second stream for what takes two."""
    steps = draw(
        st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=12)
    )
    two_inputs = draw(st.booleans())

    def build(builder: StreamsBuilder) -> None:
        json = serdes.json
        tables: list[Any] = [builder.global_table("global", key=serdes.string, value=json)]
        streams: list[Any] = [builder.stream("in", key=serdes.string, value=json)]
        if two_inputs:
            streams.append(builder.stream("in1", key=serdes.string, value=json))
        stores: list[str] = []
        for number, (kind, first, second) in enumerate(steps):
            stream = streams[first % len(streams)]
            other = streams[second % len(streams)]
            name = f"{kind}-{number}".replace("_", "-")
            _STEPS[kind](builder, streams, stream, other, name, tables, stores, second)
        streams[-1].to("one", key=serdes.string, value=json)

    return build


def _add(function: Callable[..., Any]) -> Callable[..., None]:
    def step(
        builder: Any, streams: list[Any], stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int
    ) -> None:
        streams.append(function(stream, name))

    return step


def _branch(builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int) -> None:
    ways = (
        stream.split(name=name)
        .branch(lambda key, value: _number(_bad(value)) % 3 == 0, "zero")
        .branch(lambda key, value: key is not None, "key")
        .default_branch("rest")
    )
    streams += ways.values()


def _merge(builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int) -> None:
    streams.append(stream.merge(other))


def _to(builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int) -> None:
    stream.to(TOPICS[n % len(TOPICS)], key=serdes.string, value=serdes.json)


def _to_chosen(
    builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int
) -> None:
    stream.to(lambda key, value, origin: TOPICS[_number(_bad(value)) % 2], key=serdes.string, value=serdes.json)


def _global(builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int) -> None:
    join = stream.left_join if n % 2 else stream.join
    streams.append(join(tables[0], lambda key, value: _bad(key), lambda left, right: [left, right]))


def _process(builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int) -> None:
    if n % 3 == 0:
        streams.append(
            stream.process(lambda: Scheduling(None, late=bool(n % 2)), key=serdes.string, value=serdes.json, name=name)
        )
        return
    if not stores or n % 3 == 1:
        stores.append(f"{name}-store")
        builder.add_state_store(stores[-1], key=serdes.string, value=serdes.json)
    own = stores[n % len(stores)]
    streams.append(
        stream.process(lambda: Scheduling(own, late=bool(n % 2)), own, key=serdes.string, value=serdes.json, name=name)
    )


def _process_values(
    builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int
) -> None:
    class Noting:
        def init(self, context: Any) -> None:
            self._context = context

        def process(self, record: Record) -> None:
            where = self._context.record_metadata()
            self._context.forward(record.with_headers((*record.headers, ("at", repr(where and where.offset).encode()))))

    streams.append(stream.process_values(Noting, name=name))


def _grouped(stream: Any, name: str) -> Any:
    return stream.group_by_key(key=serdes.string, value=serdes.json, name=name)


def _append(key: Any, value: Any, aggregate: Any) -> Any:
    aggregate.append(_bad(value))
    return None if value == 6 else aggregate


def _kept(name: str) -> Any:
    return Materialized.as_(f"{name}-store")


def _aggregate(stream: Any, name: str) -> Any:
    return _grouped(stream, name).aggregate(list, _append, value=serdes.json, materialized=_kept(name)).to_stream()


def _plain(stream: Any) -> Any:
    """Windowed keys as text."""
    return stream.map(lambda key, value: (f"{key.key}@{key.start}", value))


def _windowed(stream: Any, name: str) -> Any:
    windows = TimeWindows.of_size(10).grace(3)
    counted = (
        _grouped(stream, name)
        .windowed_by(windows)
        .aggregate(list, _append, value=serdes.json, materialized=_kept(name))
    )
    return _plain(counted.to_stream())


def _hopping(stream: Any, name: str) -> Any:
    windows = TimeWindows.of_size(10, advance=4).grace(3)
    counted = (
        _grouped(stream, name)
        .windowed_by(windows)
        .aggregate(list, _append, value=serdes.json, materialized=_kept(name))
    )
    return _plain(counted.to_stream())


def _final(stream: Any, name: str) -> Any:
    from suiro.streams import EmitStrategy

    windows = TimeWindows.of_size(10).grace(3)
    counted = (
        _grouped(stream, name)
        .windowed_by(windows)
        .emit_strategy(EmitStrategy.on_window_close())
        .aggregate(list, _append, value=serdes.json, materialized=_kept(name))
    )
    return _plain(counted.to_stream())


def _session(builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int) -> None:
    from suiro.streams import EmitStrategy, SessionWindows

    windows = _grouped(stream, name).windowed_by(SessionWindows.of_gap(5, grace=n % 4))
    if n % 5 == 0:
        windows = windows.emit_strategy(EmitStrategy.on_window_close())
    match n % 3:
        case 0:
            sessions = windows.count(materialized=_kept(name))
        case 1:
            sessions = windows.reduce(lambda old, new: _bad(new), materialized=_kept(name))
        case _:
            sessions = windows.aggregate(
                list, _append, lambda key, one, two: one + two, value=serdes.json, materialized=_kept(name)
            )
    if n % 2:
        sessions = sessions.filter(lambda key, value: _number(value) != 2, materialized=_kept(f"{name}-made"))
    streams.append(_plain(sessions.to_stream()))


def _table(stream: Any, name: str) -> Any:
    table = stream.to_table(key=serdes.string, value=serdes.json, materialized=_kept(name))
    return table.filter(lambda key, value: _number(_bad(value)) % 2 == 0).map_values(lambda value: [value]).to_stream()


def _to_table(builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int) -> None:
    if n % 3:
        tables.append(stream.to_table(key=serdes.string, value=serdes.json, materialized=_kept(name)))
    else:
        tables.append(_grouped(stream, name).aggregate(list, _append, value=serdes.json, materialized=_kept(name)))


def _a_table(stream: Any, name: str, tables: Any, n: int) -> Any:
    """One that was drawn before; else one of this stream."""
    if len(tables) == 1:
        tables.append(stream.to_table(key=serdes.string, value=serdes.json, materialized=_kept(name)))
    return tables[1 + n % (len(tables) - 1)]


def _of_table(function: Callable[..., Any]) -> Callable[..., None]:
    def step(builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int) -> None:
        tables.append(function(_a_table(other, name, tables, n), _kept(f"{name}-made") if n % 2 else None))

    return step


def _table_stream(
    builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int
) -> None:
    streams.append(_a_table(other, name, tables, n).to_stream())


def _table_table(
    builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int
) -> None:
    left, right = (_a_table(other, name, tables, place) for place in (n, n // 2))
    join = (left.join, left.left_join, left.outer_join)[n % 3]
    kept = _kept(f"{name}-made") if n % 2 else None
    tables.append(join(right, lambda left, right: [_bad(left), right], value=serdes.json, materialized=kept))


def _regrouped(key: Any, value: Any) -> Any:
    """Another key or the same, no pair, or a pair without a key or a value."""
    number = _number(_bad(value))
    pairs = [(key, value), ("k", [value]), (key, [value]), None, ("k", None), (None, value)]
    return pairs[number % len(pairs)]


def _table_group(
    builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int
) -> None:
    grouped = _a_table(other, name, tables, n).group_by(_regrouped, key=serdes.string, value=serdes.json, name=name)
    kept = _kept(f"{name}-made")

    def add(key: Any, value: Any, aggregate: Any) -> Any:
        aggregate.append(_bad(value))  # in place
        return aggregate if n % 2 else aggregate[:3]

    def subtract(key: Any, value: Any, aggregate: Any) -> Any:
        return None if len(aggregate) == 1 else aggregate[1:]

    match n % 3:
        case 0:
            made = grouped.count(materialized=kept)
        case 1:
            made = grouped.reduce(lambda total, row: [total, row], lambda total, row: _bad(total), materialized=kept)
        case _:
            made = grouped.aggregate(list, add, subtract, value=serdes.json, materialized=kept)
    tables.append(made)


def _table_join(
    builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int
) -> None:
    right = other.to_table(key=serdes.string, value=serdes.json, materialized=_kept(name))
    tables.append(right)
    streams.append(stream.left_join(right, lambda left, row: [left, row]))


def _shared(builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int) -> None:
    """With a table that others may read."""
    join = stream.left_join if n % 3 else stream.join
    streams.append(join(_a_table(other, name, tables, n), lambda left, row: [_bad(left), row]))


def _stream_join(
    builder: Any, streams: Any, stream: Any, other: Any, name: str, tables: Any, stores: Any, n: int
) -> None:
    from suiro.streams import JoinWindows

    join = (stream.join, stream.left_join, stream.outer_join)[n % 3]
    windows = JoinWindows(before_ms=5 - 5 * (n % 5 == 1), after_ms=5 - 4 * (n % 5 == 0), grace_ms=n % 4)
    streams.append(
        join(
            other,
            lambda left, right: [_bad(left), right],
            windows,
            key=serdes.string,
            value=serdes.json,
            other_value=serdes.json,
            name=name,
        )
    )


async def _later(value: Any) -> Any:
    """A result that comes after some turns of the loop, of which each value has another number."""
    for _ in range(sum(str(value).encode()) % 7):
        await asyncio.sleep(0)
    return _bad(value)


async def _wrapped_later(value: Any) -> Any:
    return [await _later(value), 2]


async def _pair_later(key: Any, value: Any) -> Any:
    return key, [await _later(value)]


async def _wanted_later(key: Any, value: Any) -> Any:
    return _number(await _later(value)) % 4 != 1


async def _several_later(value: Any) -> Any:
    return [value] * (_number(await _later(value)) % 3)


async def _seen_later(key: Any, value: Any) -> None:
    await _later(value)


def _next_numbers(table: Any) -> Any:
    """Fails for a batch that has a three."""
    for value in table["value"].to_pylist():
        _bad(value)
    return [value + 1 for value in table["value"].to_pylist()]


_STEPS: dict[str, Callable[..., None]] = {
    "filter": _add(lambda stream, name: stream.filter(lambda key, value: _number(_bad(value)) % 4 != 1)),
    "map": _add(lambda stream, name: stream.map(lambda key, value: (key, [_bad(value)]))),
    "map_values": _add(lambda stream, name: stream.map_values(lambda value: [_bad(value), 1])),
    "flat_map": _add(
        lambda stream, name: stream.flat_map(lambda key, value: ((key, each) for each in (value, _bad(value))))
    ),
    "flat_map_values": _add(
        lambda stream, name: stream.flat_map_values(lambda value: [value] * (_number(_bad(value)) % 3))
    ),
    "select_key": _add(lambda stream, name: stream.select_key(lambda key, value: key or (_bad(value) and "k"))),
    "peek": _add(lambda stream, name: stream.peek(lambda key, value: _bad(value))),
    "map_values_async": _add(lambda stream, name: stream.map_values_async(_wrapped_later, concurrency=3, name=name)),
    "map_async": _add(lambda stream, name: stream.map_async(_pair_later, order="none", name=name)),
    "filter_async": _add(lambda stream, name: stream.filter_async(_wanted_later, concurrency=2, name=name)),
    "flat_map_values_async": _add(lambda stream, name: stream.flat_map_values_async(_several_later, name=name)),
    "peek_async": _add(lambda stream, name: stream.peek_async(_seen_later, concurrency=1, name=name)),
    "map_batches": _add(
        lambda stream, name: stream.map_batches(_next_numbers, reads="int64", schema="int64", key_type=None, name=name)
    ),
    "branch": _branch,
    "merge": _merge,
    "to": _to,
    "to_chosen": _to_chosen,
    "global_join": _global,
    "process": _process,
    "process_values": _process_values,
    "aggregate": _add(_aggregate),
    "group": _add(
        lambda stream, name: (
            stream.group_by(lambda key, value: str(value), key=serdes.string, value=serdes.json, name=name)
            .count(materialized=_kept(name))
            .to_stream()
        )
    ),
    "windowed": _add(_windowed),
    "hopping": _add(_hopping),
    "final": _add(_final),
    "session": _session,
    "table": _add(_table),
    "table_join": _table_join,
    "shared": _shared,
    "to_table": _to_table,
    "table_filter": _of_table(
        lambda table, kept: table.filter(lambda key, value: _number(_bad(value)) % 2 == 0, materialized=kept)
    ),
    "table_values": _of_table(
        lambda table, kept: table.map_values(lambda value: [_bad(value)], value=serdes.json, materialized=kept)
    ),
    "table_stream": _table_stream,
    "table_group": _table_group,
    "table_table": _table_table,
    "stream_join": _stream_join,
}
