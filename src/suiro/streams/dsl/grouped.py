"""Streams and tables grouped by key, and their aggregations: counts, sums and any other fold.

Windows, retention and serdes of an aggregate's store are settled here; the folding itself is `operators`' business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from suiro.streams import serdes
from suiro.streams.dsl.checks import function, python_function
from suiro.streams.dsl.graph import Graph, check_one_builder, common_serde, known
from suiro.streams.dsl.kstream import KStream
from suiro.streams.dsl.ktable import KTable, check_no_retention
from suiro.streams.dsl.named import Materialized, Name, name_of, options_of
from suiro.streams.errors import TopologyError
from suiro.streams.serdes import Serde
from suiro.streams.topology import nodes
from suiro.streams.topology.nodes import Function, StoreKind
from suiro.streams.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, Windows


class _Aggregates:
    """What a grouped stream has with windows and without."""

    __slots__ = ("_table", "stream")

    stream: KStream
    _table: Callable[..., KTable]

    def count(self, *, materialized: Materialized | None = None, name: Name = None) -> KTable:
        """How many records each key has, in each window if there are windows. Without windows, and in sliding windows,
        records with a null key or value do not count. A result has the largest timestamp of its records so far.

        >>> per_carrier = delays.group_by_key().count(materialized=Materialized.as_("per-carrier"))
        >>> results(per_carrier, delays=[("UA", 3, 5), ("UA", None, 6), ("UA", 4, 2)])
        [('UA', 1, 5), ('UA', 2, 5)]
        >>> windowed = delays.group_by_key().windowed_by(TimeWindows.of_size(10, advance=5))
        >>> results(windowed.count(), delays=[("UA", 3, 7)])
        [(Windowed(key='UA', start=0, end=10), 1, 7), (Windowed(key='UA', start=5, end=15), 1, 7)]
        """
        return self._table(_COUNT, serdes.long, materialized, name)

    def reduce(self, reducer: Function, *, materialized: Materialized | None = None, name: Name = None) -> KTable:
        """`reducer(aggregate, value)` gives the next aggregate; the first value is the first aggregate.

        >>> results(delays.group_by_key().reduce(max), delays=[("UA", 3, 0), ("UA", 9, 1), ("UA", 4, 2)])
        [('UA', 3, 0), ('UA', 9, 1), ('UA', 9, 2)]
        >>> windowed = delays.group_by_key().windowed_by(SlidingWindows.of_difference(5))
        >>> results(windowed.reduce(max), delays=[("UA", 3, 7)])
        [(Windowed(key='UA', start=2, end=7), 3, 7)]
        """
        aggregator = function(reducer, "the reducer of reduce", "aggregate", "value")
        aggregation = nodes.Aggregation(kind="reduce", aggregators=(aggregator,))
        return self._table(aggregation, self.stream.value, materialized, name)


class KGroupedStream(_Aggregates):
    """A stream's records by key, without windows."""

    __slots__ = ("_repartition", "name")

    def __init__(self, stream: KStream, name: str | None) -> None:
        """Made by `group_by` and `group_by_key`."""
        self.stream = stream
        self.name = name
        self._repartition: KStream | None = None
        self._table = partial(_table, [self])

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Function,
        *,
        value: Serde | None = None,
        materialized: Materialized | None = None,
        name: Name = None,
    ) -> KTable:
        """`aggregator(key, value, aggregate)` gives the next aggregate, starting with `initializer()`.

        An aggregate of None deletes the row. Give `value=` if `serdes.natural` cannot write the aggregate.

        >>> last = delays.group_by_key().aggregate(list, lambda carrier, minutes, found: [*found, minutes][-2:])
        >>> results(last, delays=[("UA", 3, 0), ("UA", 9, 1), ("UA", 4, 2)])
        [('UA', [3], 0), ('UA', [3, 9], 1), ('UA', [9, 4], 2)]
        """
        aggregation = _aggregation(initializer, _aggregator(aggregator, "aggregate"))
        return self._table(aggregation, value, materialized, name)

    def windowed_by(self, windows: Windows) -> WindowedKStream:
        """Each window for itself: `TimeWindows`, `SlidingWindows` or `SessionWindows`. A record that comes after its
        window has closed is left out.

        >>> daily = delays.group_by_key().windowed_by(TimeWindows.of_size(10)).count()
        >>> results(daily, delays=[("UA", 3, 1), ("UA", 4, 12), ("UA", 5, 2)])
        [(Windowed(key='UA', start=0, end=10), 1, 1), (Windowed(key='UA', start=10, end=20), 1, 12)]
        """
        return WindowedKStream(self, _windows(windows))

    def cogroup(self, aggregator: Function) -> CogroupedKStream:
        """Folds several groups into one table, each with its own aggregator.

        >>> fees = builder.stream("fees", key=serdes.string, value=serdes.long)
        >>> late = delays.group_by_key().cogroup(lambda carrier, minutes, total: total + minutes)
        >>> total = late.cogroup(fees.group_by_key(), lambda carrier, fee, total: total - fee).aggregate(int)
        >>> results(total, delays=[("UA", 9, 0)], fees=[("UA", 4, 1)])
        [('UA', 9, 0), ('UA', 5, 1)]
        """
        return CogroupedKStream(((self, _aggregator(aggregator, "cogroup")),))

    def by_key(self, store: str) -> KStream:
        """The group with the records of each key together. A named group has one repartition for all its uses."""
        if self._repartition is not None:
            return self._repartition
        found = self.stream.by_key(self.name or store, named=self.name is not None)
        if self.name is not None:
            self._repartition = found
        return found


