"""Values that an update leaves alone and does not send (TOAST): taken from the row's last value.

Always true: the value filled in is that of the row just before the change, in the order of the log: from an earlier
change of the same block, from the snapshot's rows that wait, or from the topic, which has it because every earlier
change is there. Where none of them has it, the change is left out if a running snapshot will still read the row, and
otherwise the capture stops.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from suiro.connect.postgres.avro_cut import ColumnCutter
from suiro.connect.postgres.avro_rows import EncodedRows
from suiro.connect.postgres.blocks import Int64s
from suiro.connect.postgres.names import avro_names
from suiro.connect.postgres.pgoutput import Messages
from suiro.connect.postgres.tables import Form
from suiro.errors import DataLossError

__all__ = ["Cutters", "Untouched", "fill_untouched"]

_NULL = b"\0"

Lookup = Callable[[bytes], bytes | None]


class Cutters:
    """Cuts columns out of values in any schema, by the schema's id in the value."""

    def __init__(self, schema_text: Callable[[int], str]) -> None:
        self._schema_text = schema_text
        self._known: dict[int, ColumnCutter] = {}

    def set_unregistered(self, schema: Mapping[str, object]) -> None:
        """What values with the id 0 are: rows of a snapshot that wait."""
        self._known[0] = ColumnCutter(schema)

    def cut(self, value: bytes, name: str, kind: object) -> bytes | None:
        """None: the value's schema does not have this column, or has it in another form."""
        schema_id = int.from_bytes(value[1:5], "big")
        cutter = self._known.get(schema_id)
        if cutter is None:
            cutter = self._known[schema_id] = ColumnCutter(json.loads(self._schema_text(schema_id)))
        return cutter.cut(value, name) if cutter.has(name, kind) else None


@dataclass(frozen=True, slots=True)
class Untouched:
    """The changes to encode, without those left out, and what to fill in."""

    indices: Int64s
    fill: list[bytes]


@dataclass(slots=True)
class _Latest:
    """A row's last value within the block: encoded with nulls in place of what is filled in later."""

    value: bytes
    filled: dict[int, bytes]


def fill_untouched(
    form: Form,
    messages: Messages,
    indices: Int64s,
    *,
    last_value: Lookup,
    cutters: Cutters,
    may_be_left_out: bool,
) -> Untouched:
    """`last_value(key)`: the row's value before this block."""
    rows, columns = form.encoder.unchanged(messages, indices)
    missing: dict[int, list[int]] = {}
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        missing.setdefault(row, []).append(column)
    encoded = form.encoder.encode_changes(messages, indices, fill=[_NULL] * len(rows))
    names = avro_names([column.name for column in form.relation.columns])
    kinds = {field["name"]: field["type"] for field in form.value_schema["fields"]}
    latest: dict[bytes, _Latest | None] = {}
    filled: dict[int, dict[int, bytes]] = {}
    left_out: set[int] = set()

    def before(key: bytes, column: int) -> bytes | None:
        if key in latest:
            known = latest[key]
            if known is None:
                return None
            if column in known.filled:
                return known.filled[column]
            value: bytes | None = known.value
        else:
            value = last_value(key)
        return None if value is None else cutters.cut(value, names[column], kinds[names[column]])

    for row, key, value, old_key in _rows(encoded):
        found: dict[int, bytes] = {}
        for column in missing.get(row, ()):
            cell = before(old_key or key, column)
            if cell is None:
                if not may_be_left_out:
                    raise _no_value(form, column, key)
                left_out.add(row)
                break
            found[column] = cell
        if old_key is not None:
            latest[old_key] = None
        if row in left_out:
            latest.pop(key, None)
        elif value is None:
            latest[key] = None
        else:
            filled[row] = found
            latest[key] = _Latest(value, found)
    kept = np.array([row for row in range(len(indices)) if row not in left_out], np.int64)
    fill = [
        filled[row][column]
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
        if row not in left_out
    ]
    return Untouched(indices[kept], fill)


def _rows(encoded: EncodedRows) -> list[tuple[int, bytes, bytes | None, bytes | None]]:
    """(change, key, value, the key it had before if that was another)."""
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


def _no_value(form: Form, column: int, key: bytes) -> DataLossError:
    name = f"{form.relation.full_name}.{form.relation.columns[column].name}"
    return DataLossError(
        f"an update left {name} untouched (TOAST) and topic {form.topic} has no value of the row to take it from (key "
        f"{key[5:].hex()}): was the topic truncated or written to? Choose: ALTER TABLE {form.relation.full_name} "
        "REPLICA IDENTITY FULL; or start once with --snapshot new"
    )
