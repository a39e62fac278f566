"""A sieve before the interpreter: which records cannot reach a gate with a key that was asked for.

Most records of a log are of other keys, and to find that out takes only the functions between a source and the gate.
Where these are filters and maps, one after another, they are called here without the interpreter around them. Whatever
is not as simple, or fails, passes: then the rules decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

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
"""Key and value -> the key at the gate, or `_GONE`."""

_GONE: Any = object()


class Sieve:
    def __init__(self, topology: Topology, gates: Collection[str], is_wanted: Callable[[Any], bool]) -> None:
        """`is_wanted`: of a key at a gate."""
        self._is_wanted = is_wanted
        self._ways: dict[str, list[tuple[Source, Way]]] = {}
        closed = set()
        for node in topology.nodes:
            if not isinstance(node.operator, Source):
                continue
            way = _way(topology, node, gates)
            for topic in node.operator.topics:
                if way is None:
                    closed.add(topic)
                else:
                    self._ways.setdefault(topic, []).append((node.operator, way))
        for topic in closed:
            self._ways.pop(topic, None)

    def passes(self, record: InputRecord) -> bool:
        ways = self._ways.get(record.topic)
        if ways is None:
            return True
        try:
            for source, way in ways:
                key = None if record.key is None else source.key.deserialize(record.topic, record.key)
                value = None if record.value is None else source.value.deserialize(record.topic, record.value)
                found = way(key, value)
                if found is not _GONE and found is not None and self._is_wanted(found):
                    return True
        except Exception:
            return True
        return False


def _way(topology: Topology, source: Node, gates: Collection[str]) -> Way | None:
    """None: not so simple."""
    steps: list[Way] = []
    node = source
    while True:
        if node.name in gates:
            return _joined(steps)
        step = _step(node)
        children = topology.children(node.name)
        if step is None or len(children) != 1:
            return None
        steps.append(step)
        node = children[0][0]


def _step(node: Node) -> Way | None:
    """Key and value -> the next ones, or `_GONE`."""
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
    rest = steps[1:]  # the first is the source, which passes on

    def way(key: Any, value: Any) -> Any:
        for step in rest:
            found = step(key, value)
            if found is _GONE:
                return _GONE
            key, value = found
        return key

    return way
