"""Encodes many rows of one table to keys and values in Confluent's wire format.

The result is the same with the compiled kernels and with the plain rules (see `engine`). A value that does not fit the
Avro type of its column raises `UnsupportedValueError`, which names the column. An unchanged TOAST value is never
written as null or as a placeholder: it comes from the old tuple or from `fill`, or encoding fails.

Arrays and composites are encoded value by value by the plain rules of `avro_text`; kernels encode everything else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from suiro.connect.postgres.encoding.blocks import Int64s
from suiro.connect.postgres.encoding.compiled_rows import CompiledRows, TupleOffsets
from suiro.connect.postgres.encoding.copy_binary import row_offsets, rows_of, values_at
from suiro.connect.postgres.encoding.encoded_rows import EncodedRows, MissingValueError
from suiro.connect.postgres.encoding.engine import kernels
from suiro.connect.postgres.encoding.pgoutput import Messages
from suiro.connect.postgres.encoding.plain_rows import PlainRows, Row
from suiro.connect.postgres.encoding.schemas import Relation, encodings_of
from suiro.connect.postgres.encoding.types import Rules


class RowEncoder:
    """Encodes the rows of a table with one schema. Create a new encoder when the table or a schema id changes."""

    def __init__(self, relation: Relation, rules: Rules, *, key_schema_id: int, value_schema_id: int) -> None:
        self._relation = relation
        self._plain = PlainRows(
            relation,
            encodings_of(relation, rules),
            key_header=b"\0" + key_schema_id.to_bytes(4, "big"),
            value_header=b"\0" + value_schema_id.to_bytes(4, "big"),
        )
        self._compiled: CompiledRows | None = None

    def unchanged(self, messages: Messages, indices: Int64s) -> tuple[Int64s, Int64s]:
        """Returns what `encode_changes` needs a `fill` for: (positions in `indices`, columns), in its order."""
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

    def encode_changes(self, messages: Messages, indices: npt.ArrayLike, *, fill: Sequence[bytes] = ()) -> EncodedRows:
        """Returns records for the inserts, updates and deletes at `indices` of `messages`, all of this table.

        fill: for each place that `unchanged` returns, the Avro bytes of the column in the row's last value, with the
        branch of its union (see `FieldExtractor`).
        """
        indices = np.ascontiguousarray(indices, np.int64)
        rows, columns = self.unchanged(messages, indices)
        if len(fill) != len(rows):
            names = sorted({self._relation.columns[column].name for column in columns.tolist()})
            raise MissingValueError(
                f"{len(rows)} unchanged TOAST values of {self._relation.full_name} ({', '.join(names)}) are missing"
                f", and {len(fill)} are given: give the last value of each from the topic"
            )
        fills = dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), fill, strict=True))

        def read(position: int) -> Row:
            index = int(indices[position])
            return messages.values(index, old=True), messages.values(index)

        compiled = self._kernels()
        if compiled is None:
            return self._plain.encode(map(read, range(len(indices))), binary=False, fills=fills)
        places = TupleOffsets(
            data=messages.data,
            old_at=messages.old_at[indices],
            new_at=messages.new_at[indices],
            ends=messages.ends[indices],
            binary=False,
            read=read,
        )
        return compiled.encode(places, fills)

    def encode_copy(self, data: bytes | bytearray | memoryview) -> EncodedRows:
        """Returns records for the rows of a binary COPY of `copy_columns`. `data` has complete rows, and may begin with
        the header and end with the trailer of COPY.
        """
        compiled, columns = self._kernels(), len(self._relation.columns)
        if compiled is None:
            rows = ((None, row) for row in rows_of(bytes(data), columns))
            return self._plain.encode(rows, binary=True, fills={})
        array, starts, end = row_offsets(data, columns)
        ends = np.append(starts[1:], end)[: len(starts)]
        places = TupleOffsets(
            data=array,
            old_at=np.full(len(starts), -1, np.int64),
            new_at=starts,
            ends=ends,
            binary=True,
            read=lambda row: (None, values_at(array, int(starts[row]), int(ends[row]))),
        )
        return compiled.encode(places, {})

    def _kernels(self) -> CompiledRows | None:
        loaded = kernels()
        if loaded is None:
            return None
        if self._compiled is None:
            self._compiled = CompiledRows(loaded, self._plain)
        return self._compiled
