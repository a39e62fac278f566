"""A few operators in a row, run by a task of their own, without the DSL: sources `in`, `in1`, ... and a sink."""

from __future__ import annotations

from typing import Any

from suiro.streams import serdes
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Origin, Record, Windowed
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES, Task
from suiro.streams.topology.nodes import (
    Aggregation,
    Node,
    Operator,
    SessionAggregate,
    Sink,
    SlidingAggregate,
    Source,
    StoreSpec,
    TableTableJoin,
    TimeWindowAggregate,
)
from suiro.streams.topology.topology import Topology
from suiro.streams.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows

COUNT = Aggregation(kind="count")
REDUCE = Aggregation(kind="reduce", aggregators=(lambda aggregate, value: f"{aggregate}+{value}",))
AGGREGATE = Aggregation(
    kind="aggregate",
    initializer=lambda: "0",
    aggregators=(lambda key, value, aggregate: f"{aggregate}+{value}",),
)


def store(kind: Any, name: str = "store", **settings: Any) -> StoreSpec:
    return StoreSpec(name=name, kind=kind, key=serdes.string, value=serdes.tagged, **settings)


class Operators:
    """`ports` sources lead into the first operator; what the last one gives is in `out`, with its headers."""

    def __init__(self, operators: list[Operator], stores: list[StoreSpec], *, ports: int = 1) -> None:
        source = Source(topics=("topic",), key=serdes.string, value=serdes.tagged)
        inputs = tuple("in" if port == 0 else f"in{port}" for port in range(ports))
        nodes = [Node(name=name, parents=(), operator=source) for name in inputs]
        parents = inputs
        for number, operator in enumerate(operators):
            nodes.append(Node(name=f"operator-{number}", parents=parents, operator=operator))
            parents = (f"operator-{number}",)
        nodes.append(Node(name="out", parents=parents, operator=Sink(topic="out")))
        self._start(Topology(nodes=tuple(nodes), stores=tuple(stores)))

    @classmethod
    def _of(cls, topology: Topology) -> Operators:
        found = cls.__new__(cls)
        found._start(topology)
        return found

    def _start(self, topology: Topology) -> None:
        self.topology = topology
        names = (TIMES, *(spec.name for spec in topology.stores))
        self.saved: dict[str, dict[bytes, bytes]] = {name: {} for name in names}
        self.dropped = 0
        self.out: list[Record] = []
        self._load()

    @classmethod
    def joined(cls, left: tuple[StoreSpec, Operator], right: tuple[StoreSpec, Operator]) -> Operators:
        """Two tables, of ports 0 and 1, and their inner join; its values are pairs."""
        source = Source(topics=("topic",), key=serdes.string, value=serdes.tagged)
        join = TableTableJoin(
            join="inner",
            joiner=lambda left_value, right_value: (left_value, right_value),
            left_store=left[0].name,
            right_store=right[0].name,
        )
        nodes = (
            Node(name="in", parents=(), operator=source),
            Node(name="in1", parents=(), operator=source),
            Node(name="left", parents=("in",), operator=left[1]),
            Node(name="right", parents=("in1",), operator=right[1]),
            Node(name="join", parents=("left", "right"), operator=join),
            Node(name="out", parents=("join",), operator=Sink(topic="out")),
        )
        return cls._of(Topology(nodes=nodes, stores=(left[0], right[0])))

    def emit(self, node: Node, record: Record) -> None:
        self.out.append(record)

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None:
        raise NotImplementedError

    def send(
        self, key: Any, timestamp: int, value: Any = "v", *, port: int = 0, carried: int = -1, **more: Any
    ) -> list[tuple[Any, ...]]:
        """Gives what came out: (key, start, end, value, timestamp), or (key, value, timestamp) without windows."""
        before = len(self.out)
        name = "in" if port == 0 else f"in{port}"
        self.task.process(name, Record(key, value, timestamp, **more), None, carried)
        return [flat(record) for record in self.out[before:]]

    def drain(self) -> list[tuple[Any, ...]]:
        found = [flat(record) for record in self.out]
        self.out.clear()
        return found

    def reload(self) -> None:
        """Ends the batch, keeps what changed, and goes on in a new task made of what was kept."""
        self.task.end_of_batch()
        for name, rows in self.maps.items():
            for key, value in rows.take_changes().items():
                if value is None:
                    self.saved[name].pop(key, None)
                else:
                    self.saved[name][key] = value
        self.dropped += sum(self.task.dropped.values())
        self._load()

    def store(self, name: str = "store") -> Any:
        return self.task.stores[name]

    @property
    def late(self) -> int:
        return self.task.dropped.get("late", 0)

    @property
    def dropped_total(self) -> int:
        return self.dropped + sum(self.task.dropped.values())

    def _load(self) -> None:
        self.maps = {name: OrderedMap(rows.items()) for name, rows in self.saved.items()}
        self.task = Task(
            self.topology,
            self.topology.sub_topologies[0],
            partition=0,
            maps=self.maps,
            outputs=self,
            settings=TaskSettings(),
        )


def flat(record: Record) -> tuple[Any, ...]:
    key, value = record.key, getattr(record.value, "new", record.value)
    if isinstance(key, Windowed):
        return key.key, key.start, key.end, value, record.timestamp
    return key, value, record.timestamp


def windowed(
    windows: TimeWindows | SlidingWindows | SessionWindows,
    aggregation: Aggregation = COUNT,
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    *,
    merger: Any = None,
    ports: int = 1,
    retention_ms: int | None = None,
    then: tuple[list[Any], list[StoreSpec]] = ([], []),
) -> Operators:
    """An aggregate in windows, and the operators behind it."""
    operator: Any
    retention = windows.retention_ms if retention_ms is None else retention_ms
    match windows:
        case TimeWindows():
            spec = store("window", retention_ms=retention, window_size_ms=windows.size_ms)
            operator = TimeWindowAggregate(aggregation=aggregation, windows=windows, store="store", emit=emit)
        case SlidingWindows():
            spec = store("window", retention_ms=retention, window_size_ms=windows.difference_ms)
            operator = SlidingAggregate(aggregation=aggregation, windows=windows, store="store", emit=emit)
        case SessionWindows():
            spec = store("session", retention_ms=retention)
            operator = SessionAggregate(
                aggregation=aggregation, windows=windows, store="store", emit=emit, merger=merger
            )
    return Operators([operator, *then[0]], [spec, *then[1]], ports=ports)
