"""Python values to Avro, many at once: each field of all rows becomes an array, and a kernel writes the rows.

This works for the schemas that the kernels of `avro_columns` support, and for plain values: dicts with exactly the
fields of the schema, and values of exactly its types. The bytes are those of fastavro; dates and decimals are converted
by its functions. Otherwise, for a missing field or a value that does not fit, fastavro writes the rows and reports
errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import pairwise
from operator import itemgetter
from types import NoneType
from typing import Any

import fastavro
import numpy as np

from suiro.registry.codecs import avro_kernels as kernels
from suiro.registry.codecs.avro_columns import Node, Program, Unsupported, expanded, plain_of
from suiro.registry.codecs.wire import PREFIX, NotOneColumn

ROWS_AT_ONCE = 1024
"""One row that fastavro must write makes it write at most so many."""

_CELLS_AT_ONCE = 1 << 21
_LONGEST_NUMBER = 10


RowsEncoder = Callable[[Sequence[Any], int], list[bytes] | None]
"""Encodes values of one schema, at most `ROWS_AT_ONCE` at a time, behind the schema id. Returns None if fastavro must
write the values."""


def rows_encoder(schema: Any) -> RowsEncoder | None:
    """Returns None if fastavro must write row by row."""
    try:
        program = Program(schema)
        if program.width * ROWS_AT_ONCE > _CELLS_AT_ONCE:
            return None
        return partial(_encode, program, _form(program.root, expanded(schema)))
    except (Unsupported, NotOneColumn):
        return None


class _Unlike(Exception):
    """The values are not plain."""


@dataclass(slots=True)
class _Form:
    """How values of a type are taken. `prepare` is fastavro's writer of the logical type."""

    node: Node
    size: int = 0
    fields: list[tuple[str, _Form]] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)
    prepare: Callable[[Any], Any] | None = None


def _form(node: Node, schema: Any) -> _Form:
    """`schema` is expanded."""
    schema = plain_of(schema)
    made = _Form(node)
    prepare = None
    if isinstance(schema, dict):
        made.size = schema.get("size", 0)
        prepare = fastavro.write.LOGICAL_WRITERS.get(f"{schema['type']}-{schema.get('logicalType')}")
    if prepare is not None:
        if node.is_record or node.symbols:
            raise Unsupported
        made.prepare = partial(_prepared, prepare, schema)
    if node.is_record:
        made.fields = [
            (name, _form(inner, one["type"])) for (name, inner), one in zip(node.fields, schema["fields"], strict=True)
        ]
    made.symbols = {symbol: index for index, symbol in enumerate(node.symbols)}
    return made


def _prepared(prepare: Callable[[Any, Any], Any], schema: Any, value: Any) -> Any:
    found = prepare(value, schema)
    # A decimal may become a bytearray.
    return bytes(found) if isinstance(value, Decimal) else found


def _encode(program: Program, form: _Form, values: Sequence[Any], schema_id: int) -> list[bytes] | None:
    filled = _Filled(program, len(values))
    try:
        filled.fill(form, list(values), np.arange(len(values)))
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

    def fill(self, form: _Form, values: list[Any], rows: Any) -> None:
        """`rows` are the row numbers of the values."""
        node = form.node
        if node.place >= 0:
            if None in values:
                chosen = np.array([value is not None for value in values], bool)
                rows, values = rows[chosen], [value for value in values if value is not None]
            self._present[node.place, rows] = 1
        if not values:
            return
        if node.is_record:
            if set(map(type, values)) != {dict} or set(map(len, values)) != {len(form.fields)}:
                raise _Unlike
            for name, inner in form.fields:
                self.fill(inner, list(map(itemgetter(name), values)), rows)
            return
        if form.prepare is not None:
            # A value that many rows share is prepared once. The list keeps it, so no other object gets its id.
            made = {key: form.prepare(value) for key, value in {id(one): one for one in values}.items()}
            values = [made[id(value)] for value in values]
        if node.kind in (kernels.BYTES, kernels.FIXED):
            self._take_bytes(form, values, rows)
        elif node.kind == kernels.NOTHING:
            _check(values, NoneType)
        else:
            self._cells[node.target, rows] = _numbers(form, values)

    def _take_bytes(self, form: _Form, values: list[Any], rows: Any) -> None:
        if form.node.is_text:
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
        if form.node.kind == kernels.FIXED and (lengths != form.size).any():
            raise _Unlike
        self._cells[form.node.target, rows] = self._size + np.cumsum(lengths) - lengths
        self._lengths[form.node.target, rows] = lengths
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


def _numbers(form: _Form, values: list[Any]) -> Any:
    """The cells: numbers, or the bits of floats."""
    match form.node.kind:
        case kernels.BOOLEAN:
            _check(values, bool)
            return np.array(values, np.int64)
        case kernels.INT | kernels.LONG:
            _check(values, int)
            numbers = np.array(values, np.int64)
            if form.node.kind == kernels.INT and (numbers != numbers.astype(np.int32)).any():
                raise _Unlike
            return numbers
        case kernels.ENUM:
            _check(values, str)
            return np.array([form.symbols[value] for value in values], np.int64)
    _check(values, float, int)
    doubles = np.array(values, np.float64)
    if form.node.kind == kernels.DOUBLE:
        return doubles.view(np.int64)
    with np.errstate(over="ignore"):
        floats = doubles.astype(np.float32)
    if not np.isfinite(floats).all():
        raise _Unlike  # too large: fastavro raises an error
    return floats.view(np.uint32).astype(np.int64)


def _check(values: list[Any], *kinds: type) -> None:
    if not set(map(type, values)) <= set(kinds):
        raise _Unlike
