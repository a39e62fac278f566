"""The graph that a builder, its streams and its tables write to: nodes and stores by name, and the name counter.

Parents are added before their children. An operator is replaced in place when its table turns out to need a store:
only tables that are named, joined, grouped or suppressed keep their rows, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from suiro.streams import serdes
from suiro.streams.dsl.named import Name, Names, is_generated, legal_name
from suiro.streams.errors import TopologyError
from suiro.streams.serdes import Serde
from suiro.streams.topology import nodes


def known(serde: Serde | None) -> Serde:
    """Returns the serde of a store or an internal topic: `tagged` if none is known."""
    return serdes.tagged if serde is None else serde


def common_serde(serdes_: Iterable[Serde | None]) -> Serde | None:
    """Returns the serde of keys, or values, that meet: the one that is known. None if none is known, or if they
    differ."""
    given = [serde for serde in serdes_ if serde is not None]
    sure = [serde for serde in given if getattr(serde, "inner", serde) != serdes.tagged]
    if not sure:
        return given[0] if given else None
    return sure[0] if all(serde == sure[0] for serde in sure) else None


def check_one_builder(one: Any, other: Any, operation: str) -> None:
    """Raises TopologyError if two streams or tables come from different builders."""
    if other.graph is not one.graph:
        raise TopologyError(
            f"{operation} of {one.node} and {other.node}, which come from different builders; build both with one "
            "StreamsBuilder"
        )


class Graph:
    __slots__ = ("_reserved", "names", "nodes", "stores")

    def __init__(self) -> None:
        self.nodes: dict[str, nodes.Node] = {}
        self.stores: dict[str, nodes.StoreSpec] = {}
        self.names = Names()
        self._reserved: dict[str, nodes.StoreSpec] = {}

    def add(
        self,
        name: str,
        operator: nodes.Operator,
        parents: Sequence[str] = (),
        *,
        named: bool = False,
        aliases: Sequence[str] = (),
    ) -> str:
        """Adds a node and returns its name."""
        if name in self.nodes:
            raise TopologyError(f"two operators have the name {name!r}; give each its own")
        self.nodes[name] = nodes.Node(
            name=legal_name(name),
            parents=tuple(parents),
            operator=operator,
            named_by_user=named,
            aliases=tuple(aliases),
        )
        return name

    def add_processor(self, prefix: str, name: Name, operator: nodes.Operator, parents: Sequence[str]) -> str:
        """Adds a node under the user's name or a generated one, and returns the name."""
        return self.add(self.names.processor(prefix, name), operator, parents, named=name is not None)

    def replace(self, name: str, **fields: Any) -> None:
        """Replaces fields of a node's operator."""
        node = self.nodes[name]
        self.nodes[name] = replace(node, operator=replace(node.operator, **fields))

    def add_store(self, name: str, kind: nodes.StoreKind, key: Serde | None, value: Serde | None, **more: Any) -> str:
        """Adds a store and returns its name. `more`: further fields of its `StoreSpec`."""
        return self._add_store(nodes.StoreSpec(name=name, kind=kind, key=known(key), value=known(value), **more))

    def _add_store(self, spec: nodes.StoreSpec) -> str:
        if spec.name in self.stores:
            raise TopologyError(f"two stores have the name {spec.name!r}; give each its own")
        legal_name(spec.name)
        self.stores[spec.name] = spec
        return spec.name

    # Repartitions

    def repartition(
        self,
        parent: str,
        base: str,
        *,
        key: Serde | None,
        value: Serde | None,
        partitions: int | None = None,
        partitioner: Callable[..., int | None] | None = None,
        asked_for: bool = False,
        named: bool = False,
    ) -> str:
        """Adds a repartition behind a stream. It takes three numbers, because Kafka Streams has a sink, a filter of
        null keys and a source.

        Joins of one stream that are not named share a repartition, and take its numbers nevertheless.
        """
        topic = f"{base}-repartition"
        sink, nulls, source = (self.names.generate(f"KSTREAM-{what}-") for what in ("SINK", "FILTER", "SOURCE"))
        if not is_generated(base):
            sink, nulls, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
        operator = nodes.Repartition(
            topic=topic,
            key=known(key),
            value=known(value),
            partitions=partitions,
            partitioner=partitioner,
            asked_for=asked_for,
        )
        there = self.nodes.get(topic)
        # One that the user asked for by this name may have other partitions than the joins need.
        if there is not None and not (named or there.named_by_user) and there.parents == (parent,):
            assert isinstance(there.operator, nodes.Repartition)
            key, value = (
                common_serde((there.operator.key, operator.key)),
                common_serde((there.operator.value, operator.value)),
            )
            if key is not None and value is not None:
                self.replace(topic, key=key, value=value)
                return topic
        return self.add(topic, operator, [parent], named=named, aliases=(nulls, sink, source))

    # Tables

    def reserve_rows(self, node: str, store: str, *, key: Serde | None, value: Serde | None, logged: bool) -> None:
        """Reserves the store that a table gets when something asks for its rows."""
        self._reserved[node] = nodes.StoreSpec(
            name=store, kind="key-value", key=known(key), value=known(value), logged=logged
        )

    def store_of(self, node: str) -> str | None:
        """Returns the store that holds a table's rows; None if they are not kept."""
        operator = self.nodes[node].operator
        return None if isinstance(operator, nodes.Suppress) else getattr(operator, "store", None)

    def is_versioned(self, node: str) -> bool:
        """Tells whether a table can be asked for its rows as of a time."""
        store = self.store_of(node)
        if store is not None:
            return self.stores[store].kind == "versioned"
        operator = self.nodes[node].operator
        return isinstance(operator, nodes.TableFilter | nodes.TableMapValues) and self.is_versioned(self._parent(node))

    def send_old(self, node: str, *, at_any_price: bool) -> bool:
        """Makes the table's changes carry the row that they replace, if it is known. Returns whether they do.

        `at_any_price`: rows that are not kept yet are kept for this. As Kafka Streams' `enableSendingOldValues`: a
        filter that knows old rows leaves out tombstones, so this call decides how many updates there are.
        """
        match self.nodes[node].operator:
            case nodes.TableSource(store=store) | nodes.ForeignKeyResolve(store=store):
                if store is None and at_any_price:
                    self.ensure_rows(node)
                return store is not None or at_any_price
            case nodes.TableFilter(sends_old=sends_old) | nodes.TableMapValues(sends_old=sends_old):
                if self._is_named(node) or self.send_old(self._parent(node), at_any_price=at_any_price):
                    sends_old = True
                    self.replace(node, sends_old=True)
                return sends_old
            case nodes.TableTableJoin():
                for side in self.nodes[node].parents:
                    self.send_old(side, at_any_price=True)
                self.replace(node, sends_old=True)
            case nodes.Suppress():
                self.send_old(self._parent(node), at_any_price=at_any_price)
        return True

    def ensure_rows(self, node: str) -> tuple[str, str]:
        """Returns a table that keeps the rows, and its store: the table itself, or a copy if it cannot keep them."""
        store = self.store_of(node)
        if store is not None:
            return node, store
        spec = self._reserved[node]
        if isinstance(self.nodes[node].operator, nodes.Suppress):
            copy = f"{node}-rows"
            if copy not in self.nodes:
                self.add(copy, nodes.TableMapValues(mapper=_same, sends_old=True, store=f"{copy}-store"), [node])
                self._add_store(replace(spec, name=f"{copy}-store"))
            return copy, f"{copy}-store"
        if self.is_versioned(node):
            spec = replace(spec, kind="versioned", retention_ms=self._history_of(node))
        self._add_store(spec)
        self.replace(node, store=spec.name)
        return node, spec.name

    def ensure_source_rows(self, node: str) -> None:
        """Makes the table above unnamed filters and mappers keep its rows, because Kafka Streams takes their rows from
        there."""
        while self.store_of(node) is None:
            match self.nodes[node].operator:
                case nodes.TableFilter() | nodes.TableMapValues():
                    node = self._parent(node)
                case nodes.TableSource() | nodes.ForeignKeyResolve():
                    self.ensure_rows(node)
                case _:
                    return

    def _is_named(self, node: str) -> bool:
        """Tells whether the table's rows are in a store that a user named."""
        store = self.store_of(node)
        return store is not None and self.stores[store].named_by_user

    def _history_of(self, node: str) -> int | None:
        store = self.store_of(node)
        return self._history_of(self._parent(node)) if store is None else self.stores[store].retention_ms

    def _parent(self, node: str) -> str:
        return self.nodes[node].parents[0]


def _same(value: Any) -> Any:
    return value
