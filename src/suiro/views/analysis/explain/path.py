"""Traces how far a record gets in a version's topology, node by node, and where two versions diverge."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

from suiro.lineage import InputRecord, Place, TracingInterpreter
from suiro.streams.expressions.expression import Expression
from suiro.streams.records import Change, Record, Windowed
from suiro.streams.topology.nodes import Node, Repartition, Sink, Source
from suiro.views.analysis.compare.values import shortened
from suiro.views.analysis.explain.replay import Side

_FUNCTIONS = ("predicate", "mapper", "joiner", "key_mapper", "foreign_key", "action", "adder", "supplier")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A node that the record reached, its key and value there, and whether it went on to another node."""

    node: str
    operator: str
    function: str | None
    key: Any
    value: Any
    goes_on: bool
    gives: tuple[Any, Any] | None = None
    """The key and value that reached the next node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    stops: tuple[Stop, ...] = ()
    dropped: tuple[str, ...] = ()
    """The reasons for which operators dropped something of it: "late", "null key"..."""


def paths_of(side: Side, places: Collection[Place], records: Iterable[InputRecord]) -> dict[Place, Path]:
    """Returns the paths of the records at `places`. The other records only fill the stores."""
    reached: dict[Place, list[tuple[Node, Record]]] = {}
    dropped: dict[Place, tuple[str, ...]] = {}

    def look(place: Place, node: Node, record: Record) -> None:
        reached.setdefault(place, []).append((node, record))

    interpreter = TracingInterpreter(
        side.topology,
        looked_at=frozenset(places),
        look=look,
        settings=side.settings,
        on_deserialization_error=side.on_deserialization_error,
    )
    for record in records:
        is_looked_at = record.place in places
        before = dict(interpreter.drops) if is_looked_at else {}
        record.pipe(interpreter)
        if is_looked_at:
            after = interpreter.drops
            dropped[record.place] = tuple(
                sorted(reason for reason, count in after.items() if count > before.get(reason, 0))
            )
    interpreter.close()
    return {
        place: Path(stops=tuple(_stops(side, reached.get(place, []))), dropped=dropped.get(place, ()))
        for place in places
    }


def parted(old: Path, new: Path) -> tuple[Stop | None, Stop | None]:
    """Returns the stops at which the paths diverge: the first with another operator, end or result."""
    for left, right in zip(old.stops, new.stops, strict=False):
        if (left.operator, left.goes_on, left.gives) != (right.operator, right.goes_on, right.gives):
            return left, right
    shared = min(len(old.stops), len(new.stops))
    left_more, right_more = old.stops[shared:], new.stops[shared:]
    if left_more or right_more:
        return (left_more[0] if left_more else None), (right_more[0] if right_more else None)
    # The paths are the same to the end, so the result of the last function differs.
    with_function = [pair for pair in zip(old.stops, new.stops, strict=True) if pair[0].function]
    return with_function[-1] if with_function else (None, None)


def _stops(side: Side, reached: list[tuple[Node, Record]]) -> Iterable[Stop]:
    arrived: dict[str, Record] = {}
    for node, record in reached:
        arrived.setdefault(node.name, record)
    seen: set[str] = set()
    for node, record in reached:
        if node.name in seen:
            continue
        seen.add(node.name)
        children = [child for child, _ in side.topology.children(node.name)]
        following = [arrived[child.name] for child in children if child.name in arrived]
        is_end = isinstance(node.operator, Sink) or not children
        yield Stop(
            node=node.name,
            operator=type(node.operator).__name__,
            function=function_of(node),
            key=shown(record.key),
            value=shown(record.value),
            goes_on=is_end or bool(following),
            gives=(shown(following[0].key), shown(following[0].value)) if following else None,
        )


def function_of(node: Node) -> str | None:
    """Returns the place of the user's function in a node, file and line, or the expression itself."""
    operator: Any = node.operator
    if isinstance(operator, Source | Sink | Repartition):
        return None
    aggregation = getattr(operator, "aggregation", None)
    found = [getattr(operator, name, None) for name in _FUNCTIONS]
    found += list(getattr(aggregation, "aggregators", ()))
    for function in found:
        if isinstance(function, Expression):
            return function.describe()
        if callable(function):
            return _place_of(function)
    return None


def _place_of(function: Callable[..., Any]) -> str | None:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    if code is None:
        return getattr(function, "__qualname__", None)
    name = getattr(function, "__name__", "<lambda>")
    where = f"{PurePath(code.co_filename).name}:{code.co_firstlineno}"
    return where if name == "<lambda>" else f"{name}, {where}"


def shown(value: Any) -> Any:
    """Returns a short value for JSON."""
    match value:
        case Change():
            return shown(value.new)
        case Windowed():
            return {"key": shown(value.key), "start": value.start, "end": value.end}
        case None | bool() | int() | float() | str():
            return shortened(value)
        case bytes():
            return shortened(value.decode("utf-8", "backslashreplace"))
        case dict():
            return {str(name): shown(item) for name, item in list(value.items())[:30]}
        case list() | tuple():
            return [shown(item) for item in value[:30]]
        case date() | time() | Decimal() | UUID():  # a datetime is a date
            return str(value)
    return shortened(repr(value))