class WindowedKStream(_Aggregates):
    """A grouped stream in windows."""

    __slots__ = ("_grouped", "_windows")

    def __init__(
        self, grouped: KGroupedStream, windows: Windows, emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE
    ) -> None:
        """Made by `windowed_by`."""
        self.stream = grouped.stream
        self._grouped = grouped
        self._windows = windows
        self._table = partial(_table, [grouped], windows=windows, emit=emit)

    def emit_strategy(self, strategy: EmitStrategy) -> WindowedKStream:
        """Sends a result at every update (the default), or one result when the window is closed.

        >>> windowed = delays.group_by_key().windowed_by(TimeWindows.of_size(10))
        >>> final = windowed.emit_strategy(EmitStrategy.on_window_close()).count()
        >>> results(final, delays=[("UA", 3, 1), ("UA", 4, 2), ("AA", 5, 10)])
        [(Windowed(key='UA', start=0, end=10), 2, 2)]
        """
        if not isinstance(strategy, EmitStrategy):
            raise TopologyError(
                f"an emit strategy is {strategy!r}; give EmitStrategy.on_window_close() or .on_window_update()"
            )
        return WindowedKStream(self._grouped, self._windows, strategy)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Function,
        merger: Function | None = None,
        *,
        value: Serde | None = None,
        materialized: Materialized | None = None,
        name: Name = None,
    ) -> KTable:
        """As without windows. Sessions merge, which needs a `merger(key, aggregate, aggregate)`; a merged session is
        deleted under its old bounds. Raises `TopologyError` for sessions without a merger, and for other windows with
        one.

        >>> sessions = delays.group_by_key().windowed_by(SessionWindows.of_gap(5))
        >>> add = lambda carrier, minutes, total: total + minutes
        >>> total = sessions.aggregate(int, add, lambda carrier, one, other: one + other)
        >>> results(total, delays=[("UA", 3, 0), ("UA", 4, 4)])  # doctest: +NORMALIZE_WHITESPACE
        [(Windowed(key='UA', start=0, end=0), 3, 0), (Windowed(key='UA', start=0, end=0), None, 0),
         (Windowed(key='UA', start=0, end=4), 7, 4)]
        """
        aggregation = _aggregation(initializer, _aggregator(aggregator, "aggregate"))
        return self._table(aggregation, value, materialized, name, merger=_merger(self._windows, merger))


