"""Avro to Python values, many at once: kernels find the fields, and one field of all rows is converted at a time.

This works for the schemas that the kernels of `avro_columns` support, and for a reader's schema that only drops fields,
adds constants and reads whole numbers as floats. The values are equal to those of fastavro. Dates and decimals are
converted by fastavro's functions, once for each different value. If a value does not match the schema, no value is
returned: the reader of the row reports the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import fastavro
import numpy as np

from suiro.registry.codecs import avro_kernels as kernels
from suiro.registry.codecs.avro_columns import (
    Node,
    Program,
    Unsupported,
    Walked,
    expanded,
    logical_of,
    parts_of,
    plain_default,
    plain_of,
    resolves,
)
from suiro.registry.codecs.avro_limits import AvroLimits
from suiro.registry.codecs.avro_schemas import with_infinity
from suiro.registry.codecs.wire import PREFIX, NotOneColumn

_CELLS_AT_ONCE = 1 << 19
"""The number of fields of all rows that are found together, 17 bytes each."""


RowsDecoder = Callable[[Sequence[bytes]], list[Any] | None]
"""Decodes values of one writer's schema, which begin with its id. Returns None if one of them does not match it."""


def rows_decoder(writer: Any, reader: Any) -> RowsDecoder | None:
    """Returns None if fastavro must read row by row."""
    if reader == writer:
        reader = None
    try:
        if AvroLimits.of(writer) is not None:
            return None
        program = Program(writer)
        if reader is not None and not resolves(writer, reader):
            return None
        form = _form(program.root, expanded(with_infinity(writer)), reader and expanded(reader))
        return partial(_decode, program, form)
    except (Unsupported, NotOneColumn, RecursionError):
        return None


@dataclass(slots=True)
class _Form:
    """How values of a type are made. `convert` is fastavro's reader of the logical type."""

    node: Node
    fields: list[tuple[str, _Form]] = field(default_factory=list)
    constants: list[tuple[str, Any]] = field(default_factory=list)
    as_float: bool = False
    convert: Callable[[Any], Any] | None = None


def _form(node: Node, writer: Any, reader: Any) -> _Form:
    """`writer` and `reader` are expanded."""
    writer, reader = plain_of(writer), parts_of(reader)[1]
    made = _Form(node)
    logical = logical_of(writer)
    if node.is_record:
        if logical is not None:
            raise Unsupported
        _add_fields(made, writer, reader)
        return made
    if logical is not None:
        read = fastavro.read.LOGICAL_READERS[logical]
        made.convert = lambda value: read(value, writer, reader)
    made.as_float = reader in ("float", "double") and writer in ("int", "long")
    return made


def _add_fields(made: _Form, writer: Any, reader: Any) -> None:
    nodes = made.node.fields
    if reader is None:
        made.fields = [
            (name, _form(node, one["type"], None)) for (name, node), one in zip(nodes, writer["fields"], strict=True)
        ]
        return
    if any(one.get("aliases") for one in reader["fields"]):
        raise Unsupported
    left = {one["name"]: one for one in reader["fields"]}
    for (name, node), one in zip(nodes, writer["fields"], strict=True):
        wanted = left.pop(name, None)
        if wanted is not None:
            made.fields.append((name, _form(node, one["type"], wanted["type"])))
        elif _has_text(node):
            raise Unsupported  # nothing would check that it is UTF-8
    made.constants = [(name, plain_default(one)) for name, one in left.items()]


def _has_text(node: Node) -> bool:
    return node.kind == kernels.BYTES or any(_has_text(inner) for _, inner in node.fields)


def _decode(program: Program, form: _Form, items: Sequence[bytes]) -> list[Any] | None:
    found: list[Any] = []
    at_once = max(1, _CELLS_AT_ONCE // max(1, program.width))
    for start in range(0, len(items), at_once):
        some = items[start : start + at_once]
        lengths = np.fromiter(map(len, some), np.int64, len(some))
        ends = np.cumsum(lengths)
        whole = np.frombuffer(b"".join(some), np.uint8)
        walked = program.walk(whole, ends - lengths + PREFIX.size, ends)
        if isinstance(walked, int):
            return None
        try:
            found += _values(form, walked, len(some))
        except (ValueError, OverflowError, ArithmeticError, NotOneColumn):
            return None  # invalid UTF-8, or a date out of range
    return found


def _values(form: _Form, walked: Walked, count: int) -> list[Any]:
    node = form.node
    absent: list[int] = []
    if node.place >= 0:
        absent = np.flatnonzero(walked.present[node.place] == 0).tolist()
    values = _records(form, walked, count) if node.is_record else _leaves(form, walked, count, absent)
    for row in absent:
        values[row] = None
    return values


def _records(form: _Form, walked: Walked, count: int) -> list[Any]:
    names = [name for name, _ in form.fields] + [name for name, _ in form.constants]
    columns = [_values(inner, walked, count) for _, inner in form.fields]
    columns += [[value] * count for _, value in form.constants]
    if not columns:
        return [{} for _ in range(count)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _leaves(form: _Form, walked: Walked, count: int, absent: list[int]) -> list[Any]:
    node = form.node
    if node.kind == kernels.NOTHING:
        return [None] * count
    if node.kind in (kernels.BYTES, kernels.FIXED):
        values = _texts(form, walked)
    else:
        values = _numbers(form, walked.cells[node.target])
    if form.convert is None:
        return values
    chosen = set(values)
    if absent:
        gone = set(absent)
        chosen = {value for row, value in enumerate(values) if row not in gone}
    made = {value: form.convert(value) for value in chosen}
    return list(map(made.get, values))


def _numbers(form: _Form, cells: Any) -> list[Any]:
    match form.node.kind:
        case kernels.BOOLEAN:
            cells = cells != 0
        case kernels.FLOAT:
            cells = cells.astype(np.uint32).view(np.float32).astype(np.float64)
        case kernels.DOUBLE:
            cells = cells.view(np.float64)
        case kernels.ENUM:
            return list(map(form.node.symbols.__getitem__, cells.tolist()))
    values: list[Any] = cells.tolist()
    return list(map(float, values)) if form.as_float else values


def _texts(form: _Form, walked: Walked) -> list[Any]:
    found, offsets = walked.bytes_of(form.node)
    whole: bytes = found.tobytes()
    places = pairwise(offsets.tolist())
    if not form.node.is_text:
        return [whole[start:end] for start, end in places]
    if whole.isascii():
        text = whole.decode("ascii")
        return [text[start:end] for start, end in places]
    return [whole[start:end].decode() for start, end in places]
