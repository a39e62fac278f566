"""The values that a store takes and gives: rows, pages of rows, changes; and the errors of a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from suiro.errors import FatalError, TransientError, UsageError
from suiro.views.cuts import Cut
from suiro.views.store.json_text import canonical, encodable, row_hash, servable, words_of
from suiro.views.store.keys import JSON_TYPES, KeyTypes, place_of

ALL_BITS = (1 << 64) - 1


class CutGoneError(UsageError):
    """The store no longer keeps the requested state, or never had it."""


class NoCutError(TransientError):
    """The version has no cut yet."""


class QuestionTooLargeError(UsageError):
    """A page of rows took too long to find."""


class StoreFullError(TransientError):
    """There is no room for a cut's rows. Nothing of the cut was written, and the cut before it is served."""


class StoreUnavailableError(TransientError):
    """The database cannot be reached, or did not answer in time."""


class StoreBrokenError(FatalError):
    """The store's location has something else, or a damaged store, or the host has no right to it."""


class StoreOfAnotherError(StoreBrokenError):
    """The store's location has rows of another version, or of the same version of another log."""


@dataclass(frozen=True, slots=True)
class Row:
    """`place`: the key's place in the order of all rows. `value`: JSON, as the pipeline wrote it."""

    place: bytes
    key: tuple[Any, ...]
    value: str
    hash: int  # of the key and the value in canonical form


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a look-up of one key: the row, if there is one, as of `cut`."""

    cut: Cut
    row: Row | None


@dataclass(frozen=True, slots=True)
class Page:
    """Rows as of `cut` by key. `next`: the place of the last one, if there are more."""

    cut: Cut
    rows: list[Row]
    next: bytes | None


@dataclass(frozen=True, slots=True)
class Change:
    """A row that a cut wrote or deleted. `value` is None if it was deleted."""

    place: bytes
    key: tuple[Any, ...]
    value: str | None


@dataclass(frozen=True, slots=True)
class Digest:
    """The number of rows and 64 bits of the sum of their hashes. Equal sets of rows have equal digests."""

    rows: int
    total: int

    @classmethod
    def of(cls, sums: Iterable[tuple[Any, ...]]) -> Digest:
        """From (rows, sum of the hashes' lower halves, sum of the upper halves). A sum of no rows is None."""
        rows = total = 0
        for count, low, high in sums:
            rows += int(count)
            total += int(low or 0) + (int(high or 0) << 32)
        return cls(rows, total & ALL_BITS)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows of a cut, each key once, ready to be written."""

    upserts: list[tuple[bytes, int, str, str, list[str]]]  # place, hash, key as JSON, value, words
    deletes: list[bytes]
    types: KeyTypes


def prepare(
    keys: Sequence[tuple[Any, ...]],
    values: Sequence[str | None],
    *,
    columns: tuple[str, ...],
    search: tuple[str, ...],
) -> Prepared:
    """Takes the last record of each key, and ignores the others. Raises `UsageError`, which names the key."""
    last = {place_of(key): number for number, key in enumerate(keys)}
    upserts: list[tuple[bytes, int, str, str, list[str]]] = []
    deletes: list[bytes] = []
    types: list[set[type]] = [set() for _ in columns]
    for place, number in sorted(last.items()):
        key, text = keys[number], values[number]
        if len(key) != len(columns):
            raise UsageError(f"key {key!r:.200} has {len(key)} parts, the view's key has {', '.join(columns)}")
        for kinds, part in zip(types, key, strict=True):
            kinds.add(type(part))
        if text is None:
            deletes.append(place)
            continue
        try:
            text = encodable(servable(text))
            value = json.loads(text)
            digest = row_hash(place, value)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"key {key!r:.200}: the value is no JSON: {error}; it begins {text[:80]!r}") from None
        words = words_of(search, dict(zip(columns, key, strict=True)), value) if search else []
        written = canonical([None if isinstance(part, float) and part - part != 0 else part for part in key])
        upserts.append((place, digest, written, text, words))
    return Prepared(
        upserts,
        deletes,
        tuple(frozenset(JSON_TYPES.get(kind, "nested") for kind in kinds) for kinds in types),
    )


def key_from(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))
