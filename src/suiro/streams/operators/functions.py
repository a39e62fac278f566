"""Converts the functions of operators, expressions or callables, to plain callables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from suiro.streams.expressions.expression import Expression
from suiro.streams.topology.nodes import Function


def callable_of(
    function: Function, kind: Literal["key_value", "value", "left_right", "key_value_aggregate"]
) -> Callable[..., Any]:
    """`kind` names the parameters, which are Kafka Streams'."""
    return function.as_callable(kind) if isinstance(function, Expression) else function
