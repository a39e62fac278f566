"""`KTable`: a table with one row for each key, and its operators.

A table keeps rows only when it must: it is named, joined, grouped or suppressed. Otherwise it passes changes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.streams.dsl.checks import function
from suiro.streams.dsl.graph import Graph, known
from suiro.streams.dsl.kstream import KStream
from suiro.streams.dsl.named import Grouped, Materialized, Name, name_of
from suiro.streams.dsl.suppressed import Suppressed
from suiro.streams.errors import TopologyError
from suiro.streams.serdes import Serde
from suiro.streams.topology.nodes import (
    Function,
    SelectKey,
    SessionAggregate,
    SlidingAggregate,
    StoreSpec,
    Suppress,
    TableFilter,
    TableGroupBy,
    TableMapValues,
    TimeWindowAggregate,
    ToStream,
)

if TYPE_CHECKING:
    from suiro.streams.dsl.grouped import KGroupedTable

__all__ = ["GlobalKTable", "KTable", "table_store"]


class KTable:
    """Rows by key. Every operation gives a new table and leaves this one as it is."""

    __slots__ = ("graph", "key", "node", "value")

    def __init__(self, graph: Graph, node: str, *, key: Serde | None, value: Serde | None) -> None:
        """Made by `StreamsBuilder` and by other operations. `key`, `value`: None if no serde is known."""
        self.graph = graph
        self.node = node
        self.key = key
        self.value = value

    @property
    def store_name(self) -> str | None:
        """The store that holds the rows, if they are kept."""
        return self.graph.store_of(self.node)

    def filter(
        self, predicate: Function, *, materialized: Materialized | None = None, name: Name = None
    ) -> KTable:
        """Keeps the rows for which `predicate(key, value)` holds; a row that no longer does is deleted.

        >>> flying = planes.filter(lambda tail, plane: plane["status"] == "in the air")
        """
        return self._filter(function(predicate, "the predicate of filter"), False, materialized, name)

    def filter_not(
        self, predicate: Function, *, materialized: Materialized | None = None, name: Name = None
    ) -> KTable:
        """Leaves out the rows for which `predicate(key, value)` holds.

        >>> ready = planes.filter_not(col("grounded"))
        """
        return self._filter(function(predicate, "the predicate of filter_not"), True, materialized, name)

    def map_values(
        self,
        mapper: Function,
        *,
        value: Serde | None = None,
        materialized: Materialized | None = None,
        name: Name = None,
    ) -> KTable:
        """`mapper(value)` gives the row's new value.

        >>> makers = planes.map_values(col("maker"))
        """
        graph = self.graph
        operator = TableMapValues(mapper=function(mapper, "the mapper of map_values"))
        node = graph.names.processor("KTABLE-MAPVALUES-", name)
        graph.add(node, operator, [self.node], named=name is not None)
        return self._with_rows(node, self.key, value, materialized)

    def to_stream(self, mapper: Function | None = None, *, name: Name = None) -> KStream:
        """Every change as a record, a deletion as one with a null value; `mapper(key, value)` gives it another key.

        >>> counts.to_stream().to("counts")
        """
        graph = self.graph
        node = graph.add(
            graph.names.processor("KTABLE-TOSTREAM-", name), ToStream(), [self.node], named=name is not None
        )
        if mapper is None:
            return KStream(graph, node, key=self.key, value=self.value)
        keyed = graph.add(
            graph.names.processor("KSTREAM-KEY-SELECT-"),
            SelectKey(mapper=function(mapper, "the mapper of to_stream")),
            [node],
        )
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
        """`mapper(key, value)` gives (group, value); rows move between groups as they change.

        >>> planes.group_by(lambda tail, plane: (plane["maker"], plane)).count()
        """
        from suiro.streams.dsl.grouped import KGroupedTable

        grouped = grouped or Grouped()
        given = name_of(name) or grouped.name
        graph = self.graph
        graph.send_old(self.node, at_any_price=True)
        node = graph.add(
            graph.names.processor("KTABLE-SELECT-", given),
            TableGroupBy(mapper=function(mapper, "the mapper of group_by")),
            [self.node],
            named=given is not None,
        )
        return KGroupedTable(graph, node, key=key or grouped.key, value=value or grouped.value, name=given)

    def suppress(self, suppressed: Suppressed, *, name: Name = None) -> KTable:
        """Holds updates back: until their window is closed, or for some time.

        >>> counts.suppress(Suppressed.until_window_closes()).to_stream().to("final-counts")
        """
        if not isinstance(suppressed, Suppressed):
            raise TopologyError(
                f"suppress has {suppressed!r}; give Suppressed.until_window_closes() or "
                "Suppressed.until_time_limit(...)"
            )
        graph = self.graph
        closing, inclusive = (None, False)
        if suppressed.time_limit_ms is None:
            closing, inclusive = _closing(graph, self.node)
        given = name_of(name) or suppressed.name
        node = graph.names.generate("KTABLE-SUPPRESS-") if given is None else given
        store = graph.names.store("KTABLE-SUPPRESS-") if given is None else f"{given}-store"
        graph.send_old(self.node, at_any_price=True)
        graph.add_store(
            StoreSpec(
                name=store,
                kind="buffer",
                key=known(self.key),
                value=known(self.value),
                named_by_user=given is not None,
            )
        )
        graph.add(
            node,
            Suppress(
                store=store,
                closing_delay_ms=closing,
                inclusive_end=inclusive,
                time_limit_ms=suppressed.time_limit_ms,
                max_records=suppressed.max_records,
                max_bytes=suppressed.max_bytes,
                emits_early_when_full=suppressed.time_limit_ms is not None,
            ),
            [self.node],
            named=given is not None,
        )
        return self._with_rows(node, self.key, self.value, None)

    # -- joins -------------------------------------------------------------------------------------------

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

        >>> planes.join(engines, lambda plane, engine: {**plane, **engine})
        >>> flights.join(planes, lambda flight, plane: (flight, plane), foreign_key=col("tail"))
        """
        from suiro.streams.dsl.joins import join_tables

        return join_tables(
            "inner", self, other, joiner, foreign_key, value=value, materialized=materialized, name=name
        )

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

        >>> planes.left_join(engines, lambda plane, engine: {**plane, "engine": engine})
        """
        from suiro.streams.dsl.joins import join_tables

        return join_tables(
            "left", self, other, joiner, foreign_key, value=value, materialized=materialized, name=name
        )

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

        >>> planned.outer_join(flown, lambda plan, flight: (plan, flight))
        """
        from suiro.streams.dsl.joins import join_tables

        return join_tables(
            "outer", self, other, joiner, None, value=value, materialized=materialized, name=name
        )

    # -- inside ------------------------------------------------------------------------------------------

    def _filter(
        self, predicate: Function, negated: bool, materialized: Materialized | None, name: Name
    ) -> KTable:
        graph = self.graph
        operator = TableFilter(
            predicate=predicate,
            negated=negated,
            sends_old=graph.send_old(self.node, at_any_price=False),
            of_versions=graph.is_versioned(self.node),
        )
        node = graph.names.processor("KTABLE-FILTER-", name)
        graph.add(node, operator, [self.node], named=name is not None)
        return self._with_rows(node, self.key, self.value, materialized)

    def _with_rows(
        self, node: str, key: Serde | None, value: Serde | None, materialized: Materialized | None
    ) -> KTable:
        """A table made of another one. Rows that a user did not name need no changelog: they can be made again."""
        stored = materialized or Materialized()
        key, value = stored.key or key, stored.value or value
        spec = table_store(self.graph, materialized, key, value)
        if spec is None:
            self.graph.reserve_rows(node, f"{node}-store", key=key, value=value, logged=False)
        else:
            self.graph.replace(node, store=spec.name)
        return KTable(self.graph, node, key=key, value=value)


