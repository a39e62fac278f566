"""The records that can be left out, when only some rows of a view are asked for.

Upwards from the view's output, as long as every operator keeps the key, a row is made only of records with its own key.
The re-key points are the upper ends of that stretch: records with other keys can be dropped there. Operators above a
re-key point run in full. Stream time is the exception: records of other keys advance it, and that closes windows.
`sees_time` is true if an operator below a re-key point reads stream time; a caller that drops records must then check
the result.

The key pre-filter skips records that cannot reach a re-key point with a requested key. To find that out, only the
functions between a source and the re-key point must run. A chain of filters and maps is called directly, without the
interpreter. A chain of expressions runs on columns, some thousand records at a time. Records that the pre-filter cannot
decide, or on which a function fails, pass; the interpreter decides about them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.lineage.inputs import InputRecord
from suiro.streams.operators.functions import callable_of
from suiro.streams.serdes.block_forms import decode_rows
from suiro.streams.topology import nodes
from suiro.streams.topology.nodes import Filter, Map, MapValues, Merge, Node, SelectKey, Source
from suiro.streams.topology.topology import Topology, stores_of
from suiro.streams.vectorised.stateless import Chain, Reason, check_input, read_chunk, types_of_input

Way = Callable[[Any, Any], Any]
"""Key and value -> the next ones (at the end of the way: the key at the re-key point), or `_GONE`."""

Checked = tuple[InputRecord, bool, tuple[Any, Any] | None]
"""A record, whether it passes, and of one that passes perhaps the key and the value, deserialized."""

CHUNK = 5_000  # records that are looked at together
CHUNK_BYTES = 16 * 1024 * 1024
_GONE: Any = object()
_KEEPS_WHAT_DECIDES = Source | Merge | MapValues
"""What decides is the key, and whether there is one. Last on the way, these need not run."""
_KEEPS_KEY = (
    nodes.Branch
    | nodes.Filter
    | nodes.FlatMapValues
    | nodes.ForeignKeyResolve
    | nodes.MapValues
    | nodes.MapBatches
    | nodes.Merge
    | nodes.Peek
    | nodes.Repartition
    | nodes.Sink
    | nodes.Source
    | nodes.StreamAggregate
    | nodes.StreamGlobalTableJoin
    | nodes.StreamStreamJoin
    | nodes.StreamTableJoin
    | nodes.Suppress
    | nodes.TableAggregate
    | nodes.TableFilter
    | nodes.TableMapValues
    | nodes.TableSource
    | nodes.TableTableJoin
    | nodes.ToStream
)
_WINDOWED = nodes.TimeWindowAggregate | nodes.SlidingAggregate | nodes.SessionAggregate
"""They keep the key as a part of the windowed one, which further aggregations would group by another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RekeyPoints:
    """`nodes`: names; none where nothing can be left out. `is_windowed`: the row's key has a window, the records' has
    none. `above_is_stateless`: of the records that a row comes from, all pass a re-key point or fill a global table."""

    nodes: frozenset[str] = frozenset()
    is_windowed: bool = False
    sees_time: bool = False
    above_is_stateless: bool = False


def rekey_points_of(topology: Topology, sink: str) -> RekeyPoints:
    """`sink`: name of the node that writes the view's rows."""
    below: dict[str, nodes.Node] = {}
    tops: set[str] = set()
    pending = [topology.node(sink)]
    while pending:
        node = pending.pop()
        if node.name in below:
            continue
        below[node.name] = node
        parents = [topology.node(name) for name in node.parents]
        if not parents or isinstance(node.operator, nodes.GlobalTableSource):
            tops.add(node.name)
        for parent in parents:
            if _keeps_key(parent):
                pending.append(parent)
            else:
                tops.add(node.name)
    windowed = [node for node in below.values() if isinstance(node.operator, _WINDOWED)]
    above = _ancestors(topology, tops)
    if len(windowed) > 1 or above & below.keys() or topology.node(sink).name in tops:
        # A second window, or a path around the re-key points that joins below them: nothing can be dropped.
        return RekeyPoints(sees_time=True)
    stateful_above = any(_is_stateful(topology.node(name)) for name in above)
    return RekeyPoints(
        nodes=frozenset(tops),
        is_windowed=bool(windowed),
        sees_time=any(_sees_time(node) for node in below.values()),
        above_is_stateless=not stateful_above,
    )


