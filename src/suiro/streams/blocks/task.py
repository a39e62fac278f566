"""A task that runs a sub-topology over blocks, on Spark. Its results are those of `Task`.

All rows of a block go through one unit (`plan`) before the next unit gets them: through a step in one loop, through an
island record by record, by the rules. Rows that come to a unit by several ways, and records that leave for one topic,
are put in the order of the interpreter (`order`). `end_of_batch` works as in the interpreter: what one operator
releases has gone through all operators below before the next operator is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, cast

from suiro.errors import ConfigError, RegistryError
from suiro.streams.blocks.block import Block, merged, together
from suiro.streams.blocks.context import BlockContext
from suiro.streams.blocks.order import Domain, Key, Order
from suiro.streams.blocks.outputs import BlockOutputs, Parcel, merged_parcels
from suiro.streams.blocks.plan import BlockPlan, Edge
from suiro.streams.blocks.steps import step_of
from suiro.streams.calls import Caller
from suiro.streams.errors import ProcessingError, said
from suiro.streams.operators import Rule
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Headers, Origin, Record
from suiro.streams.stores import OrderedMap
from suiro.streams.task import Task, in_turn
from suiro.streams.times import UNKNOWN
from suiro.streams.topology.nodes import Node, Process, Repartition, Sink
from suiro.streams.topology.topology import SubTopology, Topology

_NO_RECORDS_FAULT = (RegistryError, ConfigError)
"""Errors that are not the fault of a record. They always fail the task."""

_LAST = 1 << 62
"""A number above those of all visits: what a record's time sets off comes after all that the record does."""


