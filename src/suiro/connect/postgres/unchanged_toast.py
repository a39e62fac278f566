"""Completes updates that do not send an unchanged TOAST value, with the previous value of the row.

The value is that of the row directly before the change, in WAL order: from an earlier change of the block, from the
rows of the snapshot window if they are older than the change, or from the topic. If none of them has it, the change is
skipped, except for the tombstone of its old key, and the caller receives the key: the row is unknown until a complete
record of it is written. An incomplete row is never written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from suiro.connect.postgres.encoding.avro_fields import FieldExtractor
from suiro.connect.postgres.encoding.encoded_rows import EncodedRows
from suiro.connect.postgres.encoding.names import avro_names
from suiro.connect.postgres.encoding.pgoutput import Int64s, Messages
from suiro.connect.postgres.encoding.schemas import types_of_fields
from suiro.connect.postgres.tables import TableSchema

_NULL = b"\0"

Lookup = Callable[[bytes, int], bytes | None]


class FieldExtractors:
    """Cuts columns out of values in any schema, by the schema's id in the value."""

    def __init__(self, schema_text: Callable[[int], str]) -> None:
        self._schema_text = schema_text
        self._known: dict[int, FieldExtractor] = {}

    def set_unregistered(self, schema: Mapping[str, object]) -> None:
        """Sets the schema of values with the id 0: rows of a snapshot window."""
        self._known[0] = FieldExtractor(schema)

    def extract(self, value: bytes, name: str, kind: object) -> bytes | None:
        """Returns None if the value's schema does not have this column, or has it with another type."""
        schema_id = int.from_bytes(value[1:5], "big")
        extractor = self._known.get(schema_id)
        if extractor is None:
            extractor = self._known[schema_id] = FieldExtractor(json.loads(self._schema_text(schema_id)))
        return extractor.extract(value, name) if extractor.has(name, kind) else None


@dataclass(frozen=True, slots=True)
class SkippedChange:
    """The last change of a key, which was skipped. `has_older`: the topic has an older value of the row."""

    row: int
    has_older: bool


@dataclass(frozen=True, slots=True)
class FilledRows:
    """The values to fill in (nulls for skipped changes), the skipped changes, and the keys that are unknown then."""

    fill: list[bytes]
    rows: set[int]
    keys: dict[bytes, SkippedChange]


def fill_unchanged_toast(
    schema: TableSchema,
    messages: Messages,
    indices: Int64s,
    *,
    last_value: Lookup,
    extractors: FieldExtractors,
) -> FilledRows:
    """`last_value(key, row)`: the row's value before this block, for the change `indices[row]`."""
    rows, columns = (each.tolist() for each in schema.encoder.unchanged(messages, indices))
    missing: dict[int, list[int]] = {}
    for row, column in zip(rows, columns, strict=True):
        missing.setdefault(row, []).append(column)
    encoded = schema.encoder.encode_changes(messages, indices, fill=[_NULL] * len(rows))
    table = _Table(schema, last_value, extractors)
    filled: dict[int, dict[int, bytes]] = {}
    skipped: set[int] = set()
    for row, key, value, old_key in _rows(encoded):
        found = table.cells(old_key or key, row, missing.get(row, ()))
        if old_key is not None:
            table.put(old_key, None, {})
        if found is None:
            table.skip(key, row)
            skipped.add(row)
        else:
            table.put(key, value, found)
            filled[row] = found
    fill = [_NULL if row in skipped else filled[row][column] for row, column in zip(rows, columns, strict=True)]
    return FilledRows(fill, skipped, table.unknown)


class _Table:
    """The rows as they are before the next change. `unknown`: by key, the last change if it was skipped."""

    def __init__(self, schema: TableSchema, last_value: Lookup, extractors: FieldExtractors) -> None:
        self._names = avro_names([column.name for column in schema.relation.columns])
        self._kinds = types_of_fields(schema.value_schema)
        self._last_value = last_value
        self._extractors = extractors
        self._latest: dict[bytes, tuple[bytes | None, Mapping[int, bytes]]] = {}
        """By key, the last value within the block, with nulls in place of these cells; None: unknown, or gone."""
        self.unknown: dict[bytes, SkippedChange] = {}

    def cells(self, key: bytes, row: int, columns: Iterable[int]) -> dict[int, bytes] | None:
        """Returns the values of these columns before the change `row`; None if one of them is not known."""
        found: dict[int, bytes] = {}
        for column in columns:
            cell = self._cell(key, row, column)
            if cell is None:
                return None
            found[column] = cell
        return found

    def _cell(self, key: bytes, row: int, column: int) -> bytes | None:
        if key in self._latest:
            value, filled = self._latest[key]
            if value is not None and column in filled:
                return filled[column]
        else:
            value = self._last_value(key, row)
        name = self._names[column]
        return None if value is None else self._extractors.extract(value, name, self._kinds[name])

    def skip(self, key: bytes, row: int) -> None:
        if key in self.unknown:
            has_older = self.unknown[key].has_older
        elif key in self._latest:
            has_older = self._latest[key][0] is not None
        else:
            has_older = self._last_value(key, row) is not None
        self.unknown[key] = SkippedChange(row, has_older)
        self._latest[key] = None, {}

    def put(self, key: bytes, value: bytes | None, filled: Mapping[int, bytes]) -> None:
        """`value`: None if the row is gone."""
        self.unknown.pop(key, None)
        self._latest[key] = value, filled


def _rows(encoded: EncodedRows) -> list[tuple[int, bytes, bytes | None, bytes | None]]:
    """Returns (change, key, value, the key before the change if it was another)."""
    sources = encoded.sources.tolist()
    found: list[tuple[int, bytes, bytes | None, bytes | None]] = []
    old_key: bytes | None = None
    for record, source in enumerate(sources):
        key = encoded.key(record)
        if encoded.tombstones[record] and record + 1 < len(sources) and sources[record + 1] == source:
            old_key = key
            continue
        found.append((source, key, encoded.value(record), old_key))
        old_key = None
    return found
