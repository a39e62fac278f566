"""One task: a sub-topology with its stores, fed one record at a time. Both runners run tasks.

A task goes depth first, as in Kafka Streams: a record is at the end of every path below an operator before that
operator goes on. Records that leave through a `Sink` or `Repartition` go to `Outputs`. A task does no I/O. Its runner
gives it the ordered maps of its stores, and keeps the changes of the maps after a batch (`end_of_batch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

from msgspec.structs import replace

from suiro.errors import ConfigError, RegistryError
from suiro.streams.calls import Caller
from suiro.streams.errors import ProcessingError, described
from suiro.streams.operators import Rule, rule_of
from suiro.streams.operators.context import Context, TaskSettings
from suiro.streams.punctuation import Punctuators
from suiro.streams.records import Origin, Record
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.times import UNKNOWN, OperatorTime, keep_number, numbers_of
from suiro.streams.topology import nodes
from suiro.streams.topology.topology import SubTopology, Topology, stores_of
from suiro.streams.windows import EmitStrategy

TIMES = "$times"
"""The name of the map that holds operator times. It is kept like those of the stores."""

_PUNCTUATORS, _NUMBERS = b"$punctuators\0", b"$numbers\0"

_WINDOWED_TABLES = nodes.WindowedAggregate | nodes.TableFilter | nodes.TableMapValues | nodes.TableTableJoin
"""Operators whose results `suppress` may hold back until their windows are closed."""

Processing = Callable[[Record, int], None]
Around = Callable[[nodes.Node, Processing], Processing]
"""Wraps the function by which a node processes a record, for observers, see `suiro.lineage`."""


class Outputs(Protocol):
    """Takes the records that leave a task. `node.operator` is a `Sink` or a `Repartition`."""

    def emit(self, node: nodes.Node, record: Record) -> None: ...
    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None: ...


class Task:
    def __init__(
        self,
        topology: Topology,
        sub_topology: SubTopology,
        *,
        partition: int,
        maps: Mapping[str, OrderedMap],
        outputs: Outputs,
        settings: TaskSettings,
        wall_clock_time: int = 0,
        global_stores: Mapping[str, Any] | None = None,
        opened_stores: dict[str, Any] | None = None,
        around: Around | None = None,
        caller: Caller | None = None,
    ) -> None:
        """`maps`: one for each of the sub-topology's stores, and one named `TIMES`, as the last batch left them.
        `opened_stores`: the stores that an earlier task opened over these maps; missing ones are added. `caller`: calls
        async functions, if the sub-topology has any."""
        self.sub_topology = sub_topology
        self.partition = partition
        self.settings = settings
        self.origin: Origin | None = None
        self.dropped: dict[str, int] = {}
        self.wall_clock_time = wall_clock_time
        self.punctuators = Punctuators(self._punctuator_failed)
        opened = {} if opened_stores is None else opened_stores
        for spec in sub_topology.stores:
            if spec.name not in opened:
                opened[spec.name] = open_store(spec, maps[spec.name])
        self.stores: dict[str, Any] = {**(global_stores or {}), **opened}
        self._outputs = outputs
        self._around = around
        self._caller = caller
        self._times_map = maps[TIMES]
        self._task_time = OperatorTime()
        self.is_settled = False
        """Set by the runner before the end of a batch: no records are on their way to this task from other tasks."""
        self._restore_times()
        self._rules: dict[str, Rule] = {}
        # Children first, so that a rule finds its way on when it is made.
        for node in reversed(sub_topology.nodes):
            self._rules[node.name] = self._make(topology, node)
        self._entries = {
            node.name: in_turn(self._children_of(topology, node).values())
            if isinstance(node.operator, nodes.Repartition)
            else self._step(node, 0)
            for node in sub_topology.inputs
        }
        self._inputs_of = _inputs_of(sub_topology)
        by_records = _held_up(sub_topology, settings) | _limited(sub_topology)
        self._followers = {name: time for name, time in self.times.items() if name not in by_records}
        self._passed: Mapping[str, int] = {}
        self._gets_waiting = _below(sub_topology, {node.name for node in sub_topology.nodes if _keeps(node)})
        for node in sub_topology.nodes:
            init = getattr(self._rules[node.name], "init", None)
            if init is not None:
                init()
        self.punctuators.is_starting = False

    def process(self, input_name: str, record: Record, origin: Origin | None, carried: int = UNKNOWN) -> None:
        """Feeds a record into one of the sub-topology's inputs and runs it to the end of every path.

        `carried`: how far its partition upstream had come at this record, also by records in other tasks.
        """
        self.origin = origin
        if self._task_time.carried != carried:
            self.carry(carried)
        self._task_time.observe(max(record.timestamp, carried))
        self._entries[input_name](record)
        self.origin = None
        if self.punctuators:
            self.punctuators.stream_time_is(self.stream_time)

    def pass_to(self, times: Mapping[str, int]) -> None:
        """Says for each input that all later records carry this time or a later one. An operator gets the time at the
        end of the batch, after the operators above it have released what waited for it."""
        self._passed = times
        self._task_time.pass_to(max(times.values(), default=UNKNOWN))

    def carry(self, carried: int) -> None:
        """Sets how far the partition upstream had come at the current record."""
        for time in self._followers.values():
            time.carried = carried

    def advance_wall_clock(self, now_ms: int) -> None:
        self.wall_clock_time = now_ms
        self.punctuators.wall_clock_time_is(now_ms)

    def end_of_batch(self) -> None:
        """Releases what waited for the end of the batch, parents first, and writes the operators' times to their
        map."""
        for node in self.sub_topology.nodes:
            time = self._followers.get(node.name)
            if time is not None:
                passed = (self._passed.get(each, UNKNOWN) for each in self._inputs_of[node.name])
                time.pass_to(max(passed, default=UNKNOWN))
            finish = getattr(self._rules[node.name], "end_of_batch", None)
            if finish is not None:
                finish()
                self._finished()
        for name, time in self.times.items():
            time.keep(self._times_map, name)
        for name, due in self.punctuators.state().items():
            keep_number(self._times_map, _PUNCTUATORS + name.encode(), due)
        for name, number in self._numbers.items():
            keep_number(self._times_map, _NUMBERS + name.encode(), number)

    def _finished(self) -> None:
        """Called when an operator has released what waited."""

    def drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def next_number(self, node: str) -> int:
        number = self._numbers[node] = self._numbers.get(node, 0) + 1
        return number

    @property
    def caller(self) -> Caller:
        assert self._caller is not None, "the runner gave no caller of async functions"
        return self._caller

    @property
    def stream_time(self) -> int:
        """The latest timestamp of the records of this task, or the time that they carried if that is later."""
        return self._task_time.current

    def close(self) -> None:
        """Closes every processor, as Kafka Streams does. Raises the error of one that fails after that."""
        with ExitStack() as closing:
            for rule in reversed(self._rules.values()):
                if close := getattr(rule, "close", None):
                    closing.callback(close)

    def _make(self, topology: Topology, node: nodes.Node) -> Rule:
        if isinstance(node.operator, nodes.Sink | nodes.Repartition):
            return _Leave(self._outputs, node)
        steps = self._children_of(topology, node)
        context = Context(self, node, self.times[node.name], in_turn(steps.values()), steps)
        missing = [name for name in stores_of(node) if name not in self.stores]
        assert not missing, f"{node.name} has no store {missing}"
        return rule_of(node.operator, context)

    def _children_of(self, topology: Topology, node: nodes.Node) -> dict[str, Callable[[Record], None]]:
        found: dict[str, list[Callable[[Record], None]]] = {}
        for child, port in topology.children(node.name):
            if child.name in self._rules:
                # A join with itself has one parent on both its ports.
                found.setdefault(child.name, []).append(self._step(child, port))
        return {name: in_turn(steps) for name, steps in found.items()}

    def _step(self, node: nodes.Node, port: int) -> Callable[[Record], None]:
        """Returns the entry of a node by one of its ports. A record that fails in the node stops the task there, or is
        left out."""
        process: Processing = self._rules[node.name].process
        if self._around is not None:
            process = self._around(node, process)

        def step(record: Record) -> None:
            try:
                process(record, port)
            except ProcessingError:
                raise  # a node further down said it already
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._failed(node, record, error)

        return step

    def attempt(self, node: nodes.Node, record: Record, step: Callable[[Record], None]) -> None:
        try:
            step(record)
        except ProcessingError:
            raise
        except Exception as error:  # noqa: BLE001 - a user's function raises anything
            # Where a waiting record came from is not known any more; it is not where the one in hand came from.
            origin, self.origin = self.origin, None
            self._failed(node, record, error)
            self.origin = origin

    def _failed(self, node: nodes.Node, record: Record, error: Exception) -> None:
        policy, place = self.policy_for(error), self.origin
        if place is not None and node.name in self._gets_waiting:
            # The record in hand may be the one that let this one go. It must not be taken for its source.
            place = replace(place, offset=-1)
        if policy == "skip":
            self.drop("processing error")
        elif policy.startswith("dead-letter:"):
            self.drop("processing error")
            self._outputs.dead_letter(policy.removeprefix("dead-letter:"), record, place, error)
        else:
            where = "of a punctuation or earlier"
            if place is not None:
                at = f"{place.topic}-{place.partition}"
                where = f"of {at} offset {place.offset}" if place.offset >= 0 else f"that came by {at}"
            raise ProcessingError(
                f"operator {node.name} failed on a record {where}, key {record.key!r}, timestamp "
                f"{record.timestamp}: {described(error)}. Fix the function, or set "
                'on_processing_error to "skip" or "dead-letter:<topic>"'
            ) from error

    def _punctuator_failed(self, node: str, time_ms: int, error: Exception) -> None:
        """A punctuator has no record that could be a dead letter."""
        if self.policy_for(error) != "fail":
            self.drop("processing error")
            return
        raise ProcessingError(
            f"a punctuator of {node} failed at {time_ms}: {described(error)}. Fix the function, or "
            'set on_processing_error to "skip" or "dead-letter:<topic>"'
        ) from error

    def policy_for(self, error: Exception) -> str:
        """What to do with the record that caused the error: as `on_processing_error` of the settings."""
        if isinstance(error, RegistryError | ConfigError):
            return "fail"  # nothing is wrong with the record: the registry is down, refuses, or was not named
        return self.settings.on_processing_error

    def _restore_times(self) -> None:
        self.times = {"": self._task_time, **{node.name: OperatorTime() for node in self.sub_topology.nodes}}
        for name, time in self.times.items():
            time.restore(self._times_map, name)
        self.punctuators.restore({name.decode(): due for name, due in numbers_of(self._times_map, _PUNCTUATORS)})
        self._numbers = {name.decode(): number for name, number in numbers_of(self._times_map, _NUMBERS)}


class _Leave:
    """The rule of a sink, and of the upper end of a repartition."""

    def __init__(self, outputs: Outputs, node: nodes.Node) -> None:
        self._emit = outputs.emit
        self._node = node

    def process(self, record: Record, port: int) -> None:
        self._emit(self._node, record)


def in_turn(steps: Iterable[Callable[[Record], None]]) -> Callable[[Record], None]:
    """Returns a function that takes all steps, one after the other."""
    found = list(steps)
    if len(found) == 1:
        return found[0]

    def each(record: Record) -> None:
        for step in found:
            step(record)

    return each


def _inputs_of(sub: SubTopology) -> dict[str, set[str]]:
    """Returns for each operator the inputs whose records advance its time. The records of a table do not advance the
    time of a stream that joins it."""
    found = {node.name: {node.name} for node in sub.inputs}
    for node in sub.nodes:
        parents = node.parents[:1] if isinstance(node.operator, nodes.StreamTableJoin) else node.parents
        above: set[str] = set().union(*(found.get(parent, set()) for parent in parents))
        found[node.name] = found.get(node.name, set()) | above
    return found


def _held_up(sub: SubTopology, settings: TaskSettings) -> set[str]:
    """Returns the operators below those that keep records until time has passed, or that may leave records out. Their
    records are behind the input partition, or not all of it, so only these records advance their time."""
    # Below these, other records may have null values than in the input partition.
    mapped = _below(sub, _of(sub, nodes.Map | nodes.MapValues | nodes.AsyncCall | nodes.MapBatches))
    drops = _of(sub, nodes.SlidingAggregate | nodes.StreamTableJoin)
    if not _of(sub, nodes.COUNTING_NULLS):
        drops &= mapped
    # Where null keys come over a repartition and count for one operator, they count for the input partition.
    if _of(sub, nodes.COUNTING_NULL_KEYS) and any(
        isinstance(node.operator, nodes.Repartition) and node.operator.keeps_null_keys for node in sub.inputs
    ):
        drops |= _of(sub, nodes.DROPPING_NULL_KEYS)
    holding = {node.name for node in sub.nodes if _holds_up(node)}
    if settings.on_processing_error != "fail":
        # Any function may fail, and then the record is left out. It counts for the windows whose function failed. Up to
        # `ToStream`, only a `suppress` is below them, and it makes no record late that they accept.
        holding |= {node.name for node in sub.nodes} - _of(sub, nodes.Source | nodes.Merge | _WINDOWED_TABLES)
    return drops | _below(sub, drops | holding)


def _of(sub: SubTopology, kinds: Any) -> set[str]:
    return {node.name for node in sub.nodes if isinstance(node.operator, kinds)}


def _below(sub: SubTopology, names: set[str]) -> set[str]:
    found: set[str] = set()
    for node in sub.nodes:
        if not (names | found).isdisjoint(node.parents):
            found.add(node.name)
    return found


def _limited(sub: SubTopology) -> set[str]:
    """Returns the operators that hold updates back for a time, whatever they are. Which one of a key's updates leaves
    depends on when they look at time, so only their own records advance it: a batch ends anywhere."""
    return {
        node.name
        for node in sub.nodes
        if isinstance(node.operator, nodes.Suppress) and node.operator.time_limit_ms is not None
    }


def _holds_up(node: nodes.Node) -> bool:
    match node.operator:
        case nodes.StreamStreamJoin() | nodes.StreamTableJoin() | nodes.StreamGlobalTableJoin() | nodes.Process():
            return True
        case nodes.Filter() | nodes.Branch() | nodes.FlatMap() | nodes.FlatMapValues() | nodes.StreamAggregate():
            return True
        case nodes.AsyncCall(kind=kind):
            return kind not in ("map", "map_values", "peek")
    return _keeps(node)


def _keeps(node: nodes.Node) -> bool:
    """Whether the operator keeps records until time has passed."""
    match operator := node.operator:
        case nodes.StreamStreamJoin():
            return operator.join != "inner"
        case nodes.StreamTableJoin():
            return operator.buffer_store is not None
    if isinstance(operator, nodes.WindowedAggregate):
        return operator.emit is EmitStrategy.ON_WINDOW_CLOSE
    return isinstance(operator, nodes.Suppress)
