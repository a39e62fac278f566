"""Calls of `async` functions, as rules see them. `call_loop` makes the calls; this module does not use asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from suiro.errors import UsageError
from suiro.streams.topology.nodes import AsyncCall

NOT_RETRIED: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    UsageError,
    ValueError,
)
"""Errors of the program or of the record: the same call would fail the same way."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The outcome of a record's last attempt, in the place of a result."""

    error: Exception


class Caller(Protocol):
    def results(
        self,
        name: str,
        operator: AsyncCall,
        keys: Sequence[Any],
        values: Sequence[Any],
        *,
        ends_at_failure: bool,
    ) -> Sequence[Any]:
        """Returns the function's result for each record, in their order, or `Failed`. No call is running when this
        returns or raises. `ends_at_failure`: the first `Failed` is the last outcome, and later calls are cancelled."""
        ...
