"""A sieve before the interpreter: which records cannot reach a gate with a key that was asked for.

Most records of a log are of other keys, and to find that out takes only the functions between a source and the gate.
Where these are filters and maps, one after another, they are called here without the interpreter around them. Whatever
is not as simple, or fails, passes: then the rules decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from suiro.errors import UsageError
from suiro.streams.expressions import Expression
from suiro.streams.nodes import (
    Filter,
    Map,
    MapValues,
    Merge,
    Node,
    SelectKey,
    Source,
)
from suiro.streams.operators.functions import callable_of
from suiro.streams.topology import Topology
from suiro.views.explain_inputs import InputRecord

__all__ = ["Sieve"]

Way = Callable[[Any, Any], Any]
"""Key and value -> the next ones (at the end of the way: the key at the gate), or `_GONE`."""

_GONE: Any = object()


@dataclass(frozen=True, slots=True)
class _Step:
    """One function on the way. `decides`: the key, or whether there is one."""

    change: Way
    reads_key: bool = True
    decides: bool = True
    replaces_key: bool = False


@dataclass(frozen=True, slots=True)
class _Path:
    """All of them. `needs_key`: the one that the record has in the log."""

    source: Source
    key_at_gate: Way
    needs_key: bool


class Sieve:
    def __init__(self, topology: Topology, gates: Collection[str], is_wanted: Callable[[Any], bool]) -> None:
        """`is_wanted`: of a key at a gate."""
        self._is_wanted = is_wanted
        self._paths: dict[str, list[_Path]] = {}
        closed = set()
        for node in topology.nodes:
            if not isinstance(node.operator, Source):
                continue
            path = _path(topology, node, node.operator, gates)
            for topic in node.operator.topics:
                if path is None:
                    closed.add(topic)
                else:
                    self._paths.setdefault(topic, []).append(path)
        for topic in closed:
            self._paths.pop(topic, None)

    def passes(self, record: InputRecord) -> bool:
        paths = self._paths.get(record.topic)
        if paths is None:
            return True
        topic, key_bytes, value_bytes = record.topic, record.key, record.value
        try:
            for path in paths:
                source, key = path.source, None
                if path.needs_key and key_bytes is not None:
                    key = source.key.deserialize(topic, key_bytes)
                value = None if value_bytes is None else source.value.deserialize(topic, value_bytes)
                found = path.key_at_gate(key, value)
                if found is not _GONE and found is not None and self._is_wanted(found):
                    return True
        except Exception:
            return True
        return False


def _path(topology: Topology, start: Node, source: Source, gates: Collection[str]) -> _Path | None:
    """None: not so simple."""
    steps: list[_Step] = []
    node = start
    while node.name not in gates:
        step = _step(node)
        children = topology.children(node.name)
        if step is None or len(children) != 1:
            return None
        steps.append(step)
        node = children[0][0]
    while steps and not steps[-1].decides:
        steps.pop()
    until = next((place for place, step in enumerate(steps) if step.replaces_key), None)
    needs_key = until is None or any(step.reads_key for step in steps[: until + 1])
    return _Path(source, _joined([step.change for step in steps]), needs_key)


def _step(node: Node) -> _Step | None:
    match node.operator:
        case Source() | Merge():
            return _Step(lambda key, value: (key, value), reads_key=False, decides=False)
        case Filter(predicate=predicate, negated=negated):
            holds, wanted = callable_of(predicate, "key_value"), not negated
            return _Step(
                lambda key, value: (key, value) if bool(holds(key, value)) is wanted else _GONE,
                reads_key=_reads_key(predicate),
            )
        case MapValues(mapper=mapper):
            change = callable_of(mapper, "value")
            return _Step(lambda key, value: (key, change(value)), reads_key=False, decides=False)
        case SelectKey(mapper=mapper):
            choose = callable_of(mapper, "key_value")
            return _Step(
                lambda key, value: (choose(key, value), value),
                reads_key=_reads_key(mapper),
                replaces_key=True,
            )
        case Map(mapper=mapper):
            return _Step(callable_of(mapper, "key_value"), replaces_key=True)
    return None


def _reads_key(function: Any) -> bool:
    """False for an expression of the value alone."""
    if not isinstance(function, Expression):
        return True
    try:
        function.as_callable("value")
    except UsageError:
        return True
    return False


def _joined(steps: list[Way]) -> Way:
    def key_at_gate(key: Any, value: Any) -> Any:
        for step in steps:
            found = step(key, value)
            if found is _GONE:
                return _GONE
            key, value = found
        return key

    return key_at_gate
