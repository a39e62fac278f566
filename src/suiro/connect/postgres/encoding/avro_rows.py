"""Encodes many rows of one table to keys and values in Confluent's wire format.

The result is the same with the compiled kernels and with the plain rules (see `engine`). A value that does not fit the
Avro type of its column raises `UnsupportedValueError`, which names the column. An unchanged TOAST value is never
written as null or as a placeholder: it comes from the old tuple or from `fill`, or encoding fails.

A kernel lists the cells that it cannot write: arrays, composites and rare values. It runs again with patches in their
place, which are made by the plain rules. An unchanged TOAST value is a patch, too. If a kernel rejects a row, the plain
rules produce the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from suiro.connect.postgres.encoding.copy_binary import row_offsets, rows_of
from suiro.connect.postgres.encoding.encoded_rows import EncodedRows, MissingValueError, column_of
from suiro.connect.postgres.encoding.engine import kernels
from suiro.connect.postgres.encoding.pgoutput import Bytes, CorruptMessageError, Int64s, Messages
from suiro.connect.postgres.encoding.plain_rows import PlainRows, Row
from suiro.connect.postgres.encoding.schemas import Relation, encodings_of
from suiro.connect.postgres.encoding.types import Rules

_BINARY = {"string": "string", "bytea": "string", "time": "binary_int8", "timestamptz": "binary_timestamp"}
"""The kernels' names for rules of COPY's binary form that have no name of their own."""


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
        self._programs: dict[bool, tuple[Int64s, ...]] = {}  # by whether rows are of COPY

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
        branch of its union (see `FieldExtractors`).
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

        compiled = kernels()
        if compiled is None:
            return self._plain.encode(map(read, range(len(indices))), binary=False, fills=fills)
        places = (messages.data, messages.old_at[indices], messages.new_at[indices], messages.ends[indices])
        return self._encode(compiled, places, fills, binary=False, read=read)

    def encode_copy(self, data: bytes | bytearray | memoryview) -> EncodedRows:
        """Returns records for the rows of a binary COPY of `copy_columns`. `data` has complete rows, and may begin with
        the header and end with the trailer of COPY.
        """
        compiled, columns = kernels(), len(self._relation.columns)
        if compiled is None:
            rows = ((None, row) for row in rows_of(bytes(data), columns))
            return self._plain.encode(rows, binary=True, fills={})
        array, starts, end = row_offsets(data, columns)
        ends = np.append(starts[1:], end)[: len(starts)]
        places = (array, np.full(len(starts), -1, np.int64), starts, ends)

        def read(row: int) -> Row:
            return None, rows_of(array[starts[row] : ends[row]].tobytes(), columns)[0]

        return self._encode(compiled, places, {}, binary=True, read=read)

    def _encode(
        self,
        compiled: Any,
        places: tuple[Bytes, Int64s, Int64s, Int64s],
        fills: Mapping[tuple[int, int], bytes],
        *,
        binary: bool,
        read: Callable[[int], Row],
    ) -> EncodedRows:
        """`places`: the bytes, and of each row where its old and its new tuple begin (-1: none), and where both end.
        `read` returns the values of a row, if it is rejected."""
        data, columns = places[0], len(self._relation.columns)
        patches = {(row * 2 + 1) * columns + column: cell for (row, column), cell in fills.items()}
        while True:
            found = self._run(compiled, places, patches, binary=binary)
            if isinstance(found, EncodedRows):
                return found
            if isinstance(found, int):
                raise self._refused(read(found), found, binary=binary)
            for cell, at, size in found.T.tolist():
                value = ... if size == compiled.UNCHANGED_TOAST else data[at : at + size].tobytes()
                patches[cell] = self._plain.cell(value, cell % columns, binary=binary)

    def _run(
        self,
        compiled: Any,
        places: tuple[Bytes, Int64s, Int64s, Int64s],
        patches: Mapping[int, bytes],
        *,
        binary: bool,
    ) -> EncodedRows | Int64s | int:
        """Returns the rows, or the cells to patch (their numbers, places and sizes), or the row that is rejected."""
        if binary not in self._programs:
            self._programs[binary] = self._program(compiled, binary)
        program = self._programs[binary]
        _, old_at, new_at, ends = places
        count = len(new_at)
        cells = sorted(patches)
        patched = [patches[cell] for cell in cells]
        offsets = np.zeros(len(cells) + 1, np.int64)
        np.cumsum([len(patch) for patch in patched], out=offsets[1:])
        # Pages that are never written do not use memory.
        begins = np.where(old_at >= 0, old_at, new_at)
        size = int((ends - begins).sum()) + int(offsets[-1]) + count * (16 + int(program[-1].sum()))
        keys = np.empty(2 * size, np.uint8)
        values = np.empty(size, np.uint8)
        sources = np.empty(2 * count, np.int64)
        key_offsets = np.empty(2 * count + 1, np.int32)
        value_offsets = np.empty(2 * count + 1, np.int32)
        tombstones = np.empty(2 * count, np.bool_)
        hard = np.empty((3, max(64, count * (1 + int((program[0] == compiled.PYTHON).sum())))), np.int64)
        result = np.zeros(5, np.int64)
        if 2 * size >= 1 << 31 and size >= 1 << 31:
            raise ValueError(f"a block of {size} bytes is too large; encode less than 1 GB at once")
        headers = (np.frombuffer(header, np.uint8) for header in (self._plain.key_header, self._plain.value_header))
        compiled.encode_rows(
            *places, binary, *program,
            np.array(self._relation.key, np.int64), self._relation.nullable_key, *headers,
            np.array(cells, np.int64), offsets, np.frombuffer(b"".join(patched), np.uint8),
            sources, key_offsets, keys, value_offsets, values, tombstones, hard, result,
        )  # fmt: skip
        status, row, records, hard_cells, _ = result.tolist()
        if status == compiled.FULL:
            raise AssertionError(f"row {row} of {self._relation.full_name} outgrew the room made for it")
        if status != compiled.OK:
            return int(row)
        if hard_cells:
            return hard[:, :hard_cells]
        return EncodedRows(
            sources=sources[:records],
            keys=column_of(key_offsets[: records + 1], keys[: key_offsets[records]]),
            values=column_of(value_offsets[: records + 1], values[: value_offsets[records]], tombstones[:records]),
            tombstones=tombstones[:records],
        )

    def _refused(self, row: Row, place: int, *, binary: bool) -> Exception:
        """Returns the error of the plain rules for a row that a kernel rejects."""
        try:
            self._plain.encode([row], binary=binary, fills={})
        except Exception as error:  # noqa: BLE001 - it is the result
            return error
        return CorruptMessageError(f"row {place} of {self._relation.full_name} is truncated")

    def _program(self, compiled: Any, binary: bool) -> tuple[Int64s, ...]:
        """Returns the code of each column, its two parameters, and how many bytes more than its own a value takes."""
        encodings = self._plain.encodings
        codes = []
        for encoding in encodings:
            name = encoding.code
            if binary and encoding.copy == "binary":
                name = _BINARY.get(name, f"binary_{name}")
            elif name.startswith(("int", "uint")):
                name = "integer"
            elif name == "uuid":
                name = "string"
            if name == "decimal" and encoding.first > compiled.MAX_DECIMAL_DIGITS:
                name = "python"
            codes.append(compiled.CODES.index(name))
        rooms = [compiled.MAX_GROWTH + (one.first if one.code == "decimal" else 0) for one in encodings]
        firsts, seconds = [one.first for one in encodings], [one.second for one in encodings]
        return tuple(np.array(each, np.int64) for each in (codes, firsts, seconds, rooms))
