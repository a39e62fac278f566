"""Divides the rows of two stores into the same buckets.

A bucket is a range of keys. Two stores have the same rows in it if the sums of the rows' hashes are equal, and the
database computes the sum. So to find the differences among millions of rows, only the rows of buckets that differ are
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from suiro.views.store.tables import Store


class Buckets:
    """The rows of a store in the buckets that it shares with another store."""

    def __init__(self, store: Store, bounds: Sequence[bytes]) -> None:
        self._store = store
        self._bounds = tuple(bounds)

    def bucket_digests(self, as_of: int) -> dict[int, tuple[int, int]]:
        """Returns, for each bucket with rows, their number and the sum of their hashes."""
        digests = enumerate(self._store.bucket_digests(self._bounds, as_of))
        return {number: (digest.rows, digest.total) for number, digest in digests if digest.rows}

    def bucket_rows(self, bucket: int, as_of: int) -> Iterator[tuple[tuple[Any, ...], int, str]]:
        """Yields (key, hash, value), by key."""
        for row in self._store.bucket_rows(bucket, self._bounds, as_of):
            yield row.key, row.hash, row.value


def same_buckets(old: Store, new: Store) -> tuple[Buckets, Buckets]:
    """Uses the bounds of both stores: in a range where one has few rows or none, the other may have any number."""
    bounds = sorted({*old.bucket_bounds(), *new.bucket_bounds()})
    return Buckets(old, bounds), Buckets(new, bounds)
