"""Differences of two schemas, and the comparison of their types, which may be graphs. Shared by all languages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from suiro.registry.formats.parsed import Budget

READER, WRITER = "\u27eareader\u27eb", "\u27eawriter\u27eb"
"""Placeholders in a description for "new" and "old", or for "old" and "new" if the old schema reads."""

_ON_NOTHING = 1 << 60


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """A reason why a reader cannot read. `kind` is Confluent's name for it, `path` a place in the schema."""

    kind: str
    path: str
    description: str

    def message(self, *, reader_is_new: bool) -> str:
        """Returns the message of Confluent's registry."""
        reader, writer = ("new", "old") if reader_is_new else ("old", "new")
        description = self.description.replace(READER, reader).replace(WRITER, writer)
        return f"{{errorType:'{self.kind}', description:'{description}', additionalInfo:'{self.path}'}}"


def differs(kind: str, path: str, what: str) -> Incompatibility:
    """`what` says what the reader's schema does, up to the word before the place."""
    return Incompatibility(kind, path, f"The {READER} schema {what} path '{path}' in the {WRITER} schema")


Found = Iterator[Incompatibility]
T = TypeVar("T")


class Pairs(Generic[T]):
    """Compares each pair of types once.

    Types can refer to themselves. A pair that is reached again while it is being compared counts as compatible; it is,
    if everything else in the cycle is. So a verdict "compatible" can depend on a pair that is still open. It is kept,
    and dropped if that pair turns out to be incompatible. A verdict "incompatible" depends on nothing.
    """

    def __init__(
        self,
        budget: Budget,
        key: Callable[[T, T], Hashable],
        differences: Callable[[T, T, str], Iterable[Incompatibility]],
    ) -> None:
        """`key` returns None for types that have no differences. If it has ids of objects, the caller keeps the objects
        alive. `differences` compares a reader's and a writer's type at a path, and their parts by `compare`."""
        self._budget = budget
        self._key = key
        self._differences = differences
        self._known: dict[Hashable, list[Incompatibility]] = {}
        self._open: dict[Hashable, int] = {}  # and how deep
        self._rests_on: dict[Hashable, int] = {}  # the outermost open pair of each provisional verdict
        self._for_now: list[Hashable] = []
        self._outermost = _ON_NOTHING  # the outermost open pair met since the innermost one was opened

    def compare(self, reader: T, writer: T, path: str) -> list[Incompatibility]:
        """Returns the differences of a pair; of one that was met before, only the first. After an error, such as
        `TooComplex`, nothing must be compared any more."""
        pair = self._key(reader, writer)
        if pair is None:
            return []
        self._budget.spend()
        known = self._known.get(pair)
        if known is not None:
            self._outermost = min(self._outermost, self._rests_on.get(pair, _ON_NOTHING))
            return known
        if pair in self._open:
            self._outermost = min(self._outermost, self._open[pair])
            return []
        depth = self._open[pair] = len(self._open)
        around, self._outermost = self._outermost, _ON_NOTHING
        first = len(self._for_now)
        found = list(self._differences(reader, writer, path))
        del self._open[pair]
        inside, self._outermost = self._outermost, around
        if not found and inside < depth:
            self._rests_on[pair] = inside
            self._for_now.append(pair)
            self._outermost = min(around, inside)
        else:
            for one in self._for_now[first:]:
                del self._rests_on[one]
                if found:
                    del self._known[one]
            del self._for_now[first:]
        self._known[pair] = found[:1]
        return found
