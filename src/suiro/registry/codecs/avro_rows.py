"""Avro to Python values and back, many at once: one field of all rows at a time becomes an array, and kernels find the
fields of the rows, or write the rows.

This works for the schemas that the kernels of `avro_columns` support. Values are read as fastavro reads them, and the
bytes are those of fastavro; dates and decimals are converted by its functions. If a value does not match the schema
when it is read, no value is returned: the reader of the row reports the error. Only plain values are written: dicts
with exactly the fields of the schema, and values of exactly its types. Otherwise fastavro writes the rows and reports
errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from itertools import pairwise
from operator import itemgetter
from types import NoneType
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from suiro.registry.codecs import avro_kernels as kernels
from suiro.registry.codecs.avro_columns import CONSTANT, RECORD, Node, Program, Unsupported, Walked
from suiro.registry.codecs.avro_limits import AvroLimits
from suiro.registry.codecs.wire import PREFIX, NotOneColumn

ROWS_AT_ONCE = 1024
"""One row that fastavro must write makes it write at most so many."""

_READ_CELLS = 1 << 19
"""The number of fields of all rows that are found together, 17 bytes each."""
_WRITTEN_CELLS = 1 << 21
_LONGEST_NUMBER = 10


RowsDecoder = Callable[[Sequence[bytes]], list[Any] | None]
"""Decodes values of one writer's schema, which begin with its id. Returns None if one of them does not match it."""

RowsEncoder = Callable[[Sequence[Any], int], list[bytes] | None]
"""Encodes values of one schema, at most `ROWS_AT_ONCE` at a time, behind the schema id. Returns None if fastavro must
write the values."""


def rows_decoder(writer: Any, reader: Any) -> RowsDecoder | None:
    """Returns None if fastavro must read row by row."""
    try:
        return None if AvroLimits.of(writer) is not None else partial(_decode, Program(writer, reader))
    except (Unsupported, NotOneColumn, RecursionError):
        return None


def rows_encoder(schema: Any) -> RowsEncoder | None:
    """Returns None if fastavro must write row by row."""
    try:
        program = Program(schema)
        _prepare(program.root)
    except (Unsupported, NotOneColumn):
        return None
    return None if program.width * ROWS_AT_ONCE > _WRITTEN_CELLS else partial(_encode, program)


def _decode(program: Program, items: Sequence[bytes]) -> list[Any] | None:
    found: list[Any] = []
    at_once = max(1, _READ_CELLS // max(1, program.width))
    for start in range(0, len(items), at_once):
        some = items[start : start + at_once]
        lengths = np.fromiter(map(len, some), np.int64, len(some))
        ends = np.cumsum(lengths)
        whole = np.frombuffer(b"".join(some), np.uint8)
        walked = program.walk(whole, ends - lengths + PREFIX.size, ends)
        if isinstance(walked, int):
            return None
        try:
            found += _values(program.root, walked, len(some))
        except (ValueError, OverflowError, ArithmeticError, NotOneColumn):
            return None  # invalid UTF-8, or a date out of range
    return found


def _values(node: Node, walked: Walked, count: int) -> list[Any]:
    absent = [] if node.place < 0 else np.flatnonzero(walked.present[node.place] == 0).tolist()
    if node.kind in (CONSTANT, kernels.NOTHING):
        return [node.default] * count
    values: list[Any]
    if node.kind == RECORD:
        names = [name for name, _ in node.fields]
        columns = [_values(inner, walked, count) for _, inner in node.fields]
        values = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] or [
            {} for _ in range(count)
        ]
    else:
        values = _leaves(node, walked, absent)
    for row in absent:
        values[row] = None
    return values


def _leaves(node: Node, walked: Walked, absent: list[int]) -> list[Any]:
    is_text = node.kind in (kernels.BYTES, kernels.FIXED)
    values = _texts(node, walked) if is_text else _numbers(node, walked.cells[node.target])
    convert = node.read
    if convert is None:
        return values
    chosen = set(values)
    if absent:
        gone = set(absent)
        chosen = {value for row, value in enumerate(values) if row not in gone}
    made = {value: convert(value, node.schema, None) for value in chosen}
    return list(map(made.get, values))


def _numbers(node: Node, cells: Any) -> list[Any]:
    match node.kind:
        case kernels.BOOLEAN:
            cells = cells != 0
        case kernels.FLOAT:
            cells = cells.astype(np.uint32).view(np.float32).astype(np.float64)
        case kernels.DOUBLE:
            cells = cells.view(np.float64)
        case kernels.ENUM:
            return list(map(node.schema["symbols"].__getitem__, cells.tolist()))
    values: list[Any] = cells.tolist()
    return list(map(float, values)) if node.wider is not None and node.wider == pa.float64() else values


def _texts(node: Node, walked: Walked) -> list[Any]:
    found, offsets = walked.bytes_of(node)
    whole: bytes = found.tobytes()
    places = pairwise(offsets.tolist())
    if not node.is_text:
        return [whole[start:end] for start, end in places]
    if whole.isascii():
        text = whole.decode("ascii")
        return [text[start:end] for start, end in places]
    return [whole[start:end].decode() for start, end in places]


class _Unlike(Exception):
    """The values are not plain."""


