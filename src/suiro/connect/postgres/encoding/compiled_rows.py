"""Encodes rows with the compiled kernels, and passes to the plain rules what the kernels cannot encode.

Each cell that a kernel cannot write comes from a patch: the result of the plain rule, or the bytes that the caller gave
for an unchanged TOAST value. If a kernel rejects a row, the plain rules produce the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suiro.connect.postgres.encoding.blocks import Bytes, Int64s
from suiro.connect.postgres.encoding.encoded_rows import EncodedRows
from suiro.connect.postgres.encoding.pgoutput import CorruptMessageError
from suiro.connect.postgres.encoding.plain_rows import PlainRows, Row, completed
from suiro.connect.postgres.encoding.types import ColumnEncoding

_POWERS: list[Any] = []


@dataclass(frozen=True, slots=True)
class TupleOffsets:
    """The places of rows in `data`: their old and new tuples (-1: none), which end before `ends`. `read` returns a
    row's values, for the plain rules."""

    data: Bytes
    old_at: Int64s
    new_at: Int64s
    ends: Int64s
    binary: bool
    read: Callable[[int], Row]


class CompiledRows:
    """`compiled`: the module of kernels. `plain`: the rules for the same table."""

    def __init__(self, compiled: Any, plain: PlainRows) -> None:
        self._compiled = compiled
        self._plain = plain
        self._relation = plain.relation
        self._key = np.array(plain.relation.key, np.int64)
        self._headers = [np.frombuffer(header, np.uint8) for header in (plain.key_header, plain.value_header)]
        self._programs = {binary: _program(compiled, plain.encodings, binary) for binary in (False, True)}
        if not _POWERS:
            _POWERS.append(compiled.powers_of_five())

    def encode(self, rows: TupleOffsets, fills: Mapping[tuple[int, int], bytes]) -> EncodedRows:
        program = self._programs[rows.binary]
        columns = len(self._relation.columns)
        patches = {(row * 2 + 1) * columns + column: cell for (row, column), cell in fills.items()}
        self._patch_python_columns(rows, program, patches)
        has_hard = False
        while True:
            encoded, hard = self._run(rows, program, patches, has_hard)
            if encoded is not None:
                return encoded
            has_hard = True
            for cell in hard.tolist():
                row, column = divmod(cell, columns)
                row, is_new = divmod(row, 2)
                old, new = rows.read(row)
                values = completed(old, new) if is_new and new is not None else old
                assert values is not None
                patches[cell] = self._plain.cell(values[column], column, binary=rows.binary)

    def _patch_python_columns(self, rows: TupleOffsets, program: _Program, patches: dict[int, bytes]) -> None:
        wanted = np.flatnonzero(program.codes == self._compiled.PYTHON)
        if not len(wanted):
            return
        columns = len(self._relation.columns)
        places = np.empty((2 * len(wanted), len(rows.new_at)), np.int64)
        sizes = np.empty_like(places)
        bad = self._compiled.find_columns(
            rows.data, rows.old_at, rows.new_at, rows.ends, rows.binary, columns, wanted, places, sizes
        )
        if bad >= 0:
            raise self._refused(rows, int(bad))
        for k, column in enumerate(wanted.tolist()):
            for is_new in (0, 1) if column in self._relation.key else (1,):
                at, size = places[2 * k + is_new], sizes[2 * k + is_new]
                present = np.flatnonzero(size >= 0)
                starts = at[present]
                for row, start, end in zip(
                    present.tolist(), starts.tolist(), (starts + size[present]).tolist(), strict=True
                ):
                    value = rows.data[start:end].tobytes()
                    patches[(row * 2 + is_new) * columns + column] = self._plain.cell(value, column, binary=rows.binary)

    def _run(
        self, rows: TupleOffsets, program: _Program, patches: Mapping[int, bytes], has_hard: bool
    ) -> tuple[EncodedRows | None, Int64s]:
        count = len(rows.new_at)
        codes = sorted(patches)
        cells = [patches[code] for code in codes]
        offsets = np.zeros(len(cells) + 1, np.int64)
        np.cumsum([len(cell) for cell in cells], out=offsets[1:])
        # Pages that are never written do not use memory.
        begins = np.where(rows.old_at >= 0, rows.old_at, rows.new_at)
        size = int((rows.ends - begins).sum()) + int(offsets[-1]) + count * (16 + int(program.rooms.sum()))
        keys = np.empty(2 * size, np.uint8)
        values = np.empty(size, np.uint8)
        sources = np.empty(2 * count, np.int64)
        key_offsets = np.empty(2 * count + 1, np.int32)
        value_offsets = np.empty(2 * count + 1, np.int32)
        tombstones = np.empty(2 * count, np.bool_)
        hard = np.empty(max(64, count), np.int64)
        result = np.zeros(6, np.int64)
        result[5] = has_hard
        if 2 * size >= 1 << 31 and size >= 1 << 31:
            raise ValueError(f"a block of {size} bytes is too large; encode less than 1 GB at once")
        self._compiled.encode_rows(
            rows.data, rows.old_at, rows.new_at, rows.ends, rows.binary,
            program.codes, program.firsts, program.seconds, program.rooms,
            self._key, self._relation.nullable_key, *self._headers,
            np.array(codes, np.int64), offsets, np.frombuffer(b"".join(cells), np.uint8), _POWERS[0],
            sources, key_offsets, keys, value_offsets, values, tombstones, hard, result,
        )  # fmt: skip
        status, row, records, _, hard_cells, _ = result.tolist()
        if status == self._compiled.FULL:
            raise AssertionError(f"row {row} of {self._relation.full_name} outgrew the room made for it")
        if status != self._compiled.OK:
            raise self._refused(rows, row)
        if hard_cells:
            return None, hard[:hard_cells]
        encoded = EncodedRows(
            sources=sources[:records],
            key_offsets=key_offsets[: records + 1],
            key_data=keys[: key_offsets[records]],
            value_offsets=value_offsets[: records + 1],
            value_data=values[: value_offsets[records]],
            tombstones=tombstones[:records],
        )
        return encoded, hard[:0]

    def _refused(self, rows: TupleOffsets, row: int) -> Exception:
        """Returns the error of the plain rules for a row that a kernel rejects."""
        try:
            self._plain.encode([rows.read(row)], binary=rows.binary, fills={})
        except Exception as error:  # noqa: BLE001 - it is the result
            return error
        return CorruptMessageError(f"row {row} of {self._relation.full_name} is truncated")


@dataclass(frozen=True, slots=True)
class _Program:
    codes: Int64s
    firsts: Int64s
    seconds: Int64s
    rooms: Int64s


def _program(compiled: Any, encodings: Sequence[ColumnEncoding], binary: bool) -> _Program:
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
    rooms = [compiled.MAX_GROWTH + (encoding.first if encoding.code == "decimal" else 0) for encoding in encodings]
    return _Program(
        codes=np.array(codes, np.int64),
        firsts=np.array([encoding.first for encoding in encodings], np.int64),
        seconds=np.array([encoding.second for encoding in encodings], np.int64),
        rooms=np.array(rooms, np.int64),
    )


_BINARY = {"string": "string", "bytea": "string", "time": "binary_int8", "timestamptz": "binary_timestamp"}