@dataclass(eq=False, repr=False, slots=True)
class _Cogrouped:
    """Made by `cogroup` and its `windowed_by`."""

    parts: tuple[tuple[KGroupedStream, Function], ...]
    windows: Windows | None = None

    def _table(
        self,
        initializer: Callable[[], Any],
        merger: Function | None,
        value: Serde | None,
        materialized: Materialized | None,
        name: Name,
    ) -> KTable:
        groups = [group for group, _ in self.parts]
        unnamed = [group.stream.node for group in groups if group.stream.rekeyed and group.name is None]
        if len(unnamed) > 1:
            raise TopologyError(
                f"cogroup of {' and '.join(unnamed)}: their repartition topics would have one name; name the groups "
                "(group_by(..., name=...))"
            )
        aggregation = _aggregation(initializer, *(aggregator for _, aggregator in self.parts))
        merge = _merger(self.windows, merger)
        return _table(
            groups, aggregation, value, materialized, name, windows=self.windows, merger=merge, is_cogroup=True
        )


class CogroupedKStream(_Cogrouped):
    """Several groups with one kind of key, to be aggregated into one table."""

    __slots__ = ()

    def cogroup(self, grouped: KGroupedStream, aggregator: Function) -> CogroupedKStream:
        """Adds a group. Its topic needs as many partitions as the others'.

        >>> fees = builder.stream("fees", key=serdes.string, value=serdes.long).group_by_key()
        >>> plus = lambda carrier, number, total: total + number
        >>> results(delays.group_by_key().cogroup(plus).cogroup(fees, plus).aggregate(int), fees=[("UA", 4, 1)])
        [('UA', 4, 1)]
        """
        if not isinstance(grouped, KGroupedStream):
            raise TopologyError(f"cogroup takes a grouped stream, not {grouped!r}; group_by_key() makes one")
        check_one_builder(self.parts[0][0].stream, grouped.stream, "cogroup")
        return CogroupedKStream((*self.parts, (grouped, _aggregator(aggregator, "cogroup"))))

    def aggregate(
        self,
        initializer: Callable[[], Any],
        *,
        value: Serde | None = None,
        materialized: Materialized | None = None,
        name: Name = None,
    ) -> KTable:
        """Each group's aggregator takes (key, value, aggregate).

        >>> counted = delays.group_by_key().cogroup(lambda carrier, minutes, number: number + 1)
        >>> results(counted.aggregate(int), delays=[("UA", 3, 0), ("UA", 4, 1)])
        [('UA', 1, 0), ('UA', 2, 1)]
        """
        return self._table(initializer, None, value, materialized, name)

    def windowed_by(self, windows: Windows) -> WindowedCogroupedKStream:
        """Each window for itself.

        >>> counted = delays.group_by_key().cogroup(lambda carrier, minutes, number: number + 1)
        >>> results(counted.windowed_by(TimeWindows.of_size(10)).aggregate(int), delays=[("UA", 3, 1)])
        [(Windowed(key='UA', start=0, end=10), 1, 1)]
        """
        return WindowedCogroupedKStream(self.parts, _windows(windows))


class WindowedCogroupedKStream(_Cogrouped):
    """Several groups in windows."""

    __slots__ = ()

    def aggregate(
        self,
        initializer: Callable[[], Any],
        merger: Function | None = None,
        *,
        value: Serde | None = None,
        materialized: Materialized | None = None,
        name: Name = None,
    ) -> KTable:
        """As without windows; sessions need a `merger(key, aggregate, aggregate)`.

        >>> counted = delays.group_by_key().cogroup(lambda carrier, minutes, number: number + 1)
        >>> sessions = counted.windowed_by(SessionWindows.of_gap(5))
        >>> results(sessions.aggregate(int, lambda carrier, one, other: one + other), delays=[("UA", 3, 1)])
        [(Windowed(key='UA', start=1, end=1), 1, 1)]
        """
        return self._table(initializer, merger, value, materialized, name)


