"""Rows of one table to the keys and values of its topic: Confluent's wire format, many rows at once.

What is always true: the result is the same whichever engine works (see `engine`); a value that has no place in its
column's Avro type raises `UnfitValueError`, which names the column, and nothing is written in its stead; an
untouched TOAST value is never written as null or as a placeholder: it comes from the old tuple, or the caller gives
it in `fill`, or encoding fails.

Arrays and composites are encoded by the plain rules of `avro_text`, column by column; everything else by kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from suiro.connect.postgres.avro_text import Unfit
from suiro.connect.postgres.copy_binary import binary_to_avro, rows_of
from suiro.connect.postgres.pgoutput import Messages
from suiro.connect.postgres.schemas import Relation, forms_of
from suiro.connect.postgres.types import Rules, type_name
from suiro.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EncodedRows", "MissingValueError", "RowEncoder", "UnfitValueError"]

_Int64s = npt.NDArray[np.int64]
_Int32s = npt.NDArray[np.int32]
_Bytes = npt.NDArray[np.uint8]
_Values = Sequence["bytes | EllipsisType | None"]


class UnfitValueError(UsageError):
    """A value that the Avro type of its column cannot hold. The message names the column and the choices."""


class MissingValueError(UsageError):
    """An untouched TOAST value that neither the old tuple nor `fill` gives."""


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Records of a topic in the order of the changes.

    sources[i]: the change that record i comes from (a position in `indices`, or in the rows of COPY). A change of
    a row's key gives two records: the old key without a value, then the new one. tombstones[i] is set where record
    i has no value.
    """

    sources: _Int64s
    key_offsets: _Int32s
    key_data: _Bytes
    value_offsets: _Int32s
    value_data: _Bytes
    tombstones: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.sources)

    def key(self, record: int) -> bytes:
        return self.key_data[self.key_offsets[record] : self.key_offsets[record + 1]].tobytes()

    def value(self, record: int) -> bytes | None:
        if self.tombstones[record]:
            return None
        return self.value_data[self.value_offsets[record] : self.value_offsets[record + 1]].tobytes()

    @property
    def keys(self) -> pa.Array:
        """As Arrow's binary, without a copy: what `suiro.protocol.columnar.encode` takes."""
        return _arrow(self.key_offsets, self.key_data, None)

    @property
    def values(self) -> pa.Array:
        return _arrow(self.value_offsets, self.value_data, self.tombstones)


