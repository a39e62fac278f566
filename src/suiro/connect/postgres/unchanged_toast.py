"""Completes updates that do not send an unchanged TOAST value, with the previous value of the row.

The value is that of the row directly before the change, in WAL order: from an earlier change of the block, from the
rows of the snapshot window if they are older than the change, or from the topic. If none of them has it, the change is
skipped, except for the tombstone of its old key, and the caller receives the key: the row is unknown until a complete
record of it is written. An incomplete row is never written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from suiro.connect.postgres.encoding.avro_fields import FieldExtractor
from suiro.connect.postgres.encoding.blocks import Int64s
from suiro.connect.postgres.encoding.encoded_rows import EncodedRows
from suiro.connect.postgres.encoding.names import avro_names
from suiro.connect.postgres.encoding.pgoutput import Messages
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


@dataclass(slots=True)
class _Latest:
    """A row's last value within the block, encoded with nulls in place of the values in `filled`."""

    value: bytes
    filled: dict[int, bytes]


def fill_unchanged_toast(
    schema: TableSchema,
    messages: Messages,
    indices: Int64s,
    *,
    last_value: Lookup,
    extractors: FieldExtractors,
) -> FilledRows:
    """`last_value(key, row)`: the row's value before this block, for the change `indices[row]`."""
    rows, columns = schema.encoder.unchanged(messages, indices)
    missing: dict[int, list[int]] = {}
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        missing.setdefault(row, []).append(column)
    encoded = schema.encoder.encode_changes(messages, indices, fill=[_NULL] * len(rows))
    names = avro_names([column.name for column in schema.relation.columns])
    kinds = {field["name"]: field["type"] for field in schema.value_schema["fields"]}
    latest: dict[bytes, _Latest | None] = {}  # None: unknown, or gone
    filled: dict[int, dict[int, bytes]] = {}
    unknown: dict[bytes, SkippedChange] = {}

    def before(key: bytes, row: int, column: int) -> bytes | None:
        if key in latest:
            known = latest[key]
            if known is None:
                return None
            if column in known.filled:
                return known.filled[column]
            value: bytes | None = known.value
        else:
            value = last_value(key, row)
        return None if value is None else extractors.extract(value, names[column], kinds[names[column]])

    def has_older(key: bytes, row: int) -> bool:
        if key in unknown:
            return unknown[key].has_older
        return latest[key] is not None if key in latest else last_value(key, row) is not None

    skipped: set[int] = set()
    for row, key, value, old_key in _rows(encoded):
        found: dict[int, bytes] = {}
        for column in missing.get(row, ()):
            cell = before(old_key or key, row, column)
            if cell is None:
                skipped.add(row)
                break
            found[column] = cell
        if old_key is not None:
            latest[old_key] = None
            unknown.pop(old_key, None)
        if row in skipped:
            unknown[key] = SkippedChange(row, has_older(key, row))
            latest[key] = None
            continue
        unknown.pop(key, None)
        if value is None:
            latest[key] = None
        else:
            filled[row] = found
            latest[key] = _Latest(value, found)
    fill = [
        _NULL if row in skipped else filled[row][column]
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
    ]
    return FilledRows(fill, skipped, unknown)


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
