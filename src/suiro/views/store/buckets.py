"""Two stores beside each other: their rows in the same buckets.

A bucket is a range of keys. What its rows' hashes add up to tells whether two stores have the same rows in it, and the
database adds them up while it walks the range: to find what differs among millions of rows, only rows of buckets that
differ are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suiro.views.store.tables import TableStore

__all__ = ["Buckets", "Digest", "same_buckets"]

_ALL_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Digest:
    """Equal for equal sets of rows: how many, and the sum of their hashes, 64 bits of it."""

    rows: int
    total: int

    @classmethod
    def of(cls, sums: Iterable[tuple[Any, ...]]) -> Digest:
        """From (rows, sum of the hashes' lower halves, sum of the upper ones); a sum of nothing is None."""
        rows = total = 0
        for count, low, high in sums:
            rows += int(count)
            total += int(low or 0) + (int(high or 0) << 32)
        return cls(rows, total & _ALL_BITS)


class Buckets:
    """A store's rows by buckets that another store has too."""

    def __init__(self, store: TableStore, bounds: Sequence[bytes]) -> None:
        self._store = store
        self._bounds = tuple(bounds)

    def bucket_digests(self, as_of: int) -> dict[int, tuple[int, int]]:
        """Of each bucket that has rows: how many, and the sum of their hashes."""
        digests = enumerate(self._store.bucket_digests(self._bounds, as_of))
        return {number: (digest.rows, digest.total) for number, digest in digests if digest.rows}

    def bucket_rows(self, bucket: int, as_of: int) -> Iterator[tuple[tuple[Any, ...], int, str]]:
        """(key, hash, value) by key."""
        for row in self._store.bucket_rows(bucket, self._bounds, as_of):
            yield row.key, row.hash, row.value


def same_buckets(old: TableStore, new: TableStore) -> tuple[Buckets, Buckets]:
    bounds = old.bucket_bounds()
    return Buckets(old, bounds), Buckets(new, bounds)