def _writer_of(schema: Any) -> Callable[[Any], Any] | None:
    """Returns fastavro's writer of the logical type."""
    prepare = isinstance(schema, dict) and fastavro.write.LOGICAL_WRITERS.get(
        f"{schema['type']}-{schema.get('logicalType')}"
    )
    if not prepare:
        return None

    def prepared(value: Any) -> Any:
        found = prepare(value, schema)
        # A decimal may become a bytearray.
        return bytes(found) if isinstance(value, Decimal) else found

    return prepared


def _prepare(node: Node) -> None:
    """Sets with what the values of a type are written. Raises `Unsupported` for a logical type that turns a record or
    an enum into another value."""
    node.write = _writer_of(node.schema)
    if node.write is not None and node.kind in (RECORD, kernels.ENUM):
        raise Unsupported
    if node.kind == kernels.ENUM:
        node.numbers = {symbol: index for index, symbol in enumerate(node.schema["symbols"])}
    for _, inner in node.fields:
        _prepare(inner)


def _encode(program: Program, values: Sequence[Any], schema_id: int) -> list[bytes] | None:
    filled = _Filled(program, len(values))
    try:
        filled.fill(program.root, list(values), np.arange(len(values)))
    except (_Unlike, KeyError, ValueError, TypeError, ArithmeticError, AttributeError):
        return None
    return filled.written(PREFIX.pack(0, schema_id))


class _Filled:
    """The arrays that a walk over the encoded rows would return."""

    def __init__(self, program: Program, count: int) -> None:
        self._program = program
        self._cells, self._lengths, self._present = program.tables(count)
        self._pieces: list[bytes] = []
        self._size = 0

    def fill(self, node: Node, values: list[Any], rows: Any) -> None:
        """`rows` are the row numbers of the values."""
        if node.place >= 0:
            if None in values:
                chosen = np.array([value is not None for value in values], bool)
                rows, values = rows[chosen], [value for value in values if value is not None]
            self._present[node.place, rows] = 1
        if not values:
            return
        if node.kind == RECORD:
            if set(map(type, values)) != {dict} or set(map(len, values)) != {len(node.fields)}:
                raise _Unlike
            for name, inner in node.fields:
                self.fill(inner, list(map(itemgetter(name), values)), rows)
            return
        if (prepare := node.write) is not None:
            # A value that many rows share is prepared once. The list keeps it, so no other object gets its id.
            made = {key: prepare(value) for key, value in {id(one): one for one in values}.items()}
            values = [made[id(value)] for value in values]
        if node.kind in (kernels.BYTES, kernels.FIXED):
            self._take_bytes(node, values, rows)
        elif node.kind == kernels.NOTHING:
            _check(values, NoneType)
        else:
            self._cells[node.target, rows] = _cells(node, values)

    def _take_bytes(self, node: Node, values: list[Any], rows: Any) -> None:
        if node.is_text:
            _check(values, str)
            text = "".join(values)
            if text.isascii():
                piece = text.encode()
            else:
                values = [value.encode() for value in values]
                piece = b"".join(values)
        else:
            _check(values, bytes)
            piece = b"".join(values)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        if node.kind == kernels.FIXED and (lengths != node.schema["size"]).any():
            raise _Unlike
        self._cells[node.target, rows] = self._size + np.cumsum(lengths) - lengths
        self._lengths[node.target, rows] = lengths
        self._pieces.append(piece)
        self._size += len(piece)

    def written(self, prefix: bytes) -> list[bytes]:
        count = self._present.shape[1]
        offsets = np.zeros(count + 1, np.int64)
        columns = self._program.columns
        most = count * (len(prefix) + _LONGEST_NUMBER * len(columns[0])) + self._size
        out = np.empty(most, np.uint8)
        data = np.frombuffer(b"".join(self._pieces), np.uint8)
        front = np.frombuffer(prefix, np.uint8)
        kernels.put(data, front, *columns, self._cells, self._lengths, self._present, offsets, out)
        whole = out[: offsets[-1]].tobytes()
        return [whole[start:end] for start, end in pairwise(offsets.tolist())]


def _cells(node: Node, values: list[Any]) -> Any:
    """The cells: numbers, or the bits of floats."""
    match node.kind:
        case kernels.BOOLEAN:
            _check(values, bool)
            return np.array(values, np.int64)
        case kernels.INT | kernels.LONG:
            _check(values, int)
            numbers = np.array(values, np.int64)
            if node.kind == kernels.INT and (numbers != numbers.astype(np.int32)).any():
                raise _Unlike
            return numbers
        case kernels.ENUM:
            _check(values, str)
            return np.array([node.numbers[value] for value in values], np.int64)
    _check(values, float, int)
    doubles = np.array(values, np.float64)
    if node.kind == kernels.DOUBLE:
        return doubles.view(np.int64)
    with np.errstate(over="ignore"):
        floats = doubles.astype(np.float32)
    if not np.isfinite(floats).all():
        raise _Unlike  # too large: fastavro raises an error
    return floats.view(np.uint32).astype(np.int64)


def _check(values: list[Any], *kinds: type) -> None:
    if not set(map(type, values)) <= set(kinds):
        raise _Unlike
