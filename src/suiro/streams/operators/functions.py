"""Converts the functions of operators, expressions or callables, to plain callables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from suiro.errors import UsageError
from suiro.streams.dsl.named import is_legal
from suiro.streams.expressions.expression import Expression
from suiro.streams.records import Record
from suiro.streams.serdes.primitives import integer_of
from suiro.streams.topology.nodes import Function, Sink

FunctionKind = Literal["key_value", "value", "left_right", "key_value_aggregate"]


def callable_of(function: Function, kind: FunctionKind) -> Callable[..., Any]:
    """`kind` names the parameters, which are Kafka Streams'."""
    return function.as_callable(kind) if isinstance(function, Expression) else function


def pair_of(made: Any, gave: str = "the mapper of map gave") -> tuple[Any, Any]:
    """Returns the key and the value that a mapper made. Raises `UsageError`: a text of two characters is no pair."""
    if type(made) is tuple and len(made) == 2:
        return made
    if isinstance(made, tuple | list) and len(made) == 2:
        return made[0], made[1]
    raise UsageError(f"{gave} {made!r:.80}; it must be a pair, (key, value)")


def pairs_of(made: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the keys and values that the mapper of flat_map made. Raises `UsageError`."""
    for item in values_of(made, "flat_map", "pairs (key, value)"):
        yield pair_of(item, "the mapper of flat_map gave a list with")


def values_of(made: Any, operator: str = "flat_map_values", what: str = "values") -> Iterator[Any]:
    """Returns an iterator of what a mapper made. Raises `UsageError` if it has none."""
    try:
        return iter(made)
    except TypeError:
        raise UsageError(f"the mapper of {operator} gave {made!r:.80}; it must be a list of {what}") from None


def topic_of(sink: Sink, record: Record) -> str:
    """Returns the topic of a record. Raises `UsageError` if the sink's function gives no name."""
    if isinstance(sink.topic, str):
        return sink.topic
    topic = sink.topic(record.key, record.value, record)
    if not isinstance(topic, str) or not is_legal(topic):
        raise UsageError(
            f"the function that chooses the topic gave {topic!r}; it must give a topic's name: up to 249 letters, "
            "digits, '.', '_' and '-'"
        )
    return topic


def partition_of(chosen: Any, topic: str, count: int) -> int:
    """Returns the partition that a partitioner chose. Raises `UsageError` if there is no such partition."""
    number = integer_of(chosen)
    if number is None or not 0 <= number < count:
        raise UsageError(
            f"the partitioner gave {chosen!r} for {topic!r}, which has the partitions 0 to {count - 1}; it must give "
            "one of them, or None for the key's"
        )
    return number
