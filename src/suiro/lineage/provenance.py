"""An interpreter that records, for each row, the input records and rows that it was made of.

Every store is an ordered map of bytes, so it is enough to observe the stores. A row that is written is linked with the
current input record and with the rows that were read for it. A step costs a constant. Walking the links from a result
gives every input record of the result. Operators do not know about this, and an ordinary run does not pay for it.

All rows that an operator reads before it writes count as sources of what it writes. For operators that make several
results one after another (`_ONE_BY_ONE`), a result has only its own rows; for others, a result may have a record too
many, but never one too few. Time is separate: if a result waited for stream time, the record that advanced stream time
is the `trigger`. State that a processor keeps outside of stores is not observed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from suiro.streams.interpreter import Emitted, Interpreter
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Origin, Record
from suiro.streams.stores import OrderedMap, Row
from suiro.streams.task import Processing
from suiro.streams.topology.nodes import (
    ForeignKeyRespond,
    Node,
    Repartition,
    SessionAggregate,
    SlidingAggregate,
    StreamAggregate,
    Suppress,
    TableAggregate,
    TimeWindowAggregate,
)
from suiro.streams.topology.topology import Topology, stores_of
from suiro.streams.windows import EmitStrategy

Place = tuple[str, int, int]
"""Topic, partition, offset."""

_AGGREGATES = StreamAggregate | TimeWindowAggregate | SlidingAggregate | SessionAggregate | TableAggregate
_ONE_BY_ONE = StreamAggregate | TableAggregate | TimeWindowAggregate | Suppress | ForeignKeyRespond


class Link:
    """A row or a record on its way, and what it was made of. `place`: the input record that was in hand."""

    __slots__ = ("change", "parents", "place", "trigger")

    def __init__(self, place: Place | None, parents: tuple[Link, ...] = (), trigger: Link | None = None) -> None:
        self.place = place
        self.parents = parents
        self.trigger = trigger
        self.change: tuple[str, bytes | None, bytes | None] | None = None
        """Of an aggregate's row: its store, the row before and after."""


def sources_of(link: Link, *, with_triggers: bool = False) -> set[Place]:
    """The input records something was made of. What it waited for counts as one record; `with_triggers`: with all that
    this one was made of."""
    found: set[Place] = set()
    seen: set[int] = {id(link)}
    pending = [link]
    while pending:
        at = pending.pop()
        if not at.parents and at.place is not None:
            found.add(at.place)
        following = at.parents
        if at.trigger is not None:
            if with_triggers:
                following = (*following, at.trigger)
            elif at.trigger.place is not None:
                found.add(at.trigger.place)
        for parent in following:
            if id(parent) not in seen:
                seen.add(id(parent))
                pending.append(parent)
    return found


class TracingInterpreter(Interpreter):
    """`on_result(emitted, place, link)`: of every record to an output topic. `keep(key)`: whether a record
    goes into one of the nodes `kept_at`; others are left out there, as if they were not. `look(place, node, record)`:
    of every record that reaches a node, while the input record in hand is one of `looked_at`."""

    def __init__(
        self,
        topology: Topology,
        *,
        on_result: Callable[[Emitted, Place | None, Link], None] = lambda emitted, place, link: None,
        kept_at: Collection[str] = (),
        keep: Callable[[Any], bool] | None = None,
        looked_at: Collection[Place] = (),
        look: Callable[[Place, Node, Record], None] | None = None,
        settings: TaskSettings | None = None,
        on_deserialization_error: str = "fail",
    ) -> None:
        self.place: Place | None = None
        self.was_kept = False
        """Whether the last record piped reached one of the nodes `kept_at`, and was kept there."""
        self.frame = _Frame(Link(None), None)
        self._links: dict[int, Link] = {}  # by the number of a record in a queue
        self._on_result = on_result
        self._kept_at = frozenset(kept_at)
        self._keep = keep
        self._looked_at = looked_at
        self._look = look
        self.around = self._around
        super().__init__(topology, settings=settings, on_deserialization_error=on_deserialization_error)

    @property
    def drops(self) -> dict[str, int]:
        """How many records were left out so far, by reason."""
        found = dict(self.dropped)
        for task in self._tasks:
            for reason, count in task.dropped.items():
                found[reason] = found.get(reason, 0) + count
        return found

    def rows(self, store: str) -> Iterator[tuple[Any, Any, Link | None]]:
        """Keys and values of a store, each with what its row was made of."""
        frame = self.frame = _Frame(Link(None), None)
        for key, value in self.store(store).all():
            yield key, value, frame.taken()

    def _begin(self, place: Place) -> None:
        self.place = place
        self.was_kept = False
        self.frame = _Frame(Link(place), None)

    def end_of_batch(self) -> None:
        self.place = None
        self.frame = _Frame(Link(None), None)
        super().end_of_batch()

    def _take(self, number: int, node: Node, record: Record, origin: Origin) -> None:
        # What came by a repartition has a link; a record of the input has the frame's.
        before, link = self.frame, self._links.pop(number, None)
        self.frame = before if link is None else _Frame(link, None)
        super()._take(number, node, record, origin)
        self.frame = before

    def emit(self, node: Node, record: Record) -> None:
        if isinstance(node.operator, Repartition):
            if node.name in self._kept_at and not self._is_kept(record):
                return
            before = self._queued
            super().emit(node, record)
            if self._queued > before:
                self._links[self._queued] = self.frame.result()
        else:
            super().emit(node, record)

    def _emitted(self, found: Emitted) -> None:
        self._on_result(found, self.place, self.frame.result())

    def wrote(self, store: str, before: bytes | None, after: bytes | None) -> Link:
        frame = self.frame
        link = frame.row(is_removal=after is None)
        if isinstance(frame.operator, _AGGREGATES):
            link.change = (store, before, after)
        return link

    def _new_map(self, name: str) -> OrderedMap:
        return _TracedMap(self, name, _notes_absent(self.topology, name))

    def _around(self, node: Node, process: Processing) -> Processing:
        is_guarded = node.name in self._kept_at and not isinstance(node.operator, Repartition)
        is_framed, look, places = bool(stores_of(node)), self._look, self._looked_at
        if not is_guarded and not is_framed and look is None:
            return process

        def observed(record: Record, port: int) -> None:
            if is_guarded and not self._is_kept(record):
                return
            if look is not None and self.place is not None and self.place in places:
                look(self.place, node, record)
            if not is_framed:
                process(record, port)
                return
            outer = self.frame
            self.frame = _Frame(outer.result(), node.operator)
            try:
                process(record, port)
            finally:
                self.frame = outer

        return observed

    def _is_kept(self, record: Record) -> bool:
        is_kept = self._keep is None or (record.key is not None and self._keep(record.key))
        self.was_kept |= is_kept
        return is_kept


