"""The snapshot state of one table: the part of the position that records its progress, and whether it still matches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from suiro.connect.postgres.server.publication import Table


@dataclass(slots=True, kw_only=True)
class TableState:
    """A part of the position.

    `since`: the ends of the topic's partitions when the snapshot began. Keys that were last written before, and are not
    in the table, get tombstones. `begins_at`: a place in Postgres's log after all changes of other tables or schemas
    under this name. Nothing is read until the stream is there; then `since` is taken again, and this becomes 0.

    `columns`: the columns that the table had when it was last looked at, then those that were dropped since it was
    read: the topic still has their values under these names.

    `topic_id`: a topic with another id does not have what was written, even if it has the same name.

    `ranges_read`: every range was read, and only rows to select again remain. `read_again`: this was requested while
    ranges were read, and follows when all of them are. `was_whole`: when the snapshot began, the
    topic had every row as the table had it, so older values in the topic may complete a change.
    """

    oid: int
    running: bool
    begins_at: int = 0
    after: list[str] | None = None
    ranges_read: bool = False
    since: dict[str, int] = field(default_factory=dict)
    was_whole: bool = False
    columns: list[list[Any]] = field(default_factory=list)
    file: int = 0
    attributes: int = 0
    row_filter: str | None = ""
    order: list[list[Any]] = field(default_factory=list)
    key_schema_id: int = 0
    published_as: str = ""
    topic_id: str = ""
    read_again: bool = False

    @classmethod
    def beginning(cls, table: Table, **others: Any) -> TableState:
        state = cls(oid=table.oid, running=True, **others)
        state.note(table)
        return state

    def note(self, table: Table) -> bool:
        """Notes how the table is now. Returns whether it was different."""
        columns = columns_of(table)
        names = {column[0] for column in columns}
        columns += [column for column in self.columns if column[0] not in names]
        now = (columns, table.file, table.attributes, table.row_filter, _order_of(table), table.published_as)
        before = (self.columns, self.file, self.attributes, self.row_filter, self.order, self.published_as)
        self.columns, self.file, self.attributes, self.row_filter, self.order, self.published_as = now
        return now != before

    def is_of_topic(self, topic_id: str) -> bool:
        """Whether the topic is the one that was written into. An unknown id is taken to be the same."""
        return "" in (self.topic_id, topic_id) or self.topic_id == topic_id

    def matches(self, table: Table) -> bool:
        """Whether the topic has every row as the table has it, apart from changes that the stream brings, and whether
        the ranges before `after` are those that were read. A fact that an older version did not note is taken to be the
        same."""
        if self.oid != table.oid or self.row_filter not in ("", table.row_filter) or self.may_lack_changes(table):
            return False
        if self.running and self.order and self.order != _order_of(table):
            return False
        known = {column[0]: column for column in self.columns}
        highest = max((self.attributes, *(column[3] for column in self.columns if len(column) > 3)))
        was_rewritten = self.was_rewritten(table)
        for column, now in zip(table.columns, columns_of(table), strict=True):
            before = known.get(column.name)
            if before is None:
                # Older rows have a value of it, or it is an older column that was renamed or published since.
                if was_rewritten or column.has_stored_default or column.number <= highest:
                    return False
            elif before[1] != column.type_oid or not _is_same(before, now):
                return False
            elif was_rewritten and before[2:5] != now[2:5][: len(before) - 2]:
                # Rows got values without a change. (VACUUM FULL and TRUNCATE do not alter columns.)
                return False
        return True

    def may_lack_changes(self, table: Table) -> bool:
        """Whether the table, or some of its changes, may have been unpublished for a while."""
        return self.published_as not in ("", table.published_as)

    def was_rewritten(self, table: Table) -> bool:
        return self.file not in (0, table.file)

    def is_completed_by_names(self, table: Table) -> bool:
        """Whether the columns of rows in the topic are those that have the same names now."""
        now = {column[0]: column for column in columns_of(table)}
        return not self.was_rewritten(table) and all(
            _is_same(before, now[before[0]]) for before in self.columns if before[0] in now
        )


def columns_of(table: Table) -> list[list[Any]]:
    return [[one.name, one.type_oid, one.typmod, one.number, one.version, *one.attributes] for one in table.columns]


def _is_same(before: list[Any], now: list[Any]) -> bool:
    """Whether it is the same column: not one that was dropped and added again, nor another that was renamed. The same
    holds for the attributes of composite types within it, which may have got more."""
    return len(before) <= 3 or (before[3] == now[3] and set(before[5:]) <= set(now[5:]))


def _order_of(table: Table) -> list[list[Any]]:
    by_name = {column.name: column for column in table.columns}
    return [[by_name[name].number, by_name[name].collation] for name in table.key]
