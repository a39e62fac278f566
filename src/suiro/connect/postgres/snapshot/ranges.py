"""Divides a table into ranges of its key. A snapshot reads range by range and resumes after the last one.

Ranges follow each other without gaps, in the order of the key's index. A bound is the text of the key's columns, so the
position can hold it and only Postgres compares it. A table whose key has no index, or has domains within the types of
its columns, is one range, or, within one exported snapshot, ranges of blocks.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from suiro.connect.postgres.encoding.copy_binary import HEADER_BYTES, SIGNATURE, TRAILER
from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.encoding.pgoutput import CorruptMessageError
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.server.publication import Table
from suiro.errors import ConfigError, DataLossError, UsageError

FIRST_ROWS = 2_000  # of the first range, which shows soon that the capture works
CHUNK_BYTES = 8 << 20
RANGE_BYTES = 4 * CHUNK_BYTES  # the limit of a range, unless it is one row
GROWTH = 4  # of the number of rows that fit, once this many times as many would fit
LAST_BLOCK = 0xFFFFFFFE
KEYS_AT_ONCE = 1_000  # in one statement
FIRST_KEYS = 10  # in the first statement, before it is known how large rows are
SAMPLE_ROWS = 1_000  # of a table that was never analyzed

Bound = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Rows with after < key <= until; None is no bound. `blocks`: a range of blocks of the table's file instead."""

    after: Bound | None = None
    until: Bound | None = None
    blocks: tuple[int, int] | None = None

    @property
    def is_last(self) -> bool:
        return self.until is None and (self.blocks is None or self.blocks[1] == LAST_BLOCK)


def chunk_size(database: Database, table: Table, wanted: int) -> tuple[int, float]:
    """Returns the rows of one chunk, fewer than wanted if rows are large because a whole chunk is in memory, and an
    estimate of the rows of the whole table."""
    size, rows = _size(database, table)
    if not rows:
        rows = _rows_of_a_new_table(database, table)
    if not rows or not size:
        return wanted, rows
    return max(1, min(wanted, int(CHUNK_BYTES / (size / rows)))), rows


def _size(database: Database, table: Table) -> tuple[float, float]:
    """Returns the bytes and Postgres's last count of the rows; 0 for a table that was dropped."""
    ((size, rows),) = database.rows(
        "select coalesce(sum(pg_table_size(t.relid)), 0)::float8, coalesce(sum(greatest(c.reltuples, 0)), 0)::float8"
        " from (select relid from pg_partition_tree(%(oid)s) where isleaf union select %(oid)s::oid::regclass) t"
        " join pg_class c on c.oid = t.relid",
        {"oid": table.oid},
        what=f"ask how large {table.full_name} is",
    )
    return size, rows


def _rows_of_a_new_table(database: Database, table: Table) -> float:
    """Counts the rows as far as that is cheap. Beyond that, the planner estimates them by the size of the file."""
    what = f"ask how large {table.full_name} is"
    ((counted,),) = database.rows(
        f"select count(*)::float8 from (select from {table.sql_rows} limit {SAMPLE_ROWS}) counted", what=what
    )
    if counted < SAMPLE_ROWS:
        return float(counted)
    ((plan,),) = database.rows(f"explain (format json) select from {table.sql_rows}", what=what)
    return max(float(counted), float(plan[0]["Plan"]["Plan Rows"]))


def first_rows(database: Database, table: Table, wanted: Range, rows: int) -> Range:
    """Returns the range of the first `rows` rows of the wanted one, or the whole of it if it has fewer."""
    key = ", ".join(quoted(name) for name in table.key)
    # By the output functions: users may define casts to text for their types.
    texts = ", ".join(f"concat({quoted(name)})" for name in table.key)
    # The outer query prints, so the rows that are skipped are not printed, and an index-only scan suffices.
    where = _where(table, *_conditions(database, table, wanted))
    found = database.row(
        f"select {texts} from (select {key} from {table.sql_rows} {where} order by {key} offset"
        f" {rows - 1} limit 1) bound",
        what=f"divide {table.full_name} into ranges",
    )
    return wanted if found is None else replace(wanted, until=tuple(found))


def ranges(database: Database, table: Table, after: Bound | None, rows: int) -> Iterator[Range]:
    """Yields all ranges behind `after`. All of them must be read in one snapshot."""
    if not table.is_divisible:
        yield from _blocks(database, table, rows)
        return
    size = min(FIRST_ROWS, rows)
    while True:
        found = first_rows(database, table, Range(after=after), size)
        yield found
        if found.is_last:
            return
        after, size = found.until, rows