def _keeps_key(node: nodes.Node) -> bool:
    operator = node.operator
    if isinstance(operator, nodes.AsyncCall):
        return operator.kind != "map"
    return isinstance(operator, _KEEPS_KEY | _WINDOWED)


def _is_stateful(node: nodes.Node) -> bool:
    if isinstance(node.operator, nodes.Process):
        return True  # it may remember what it likes
    return bool(stores_of(node)) and not isinstance(node.operator, nodes.StreamGlobalTableJoin)


def _ancestors(topology: Topology, names: set[str]) -> set[str]:
    found: set[str] = set()
    pending = [parent for name in names for parent in topology.node(name).parents]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(topology.node(name).parents)
    return found


def _sees_time(node: nodes.Node) -> bool:
    match node.operator:
        case nodes.TableSource(versioned=versioned) | nodes.StreamTableJoin(versioned=versioned):
            return versioned
        case nodes.Suppress() | nodes.StreamStreamJoin():
            return True
    return isinstance(node.operator, _WINDOWED)


@dataclass(frozen=True, slots=True)
class _Path:
    """From a source to a re-key point. `chain`: None where columns cannot do it."""

    node: Node
    source: Source
    key_at_point: Way
    rekey_point: str
    chain: Chain | None


class KeyPrefilter:
    def __init__(self, topology: Topology, points: Collection[str], is_wanted: Callable[[Any], bool]) -> None:
        """`is_wanted`: of a key at a re-key point."""
        self._is_wanted = is_wanted
        self._paths: dict[str, list[_Path]] = {}
        closed = set()
        for node in topology.nodes:
            if not isinstance(node.operator, Source):
                continue
            path = _path(topology, node, node.operator, points)
            for topic in node.operator.topics:
                if path is None:
                    closed.add(topic)
                else:
                    self._paths.setdefault(topic, []).append(path)
        for topic in closed:
            self._paths.pop(topic, None)

    def filtered(self, records: Iterable[InputRecord]) -> Iterator[Checked]:
        some: list[InputRecord] = []
        size = 0
        for record in records:
            some.append(record)
            size += len(record.key or b"") + len(record.value or b"")
            if len(some) == CHUNK or size >= CHUNK_BYTES:
                yield from self._checked(some)
                some, size = [], 0
        yield from self._checked(some)

    def _checked(self, records: Sequence[InputRecord]) -> Iterator[Checked]:
        of_topic: dict[str, list[int]] = {}
        for place, record in enumerate(records):
            of_topic.setdefault(record.topic, []).append(place)
        passing = [True] * len(records)
        decoded: dict[int, tuple[Any, Any]] = {}
        for topic, places in of_topic.items():
            if topic not in self._paths:
                continue
            its = [records[place] for place in places]
            found = self._by_columns(topic, its) or map(self.passes, its)
            for place, passes in zip(places, found, strict=True):
                passing[place] = passes
            if len(self._paths[topic]) == 1:
                those = [place for place in places if passing[place]]
                decoded.update(zip(those, self._decoded(topic, [records[place] for place in those]), strict=False))
        for place, record in enumerate(records):
            yield record, passing[place], decoded.get(place)

    def _decoded(self, topic: str, records: Sequence[InputRecord]) -> Iterator[tuple[Any, Any]]:
        """Their keys and values, read all at once; nothing if one of them cannot be read."""
        source = self._paths[topic][0].source
        keys, bad_keys = decode_rows(source.key, [record.key for record in records], topic)
        values, bad_values = decode_rows(source.value, [record.value for record in records], topic)
        return iter(()) if bad_keys or bad_values else zip(keys, values, strict=True)

    def _by_columns(self, topic: str, records: Sequence[InputRecord]) -> list[bool] | None:
        """None where it must be done one by one."""
        paths = self._paths[topic]
        if any(path.chain is None for path in paths):
            return None
        passing = np.zeros(len(records), np.bool_)
        try:
            columns = pa.record_batch(
                {
                    "key": pa.array([record.key for record in records], pa.binary()),
                    "value": pa.array([record.value for record in records], pa.binary()),
                    "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
                }
            )
            for path in paths:
                assert path.chain is not None
                chunk = replace(read_chunk(path.node, columns, topic), places=np.arange(len(records)))
                arrived = path.chain.run(chunk).get(path.rekey_point)
                if arrived is not None:
                    keys = arrived.key.values.to_pylist()
                    passing[arrived.places] |= [key is not None and self._is_wanted(key) for key in keys]
        except Exception:  # noqa: BLE001 - the version's code raises anything; without a filter all records are replayed
            return None
        return passing.tolist()

    def passes(self, record: InputRecord) -> bool:
        paths = self._paths.get(record.topic)
        if paths is None:
            return True
        topic, key_bytes, value_bytes = record.topic, record.key, record.value
        try:
            for path in paths:
                source = path.source
                key = None if key_bytes is None else source.key.deserialize(topic, key_bytes)
                value = None if value_bytes is None else source.value.deserialize(topic, value_bytes)
                found = path.key_at_point(key, value)
                if found is not _GONE and found is not None and self._is_wanted(found):
                    return True
        except Exception:  # noqa: BLE001 - the version's code raises anything; without a filter all records are replayed
            return True
        return False


