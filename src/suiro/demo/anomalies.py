"""The anomalies that a reader with read_committed must never find, by name. Pure: no I/O, no clock.

The check of the demo uses this module. So do the checkers of the tests, which add anomalies of transactions and offsets
(`tests/support/exactly_once.py`).

| name | what was found |
|---|---|
| lost write | something counts as written (acknowledged, marked, noted), and cannot be read |
| torn transaction | of a micro-batch or a transaction some records can be read and others not |
| duplicate | a record can be read twice |
| aborted read | a record can be read that stands before an abort marker, or in a transaction without end |
| order inversion | records of one key are not in the order of their source |
| offsets ahead of data | marker or source offsets say more than can be read |
| offsets behind data | they say less |
| unknown record | nobody wrote it |
| blocked readers | a transaction is open after everybody has ended |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

NAMED_EXAMPLES = 5

Name = Literal[
    "lost write",
    "torn transaction",
    "duplicate",
    "aborted read",
    "order inversion",
    "offsets ahead of data",
    "offsets behind data",
    "unknown record",
    "blocked readers",
]
K = TypeVar("K", bound=Hashable)


class Anomaly(NamedTuple):
    name: Name
    words: str


class Keys(Generic[K]):
    """Checks that each wanted key comes exactly once, and no other key. `again` counts repeated keys."""

    def __init__(self, wanted: Iterable[K]) -> None:
        self._wanted = frozenset(wanted)
        self._found: set[K] = set()  # wanted or not
        self.again: Counter[K] = Counter()
        self.total = 0

    @property
    def missing(self) -> frozenset[K]:
        return self._wanted - self._found

    def note(self, key: K) -> None:
        self.total += 1
        if key in self._found:
            self.again[key] += 1
        else:
            self._found.add(key)

    def anomalies(
        self,
        what: str,
        texts: tuple[str, str, str] = ("missing", "there more than once", "not expected"),
        *,
        text_of: Callable[[K], str] = str,
    ) -> Iterator[Anomaly]:
        """Yields one anomaly for each kind. `texts` are for missing, repeated and unknown keys."""
        names: tuple[Name, Name, Name] = ("lost write", "duplicate", "unknown record")
        for name, keys, text in zip(names, (self.missing, self.again, self._found - self._wanted), texts, strict=True):
            if keys:
                yield Anomaly(name, f"{len(keys)} {what} {text}: {some(sorted(map(text_of, keys)))}")


def some(texts: Sequence[str]) -> str:
    """Returns the first texts, for a message."""
    return ", ".join([*texts[:NAMED_EXAMPLES], *(["..."] if len(texts) > NAMED_EXAMPLES else [])])
