"""The input records of one row of a store: a topology replayed up to the ends of its input, within limits.

Only nodes from which records reach the store run. Where a row can be made only of records with its own key, the others
are skipped (`prefilter`). The records that are found are checked: alone, they must make the same row.

A replay that reaches a limit says which. Its row is then that of the input so far.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from suiro.clock import Clock
from suiro.errors import UsageError
from suiro.lineage.inputs import InputRecord, Log, global_topics
from suiro.lineage.prefilter import Checked, KeyPrefilter, RekeyPoints, rekey_points_of
from suiro.lineage.provenance import Place, TracingInterpreter, sources_of
from suiro.streams.interpreter import Interpreter
from suiro.streams.operators.context import TaskSettings
from suiro.streams.topology.nodes import (
    GlobalTableSource,
    Node,
    StreamAggregate,
    StreamGlobalTableJoin,
    StreamTableJoin,
    TableAggregate,
    TableSource,
    TableTableJoin,
)
from suiro.streams.topology.topology import Topology, stores_of

LOOK_EVERY = 1_000  # records
_NONE: Any = object()
"""In place of the value of a row that there is not."""
_KEYED = StreamAggregate | TableAggregate | TableSource
"""Their rows have the keys of the records that come to them."""
_READERS = StreamTableJoin | TableTableJoin | StreamGlobalTableJoin
"""They only read the stores of others, but for one of their own, `store`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    records: int = 1_000_000
    seconds: float = 60.0
    bytes: int = 1024 * 1024 * 1024
    """Of this process, as the system counts its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSources:
    """`value`: of the row as it was made again; None where there is none. `records`: what it was made of, in the order
    in which they were read. `read`: how many records were read in all. `stopped`: the limit that was reached, as a
    text; None: all was read. `is_proven`: these records alone make the row."""

    found: bool
    value: Any
    records: tuple[InputRecord, ...]
    read: int
    stopped: str | None
    is_proven: bool


def topology_above(topology: Topology, store: str) -> Topology:
    """The nodes that write a store, and all from which records reach them. Raises `UsageError`."""
    names = {node.name for node in _writers(topology, store)}
    if not names:
        raise UsageError(f"no node of the topology writes store {store!r}")
    tables = {node.operator.store: node for node in topology.nodes if isinstance(node.operator, GlobalTableSource)}
    pending = list(names)
    while pending:
        node = topology.node(pending.pop())
        more = {*node.parents, *(tables[one].name for one in stores_of(node) if one in tables)} - names
        names |= more
        pending += more
    nodes = tuple(node for node in topology.nodes if node.name in names)
    used = {one for node in nodes for one in stores_of(node)}
    return Topology(nodes=nodes, stores=tuple(spec for spec in topology.stores if spec.name in used))


def sources_of_row(
    topology: Topology,
    store: str,
    log: Log,
    *,
    is_key: Callable[[Any], bool],
    is_row: Callable[[Any], bool],
    bounds: Bounds,
    clock: Clock,
    settings: TaskSettings | None = None,
    on_deserialization_error: str = "fail",
) -> RowSources:
    """`is_key`: of a record's key; `is_row`: of a key of the store, which has a window in some."""
    above = topology_above(topology, store)
    ends_ms = clock.monotonic_ms() + int(bounds.seconds * 1_000)
    how: dict[str, Any] = {"settings": settings, "on_deserialization_error": on_deserialization_error}
    replay = _Replay(above, store, log, is_row, bounds, clock, ends_ms, how)
    points = _rekey_points(above, store)
    found = replay.run(points, is_key)
    if points.nodes and not found.is_proven and found.stopped is None:
        return replay.run(RekeyPoints(), is_key)
    return found


def _writers(topology: Topology, store: str) -> list[Node]:
    users = [node for node in topology.nodes if store in stores_of(node)]
    return [
        node
        for node in users
        if not isinstance(node.operator, _READERS) or getattr(node.operator, "store", None) == store
    ] or users


def _rekey_points(above: Topology, store: str) -> RekeyPoints:
    """None where all records must run."""
    writers = _writers(above, store)
    if len(writers) == 1 and isinstance(writers[0].operator, _KEYED) and not global_topics(above):
        points = rekey_points_of(above, writers[0].name)
        if points.nodes and points.above_is_stateless and not points.sees_time and not points.is_windowed:
            return points
    return RekeyPoints()


@dataclass(slots=True)
class _Replay:
    topology: Topology
    store: str
    log: Log
    is_row: Callable[[Any], bool]
    bounds: Bounds
    clock: Clock
    ends_ms: int
    how: Mapping[str, Any]
    """Further arguments of an interpreter."""
    stopped: str | None = None
    read: int = 0

    def run(self, points: RekeyPoints, is_key: Callable[[Any], bool]) -> RowSources:
        records: dict[Place, InputRecord] = {}
        interpreter = TracingInterpreter(self.topology, kept_at=points.nodes, keep=is_key, **self.how)
        read = self._bounded(self.log.read(self.topology))
        checked: Iterable[Checked] = zip(read, repeat(True), repeat(None))
        if points.nodes:
            checked = KeyPrefilter(self.topology, points.nodes, is_key).filtered(read)
        for record, passes, decoded in checked:
            if passes:
                record = record._replace(headers=tuple(record.headers))  # its whole batch is not kept
                record.pipe(interpreter, decoded)
                if interpreter.was_kept or not points.nodes:
                    records[record.place] = record
        interpreter.end_of_batch()
        rows = ((value, link) for key, value, link in interpreter.rows(self.store) if self.is_row(key))
        value, link = next(rows, (_NONE, None))
        interpreter.close()
        places = sources_of(link) if link is not None else set()
        named = tuple(record for place, record in records.items() if place in places)
        # Such a table reads its row before, only to see which of both is newer.
        is_of_one_record = all(isinstance(node.operator, TableSource) for node in _writers(self.topology, self.store))
        if is_of_one_record and named and self._reproduces(value, named[-1:]):
            named = named[-1:]
        found = value is not _NONE
        return RowSources(
            found=found,
            value=value if found else None,
            records=named,
            read=self.read,
            stopped=self.stopped,
            is_proven=found and self._reproduces(value, named),
        )

    def _reproduces(self, value: Any, records: Iterable[InputRecord]) -> bool:
        interpreter = Interpreter(self.topology, **self.how)
        for record in records:
            record.pipe(interpreter)
            interpreter.outputs.clear()
        interpreter.end_of_batch()
        rows = interpreter.store(self.store).all()
        found = next((one for key, one in rows if self.is_row(key)), None)
        interpreter.close()
        return bool(found == value)

    def _bounded(self, records: Iterable[InputRecord]) -> Iterator[InputRecord]:
        self.read = 0
        bounds = self.bounds
        for number, record in enumerate(records):
            if number >= bounds.records:
                self.stopped = f"{bounds.records:,} records were read"
                return
            if number % LOOK_EVERY == 0:
                if self.clock.monotonic_ms() > self.ends_ms:
                    self.stopped = f"{bounds.seconds:g} s were over"
                    return
                if _memory() > bounds.bytes:
                    self.stopped = f"{bounds.bytes // 1024**2:,} MiB of memory were used"
                    return
            self.read = number + 1
            yield record


def _memory() -> int:
    """Bytes that are resident now. On Linux, the peak (`ru_maxrss`) of a new process begins with that of its parent."""
    try:
        with open("/proc/self/statm", encoding="ascii") as numbers:
            return int(numbers.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
