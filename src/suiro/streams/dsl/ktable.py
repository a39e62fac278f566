"""`KTable`: a table with one row for each key, and its operators.

A table keeps rows only when it must: it is named, joined, grouped or suppressed. Otherwise it passes changes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

from suiro.streams.dsl.checks import function
from suiro.streams.dsl.graph import Graph
from suiro.streams.dsl.kstream import KStream
from suiro.streams.dsl.named import Grouped, Materialized, Name, Suppressed, name_of, options_of
from suiro.streams.errors import TopologyError
from suiro.streams.serdes import Serde
from suiro.streams.topology import nodes
from suiro.streams.topology.nodes import Function

if TYPE_CHECKING:
    from suiro.streams.dsl.grouped import KGroupedTable


@dataclass(eq=False, repr=False, slots=True)
class KTable:
    """Rows by key. Every operation gives a new table and leaves this one as it is.

    Made by `StreamsBuilder` and by other operations; `key`, `value`: None if no serde is known.

    A result has the timestamp of the change that it comes from. In the examples, `planes` is a table of tail numbers
    and seats, and `results(table, planes=[...])` gives (key, value, timestamp) of its changes.
    """

    graph: Graph
    node: str
    _: KW_ONLY
    key: Serde | None
    value: Serde | None

    @property
    def store_name(self) -> str | None:
        """The store that holds the rows, if they are kept."""
        return self.graph.store_of(self.node)

    def filter(self, predicate: Function, *, materialized: Materialized | None = None, name: Name = None) -> KTable:
        """Keeps the rows for which `predicate(key, value)` holds; a row that no longer does is deleted.

        >>> large = planes.filter(lambda tail, seats: seats > 100)
        >>> results(large, planes=[("N1", 180, 0), ("N1", 90, 1)])
        [('N1', 180, 0), ('N1', None, 1)]
        """
        return self._filter(function(predicate, "the predicate of filter", "key", "value"), False, materialized, name)

    def filter_not(self, predicate: Function, *, materialized: Materialized | None = None, name: Name = None) -> KTable:
        """Leaves out the rows for which `predicate(key, value)` holds.

        >>> small = planes.filter_not(lambda tail, seats: seats > 100)
        >>> results(small, planes=[("N1", 90, 0)])
        [('N1', 90, 0)]
        """
        return self._filter(
            function(predicate, "the predicate of filter_not", "key", "value"), True, materialized, name
        )

    def map_values(
        self,
        mapper: Function,
        *,
        value: Serde | None = None,
        materialized: Materialized | None = None,
        name: Name = None,
    ) -> KTable:
        """`mapper(value)` gives the row's new value. It is not called for a row that is deleted.

        >>> rows = planes.map_values(lambda seats: seats // 6)
        >>> results(rows, planes=[("N1", 180, 0), ("N1", None, 1)])
        [('N1', 30, 0), ('N1', None, 1)]
        """
        operator = nodes.TableMapValues(mapper=function(mapper, "the mapper of map_values", "value"))
        return self._next(operator, "KTABLE-MAPVALUES-", name, value=value, materialized=materialized)

    def to_stream(self, mapper: Function | None = None, *, name: Name = None) -> KStream:
        """Forwards every change as a record, a deletion with a null value; `mapper(key, value)` gives it another key.

        >>> by_seats = planes.to_stream(lambda tail, seats: seats)
        >>> results(by_seats, planes=[("N1", 180, 0)])
        [(180, 180, 0)]
        """
        graph = self.graph
        node = graph.add_processor("KTABLE-TOSTREAM-", name, nodes.ToStream(), [self.node])
        if mapper is None:
            return KStream(graph, node, key=self.key, value=self.value)
        select = nodes.SelectKey(mapper=function(mapper, "the mapper of to_stream", "key", "value"))
        keyed = graph.add_processor("KSTREAM-KEY-SELECT-", None, select, [node])
        return KStream(graph, keyed, key=None, value=self.value, rekeyed=True)

    def group_by(
        self,
        mapper: Function,
        grouped: Grouped | None = None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        name: Name = None,
    ) -> KGroupedTable:
        """`mapper(key, value)` gives (group, value); rows move between groups as they change. This needs a repartition.

        >>> by_size = planes.group_by(lambda tail, seats: ("large" if seats > 100 else "small", seats))
        >>> results(by_size.count(), planes=[("N1", 180, 0), ("N1", 90, 1)])
        [('large', 1, 0), ('large', 0, 1), ('small', 1, 1)]
        """
        from suiro.streams.dsl.grouped import KGroupedTable

        grouped = options_of(grouped, Grouped)
        given = name_of(name) or grouped.name
        graph = self.graph
        graph.send_old(self.node, at_any_price=True)
        operator = nodes.TableGroupBy(mapper=function(mapper, "the mapper of group_by", "key", "value"))
        node = graph.add_processor("KTABLE-SELECT-", given, operator, [self.node])
        return KGroupedTable(graph, node, key=key or grouped.key, value=value or grouped.value, name=given)

    def suppress(self, suppressed: Suppressed, *, name: Name = None) -> KTable:
        """Holds updates back: until their window is closed, or for some time. Results keep the timestamp of the update.

        Time is that of the records, so it does not advance without records. Raises `TopologyError` if it waits for
        windows and there are none above.

        >>> daily = delays.group_by_key().windowed_by(TimeWindows.of_size(10)).count()
        >>> final = daily.suppress(Suppressed.until_window_closes()).to_stream(lambda window, number: window.key)
        >>> results(final, delays=[("UA", 3, 1), ("UA", 4, 2), ("AA", 5, 10)])
        [('UA', 2, 2)]
        """
        if not isinstance(suppressed, Suppressed):
            raise TopologyError(
                f"suppress has {suppressed!r}; give Suppressed.until_window_closes() or "
                "Suppressed.until_time_limit(...)"
            )
        graph = self.graph
        waits_for_windows = suppressed.time_limit_ms is None
        closing, inclusive = _closing(graph, self.node) if waits_for_windows else (None, False)
        given = name_of(name) or suppressed.name
        node = graph.names.generate("KTABLE-SUPPRESS-") if given is None else given
        store = graph.names.store("KTABLE-SUPPRESS-") if given is None else f"{given}-store"
        graph.send_old(self.node, at_any_price=True)
        graph.add_store(store, "buffer", self.key, self.value, named_by_user=given is not None)
        operator = nodes.Suppress(
            store=store,
            closing_delay_ms=closing,
            inclusive_end=inclusive,
            time_limit_ms=suppressed.time_limit_ms,
            max_records=suppressed.max_records,
            max_bytes=suppressed.max_bytes,
            emits_early_when_full=not waits_for_windows,
        )
        graph.add(node, operator, [self.node], named=given is not None)
        graph.reserve_rows(node, f"{node}-store", key=self.key, value=self.value, logged=False)
        return KTable(graph, node, key=self.key, value=self.value)

    # Joins

    def join(
        self,
        other: KTable,
        joiner: Function,
        *,
        foreign_key: Function | None = None,
        value: Serde | None = None,
        materialized: Materialized | None = None,
        name: Name = None,
    ) -> KTable:
        """Rows of both tables with one key; with `foreign_key(value)`, the other table's row with that key.

        A result has the later timestamp of both rows; if one of them is deleted, so is the result. The tables need the
        same number of partitions, except with a foreign key; else the application does not start.

        >>> names = builder.table("names", key=serdes.string, value=serdes.string)
        >>> both = planes.join(names, lambda seats, name: f"{name}: {seats}")
        >>> results(both, planes=[("N1", 180, 5)], names=[("N1", "Ada", 3)])
        [('N1', 'Ada: 180', 5)]
        >>> by_size = builder.table("sizes", key=serdes.long, value=serdes.string)
        >>> sized = planes.join(by_size, lambda seats, size: size, foreign_key=lambda seats: seats)
        >>> results(sized, planes=[("N1", 180, 5)], sizes=[(180, "large", 6)])
        [('N1', 'large', 6)]
        """
        from suiro.streams.dsl.joins import join_tables

        return join_tables("inner", self, other, joiner, foreign_key, value=value, materialized=materialized, name=name)

    def left_join(
        self,
        other: KTable,
        joiner: Function,
        *,
        foreign_key: Function | None = None,
        value: Serde | None = None,
        materialized: Materialized | None = None,
        name: Name = None,
    ) -> KTable:
        """As `join`; a row of this table without a match gives `joiner(row, None)`.

        >>> names = builder.table("names", key=serdes.string, value=serdes.string)
        >>> results(planes.left_join(names, lambda seats, name: [seats, name]), planes=[("N1", 180, 0)])
        [('N1', [180, None], 0)]
        """
        from suiro.streams.dsl.joins import join_tables

        return join_tables("left", self, other, joiner, foreign_key, value=value, materialized=materialized, name=name)

    def outer_join(
        self,
        other: KTable,
        joiner: Function,
        *,
        value: Serde | None = None,
        materialized: Materialized | None = None,
        name: Name = None,
    ) -> KTable:
        """As `join`; a row of either table without a match is joined with None.

        >>> names = builder.table("names", key=serdes.string, value=serdes.string)
        >>> results(planes.outer_join(names, lambda seats, name: [seats, name]), names=[("N1", "Ada", 0)])
        [('N1', [None, 'Ada'], 0)]
        """
        from suiro.streams.dsl.joins import join_tables

        return join_tables("outer", self, other, joiner, None, value=value, materialized=materialized, name=name)

    def _filter(self, predicate: Function, negated: bool, materialized: Materialized | None, name: Name) -> KTable:
        graph = self.graph
        operator = nodes.TableFilter(
            predicate=predicate,
            negated=negated,
            sends_old=graph.send_old(self.node, at_any_price=False),
            of_versions=graph.is_versioned(self.node),
        )
        return self._next(operator, "KTABLE-FILTER-", name, value=self.value, materialized=materialized)

    def _next(
        self,
        operator: nodes.TableFilter | nodes.TableMapValues,
        prefix: str,
        name: Name,
        *,
        value: Serde | None,
        materialized: Materialized | None,
    ) -> KTable:
        """Rows that a user did not name need no changelog: they can be made again."""
        stored = options_of(materialized, Materialized)
        node = self.graph.names.processor(prefix, name)
        return add_table(
            self.graph,
            node,
            operator,
            [self.node],
            key=stored.key or self.key,
            value=stored.value or value,
            materialized=materialized,
            reserved=f"{node}-store",
            logged=False,
            named=name is not None,
        )


@dataclass(eq=False, repr=False, slots=True)
class GlobalKTable:
    """A table of which every task has all rows. A stream joins it by any key; nothing else can be done with it."""

    graph: Graph
    node: str
    store_name: str
    _: KW_ONLY
    key: Serde | None
    value: Serde | None


def add_table(
    graph: Graph,
    node: str,
    operator: nodes.TableSource
    | nodes.TableFilter
    | nodes.TableMapValues
    | nodes.TableTableJoin
    | nodes.ForeignKeyResolve,
    parents: Sequence[str],
    *,
    key: Serde | None,
    value: Serde | None,
    materialized: Materialized | None,
    reserved: str,
    logged: bool,
    named: bool,
    aliases: Sequence[str] = (),
) -> KTable:
    """The table of an operator. Its rows are in the store that a user named. Without one they are kept once something
    asks for them: in a store of the name `reserved`, which has a changelog if `logged`."""
    stored = options_of(materialized, Materialized)
    if stored.name is not None:
        check_no_retention(stored)
        is_versioned = stored.history_ms is not None
        graph.add_store(
            stored.name,
            "versioned" if is_versioned else "key-value",
            stored.key or key,
            stored.value or value,
            retention_ms=stored.history_ms,
            logged=stored.logged,
            named_by_user=True,
        )
        operator = replace(operator, store=stored.name)
        if isinstance(operator, nodes.TableSource):
            operator = replace(operator, versioned=is_versioned)
    graph.add(node, operator, parents, named=named, aliases=aliases)
    if stored.name is None:
        graph.reserve_rows(node, reserved, key=key, value=value, logged=logged)
    return KTable(graph, node, key=key, value=value)


def check_no_retention(materialized: Materialized) -> None:
    if materialized.retention_ms is not None:
        raise TopologyError(
            f"store {materialized.name} has a retention, but holds no windows; leave it out, rows stay until they are "
            "deleted"
        )


def _closing(graph: Graph, node: str) -> tuple[int, bool]:
    """How long after their end the windows above a table close, the longest of all; and if their ends are inclusive."""
    found: list[tuple[int, bool]] = []
    waiting = [node]
    while waiting:
        above = graph.nodes[waiting.pop()]
        operator = above.operator
        if isinstance(operator, nodes.WindowedAggregate):
            found.append((operator.windows.closing_delay_ms, not isinstance(operator, nodes.TimeWindowAggregate)))
        else:
            waiting.extend(above.parents)
    if not found:
        raise TopologyError(
            f"suppress waits for windows of {node} to close, but it has none; use windowed_by() above, or "
            "Suppressed.until_time_limit(...)"
        )
    return max(found)
