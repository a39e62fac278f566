"""An upper bound of the cost of a rule per record, computed from its expression.

The length of a text is at most `factor` times the texts of the record, plus `chars`. A function that returns no text
returns a value of a few characters. A function of a text costs the length that it produces or searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suiro.streams.expressions.expression import Call, Constant, Expression, Field, Root

MAX_RULE_STEPS = 10_000
MAX_TEXT_GROWTH = 32  # of one text, as a multiple of the record's: limits the memory
# Of all texts that a rule makes or searches, as a multiple of the record's: limits the time.
MAX_TEXT_WORK = 2_000
MAX_CONSTANT_CHARS = 1_000_000  # of texts that are made of the rule's own constants

NUMBER_CHARS = 25  # of a 64-bit number, a double or a boolean that is cast to text
CASE_GROWTH = 3  # a letter has up to three in the other case

_JOINING = frozenset({"add", "concat"})
_CHOOSING = frozenset({"coalesce", "least", "greatest"})
_SEARCHING = frozenset({"contains", "starts_with", "ends_with"})
_COPYING = frozenset({"strip", "substring", "cast"})


@dataclass(frozen=True, slots=True)
class Cost:
    """The number of steps; `factor` and `chars` of the value; `work_factor` and `work_chars` of all texts made."""

    steps: int
    factor: int = 0
    chars: int = NUMBER_CHARS
    work_factor: int = 0
    work_chars: int = 0

    def check(self) -> None:
        if self.steps > MAX_RULE_STEPS:
            raise ValueError(f"it takes more than {MAX_RULE_STEPS} steps for a record; write fewer comparisons")
        if self.factor > MAX_TEXT_GROWTH:
            raise ValueError(
                f"a text in it may become more than {MAX_TEXT_GROWTH} times as long as the record's; "
                "use fewer or shorter replacements"
            )
        if self.work_factor > MAX_TEXT_WORK:
            raise ValueError(
                f"its texts may together become more than {MAX_TEXT_WORK} times as long as the record's; "
                "use fewer functions of texts"
            )
        if max(self.chars, self.work_chars) > MAX_CONSTANT_CHARS:
            raise ValueError(f"its constants may grow to more than {MAX_CONSTANT_CHARS} characters")


def cost_of(node: Expression, below: Sequence[Cost]) -> Cost:
    """Returns the cost of a node. `below`: the costs of its children; a child that occurs twice costs twice."""
    steps = 1 + sum(one.steps for one in below)
    work_factor = sum(one.work_factor for one in below)
    work_chars = sum(one.work_chars for one in below)
    match node:
        case Constant():
            return Cost(steps, 0, _length(node.constant))
        case Root() | Field():
            return Cost(steps, 1, NUMBER_CHARS, work_factor, work_chars)
        case Call():
            pass
        case _:
            raise ValueError(f"{type(node).__name__} is not allowed in a rule")
    steps += sum(len(option) for option in node.options if isinstance(option, tuple))
    factor, chars = sum(one.factor for one in below), sum(one.chars for one in below)
    if node.function in _CHOOSING:
        factor, chars = max(one.factor for one in below), max(one.chars for one in below)
    elif node.function == "replace":
        old, new = node.options
        times = max(1, -(-len(new) // len(old)))
        factor, chars = factor * times, chars * times
    elif node.function in ("upper", "lower"):
        factor, chars = factor * CASE_GROWTH, chars * CASE_GROWTH
    elif node.function in _SEARCHING:
        return Cost(steps, 0, NUMBER_CHARS, work_factor + factor, work_chars + chars)
    elif node.function not in _JOINING and node.function not in _COPYING:
        return Cost(steps, 0, NUMBER_CHARS, work_factor, work_chars)
    return Cost(steps, factor, max(chars, NUMBER_CHARS), work_factor + factor, work_chars + chars)


def _length(constant: Any) -> int:
    return len(constant) if isinstance(constant, str | bytes) else NUMBER_CHARS