@dataclass(eq=False, repr=False, slots=True)
class KGroupedTable:
    """A table's rows under new keys. A row that changes leaves its old group and joins its new one. Made by
    `KTable.group_by`."""

    graph: Graph
    node: str
    _: KW_ONLY
    key: Serde | None
    value: Serde | None
    name: str | None
    _repartition: str | None = field(default=None, init=False)

    def count(self, *, materialized: Materialized | None = None, name: Name = None) -> KTable:
        """How many rows each group has.

        >>> by_size = planes.group_by(lambda tail, seats: (seats, tail))
        >>> results(by_size.count(), planes=[("N1", 180, 0), ("N2", 180, 1), ("N1", None, 2)])
        [(180, 1, 0), (180, 2, 1), (180, 1, 2)]
        """
        return self._table("count", serdes.long, materialized, name)

    def reduce(
        self,
        adder: Function,
        subtractor: Function,
        *,
        materialized: Materialized | None = None,
        name: Name = None,
    ) -> KTable:
        """`adder(aggregate, value)` takes a row in, `subtractor(aggregate, value)` takes it out again.

        >>> fleet = planes.group_by(lambda tail, seats: ("all", seats), value=serdes.long)
        >>> total = fleet.reduce(lambda total, seats: total + seats, lambda total, seats: total - seats)
        >>> results(total, planes=[("N1", 180, 0), ("N2", 90, 1)])
        [('all', 180, 0), ('all', 270, 1)]
        """
        return self._table(
            "reduce",
            self.value,
            materialized,
            name,
            adder=function(adder, "the adder of reduce", "aggregate", "value"),
            subtractor=function(subtractor, "the subtractor of reduce", "aggregate", "value"),
        )

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Function,
        subtractor: Function,
        *,
        value: Serde | None = None,
        materialized: Materialized | None = None,
        name: Name = None,
    ) -> KTable:
        """`adder(key, value, aggregate)` takes a row in, `subtractor(key, value, aggregate)` takes it out again. A row
        that changes within its group goes out and in, and gives one result.

        >>> fleet = planes.group_by(lambda tail, seats: ("all", seats))
        >>> add = lambda group, seats, total: total + seats
        >>> total = fleet.aggregate(int, add, lambda group, seats, total: total - seats)
        >>> results(total, planes=[("N1", 180, 0), ("N1", 90, 1)])
        [('all', 180, 0), ('all', 90, 1)]
        """
        return self._table(
            "aggregate",
            value,
            materialized,
            name,
            initializer=python_function(initializer, "the initializer of aggregate"),
            adder=function(adder, "the adder of aggregate", "key", "value", "aggregate"),
            subtractor=function(subtractor, "the subtractor of aggregate", "key", "value", "aggregate"),
        )

    def _table(
        self,
        kind: nodes.AggregationKind,
        value: Serde | None,
        materialized: Materialized | None,
        name: Name,
        **functions: Any,
    ) -> KTable:
        graph, names = self.graph, self.graph.names
        stored = _not_windowed(materialized)
        store = stored.name or names.store("KTABLE-AGGREGATE-")  # of reduce too
        topic = f"{self.name or store}-repartition"
        aliases = (
            names.processor("KSTREAM-SINK-", name, "-sink"),
            names.processor("KSTREAM-SOURCE-", name, "-source"),
        )
        if self.name is None or self._repartition is None:
            cut = nodes.Repartition(topic=topic, key=known(self.key), value=known(self.value), is_change=True)
            self._repartition = graph.add(topic, cut, [self.node], named=self.name is not None, aliases=aliases)
        prefix = "KTABLE-REDUCE-" if kind == "reduce" else "KTABLE-AGGREGATE-"
        key, value = stored.key or self.key, stored.value or value
        _add_store(graph, store, stored, None, key, value)
        operator = nodes.TableAggregate(kind=kind, store=store, **functions)
        node = graph.add_processor(prefix, name, operator, [self._repartition])
        return KTable(graph, node, key=key, value=value)


_COUNT = nodes.Aggregation(kind="count")


def _aggregation(initializer: Callable[[], Any], *aggregators: Function) -> nodes.Aggregation:
    first = python_function(initializer, "the initializer of aggregate")
    return nodes.Aggregation(kind="aggregate", initializer=first, aggregators=aggregators)


def _aggregator(given: Function, operator: str) -> Function:
    return function(given, f"the aggregator of {operator}", "key", "value", "aggregate")