class _Frame:
    """A rule while it has a record: what it was given, and which rows it has read for what it makes next."""

    __slots__ = ("_base", "_is_done", "_result", "_rows", "operator")

    def __init__(self, base: Link, operator: object) -> None:
        self.operator = operator
        self._base = base
        self._rows: list[Link] = []
        self._is_done = False
        self._result: Link | None = base

    def read(self, link: Link) -> None:
        if self._is_done and isinstance(self.operator, _ONE_BY_ONE):
            self._rows = []
        self._is_done = False
        if not self._rows or self._rows[-1] is not link:
            self._rows.append(link)
            self._result = None

    def taken(self) -> Link | None:
        """The row that was read last; it is not known any more."""
        link, self._rows = self._rows[-1] if self._rows else None, []
        return link

    def row(self, *, is_removal: bool) -> Link:
        """A row is written."""
        link = self._made(is_held=is_removal and _holds(self.operator))
        if isinstance(self.operator, _ONE_BY_ONE):
            self._rows, self._result = [link], None
        self._is_done = True
        return link

    def result(self) -> Link:
        """A record leaves, or goes on to the next node."""
        self._is_done = True
        if self._result is None:
            self._result = self._made(is_held=_holds(self.operator))
        return self._result

    def _made(self, *, is_held: bool) -> Link:
        rows = tuple(self._rows)
        if is_held and rows:
            return Link(self._base.place, rows, self._base)
        return Link(self._base.place, (self._base, *rows))


class _TracedMap(OrderedMap):
    """Removed rows are remembered too: that a row is not there may be what decided."""

    def __init__(self, tracer: TracingInterpreter, name: str, notes_absent: bool) -> None:
        super().__init__()
        self._tracer = tracer
        self._name = name
        self._notes_absent = notes_absent
        self._links: dict[bytes, Link] = {}

    def get(self, key: bytes) -> bytes | None:
        value = super().get(key)
        if value is not None or self._notes_absent:
            link = self._links.get(key)
            if link is not None:
                self._tracer.frame.read(link)
        return value

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def put(self, key: bytes, value: bytes | Row | None) -> None:
        assert value is None or isinstance(value, bytes)  # the interpreter's stores keep no values
        link = self._tracer.wrote(self._name, super().get(key), value)
        if value is None and not self._notes_absent:
            self._links.pop(key, None)
        else:
            self._links[key] = link
        super().put(key, value)

    def range(
        self, first: bytes | None = None, last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for key, value in super().range(first, last, reverse=reverse):
            link = self._links.get(key)
            if link is not None:
                self._tracer.frame.read(link)
            yield key, value


def _holds(operator: object) -> bool:
    """Whether the operator's results were held before, and leave because time passed."""
    match operator:
        case Suppress():
            return True
        case TimeWindowAggregate(emit=emit) | SlidingAggregate(emit=emit) | SessionAggregate(emit=emit):
            return emit is EmitStrategy.ON_WINDOW_CLOSE
    return False


def _notes_absent(topology: Topology, name: str) -> bool:
    specs: dict[str, Any] = {spec.name: spec for spec in topology.stores}
    return name in specs and specs[name].kind != "buffer"