def _blocks(database: Database, table: Table, rows: int) -> Iterator[Range]:
    found = database.row(
        "select max(pg_relation_size(relid)) / current_setting('block_size')::int, (select greatest(sum(reltuples), 0)"
        " from pg_class where oid in (select relid from pg_partition_tree(%(oid)s) union select %(oid)s::oid)) from"
        " (select relid from pg_partition_tree(%(oid)s) where isleaf union select %(oid)s::oid::regclass) t",
        {"oid": table.oid},
        what=f"ask how large {table.full_name} is",
    )
    blocks, tuples = (int(found[0] or 0), float(found[1] or 0)) if found is not None else (0, 0.0)
    step = max(1, int(blocks * rows / tuples)) if tuples else 1_000
    first = 0
    while first + step < blocks:
        yield Range(blocks=(first, first + step))
        first += step
    yield Range(blocks=(first, LAST_BLOCK))


def _where(table: Table, *conditions: str) -> str:
    found = [f"({table.row_filter})"] if table.row_filter else []
    found += conditions
    return "where " + " and ".join(found) if found else ""


def _conditions(database: Database, table: Table, wanted: Range) -> list[str]:
    names = [quoted(name) for name in table.key]
    conditions = [
        _compared(table, names, operator, _literals(database, table, bound))
        for bound, operator in ((wanted.after, ">"), (wanted.until, "<="))
        if bound is not None
    ]
    if wanted.blocks is not None:
        first, last = wanted.blocks
        conditions.append(f"ctid >= '({first},0)'::tid and ctid < '({last},0)'::tid")
    return conditions


def _compared(table: Table, names: Sequence[str], operator: str, literals: Sequence[str]) -> str:
    """A condition that compares the key's columns with a key in the order of `order by`: by the operators of the
    types, which need not be in the search path. Operators of another type, after a cast, may sort differently."""
    schemas = table.operator_schemas
    if len(set(schemas)) == 1:
        return f"({', '.join(names)}) operator({schemas[0]}.{operator}) ({', '.join(literals)})"
    # A row comparison has one schema for all columns. The condition on the first column alone can use an index.
    said = ""
    for name, schema, literal in reversed(list(zip(names, schemas, literals, strict=True))):
        strict, loose = (f"{name} operator({schema}.{one}) {literal}" for one in (operator[0], operator[0] + "="))
        last = strict if operator == operator[0] else loose
        said = f"({loose} and ({strict} or {said}))" if said else last
    return said


def _literals(database: Database, table: Table, key: Sequence[str]) -> list[str]:
    """Returns the key as literals of the types and collations of its columns; of the type below a domain, whose
    constraints may have changed since the row was written."""
    columns = {column.name: column for column in table.columns}
    return [
        f"{database.literal(text)}::{database.type_name(columns[name].type_oid)}"
        + (f" collate {columns[name].collation}" if columns[name].collation else "")
        for name, text in zip(table.key, key, strict=True)
    ]


def _is_one_of(database: Database, table: Table, keys: Sequence[Bound]) -> str:
    names = [quoted(name) for name in table.key]
    schemas = table.operator_schemas
    if not table.has_key_literals:
        # Values of the key have no literals, so they are compared as they are printed.
        printed = (
            " and ".join(
                f"concat({name}) operator(pg_catalog.=) {database.literal(text)}"
                for name, text in zip(names, key, strict=True)
            )
            for key in keys
        )
        return f"({' or '.join(printed)})"
    if len(set(schemas)) == 1:
        listed = ", ".join(f"({', '.join(_literals(database, table, key))})" for key in keys)
        return f"({', '.join(names)}) operator({schemas[0]}.=) any (select * from (values {listed}) given)"
    equal = (
        " and ".join(
            f"{name} operator({schema}.=) {literal}"
            for name, schema, literal in zip(names, schemas, _literals(database, table, key), strict=True)
        )
        for key in keys
    )
    return f"({' or '.join(equal)})"


def in_order(table: Table, texts: Sequence[str]) -> tuple[str, ...]:
    """Returns a key, given in the order of the table's columns, in the order of the table's key."""
    names = [column.name for column in table.columns if column.name in table.key]
    if len(names) != len(texts):
        raise DataLossError(
            f"the key of {table.full_name} changed while rows of it had to be read by the old one. Choose: start once "
            "with --snapshot new, which reads every table again"
        )
    by_name = dict(zip(names, texts, strict=True))
    return tuple(by_name[name] for name in table.key)


def keys_after(database: Database, table: Table, bound: Bound, keys: Sequence[Bound]) -> list[bool]:
    """Returns for each key whether it comes after the bound, in the order of the ranges."""
    found: list[bool] = []
    names = [f"k{number}" for number in range(len(table.key))]
    for first in range(0, len(keys), KEYS_AT_ONCE):
        listed = ", ".join(
            f"({place}, {', '.join(_literals(database, table, key))})"
            for place, key in enumerate(keys[first : first + KEYS_AT_ONCE])
        )
        rows = database.rows(
            f"select {_compared(table, names, '>', _literals(database, table, bound))}"
            f" from (values {listed}) given (place, {', '.join(names)}) order by place",
            what=f"compare keys of {table.full_name}",
        )
        found += [bool(row[0]) for row in rows]
    return found


