"""The position of a row of a block in the order in which the interpreter would process the micro-batch.

The interpreter goes depth first: a record runs down every path before the next one is taken. A block goes through one
operator after the other. Both are the same where paths do not meet again. Where they do, rows are merged by their
`key`: which record they come from (the place), then which path they came by (the visit, numbered depth first). An
operator that gives several rows for one begins a domain of its own: its rows are the places there, and the key of a
row begins with the key of the row that it was made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Key = tuple[int, ...]


class Domain:
    """The rows that places are numbers of. `made_of`: the order of the rows that these rows were made from, and which
    row each was made from. Without it, places count the records that the task took or, if `is_the_end`, the rows that
    operators release at the end of a micro-batch."""

    __slots__ = ("_keys", "_order", "_roots", "_rows", "is_the_end")

    def __init__(self, made_of: tuple[Order, Sequence[int]] | None = None, *, is_the_end: bool = False) -> None:
        self._order: Order | None = None
        self._rows: Sequence[int] = ()
        if made_of is not None:
            self._order, self._rows = made_of
        self._keys: list[Key] | None = None
        self._roots: list[int] | None = None
        self.is_the_end = is_the_end

    @classmethod
    def of_keys(cls, keys: list[Key], roots: list[int]) -> Domain:
        found = cls()
        found._keys, found._roots = keys, roots
        return found

    def key(self, place: int) -> Key:
        if self._keys is not None:
            return self._keys[place]
        return () if self._order is None else self._order.key(self._rows[place])

    def root(self, place: int) -> int:
        """Returns the number of the record that the task took; -1 for a row that comes from no record of this block."""
        if self._roots is not None:
            return self._roots[place]
        if self._order is not None:
            return self._order.root(self._rows[place])
        return -1 if self.is_the_end else place


class Order:
    """The order of the rows of one block. Places are computed on first use."""

    __slots__ = ("_base", "_places", "_rows", "domain", "visits")

    def __init__(
        self,
        domain: Domain,
        places: Sequence[int] | None,
        visits: int | list[int],
        *,
        base: Order | None = None,
        rows: Sequence[int] = (),
    ) -> None:
        self.domain = domain
        self.visits = visits
        """The path that each row came by; one number if all rows came by the same path."""
        self._places = places
        self._base = base
        self._rows = rows

    @property
    def places(self) -> Sequence[int]:
        if self._places is None:
            assert self._base is not None
            of = self._base.places
            self._places = [of[row] for row in self._rows]
            self._base = None
        return self._places

    def key(self, row: int) -> Key:
        place = self.places[row]
        return (*self.domain.key(place), place, self.visit(row))

    def root(self, row: int) -> int:
        return self.domain.root(self.places[row])

    def visit(self, row: int) -> int:
        return self.visits if isinstance(self.visits, int) else self.visits[row]

    def taken(self, rows: Sequence[int]) -> Order:
        """Returns the order of these rows. Each occurs at most once, in the given order."""
        visits = self.visits if isinstance(self.visits, int) else [self.visits[row] for row in rows]
        return Order(self.domain, None, visits, base=self, rows=rows)

    def several(self, rows: Sequence[int]) -> Order:
        """Returns the order of rows that were made from these rows, which may occur more than once."""
        visits = self.visits if isinstance(self.visits, int) else [self.visits[row] for row in rows]
        return Order(Domain((self, rows)), range(len(rows)), visits)

    def on_way(self, next_visit: Mapping[int, int]) -> Order:
        """Returns the order of the same rows at the next operator."""
        visits = self.visits
        moved = next_visit[visits] if isinstance(visits, int) else [next_visit[each] for each in visits]
        if self._places is None:
            return Order(self.domain, None, moved, base=self._base, rows=self._rows)
        return Order(self.domain, self._places, moved)


def ranks(orders: Sequence[Order]) -> list[Callable[[int], Any]]:
    """Returns for each order a function of a row. Its results can be compared with those of the other orders."""
    if all(order.domain is orders[0].domain for order in orders):
        return [_short_rank(order) for order in orders]
    return [order.key for order in orders]


def _short_rank(order: Order) -> Callable[[int], Any]:
    places, visit = order.places, order.visit
    return lambda row: (places[row], visit(row))