def _arrow(offsets: _Int32s, data: _Bytes, nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
    import pyarrow as pa

    bitmap = None
    if nulls is not None and nulls.any():
        bitmap = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


class RowEncoder:
    """Encodes the rows of one table in one form. Make a new one when the table or a schema's id changes."""

    def __init__(self, relation: Relation, rules: Rules, *, key_schema_id: int, value_schema_id: int) -> None:
        self.relation = relation
        self.rules = rules
        self._forms = forms_of(relation, rules)
        self._from_text: list[Callable[[bytes], bytes]] = [form.encode for form in self._forms]
        self._from_copy = [binary_to_avro(form) for form in self._forms]
        self._key_header = b"\0" + key_schema_id.to_bytes(4, "big")
        self._value_header = b"\0" + value_schema_id.to_bytes(4, "big")

    @property
    def python_columns(self) -> list[str]:
        """Columns whose values are encoded one by one in Python: arrays and composites."""
        return [
            column.name
            for column, form in zip(self.relation.columns, self._forms, strict=True)
            if form.code == "python"
        ]

    def unchanged(self, messages: Messages, indices: _Int64s) -> tuple[_Int64s, _Int64s]:
        """What `encode_changes` needs a `fill` for: (positions in `indices`, columns), in its order."""
        rows, columns = [], []
        for position in np.flatnonzero(messages.unchanged[indices]).tolist():
            index = int(indices[position])
            new = messages.values(index) or []
            old = messages.values(index, old=True) or [None] * len(new)
            for column, (value, before) in enumerate(zip(new, old, strict=True)):
                if value is ... and (before is None or before is ...):
                    rows.append(position)
                    columns.append(column)
        return np.array(rows, np.int64), np.array(columns, np.int64)

    def encode_changes(
        self, messages: Messages, indices: npt.ArrayLike, *, fill: Sequence[bytes] = ()
    ) -> EncodedRows:
        """Records for the inserts, updates and deletes at `indices` of `messages`, all of this table.

        fill: for each place that `unchanged` names the Avro bytes of the column in the row's last value, with the
        branch of its union (`ColumnCutter` gives them).
        """
        indices = np.ascontiguousarray(indices, np.int64)
        fills = self._fills(messages, indices, fill)
        out = _Records()
        for position, index in enumerate(indices.tolist()):
            new = messages.values(index)
            old = messages.values(index, old=True)
            self._check_width(new, index)
            self._check_width(old, index)
            if new is None:
                if old is None:
                    raise ValueError(f"message {index} is no insert, update or delete")
                out.add(position, self._key(old, self._from_text), None)
                continue
            if old is not None:
                new = [
                    before if value is ... and before is not None else value
                    for value, before in zip(new, old, strict=True)
                ]
            cells = [
                fills[position, column] if value is ... else self._cell(value, column, self._from_text)
                for column, value in enumerate(new)
            ]
            key = self._key_header + b"".join(
                self._key_cell(cells[column], column) for column in self.relation.key
            )
            if old is not None and (old_key := self._key(old, self._from_text)) != key:
                out.add(position, old_key, None)
            out.add(position, key, self._value_header + b"".join(cells))
        return out.encoded()

    def encode_copy(self, data: bytes | bytearray | memoryview) -> EncodedRows:
        """Records for the rows of a binary COPY of `copy_columns`; `data` holds whole rows.

        The header of the first block and the end of the last may be there.
        """
        out = _Records()
        for position, row in enumerate(rows_of(bytes(data), len(self._forms))):
            cells = [self._cell(value, column, self._from_copy) for column, value in enumerate(row)]
            key = b"".join(self._key_cell(cells[column], column) for column in self.relation.key)
            out.add(position, self._key_header + key, self._value_header + b"".join(cells))
        return out.encoded()

    def _fills(
        self, messages: Messages, indices: _Int64s, fill: Sequence[bytes]
    ) -> dict[tuple[int, int], bytes]:
        rows, columns = self.unchanged(messages, indices)
        if len(fill) != len(rows):
            names = sorted({self.relation.columns[column].name for column in columns.tolist()})
            raise MissingValueError(
                f"{len(rows)} values of {self.relation.full_name} ({', '.join(names)}) were left untouched by updates"
                f" and not sent, and {len(fill)} are given: give the last value of each from the topic"
            )
        return dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), fill, strict=True))

    def _check_width(self, values: _Values | None, index: int) -> None:
        if values is not None and len(values) != len(self._forms):
            raise ValueError(
                f"message {index} has {len(values)} columns and {self.relation.full_name} {len(self._forms)}:"
                " make a new encoder after each announcement of the table"
            )

    def _key(self, values: _Values, encoders: Sequence[Callable[[bytes], bytes]]) -> bytes:
        cells = (
            self._key_cell(self._cell(values[column], column, encoders), column)
            for column in self.relation.key
        )
        return self._key_header + b"".join(cells)

    def _key_cell(self, cell: bytes, column: int) -> bytes:
        if self.relation.nullable_key:
            return cell
        if cell == b"\0":
            raise UnfitValueError(
                f"{self.relation.full_name}.{self.relation.columns[column].name} is part of the key and null;"
                " name a key whose columns are NOT NULL, or set REPLICA IDENTITY FULL"
            )
        return cell[1:]

    def _cell(
        self, value: bytes | EllipsisType | None, column: int, encoders: Sequence[Callable[[bytes], bytes]]
    ) -> bytes:
        if value is None:
            return b"\0"
        if value is ...:
            raise MissingValueError(
                f"{self._column(column)} is an untouched TOAST value in the key of the old row"
            )
        try:
            return b"\x02" + encoders[column](value)
        except Unfit as unfit:
            raise self._unfit(value, column, unfit) from None

    def _unfit(self, value: bytes, column: int, unfit: Unfit) -> UnfitValueError:
        shown = value[:60].decode(errors="backslashreplace") + ("..." if len(value) > 60 else "")
        name = f"{self.relation.full_name}.{self.relation.columns[column].name}"
        return UnfitValueError(
            f"{self._column(column)} holds {shown!r}: {unfit}. Change the value, or capture"
            f" the column as text: as_text = {name}"
        )

    def _column(self, column: int) -> str:
        known = self.relation.columns[column]
        kind = type_name(known.type, known.typmod, self.relation.types)
        return f"{self.relation.full_name}.{known.name} of type {kind}"


class _Records:
    """Records one by one, then as columns."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, bytes, bytes | None]] = []

    def add(self, source: int, key: bytes, value: bytes | None) -> None:
        self._rows.append((source, key, value))

    def encoded(self) -> EncodedRows:
        keys = [key for _, key, _ in self._rows]
        values = [value or b"" for _, _, value in self._rows]
        return EncodedRows(
            sources=np.array([source for source, _, _ in self._rows], np.int64),
            key_offsets=_offsets(keys),
            key_data=np.frombuffer(b"".join(keys), np.uint8),
            value_offsets=_offsets(values),
            value_data=np.frombuffer(b"".join(values), np.uint8),
            tombstones=np.array([value is None for _, _, value in self._rows], np.bool_),
        )


def _offsets(parts: list[bytes]) -> Any:
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return offsets
