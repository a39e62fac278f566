"""Topologies of joins put together by hand, and a run of them that may lose its memory between any two records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suiro.streams import serdes
from suiro.streams.interpreter import Interpreter
from suiro.streams.operators.context import TaskSettings
from suiro.streams.operators.foreign_key_join import ResponseSerde, SubscriptionSerde, response_partition
from suiro.streams.records import Origin, Record
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES, Task
from suiro.streams.topology.nodes import (
    ForeignKeyResolve,
    ForeignKeyRespond,
    ForeignKeySubscribe,
    GlobalTableSource,
    JoinType,
    Node,
    Operator,
    Repartition,
    Sink,
    Source,
    StoreSpec,
    StreamGlobalTableJoin,
    StreamStreamJoin,
    StreamTableJoin,
    TableSource,
    TableTableJoin,
    ToStream,
)
from suiro.streams.topology.topology import Topology
from suiro.streams.windows import JoinWindows

JSON = serdes.json
Joiner = Callable[[Any, Any], Any]
Row = tuple[Any, Any, int]  # key, value, timestamp


def pair(left: Any, right: Any) -> str:
    return f"{_text(left)}+{_text(right)}"


def _text(value: Any) -> str:
    return "null" if value is None else str(value)


class Plan:
    """Nodes and stores by name. Every method gives the name of the node it added."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._stores: list[StoreSpec] = []

    def topology(self) -> Topology:
        return Topology(tuple(self._nodes), tuple(self._stores))

    def add(self, name: str, operator: Operator, *parents: str) -> str:
        if all(node.name != name for node in self._nodes):
            self._nodes.append(Node(name=name, parents=parents, operator=operator))
        return name

    def store(self, name: str, kind: Any = "key-value", *, serde: Any = JSON, **options: Any) -> str:
        if all(spec.name != name for spec in self._stores):
            self._stores.append(StoreSpec(name=name, kind=kind, key=serde, value=serde, **options))
        return name

    def stream(self, topic: str) -> str:
        return self.add(topic, Source(topics=(topic,), key=JSON, value=JSON))

    def table(self, topic: str, *, history: int | None = None) -> str:
        """Its rows are in the store `<node>-rows`, as all tables' are here."""
        name = f"{topic}-table"
        if history is None:
            self.store(f"{name}-rows")
        else:
            self.store(f"{name}-rows", "versioned", retention_ms=history)
        return self.add(name, TableSource(store=f"{name}-rows", versioned=history is not None), self.stream(topic))

    def global_table(self, topic: str) -> str:
        self.store(f"{topic}-table-rows", "global")
        return self.add(f"{topic}-table", GlobalTableSource(store=f"{topic}-table-rows"), self.stream(topic))

    def to(self, topic: str, parent: str, *, table: bool) -> None:
        if table:
            parent = self.add(f"{parent}-stream", ToStream(), parent)
        self.add(f"{topic}-sink", Sink(topic=topic, key=JSON, value=JSON), parent)

    def stream_stream(self, join: JoinType, left: str, right: str, windows: JoinWindows, joiner: Joiner = pair) -> str:
        retention = windows.retention_ms
        return self.add(
            "join",
            StreamStreamJoin(
                join=join,
                joiner=joiner,
                windows=windows,
                left_store=self.store("join-this", "stream-join", retention_ms=retention),
                right_store=self.store("join-other", "stream-join", retention_ms=retention),
                outer_store=None if join == "inner" else self.store("join-unmatched", "buffer"),
            ),
            left,
            right,
        )

    def stream_table(
        self,
        join: JoinType,
        stream: str,
        table: str,
        *,
        versioned: bool = False,
        grace: int | None = None,
        joiner: Joiner = pair,
    ) -> str:
        operator = StreamTableJoin(
            join=join,
            joiner=joiner,
            table_store=f"{table}-rows",
            versioned=versioned,
            grace_ms=grace,
            buffer_store=None if grace is None else self.store("join-buffer", "buffer"),
        )
        return self.add("join", operator, stream, table)

    def stream_global(self, join: JoinType, stream: str, table: str, mapper: Joiner, joiner: Joiner = pair) -> str:
        operator = StreamGlobalTableJoin(join=join, key_mapper=mapper, joiner=joiner, table_store=f"{table}-rows")
        return self.add("join", operator, stream)

    def table_table(
        self,
        join: JoinType,
        left: str,
        right: str,
        *,
        joiner: Joiner = pair,
        left_versioned: bool = False,
        right_versioned: bool = False,
        named: bool = False,
        serde: Any = JSON,
    ) -> str:
        """`serde`: of the result's rows."""
        name = f"{left}-{join}-{right}"
        operator = TableTableJoin(
            sends_old=True,
            join=join,
            joiner=joiner,
            left_store=f"{left}-rows",
            right_store=f"{right}-rows",
            left_versioned=left_versioned,
            right_versioned=right_versioned,
            store=self.store(f"{name}-rows", serde=serde, named_by_user=named),
        )
        return self.add(name, operator, left, right)

    def foreign_key(
        self,
        join: JoinType,
        left: str,
        right: str,
        foreign_key: Callable[[Any], Any],
        joiner: Joiner = pair,
    ) -> str:
        subscribe = self.add(
            "subscribe",
            ForeignKeySubscribe(join=join, foreign_key=foreign_key, left_key=JSON, left_value=JSON, foreign=JSON),
            left,
        )
        there = self.add(
            "registration",
            Repartition(
                topic="registration",
                key=JSON,
                value=SubscriptionSerde(JSON),
                keeps_null_keys=True,
            ),
            subscribe,
        )
        respond = self.add(
            "respond",
            ForeignKeyRespond(
                join=join,
                subscription_store=self.store("subscriptions", serde=serdes.bytes),
                right_store=f"{right}-rows",
                left_key=JSON,
                foreign=JSON,
            ),
            there,
            right,
        )
        back = self.add(
            "response",
            Repartition(
                topic="response",
                key=JSON,
                value=ResponseSerde(JSON),
                partitioner=response_partition,
            ),
            respond,
        )
        return self.add(
            "join",
            ForeignKeyResolve(
                join=join,
                joiner=joiner,
                left_store=f"{left}-rows",
                left_key=JSON,
                left_value=JSON,
                asked_store=self.store("asked", serde=serdes.bytes),
                store=self.store("join-rows"),
            ),
            back,
        )