class GlobalKTable:
    """A table of which every task has all rows. A stream joins it by any key; nothing else can be done with it."""

    __slots__ = ("graph", "key", "node", "store_name", "value")

    def __init__(
        self, graph: Graph, node: str, store_name: str, *, key: Serde | None, value: Serde | None
    ) -> None:
        """Made by `StreamsBuilder.global_table`."""
        self.graph = graph
        self.node = node
        self.store_name = store_name
        self.key = key
        self.value = value


def table_store(
    graph: Graph, materialized: Materialized | None, key: Serde | None, value: Serde | None
) -> StoreSpec | None:
    """Adds the store that a user named; None if there is none."""
    if materialized is None or materialized.name is None:
        return None
    if materialized.retention_ms is not None:
        raise TopologyError(
            f"store {materialized.name} has a retention, but holds no windows; leave it out, rows stay until they are "
            "deleted"
        )
    spec = StoreSpec(
        name=materialized.name,
        kind="key-value" if materialized.history_ms is None else "versioned",
        key=known(materialized.key or key),
        value=known(materialized.value or value),
        retention_ms=materialized.history_ms,
        logged=materialized.logged,
        named_by_user=True,
    )
    graph.add_store(spec)
    return spec


def _closing(graph: Graph, node: str) -> tuple[int, bool]:
    """How long after their end the windows above a table close, the longest of all; and if their ends are inclusive."""
    found: list[tuple[int, bool]] = []
    waiting = [node]
    while waiting:
        above = graph.nodes[waiting.pop()]
        match above.operator:
            case TimeWindowAggregate(windows=windows):
                found.append((windows.closing_delay_ms, False))
            case SlidingAggregate(windows=sliding):
                found.append((sliding.closing_delay_ms, True))
            case SessionAggregate(windows=sessions):
                found.append((sessions.closing_delay_ms, True))
            case _:
                waiting.extend(above.parents)
    if not found:
        raise TopologyError(
            f"suppress waits for windows of {node} to close, but it has none; use windowed_by() above, or "
            "Suppressed.until_time_limit(...)"
        )
    return max(found)
