"""Parses and compares schemas for one request, without holding the state.

Rules decide from the `State` while other requests wait, and parsing or comparing one schema can take seconds. So rules
ask `Work` for results. If a result is missing, it raises `NotComputed`; `run` computes it without the state and calls
the rule again. Once all results are known, a decision takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from suiro.errors import UsageError
from suiro.registry.formats import (
    MAX_COMPARED_STEPS,
    MAX_STEPS,
    Budget,
    Import,
    Incompatibility,
    InvalidSchema,
    Parsed,
    TooComplex,
    compare,
    format_of,
    parse,
)

T = TypeVar("T")
R = TypeVar("R")


class NotComputed(Exception):
    """Results that must be computed before a rule can decide."""

    def __init__(self, parts: dict[Hashable, Callable[[], Any]]) -> None:
        super().__init__(len(parts))
        self.parts = parts


class Work:
    """`pause` is called regularly during the work, and ends it by raising. `turn` is held during the work."""

    def __init__(
        self, pause: Callable[[], None] = lambda: None, turn: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self._pause = pause
        self._turn = turn
        self._done: dict[Hashable, Any] = {}
        self._refused: dict[Hashable, UsageError] = {}

    def run(self, decide: Callable[[], T]) -> T:
        """Returns the result of `decide`, after computing everything that it asks for."""
        while True:
            try:
                return decide()
            except NotComputed as missing:
                parts = missing.parts
            with self._turn():
                for key, do in parts.items():
                    try:
                        self._done[key] = do()
                    except (InvalidSchema, TooComplex) as error:
                        self._refused[key] = error
            self._pause()

    def parse(self, type_: str, text: str, imports: tuple[Import, ...], *, strict: bool) -> Parsed:
        """Raises `NotComputed`, `InvalidSchema`, `TooComplex`."""
        return self._ask(
            ("parse", type_, text, imports, strict),
            lambda: parse(type_, text, imports, strict=strict, budget=Budget(MAX_STEPS, self._pause)),
        )

    def compare(self, reader: Parsed, writer: Parsed) -> list[Incompatibility]:
        """Both schemas must be results of `parse`. Raises `NotComputed`, `InvalidSchema` and `TooComplex`."""
        return self._ask(
            ("compare", id(reader), id(writer)),
            lambda: compare(reader, writer, Budget(MAX_COMPARED_STEPS, self._pause)),
        )

    def formatted(self, parsed: Parsed, form: str) -> str:
        """Raises `NotComputed` and `InvalidSchema`."""
        text: str = self._ask(("format", id(parsed), form), lambda: format_of(parsed.type).formatted(parsed, form))
        return text

    @staticmethod
    def each(ask: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Asks for all items. The missing results of all of them are computed together."""
        found: list[R] = []
        parts: dict[Hashable, Callable[[], Any]] = {}
        for one in items:
            try:
                found.append(ask(one))
            except NotComputed as missing:
                parts |= missing.parts
        if parts:
            raise NotComputed(parts)
        return found

    def _ask(self, key: Hashable, do: Callable[[], T]) -> T:
        if key in self._refused:
            raise self._refused[key]
        if key not in self._done:
            raise NotComputed({key: do})
        found: T = self._done[key]
        return found