def _table(
    groups: Sequence[KGroupedStream],
    aggregation: nodes.Aggregation,
    value: Serde | None,
    materialized: Materialized | None,
    name: Name,
    *,
    windows: Windows | None = None,
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    merger: Function | None = None,
    is_cogroup: bool = False,
) -> KTable:
    graph = groups[0].stream.graph
    names = graph.names
    stored = _not_windowed(materialized) if windows is None else options_of(materialized, Materialized)
    prefix = "KSTREAM-REDUCE-" if aggregation.kind == "reduce" else "KSTREAM-AGGREGATE-"
    if is_cogroup:
        prefix = "COGROUPKSTREAM-AGGREGATE-"
    store = stored.name or names.store(prefix)
    node = "" if is_cogroup else names.processor(prefix, name)
    inputs = [group.by_key(store).node for group in groups]
    aliases: tuple[str, ...] = ()
    if is_cogroup:
        aliases = tuple(names.processor(prefix, name, f"-cogroup-agg-{number}") for number in range(len(groups)))
        node = names.processor("COGROUPKSTREAM-MERGE-", name, "-cogroup-merge")
    key = stored.key or common_serde(group.stream.key for group in groups)
    value = stored.value or value
    _add_store(graph, store, stored, windows, key, value)
    operator = _operator(aggregation, windows, store, emit, merger)
    graph.add(node, operator, inputs, named=name_of(name) is not None, aliases=aliases)
    if windows is not None:
        size_ms, inner = _size_ms(windows), known(key)
        key = serdes.session_windowed(inner) if size_ms is None else serdes.time_windowed(inner, size_ms)
    return KTable(graph, node, key=key, value=value)


def _operator(
    aggregation: nodes.Aggregation, windows: Windows | None, store: str, emit: EmitStrategy, merger: Function | None
) -> nodes.Operator:
    match windows:
        case None:
            return nodes.StreamAggregate(aggregation=aggregation, store=store)
        case TimeWindows():
            return nodes.TimeWindowAggregate(aggregation=aggregation, windows=windows, store=store, emit=emit)
        case SlidingWindows():
            return nodes.SlidingAggregate(aggregation=aggregation, windows=windows, store=store, emit=emit)
    return nodes.SessionAggregate(aggregation=aggregation, windows=windows, store=store, merger=merger, emit=emit)


def _add_store(
    graph: Graph, store: str, stored: Materialized, windows: Windows | None, key: Serde | None, value: Serde | None
) -> None:
    options: dict[str, Any] = {"logged": stored.logged, "named_by_user": stored.name is not None}
    kind: StoreKind = "key-value"
    if windows is not None:
        if stored.history_ms is not None:
            raise TopologyError(f"store {store} holds windows and cannot be versioned; use Materialized.as_")
        open_ms, size_ms = windows.retention_ms, _size_ms(windows)
        retention_ms = open_ms if stored.retention_ms is None else stored.retention_ms
        if retention_ms < open_ms:
            raise TopologyError(
                f"store {store} would keep windows for {retention_ms} ms, but they are open for {open_ms} ms; "
                "give a longer retention, or shorter windows or grace"
            )
        kind = "session" if size_ms is None else "window"
        options |= {"retention_ms": retention_ms, "window_size_ms": size_ms}
    graph.add_store(store, kind, key, value, **options)


def _size_ms(windows: Windows) -> int | None:
    """None for sessions, whose lengths differ."""
    match windows:
        case TimeWindows(size_ms=size_ms) | SlidingWindows(difference_ms=size_ms):
            return size_ms
    return None


def _windows(windows: Any) -> Windows:
    if isinstance(windows, TimeWindows | SlidingWindows | SessionWindows):
        return windows
    raise TopologyError(
        f"windowed_by has {windows!r}, which are no windows of a size; give TimeWindows.of_size(...), "
        "SlidingWindows.of_difference(...) or SessionWindows.of_gap(...)"
    )


def _merger(windows: Windows | None, merger: Function | None) -> Function | None:
    if isinstance(windows, SessionWindows):
        if merger is None:
            raise TopologyError(
                "an aggregate over sessions has no merger; give one: (key, aggregate, aggregate) -> aggregate"
            )
        return function(merger, "the merger of aggregate", "key", "aggregate", "aggregate")
    if merger is not None:
        raise TopologyError("an aggregate has a merger, but only sessions are ever merged; leave it out")
    return None


def _not_windowed(materialized: Materialized | None) -> Materialized:
    stored = options_of(materialized, Materialized)
    check_no_retention(stored)
    if stored.history_ms is not None:
        raise TopologyError(f"store {stored.name} of an aggregate cannot be versioned; a table or to_table() can")
    return stored
