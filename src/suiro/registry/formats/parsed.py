"""A parsed schema, the errors of parsing, and the limit of its work. Shared by all languages.

A schema of a few hundred bytes can require an unbounded number of steps. Work is counted in steps, not in seconds, so
the same schema has the same result on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from suiro.errors import UsageError

MAX_STEPS = 1_000_000
"""For parsing one text. A step is a part, a keyword or a name."""

MAX_COMPARED_STEPS = 300_000
"""For comparing two schemas. A step is a pair of parts, or a name."""

STEPS_BETWEEN_PAUSES = 500


class InvalidSchema(UsageError):
    """The text is not a schema of its language. The message says where and why."""


@dataclass(frozen=True, slots=True)
class Import:
    """A schema that another one refers to by `name`."""

    name: str
    text: str


class TooComplex(UsageError):
    """The budget was used up. The outcome of the work is unknown."""


def is_end_of_stack(error: BaseException) -> bool:
    """Whether Python's stack has come to its end. rpds, in which jsonschema keeps references, panics there."""
    return isinstance(error, RecursionError) or type(error).__name__ == "PanicException"


class Budget:
    """`pause` is called regularly; it can end the work by raising."""

    __slots__ = ("_left", "_limit", "_next_pause", "pause")

    def __init__(self, limit: int = MAX_STEPS, pause: Callable[[], None] = lambda: None) -> None:
        self._limit = self._left = limit
        self._next_pause = limit - STEPS_BETWEEN_PAUSES
        self.pause = pause

    def spend(self, steps: int = 1) -> None:
        """Raises `TooComplex` if the budget is used up, and the errors of `pause`."""
        self._left -= steps
        if self._left < 0:
            raise TooComplex(
                f"more than {self._limit} steps would be needed; use fewer references, combinations, names or values"
            )
        if self._left <= self._next_pause:
            self._next_pause = self._left - STEPS_BETWEEN_PAUSES
            self.pause()


@dataclass(frozen=True, slots=True)
class Parsed:
    """`canonical` is stored. It is the same for texts that differ only in layout. `model` is specific to the format."""

    type: str
    canonical: str
    normalized: str
    model: Any
