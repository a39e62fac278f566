"""Records of one micro-batch as columns, the input and output of operators on Spark. See `blocks.task`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from suiro.streams.blocks.order import Domain, Order
from suiro.streams.records import Headers, Record
from suiro.streams.times import UNKNOWN

Row = tuple[Any, Any, int, Headers, int]
"""A row by itself: key, value, timestamp (ms), headers, and how far its input partition had come (`UNKNOWN` if that is
not carried)."""


class Block:
    """The lists of a block never change. `headers`: None if no row has any. `carried`: for each row, how far its
    partition upstream had come; None if that is not known for any row. `order`: None for a block that is not
    forwarded."""

    __slots__ = ("carried", "headers", "keys", "order", "timestamps", "values")

    def __init__(
        self,
        keys: Sequence[Any],
        values: Sequence[Any],
        timestamps: Sequence[int],
        *,
        headers: Sequence[Headers] | None = None,
        carried: Sequence[int] | None = None,
        order: Order | None = None,
    ) -> None:
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.headers = headers
        self.carried = carried
        self.order = order

    def __len__(self) -> int:
        return len(self.keys)

    def made(
        self,
        rows: Sequence[int] | None,
        *,
        keys: Sequence[Any] | None = None,
        values: Sequence[Any] | None = None,
        timestamps: Sequence[int] | None = None,
        several: bool = False,
    ) -> Block:
        """Returns a block of these rows, or of all (None). Columns that are given replace the block's own; they have an
        item for each of `rows`. `several`: a row may occur more than once."""
        order = self.order
        assert order is not None
        if rows is not None and len(rows) == len(self.keys) and not several:
            rows = None

        def own(column: Sequence[Any]) -> Sequence[Any]:
            return column if rows is None else [column[row] for row in rows]

        if rows is not None:
            order = order.several(rows) if several else order.taken(rows)
        return Block(
            own(self.keys) if keys is None else keys,
            own(self.values) if values is None else values,
            own(self.timestamps) if timestamps is None else timestamps,
            headers=None if self.headers is None else own(self.headers),
            carried=None if self.carried is None else own(self.carried),
            order=order,
        )

    def on_way(self, next_visit: Mapping[int, int], *, carries: bool) -> Block:
        """Returns the block as it comes to the next operator. `carries`: that operator asks how far partitions upstream
        had come."""
        assert self.order is not None
        return Block(
            self.keys,
            self.values,
            self.timestamps,
            headers=self.headers,
            carried=self.carried if carries else None,
            order=self.order.on_way(next_visit),
        )

    def record(self, row: int) -> Record:
        return Record(
            self.keys[row],
            self.values[row],
            self.timestamps[row],
            () if self.headers is None else self.headers[row],
        )

    def row(self, row: int) -> Row:
        return (
            self.keys[row],
            self.values[row],
            self.timestamps[row],
            () if self.headers is None else self.headers[row],
            UNKNOWN if self.carried is None else self.carried[row],
        )

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> Block:
        """Returns a block of rows that waited for the end of the micro-batch. There must be at least one."""
        keys, values, timestamps, headers, carried = zip(*rows, strict=True)
        found = cls.at_the_end(keys, values, timestamps)
        found.headers = headers if any(headers) else None
        found.carried = None if max(carried) == UNKNOWN else carried
        return found

    @classmethod
    def at_the_end(cls, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[int]) -> Block:
        """Returns a block of rows that an operator releases at the end of the micro-batch."""
        return cls(keys, values, timestamps, order=Order(Domain(is_the_end=True), range(len(keys)), 0))


class Results:
    """Collects the results of a step that gives any number of them for a row of a block. `row`: the row that results
    belong to which are given now."""

    __slots__ = ("keys", "row", "rows", "timestamps", "values")

    def __init__(self) -> None:
        self.row = 0
        self.rows: list[int] = []
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.timestamps: list[int] = []

    def give(self, key: Any, value: Any, timestamp: int) -> None:
        self.rows.append(self.row)
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(timestamp)

    def of(self, block: Block, *, several: bool = True) -> Block:
        return block.made(self.rows, keys=self.keys, values=self.values, timestamps=self.timestamps, several=several)

    def at_the_end(self) -> Block:
        return Block.at_the_end(self.keys, self.values, self.timestamps)


def together(blocks: Sequence[Block]) -> Block | None:
    """Returns one block with the rows of all blocks, in their order; None if there are no blocks."""
    if len(blocks) > 1:
        return merged(blocks)[0]
    return blocks[0] if blocks else None


def merged(blocks: Sequence[Block]) -> tuple[Block, list[int]]:
    """Returns one block with the rows of all blocks, in their order, and for each row the index of its block."""
    orders = [block.order for block in blocks]
    first = orders[0]
    assert first is not None
    is_one_domain = all(order is not None and order.domain is first.domain for order in orders)
    rows: list[tuple[Any, int, int, int]] = []
    for index, order in enumerate(orders):
        assert order is not None
        if is_one_domain:
            for row, place in enumerate(order.places):
                rows.append((place, order.visit(row), index, row))
        else:
            for row in range(len(blocks[index])):
                rows.append((order.key(row), 0, index, row))
    rows.sort()
    of = [index for _, _, index, _ in rows]
    if is_one_domain:
        order = Order(first.domain, [place for place, _, _, _ in rows], [visit for _, visit, _, _ in rows])
    else:
        known = [each for each in orders if each is not None]
        domain = Domain.of_keys([key for key, _, _, _ in rows], [known[index].root(row) for _, _, index, row in rows])
        order = Order(domain, range(len(rows)), [known[index].visit(row) for _, _, index, row in rows])
    pairs = [(blocks[index], row) for _, _, index, row in rows]
    some = any(block.headers is not None for block in blocks)
    carries = any(block.carried is not None for block in blocks)
    block = Block(
        [block.keys[row] for block, row in pairs],
        [block.values[row] for block, row in pairs],
        [block.timestamps[row] for block, row in pairs],
        headers=[() if block.headers is None else block.headers[row] for block, row in pairs] if some else None,
        carried=[UNKNOWN if block.carried is None else block.carried[row] for block, row in pairs] if carries else None,
        order=order,
    )
    return block, of
