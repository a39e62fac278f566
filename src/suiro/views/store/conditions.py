"""Conditions of readers on columns, and words that they search, with the same meaning in every store.

A condition has a column of the key or of the value (`delay`, or `gate.letter` of a nested object), an operator and a
value. It matches only if the column's value has the same type: `delay:gt:10` matches no text. `ne` is the opposite of
`eq`. Numbers compare by value, text by code point.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from suiro.errors import UsageError
from suiro.views.store.json_text import words_in

SIGNS = {"eq": "=", "ne": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
"""In SQL. `ne` is the opposite of `eq`."""
OPERATORS = (*SIGNS, "prefix")
DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000
MAX_CONDITIONS = 16
MAX_WORDS = 16
_NAME = re.compile(r'[^"\\\x00-\x1f]+')  # a name that a JSON path of any database can have


@dataclass(frozen=True, slots=True)
class Condition:
    """`value`: a JSON scalar; with eq and ne also null, which a missing column equals."""

    column: str
    operator: str
    value: str | int | float | bool | None

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise UsageError(f"where={self.column}: no operator {self.operator!r}; there are {', '.join(OPERATORS)}")
        is_ordered = isinstance(self.value, (str, int, float)) and not isinstance(self.value, bool)
        if self.operator == "prefix" and not isinstance(self.value, str):
            raise UsageError(f'where={self.column}:prefix takes text, not {self.value!r}; a number as text is "5"')
        if self.operator not in ("eq", "ne") and not is_ordered:
            raise UsageError(f"where={self.column}:{self.operator} takes a number or text, not {self.value!r}")
        if not all(self.path) or not _NAME.fullmatch(self.column):
            raise UsageError(f"where: {self.column!r} is no column's name")

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.column.split("."))

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parses `column:operator:value`. The value is JSON if that gives a scalar, else text."""
        column, found, rest = text.partition(":")
        operator, found_too, value = rest.partition(":")
        if not found or not found_too:
            raise UsageError(f"where={text!r} is not column:operator:value, as in where=delay:gt:10")
        return cls(column, operator, value if operator == "prefix" else _scalar(value))


SearchWord = tuple[str, bool]
"""A word, and whether it stands for all that begin with it."""


def words_to_find(search: str | None) -> list[SearchWord]:
    """Rows must have all words. `delay*` stands for every word that begins with `delay`."""
    if search is None:
        return []
    found: list[SearchWord] = []
    for part in search.split():
        words = words_in(part)
        is_prefix = part.endswith("*")
        found += [(word, is_prefix and number == len(words)) for number, word in enumerate(words, 1)]
    if not found:
        raise UsageError(f"search={search!r} has no word: letters or digits")
    if len(found) > MAX_WORDS:
        raise UsageError(f"search has {len(found)} words; the most is {MAX_WORDS}")
    return found


def _scalar(text: str) -> str | int | float | bool | None:
    try:
        value = json.loads(text)
        if isinstance(value, str):
            value.encode()  # half of a surrogate pair, "\\ud800", is text as it was written
        is_finite = not isinstance(value, (int, float)) or math.isfinite(value)
    except (ValueError, OverflowError, RecursionError):
        return text
    return value if is_finite and (value is None or isinstance(value, (str, int, float, bool))) else text
