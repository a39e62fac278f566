"""How far the snapshot of one table is: what a position keeps of it, and whether it still fits the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from suiro.connect.postgres.publication import Table

__all__ = ["TableState", "columns_of"]


@dataclass(slots=True, kw_only=True)
class TableState:
    """A part of the position. `since`: the topic's ends when the snapshot began; what is older and not seen goes.

    `ranges_read`: every range was read, and rows that are owed are what is left. `was_whole`: the topic had every row
    as the table had it when the snapshot began, so older values in it may complete a change.
    """

    oid: int
    running: bool
    after: list[str] | None = None
    ranges_read: bool = False
    since: dict[str, int] = field(default_factory=dict)
    was_whole: bool = False
    columns: list[list[Any]] = field(default_factory=list)
    file: int = 0
    key_schema_id: int = 0

    def matches(self, table: Table) -> bool:
        """Whether every row's value in the topic is as the table has it, but for what the stream tells."""
        if self.oid != table.oid:
            return False
        now = columns_of(table)
        if now == self.columns:
            return True
        before = {column[0]: column for column in self.columns}
        highest = max((column[3] for column in self.columns), default=0)
        if self.file != table.file:
            return False  # rewritten: rows have values that no change told
        for column in table.columns:
            known = before.get(column.name)
            if known is None and (column.fills_itself or column.number <= highest):
                return False  # has a value in rows from before, or is an older column under a new name
            if known is not None and known[1] != column.type_oid:
                return False
        return True


def columns_of(table: Table) -> list[list[Any]]:
    return [[one.name, one.type_oid, one.typmod, one.number] for one in table.columns]