class Run:
    """`forgets`: after every record the run starts anew from what its maps said had changed."""

    def __init__(self, topology: Topology, *, forgets: bool = False) -> None:
        self._topology = topology
        self._forgets = forgets
        self._kept: dict[tuple[int, str], OrderedMap] = {}
        self._interpreter = Interpreter(topology)

    def send(self, topic: str, key: Any, value: Any, timestamp: int) -> list[Row]:
        self._interpreter.pipe(
            topic,
            timestamp,
            None if key is None else JSON.serialize(topic, key),
            None if value is None else JSON.serialize(topic, value),
        )
        if self._forgets:
            self._forget()
        return self.read()

    def read(self) -> list[Row]:
        outputs = self._interpreter.outputs
        found = [(item.record.key, item.record.value, item.record.timestamp) for item in outputs]
        outputs.clear()
        return found

    def store(self, name: str) -> Any:
        return self._interpreter.store(name)

    def maps(self) -> dict[str, OrderedMap]:
        return {name: rows for (_, name), rows in self._interpreter.maps.items()}

    def end_of_batch(self) -> None:
        self._interpreter.end_of_batch()

    @property
    def dropped(self) -> int:
        return self._interpreter.dropped_total

    def _forget(self) -> None:
        before = self._interpreter
        before.end_of_batch()
        for place, rows in before.maps.items():
            self._kept.setdefault(place, OrderedMap()).restore(rows.take_changes().items())
        maps = {place: OrderedMap(rows.range()) for place, rows in self._kept.items()}
        self._interpreter = Interpreter(self._topology, maps=maps)
        self._interpreter.outputs.extend(before.outputs)


class Outputs:
    """Keeps all that leaves a task."""

    def __init__(self) -> None:
        self.found: list[Record] = []

    def emit(self, node: Node, record: Record) -> None:
        self.found.append(record)

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None:
        raise AssertionError


class Running:
    """The task of a join, its maps and what it gives."""

    def __init__(self, plan: Plan) -> None:
        topology = plan.topology()
        (sub,) = topology.sub_topologies
        self.maps = {name: OrderedMap() for name in (*(spec.name for spec in sub.stores), TIMES)}
        self.outputs = Outputs()
        self.task = Task(topology, sub, partition=0, maps=self.maps, outputs=self.outputs, settings=TaskSettings())

    def send(self, topic: str, key: str, value: str, timestamp: int, carried: int = -1) -> list[tuple[Any, Any, int]]:
        self.task.process(topic, Record(key, value, timestamp), None, carried)
        return self.read()

    def read(self) -> list[tuple[Any, Any, int]]:
        found, self.outputs.found = self.outputs.found, []
        return [(record.key, record.value, record.timestamp) for record in found]
