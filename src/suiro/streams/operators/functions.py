"""Converts the functions of operators, expressions or callables, to plain callables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from suiro.errors import UsageError
from suiro.streams.dsl.naming import is_legal
from suiro.streams.expressions.expression import Expression
from suiro.streams.records import Record
from suiro.streams.serdes.primitives import integer_of
from suiro.streams.topology.nodes import Function, Sink


def callable_of(
    function: Function, kind: Literal["key_value", "value", "left_right", "key_value_aggregate"]
) -> Callable[..., Any]:
    """`kind` names the parameters, which are Kafka Streams'."""
    return function.as_callable(kind) if isinstance(function, Expression) else function


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
