"""COPY's binary format: the select list of a snapshot, the offsets of rows and values, and values to Avro.

A row of a snapshot gives the same Avro bytes as the same row through pgoutput. Types with a simple binary format are
read in it. All others are selected as the text that their output function writes, which is what pgoutput sends.

A cast to text differs from the output function for `inet`, `xml`, `bool` and `char(n)`, users may define one for their
types, and a composite of nulls must not become null. Such columns are printed by `concat`, which calls the output
functions, unless they are null.
"""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from suiro.connect.postgres.encoding.avro_text import (
    DAYS_INFINITY,
    MICROS_INFINITY,
    ConversionError,
    string,
    varint,
)
from suiro.connect.postgres.encoding.engine import kernels
from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.encoding.pgoutput import EPOCH_MICROS, Bytes, CorruptMessageError, Int64s
from suiro.connect.postgres.encoding.schemas import Relation, encodings_of
from suiro.connect.postgres.encoding.types import Rules

SIGNATURE = b"PGCOPY\n\xff\r\n\0"
HEADER_BYTES = 19  # signature, flags, and the length of an extension, which no server writes
TRAILER = b"\xff\xff"
_EPOCH_DAYS = 10_957


def copy_columns(relation: Relation, rules: Rules) -> str:
    """Returns the select list of a binary COPY for `RowEncoder.encode_copy`."""
    selected = []
    for column, encoding in zip(relation.columns, encodings_of(relation, rules), strict=True):
        name = quoted(column.name)
        if encoding.copy == "cast":
            name = f"{name}::text"
        elif encoding.copy == "print":
            name = f"case when num_nulls({name}) = 0 then concat({name}) end"
        selected.append(name)
    return ", ".join(selected)


def row_offsets(data: bytes | bytearray | memoryview, columns: int) -> tuple[Bytes, Int64s, int]:
    """Returns (the bytes, where each row begins, where the last one ends). Needs the kernels."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    at = _begin(array[:32].tobytes())
    starts = np.empty(len(array) // (2 + 4 * columns) + 1, np.int64)
    result = np.zeros(3, np.int64)
    compiled = kernels()
    compiled.copy_rows(array, at, columns, starts, result)
    status, rows, end = result.tolist()
    if status != compiled.OK:
        rows_of(array.tobytes(), columns)  # says what is wrong
        raise CorruptMessageError(f"row {rows} of COPY is truncated")
    return array, starts[:rows], end


def _begin(data: bytes) -> int:
    """Returns where the first row begins: behind the header of COPY, if there is one."""
    if not data.startswith(SIGNATURE):
        return 0
    _need(data, 0, HEADER_BYTES, 0)
    extension: int = struct.unpack_from(">I", data, HEADER_BYTES - 4)[0]
    return HEADER_BYTES + extension


def rows_of(data: bytes, columns: int) -> list[Sequence[bytes | None]]:
    """Returns the values of every row. `data` begins with a row or the header of COPY, and ends between rows."""
    at = _begin(data)
    rows: list[Sequence[bytes | None]] = []
    while at < len(data):
        _need(data, at, 2, len(rows))
        count = struct.unpack_from(">h", data, at)[0]
        at += 2
        if count == -1:
            if at != len(data):
                raise CorruptMessageError(f"data after the end of COPY, at byte {at}")
            break
        if count != columns:
            raise CorruptMessageError(f"row {len(rows)} of COPY, at byte {at}, has {count} columns and not {columns}")
        row: list[bytes | None] = []
        for _ in range(count):
            _need(data, at, 4, len(rows))
            size = struct.unpack_from(">i", data, at)[0]
            at += 4
            if size == -1:
                row.append(None)
                continue
            _need(data, at, size, len(rows))
            row.append(data[at : at + size])
            at += size
        rows.append(row)
    return rows


def _need(data: bytes, at: int, size: int, row: int) -> None:
    if size < 0 or size > len(data) - at:
        raise CorruptMessageError(
            f"row {row} of COPY, at byte {at}: {size} bytes are needed, {len(data) - at} are available"
        )


def _integer(layout: str) -> Callable[[bytes], bytes]:
    return lambda value: varint(_unpacked(layout, value))


def _unpacked(layout: str, value: bytes) -> Any:
    if len(value) != struct.calcsize(layout):
        raise ConversionError(f"its binary form has {len(value)} bytes and not {struct.calcsize(layout)}")
    return struct.unpack(layout, value)[0]


def _floating(layout: str) -> Callable[[bytes], bytes]:
    """Every NaN is encoded like its text: Postgres computes some with a sign, which the text does not have."""

    def rule(value: bytes) -> bytes:
        if math.isnan(_unpacked(layout, value)):
            value = struct.pack(layout, math.nan)
        return value[::-1]

    return rule


def _bool(value: bytes) -> bytes:
    return b"\x01" if _unpacked(">B", value) else b"\x00"


def _date(value: bytes) -> bytes:
    days: int = _unpacked(">i", value)
    if days not in (DAYS_INFINITY, -DAYS_INFINITY - 1):
        days += _EPOCH_DAYS
    return varint(days)


def _timestamp(value: bytes) -> bytes:
    micros: int = _unpacked(">q", value)
    if micros not in (MICROS_INFINITY, -MICROS_INFINITY - 1):
        micros += EPOCH_MICROS
        if micros >= MICROS_INFINITY:
            raise ConversionError(
                "it is after 294247-01-10 04:00:54, the last that 64 bits of microseconds since 1970 hold"
            )
    return varint(micros)


def _uuid(value: bytes) -> bytes:
    return string(str(uuid.UUID(bytes=_unpacked("16s", value))).encode())


BINARY_RULES: dict[str, Callable[[bytes], bytes]] = {
    "bool": _bool,
    "bytea": string,
    "string": string,
    "int2": _integer(">h"),
    "int4": _integer(">i"),
    "int8": _integer(">q"),
    "uint4": _integer(">I"),
    "float4": _floating(">f"),
    "float8": _floating(">d"),
    "date": _date,
    "time": _integer(">q"),
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "uuid": _uuid,
}
"""By `ColumnEncoding.code`, how a value is encoded that a snapshot selects in its binary form."""