def _path(topology: Topology, start: Node, source: Source, points: Collection[str]) -> _Path | None:
    """None: not so simple."""
    passed: list[Node] = []
    node = start
    while node.name not in points:
        passed.append(node)
        children = topology.children(node.name)
        if len(children) != 1:
            return None
        node = children[0][0]
    names = [each.name for each in passed]
    while passed and isinstance(passed[-1].operator, _KEEPS_WHAT_DECIDES):
        passed.pop()
    steps: list[Way] = []
    for each in passed:
        step = _step(each)
        if step is None:
            return None
        steps.append(step)
    return _Path(
        node=start,
        source=source,
        key_at_point=_joined(steps),
        rekey_point=node.name,
        chain=_chain(topology, start, names, node.name),
    )


def _chain(topology: Topology, start: Node, passed: Collection[str], rekey_point: str) -> Chain | None:
    if start.name == rekey_point:
        return None
    chain = Chain(topology, start, exits={rekey_point}, inside={*passed, rekey_point})
    try:
        check_input(start)
        chain.check(types_of_input(start))
    except Reason:
        return None
    return chain


def _step(node: Node) -> Way | None:
    match node.operator:
        case Source() | Merge():
            return lambda key, value: (key, value)
        case Filter(predicate=predicate, negated=negated):
            holds, wanted = callable_of(predicate, "key_value"), not negated
            return lambda key, value: (key, value) if bool(holds(key, value)) is wanted else _GONE
        case MapValues(mapper=mapper):
            change = callable_of(mapper, "value")
            return lambda key, value: (key, change(value))
        case SelectKey(mapper=mapper):
            choose = callable_of(mapper, "key_value")
            return lambda key, value: (choose(key, value), value)
        case Map(mapper=mapper):
            return callable_of(mapper, "key_value")
    return None


def _joined(steps: list[Way]) -> Way:
    def key_at_point(key: Any, value: Any) -> Any:
        for step in steps:
            found = step(key, value)
            if found is _GONE:
                return _GONE
            key, value = found
        return key

    return key_at_point