@dataclass(slots=True)
class Taken:
    """Records in the order in which the task takes them, as columns. `inputs`: the input of each record, or of all.
    `carried`: for each record, how far its partition upstream had come; None if that is not known. `letters`: dead
    letters, each with the number of records that were taken before it. `origin(row)`: where a record came from."""

    inputs: str | list[str]
    keys: list[Any]
    values: list[Any]
    timestamps: list[int]
    origin: Callable[[int], Origin]
    headers: Sequence[Headers] | None = None
    carried: list[int] | None = None
    letters: list[tuple[int, Parcel]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def times(self) -> Sequence[int]:
        """The stream time of each record."""
        return self.timestamps if self.carried is None else list(map(max, self.timestamps, self.carried))


class BlockTask(Task):
    def __init__(
        self,
        topology: Topology,
        sub_topology: SubTopology,
        plan: BlockPlan,
        *,
        partition: int,
        maps: Mapping[str, OrderedMap],
        outputs: BlockOutputs,
        settings: TaskSettings,
        wall_clock_time: int = 0,
        global_stores: Mapping[str, Any] | None = None,
        opened_stores: dict[str, Any] | None = None,
        caller: Caller | None = None,
    ) -> None:
        """`plan`: the result of `plan_of` for this sub-topology. The other parameters are those of `Task`."""
        self._plan = plan
        self._leaves = outputs
        self._topology = topology
        self._inbox: dict[int, list[tuple[Block, Edge]]] = {}
        self._parcels: dict[str, list[tuple[Parcel, Callable[[int], Key]]]] = {}
        self._exits: dict[int, list[_Exit]] = {index: [] for index in range(len(plan.units))}
        self._taken: Taken | None = None
        self._at: tuple[Block, int] | None = None  # the row in hand of an island, or one that failed
        self._moment: Key | None = None  # of what a record's time set off
        self._sequence = 0
        self._carried = UNKNOWN
        self._watched: list[Any] = []
        self.rows: dict[str, int] = {}
        """The number of records that came to each unit, by the node that they came to."""
        super().__init__(
            topology,
            sub_topology,
            partition=partition,
            maps=maps,
            outputs=self,
            settings=settings,
            wall_clock_time=wall_clock_time,
            global_stores=global_stores,
            opened_stores=opened_stores,
            caller=caller,
        )
        self._running: list[Callable[[list[tuple[Block, Edge]]], None]] = []
        self._punctuating: int | None = None
        for index, unit in enumerate(plan.units):
            nodes = [topology.node(name) for name in unit.nodes]
            run: Callable[[list[tuple[Block, Edge]]], None]
            if unit.is_island:
                ways = {
                    (node.name, port): self._step(node, port)
                    for node in nodes
                    for port in range(max(1, len(node.parents)))
                }
                run = partial(self._island, index, ways)
                if any(isinstance(node.operator, Process) for node in nodes):
                    self._punctuating = index  # there is one such island at the most
            elif isinstance(nodes[0].operator, Sink | Repartition):
                run = partial(self._leave, nodes[0])
            else:
                run = partial(self._process, nodes[0], self._rules[nodes[0].name])
            self._running.append(run)

    def process_block(self, taken: Taken) -> None:
        """Feeds records and runs them to the end of every path."""
        self._taken, self._hides_origin = taken, False
        for place, letter in taken.letters:
            self._add_parcel(letter, _always((place, -1)))
        if len(taken):
            self._enter(taken)
            before = self._task_time.current
            self._run()
            self._task_time.current = before
            self._task_time.observe(max(taken.times))
        self._send()
        self._taken = None

    def _enter(self, taken: Taken) -> None:
        block = Block(
            taken.keys,
            taken.values,
            taken.timestamps,
            headers=taken.headers,
            carried=taken.carried,
            order=Order(Domain(), range(len(taken)), 0),
        )
        if isinstance(taken.inputs, str):
            blocks = {taken.inputs: block}
        else:
            rows: dict[str, list[int]] = {}
            for row, name in enumerate(taken.inputs):
                rows.setdefault(name, []).append(row)
            blocks = {name: block.made(own) for name, own in rows.items()}
        for name, own_block in blocks.items():
            for edge in self._plan.inputs[name]:
                self.deliver(edge, own_block)

    def deliver(self, edge: Edge, block: Block) -> None:
        if len(block):
            self.rows[edge.child] = self.rows.get(edge.child, 0) + len(block)
            moved = block.on_way(edge.next_visit, carries=edge.child in self._followers)
            self._inbox.setdefault(edge.unit, []).append((moved, edge))

    def _run(self) -> None:
        inbox = self._inbox
        for index, run in enumerate(self._running):
            if index in inbox:
                run(inbox.pop(index))
            elif index == self._punctuating and self._taken is not None and self.punctuators:
                run([])
        for store in self._watched:
            store.replaced.clear()

    def _process(self, node: Node, step: Any, deliveries: list[tuple[Block, Edge]]) -> None:
        """`step`: see `steps`."""
        block = together([block for block, _ in deliveries]) if hasattr(step, "process") else deliveries[0][0]
        assert block is not None
        try:
            if hasattr(step, "process"):
                step.process(block, deliveries[0][1].port)
            else:
                step.process_ports([(block, edge.port) for block, edge in deliveries])
        except _NO_RECORDS_FAULT as error:
            self.failed_row(node, block, 0, error)

    def _leave(self, node: Node, deliveries: list[tuple[Block, Edge]]) -> None:
        block = together([block for block, _ in deliveries])
        assert block is not None
        failed = partial(self.failed_row, node, block)
        parcels: list[Parcel] = []
        try:
            if isinstance(node.operator, Repartition):
                self._leaves.repartition(node, block, failed)
            else:
                parcels = self._leaves.sink(node, block, failed)
        except _NO_RECORDS_FAULT as error:
            failed(0, error)
        order = block.order
        assert order is not None
        for parcel in parcels:
            self._add_parcel(parcel, order.key if parcel.rows is None else order.taken(parcel.rows).key)

    def _island(
        self,
        index: int,
        ways: Mapping[tuple[str, int], Callable[[Record], None]],
        deliveries: list[tuple[Block, Edge]],
    ) -> None:
        block, by_row = _in_hand(ways, deliveries)
        taken = self._taken if index == self._punctuating else None
        clocks: list[int] = []
        if taken is not None:
            clocks = list(accumulate(taken.times, max, initial=self._task_time.current))
        next_place = 0
        carried = None if block is None else block.carried
        if carried is None and self._carried != UNKNOWN:
            self.carry(UNKNOWN)
        self._sequence = 0
        for row, step in enumerate(by_row):
            assert block is not None
            if carried is not None and carried[row] != self._carried:
                self.carry(carried[row])
            if taken is not None:
                assert block.order is not None
                place = block.order.root(row)
                self._punctuate(clocks, next_place, place)
                next_place = place
                self._task_time.current = clocks[place + 1]
            self._at = (block, row)
            step(block.record(row))
        self._at = None
        if taken is not None:
            self._punctuate(clocks, next_place, len(taken))
        self._flush_exits(self._exits[index], block)

    def _punctuate(self, clocks: Sequence[int], first: int, end: int) -> None:
        """Runs the punctuators that the times of these records set off, after all that each record itself did."""
        if not self.punctuators:
            return
        at, self._at = self._at, None
        for place in range(first, end):
            self._task_time.current = clocks[place + 1]
            self._moment = (place, _LAST)
            self.punctuators.stream_time_is(self.stream_time)
        self._moment = None
        self._at = at

    def advance_wall_clock(self, now_ms: int) -> None:
        super().advance_wall_clock(now_ms)
        self._flush_all_exits()
        self._run()
        self._send()

    def _finished(self) -> None:
        self._flush_all_exits()
        self._run()
        self._send()

    def watch(self, store: Any) -> None:
        """Lets the store note the rows that are replaced while blocks run."""
        store.replaced = []
        if store not in self._watched:
            self._watched.append(store)

    def carry(self, carried: int) -> None:
        self._carried = carried
        super().carry(carried)

    # Records that leave an island

    def _flush_all_exits(self) -> None:
        """Forwards rows that no record of a block set off."""
        self._sequence = 0
        for exits in self._exits.values():
            self._flush_exits(exits, None)

    def _flush_exits(self, exits: list[_Exit], block: Block | None) -> None:
        found = [each for each in exits if each.left]
        if not found:
            return
        if block is None:
            domain = Domain(is_the_end=True)
        else:
            assert block.order is not None
            # By emission: which row of the island's block it was made of.
            rows = [0] * self._sequence
            for each in found:
                for _, place, row, _ in each.left:
                    rows[place] = row
            domain = Domain((block.order, rows))
        for each in found:
            self.deliver(each.edge, each.take(domain))

    def note_exit(self) -> tuple[int, int, int]:
        """Returns for a record that leaves an island now: its place among all that leave, the row that it was made
        from, and how far its input partition had come."""
        place = self._sequence
        self._sequence += 1
        return place, -1 if self._at is None else self._at[1], self._carried

    # Records that leave the task

    def emit(self, node: Node, record: Record) -> None:
        """Encodes a record that leaves from within an island at once, because the code that forwarded it may change it
        later."""
        block = Block(
            [record.key],
            [record.value],
            [record.timestamp],
            headers=[record.headers] if record.headers else None,
            order=Order(Domain(), range(1), 0),
        )
        errors: list[Exception] = []
        if isinstance(node.operator, Repartition):
            self._leaves.repartition(node, block, lambda row, error: errors.append(error))
        else:
            key = (*self._key_in_hand(), self._sequence)
            self._sequence += 1
            try:
                parcels = self._leaves.sink(node, block, lambda row, error: errors.append(error))
            except Exception as failure:
                # Not the record's fault, which the island would think: the log could not say what partitions there are.
                raise ProcessingError(f"{node.name} cannot write: {said(failure)}") from failure
            for parcel in parcels:
                self._add_parcel(parcel, _always(key))
        for error in errors:
            raise error

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None:
        key = (*self._key_in_hand(), self._sequence)
        self._sequence += 1
        self._add_parcel(self._leaves.letter(topic, record, origin, error), _always(key))

    def _key_in_hand(self) -> Key:
        if self._moment is not None:
            return self._moment
        if self._at is None:
            return ()
        block, row = self._at
        assert block.order is not None
        return block.order.key(row)

    def _add_parcel(self, parcel: Parcel, key: Callable[[int], Key]) -> None:
        if len(parcel):
            self._parcels.setdefault(parcel.topic, []).append((parcel, key))

    def _send(self) -> None:
        parcels, self._parcels = self._parcels, {}
        for items in parcels.values():
            if len(items) == 1:
                self._leaves.send(items[0][0])
                continue
            rows = [(key(row), index, row) for index, (parcel, key) in enumerate(items) for row in range(len(parcel))]
            rows.sort()
            self._leaves.send(merged_parcels([parcel for parcel, _ in items], [(index, row) for _, index, row in rows]))

    # Failures

    def failed_row(self, node: Node, block: Block, row: int, error: Exception) -> None:
        if isinstance(error, ProcessingError):
            raise error
        before, self._at = self._at, (block, row)
        self._failed(node, block.record(row), error)
        self._at = before

    def attempt_row(self, node: Node, block: Block, row: int, record: Record, step: Callable[[Record], None]) -> None:
        """As `attempt`, for a record that this row releases."""
        before, self._at = self._at, (block, row)
        self.attempt(node, record, step)
        self._at = before

    @property
    def origin(self) -> Origin | None:
        """The origin of the current record."""
        if self._at is None or self._taken is None or self._hides_origin:
            return None
        block, row = self._at
        assert block.order is not None
        place = block.order.root(row)
        return None if place < 0 else self._taken.origin(place)

    @origin.setter
    def origin(self, found: Origin | None) -> None:
        """None hides the origin, for a record that waited. Otherwise the origin is that of the current row."""
        self._hides_origin = found is None

    def _make(self, topology: Topology, node: Node) -> Rule:
        unit = self._plan.units[self._plan.unit_of[node.name]]
        if unit.is_island or isinstance(node.operator, Sink | Repartition):
            return super()._make(topology, node)
        # It may have `end_of_batch`, which is all that `Task` asks for.
        return cast(Rule, step_of(node, BlockContext(self, topology, node, self._plan.edges[node.name])))

    def _children_of(self, topology: Topology, node: Node) -> dict[str, Callable[[Record], None]]:
        found: dict[str, list[Callable[[Record], None]]] = {}
        own = self._plan.unit_of.get(node.name)
        for edge in self._plan.edges.get(node.name, ()):
            if edge.unit == own:
                step = self._step(topology.node(edge.child), edge.port)
            else:
                assert own is not None
                exit_ = _Exit(self, edge)
                self._exits[own].append(exit_)
                step = exit_.add
            found.setdefault(edge.child, []).append(step)
        return {name: in_turn(steps) for name, steps in found.items()}


def _in_hand(
    ways: Mapping[tuple[str, int], Callable[[Record], None]], deliveries: list[tuple[Block, Edge]]
) -> tuple[Block | None, Sequence[Callable[[Record], None]]]:
    """Returns what came to an island as one block, and the entry of each row."""
    steps = [ways[edge.child, edge.port] for _, edge in deliveries]
    if not deliveries:
        return None, ()
    if len(deliveries) == 1:
        block = deliveries[0][0]
        return block, steps * len(block)
    block, of = merged([block for block, _ in deliveries])
    return block, [steps[index] for index in of]


def _always(key: Key) -> Callable[[int], Key]:
    return lambda row: key


class _Exit:
    """A way out of an island, and the records that leave by it. `left`: each record, with the result of `note_exit`."""

    __slots__ = ("_task", "edge", "left")

    def __init__(self, task: BlockTask, edge: Edge) -> None:
        self.edge = edge
        self.left: list[tuple[Record, int, int, int]] = []
        self._task = task

    def add(self, record: Record) -> None:
        self.left.append((record, *self._task.note_exit()))

    def take(self, domain: Domain) -> Block:
        records, places, _, carried = zip(*self.left, strict=True)
        self.left = []
        headers = [record.headers for record in records]
        return Block(
            [record.key for record in records],
            [record.value for record in records],
            [record.timestamp for record in records],
            headers=headers if any(headers) else None,
            carried=None if max(carried) == UNKNOWN else carried,
            order=Order(domain, places, 0),
        )
