"""Collects the results of a step that gives any number of them for a row of a block."""

from __future__ import annotations

from typing import Any

from suiro.streams.blocks.block import Block


class Results:
    """`row`: the row that results belong to which are given now."""

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