def read_keys(
    database: Database, table: Table, selected: str, keys: Sequence[Bound], *, limit_bytes: int = CHUNK_BYTES
) -> tuple[bytes, int]:
    """Returns the rows with the first of these keys, in COPY's binary format, and the number of these keys.

    Portions grow while rows are small, so rows of similar size exceed `limit_bytes` by little more than one row. At
    least one key is read.
    """
    parts: list[bytes] = []
    header, size, done = b"", 0, 0
    portion = FIRST_KEYS
    while done < len(keys) and size < limit_bytes:
        some = keys[done : done + portion]
        sink = io.BytesIO()
        statement = _copy_statement(table, selected, _is_one_of(database, table, some))
        database.copy(statement, sink, what=f"read table {table.full_name}")
        data = sink.getvalue()
        if not data.startswith(SIGNATURE) or not data.endswith(TRAILER):
            raise CorruptMessageError(f"read table {table.full_name}: what COPY gave has no header or no end")
        header = data[:HEADER_BYTES]
        parts.append(data[HEADER_BYTES : -len(TRAILER)])
        size += len(parts[-1])
        done += len(some)
        largest = max(len(parts[-1]) // len(some), size // done, 1)
        portion = max(1, min(KEYS_AT_ONCE, 2 * portion, (limit_bytes - size) // largest))
    return header + b"".join(parts) + TRAILER, done


def invalid_key(database: Database, table: Table, keys: Sequence[Bound]) -> Bound | None:
    """Returns the first key that Postgres no longer accepts, such as one with a label that an enum has lost."""
    try:
        if keys:
            listed = ", ".join(f"({', '.join(_literals(database, table, key))})" for key in keys)
            database.rows(f"select from (values {listed}) given", what=f"check keys of {table.full_name}")
        return None
    except UsageError:
        if len(keys) == 1:
            return keys[0]
    middle = len(keys) // 2
    return invalid_key(database, table, keys[:middle]) or invalid_key(database, table, keys[middle:])


class RangeReader:
    """Reads ranges, in parts where rows are larger than the size of the table tells: neighbours may be far larger than
    the average, and compressed values are larger than their place on disk. May be called by several threads."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}  # by the table's oid: how many fit, if that was fewer than wanted

    def read(self, database: Database, table: Table, selected: str, wanted: Range) -> tuple[bytes, Range]:
        """Returns rows in COPY's binary format and their range: the wanted one, or its beginning if the whole range is
        too large. Must be called in a transaction."""
        # Without bounds of a key, nothing divides the rows; the table may have had such a key before.
        rows = self._rows.get(table.oid) if table.is_divisible else None
        part = wanted if rows is None else first_rows(database, table, wanted, rows)
        while True:
            statement = _copy_statement(table, selected, *_conditions(database, table, part))
            limit = RANGE_BYTES if table.is_divisible and rows != 1 else None
            sink = _Sink(database.cancel, limit)
            data = database.copy_until_full(statement, sink, what=f"read table {table.full_name}")
            if not sink.is_full:
                break
            rows = self._rows[table.oid] = max(1, _whole_rows(data) // 2)
            part = first_rows(database, table, part, rows)
        if rows is not None and GROWTH * len(data) < RANGE_BYTES:
            if part == wanted:
                self._rows.pop(table.oid, None)
            else:
                self._rows[table.oid] = GROWTH * rows
        return data, part


class _Sink(io.RawIOBase):
    """Takes about `limit` bytes (None: all), then cancels the statement that writes them."""

    def __init__(self, cancel: Callable[[], None], limit: int | None) -> None:
        self._cancel = cancel
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.is_full = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self.is_full:
            self._parts.append(bytes(data))
            self._size += len(data)
            self.is_full = self._limit is not None and self._size > self._limit
            if self.is_full:
                self._cancel()
        return len(data)

    def taken(self) -> bytes:
        return b"".join(self._parts)


def _whole_rows(data: bytes) -> int:
    """Returns the number of complete rows in the beginning of a COPY."""
    rows, at = 0, HEADER_BYTES
    while at + 2 <= len(data):
        (columns,) = struct.unpack_from(">h", data, at)
        at += 2
        for _ in range(columns):
            if at + 4 > len(data):
                return rows
            at += 4 + max(0, struct.unpack_from(">i", data, at)[0])
        rows += at <= len(data)
    return rows


def _copy_statement(table: Table, selected: str, *conditions: str) -> str:
    return f"COPY (SELECT {selected} FROM {table.sql_rows} {_where(table, *conditions)}) TO STDOUT (FORMAT binary)"


def check_small_enough(database: Database, table: Table, memory_bytes: int) -> None:
    """Raises `ConfigError` for a table that cannot be divided and is too large to be read as a whole."""
    limit = 4 * memory_bytes
    size = 0.0 if table.is_divisible else _size(database, table)[0]
    if size > limit:
        raise ConfigError(
            f"{table.full_name} has no key with bounds, so while changes flow it can be read only as a whole, and it "
            f"is too large for that ({size:,.0f} bytes; the limit is {limit:,}). Choose: give it a unique index over "
            "NOT NULL columns, without domains within their types; or stop the capture, drop its slot and start with "
            "--snapshot new"
        )
