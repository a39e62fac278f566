"""Avro to Arrow: decodes a binary column in the wire format into a column of values, equal to those of each row.

Kernels read records of scalars, bytes, nullable values and nested records of these. Schemas with arrays (or maps, for
data frames) are read row by row by fastavro, and the values become a column. `NotOneColumn` is raised for types without
a column: unions of several types, recursive types, rows of different schemas. It is also raised for values that Arrow
has and Python does not (a timestamp after the year 9999): then the reader of the row reports the error.

Kernels also resolve values into a reader's schema, if that only drops fields, adds constants for defaults and widens
numbers. Otherwise fastavro resolves each row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.registry.codecs import avro_kernels as kernels
from suiro.registry.codecs.avro_infinity import INFINITE
from suiro.registry.codecs.avro_limits import MAX_PARTS, MOST_DIGITS, AvroLimits, decimal_digits
from suiro.registry.codecs.avro_schemas import with_infinite
from suiro.registry.codecs.wire import PREFIX, NotOneColumn, Undecodable

Array = npt.NDArray[Any]

_SCALARS = {
    "null": (kernels.NOTHING, pa.null()),
    "boolean": (kernels.BOOLEAN, pa.bool_()),
    "int": (kernels.INT, pa.int32()),
    "long": (kernels.LONG, pa.int64()),
    "float": (kernels.FLOAT, pa.float32()),
    "double": (kernels.DOUBLE, pa.float64()),
    "bytes": (kernels.BYTES, pa.binary()),
    "string": (kernels.BYTES, pa.string()),
}
_DAY_MS = 86_400_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # the range of Python's dates
_LOGICAL: dict[str, tuple[pa.DataType, int, int]] = {
    "int-date": (pa.date32(), _FIRST_DAY, _LAST_DAY),
    "int-time-millis": (pa.time32("ms"), 0, _DAY_MS - 1),
    "long-time-micros": (pa.time64("us"), 0, _DAY_MS * 1000 - 1),
}
for _name, _zone in (("timestamp", "UTC"), ("local-timestamp", None)):
    for _unit, _short, _scale in (("millis", "ms", 1), ("micros", "us", 1000)):
        _LOGICAL[f"long-{_name}-{_unit}"] = (
            pa.timestamp(_short, _zone),
            _FIRST_DAY * _DAY_MS * _scale,
            (_LAST_DAY + 1) * _DAY_MS * _scale - 1,
        )


RECORD, CONSTANT = -1, -2
"""Kinds of nodes that no instruction of the kernels has."""


@dataclass(slots=True)
class Node:
    """A type of the writer's schema, as it is read. `target` is its row of `cells`; `place` is its row of `present` if
    it is nullable."""

    kind: int
    schema: Any  # expanded, without null
    type: pa.DataType = None  # of its column
    wider: pa.DataType | None = None  # that of the reader's schema
    target: int = -1
    place: int = -1
    range: tuple[int, int] | None = None
    read: Callable[[Any, Any, Any], Any] | None = None  # fastavro's reader of the logical type
    write: Callable[[Any], Any] | None = None  # its writer; this and the next one are set for writing only
    numbers: dict[str, int] = field(default_factory=dict)  # of an enum's symbols
    infinite: tuple[int, ...] = ()  # the numbers beyond `range` that are read as its first and last
    fields: list[tuple[str, Node]] = field(default_factory=list)  # as the writer's schema orders them, then defaults
    columns: tuple[str, ...] = ()  # the names of the fields, as the reader's schema orders them
    default: Any = None  # of a CONSTANT
    is_text: bool = False


class Unsupported(Exception):
    """The kernels do not support the schema, or do not resolve it into the reader's."""


class ColumnDecoder:
    """Decodes values of one writer's schema. `frames`: maps and UUIDs are columns too, as pairs and as text."""

    def __init__(self, writer: Any, reader: Any, schema_id: int, read: Callable[[bytes], Any], *, frames: bool) -> None:
        """`read` reads one value, and raises `Undecodable`."""
        self._reader, self._id, self._read = reader, schema_id, read
        self._frames = frames
        self.type = arrow_type(reader if reader is not None else writer, frames=frames)
        self._program: Program | None = None
        with contextlib.suppress(Unsupported):
            self._program = Program(writer, reader)

    def decode(self, data: Array, starts: Array, ends: Array, rows: Array) -> pa.Array:
        """`starts` are the offsets of the values, after the id. `rows` are their numbers, for errors."""
        if self._program is None:
            return self._by_rows(data, starts, ends, rows)
        found = self._program.run(data, starts, ends)
        if isinstance(found, int):
            return self._by_rows(data, starts, ends, rows)  # it reports the error of the row
        if found.type != self.type:
            found = found.cast(self.type)
        return found

    def _by_rows(self, data: Array, starts: Array, ends: Array, rows: Array) -> pa.Array:
        whole = data.data
        values = []
        for start, end, row in zip(starts.tolist(), ends.tolist(), rows.tolist(), strict=True):
            try:
                values.append(self._read(bytes(whole[start:end])))
            except Undecodable as error:
                raise Undecodable(error.reason, row) from None
        try:
            found = pa.array(values, self.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise NotOneColumn(f"schema {self._id} as {self.type}: {error}") from None
        # A value may have the writer's logical type, and Arrow converts it to the reader's.
        if self._reader is not None and not self._frames and not _are_same(found.to_pylist(), values):
            raise NotOneColumn(f"schema {self._id} as {self.type}: its values are of other types")
        return found


def _are_same(left: Any, right: Any) -> bool:
    """Whether both are equal and have the same types; decimals also the same digits."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_are_same(left[name], right[name]) for name in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_are_same, left, right))
    if isinstance(left, Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    return bool(left == right or (left != left and right != right))


def decode_by_id(data: pa.Array, decoder_of: Callable[[int], ColumnDecoder]) -> pa.Array:
    """Decodes the rows of each schema id. Null stays null. Raises `Undecodable` with the row, and `NotOneColumn`."""
    column = data.cast(pa.binary())
    if len(column) == column.null_count:
        return pa.nulls(len(column))
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    content = column.buffers()[2]
    whole = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    starts, ends = offsets[:-1][rows].astype(np.int64), offsets[1:][rows].astype(np.int64)
    short = np.flatnonzero(ends - starts < PREFIX.size)
    if len(short):
        raise Undecodable(
            "its bytes are too few: a zero byte and a schema id of 4 bytes come first", int(rows[short[0]])
        )
    wrong = np.flatnonzero(whole[starts] != 0)
    if len(wrong):
        magic = int(whole[starts[wrong[0]]])
        raise Undecodable(
            f"unknown magic byte {magic:#04x}: it was not written through a registry", int(rows[wrong[0]])
        )
    ids = np.zeros(len(rows), np.int64)
    for place in range(1, PREFIX.size):
        ids = ids << 8 | whole[starts + place]
    starts += PREFIX.size
    found: list[pa.Array] = []
    order: list[Array] = []
    for one in np.unique(ids).tolist():
        chosen = np.flatnonzero(ids == one)
        try:
            decoder = decoder_of(one)
        except Undecodable as error:
            raise Undecodable(error.reason, int(rows[chosen[0]])) from None
        found.append(decoder.decode(whole, starts[chosen], ends[chosen], rows[chosen]))
        order.append(rows[chosen])
    if any(each.type != found[0].type for each in found):
        raise NotOneColumn(f"its rows are of {len(found)} schemas; give a reader's schema, with_(schema=...)")
    values = found[0] if len(found) == 1 else pa.concat_arrays(found)
    if len(found) == 1 and len(rows) == len(column):
        return values
    places = np.full(len(column), -1, np.int64)
    places[np.concatenate(order)] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


class Program:
    """The instructions of `avro_kernels` for a schema, and the tree of what they find. Raises `Unsupported` and
    `NotOneColumn`."""

    def __init__(self, writer: Any, reader: Any = None) -> None:
        self._steps: list[list[int]] = []  # kind, target, extra, jump
        self._targets = 0
        self._places = 0
        written = expanded(writer)
        self.root = self._compile(written, written if reader is None else expanded(reader))
        columns = np.array(self._steps, np.int64).reshape(-1, 4)
        self.columns = [np.ascontiguousarray(columns[:, index]) for index in range(4)]

    @property
    def width(self) -> int:
        """The number of cells of a value."""
        return self._targets + self._places

    def tables(self, count: int) -> tuple[Array, Array, Array]:
        """Empty cells, lengths and present for so many rows."""
        return (
            np.zeros((self._targets, count), np.int64),
            np.zeros((self._targets, count), np.int64),
            np.zeros((self._places, count), np.uint8),
        )

    def walk(self, data: Array, starts: Array, ends: Array) -> Walked | int:
        """Finds the fields of each row. Returns the number of a row that does not match the schema, if any."""
        cells, lengths, present = self.tables(len(starts))
        bad = kernels.walk(data, starts, ends, *self.columns, cells, lengths, present)
        return int(bad) if bad >= 0 else Walked(data, cells, lengths, present)

    def run(self, data: Array, starts: Array, ends: Array) -> pa.Array | int:
        """Returns the column, or the number of the first row that does not match the schema."""
        found = self.walk(data, starts, ends)
        if isinstance(found, int):
            return found
        made = found.array(self.root)
        try:
            made.validate(full=True)  # text must be UTF-8
        except pa.ArrowInvalid:
            return 0
        return made

    def _compile(self, writer: Any, reader: Any) -> Node:
        """`reader`: the type into which values are resolved."""
        is_nullable, writer = parts_of(writer)
        takes_null, reader = parts_of(reader)
        if not is_nullable:
            return self._plain(writer, reader)
        if not takes_null:
            raise Unsupported
        step = [kernels.NULLABLE, self._places, 0 if is_nullable == "first" else 1, 0]
        self._places += 1
        self._steps.append(step)
        node = self._plain(writer, reader)
        if node.kind == kernels.NOTHING:
            raise Unsupported
        step[3] = len(self._steps)
        node.place = step[1]
        return node

    def _plain(self, writer: Any, reader: Any) -> Node:
        kind = type_of(writer)
        if kind == "record" == type_of(reader):
            return self._record(writer, reader)
        wider = None
        if isinstance(writer, str) and isinstance(reader, str):
            if writer != reader and reader not in _WIDER.get(writer, ()):
                raise Unsupported
            wider = _SCALARS[reader][1] if reader != writer else None
        elif not isinstance(writer, dict) or not isinstance(reader, dict) or _unnamed(writer) != _unnamed(reader):
            raise Unsupported
        if isinstance(kind, dict | list):
            return self._compile(kind, kind)
        if kind == "enum":
            node = self._leaf(kernels.ENUM, writer, pa.string(), len(writer["symbols"]))
        elif kind == "fixed":
            node = self._leaf(kernels.FIXED, writer, pa.binary(), writer["size"])
        elif kind in _SCALARS:
            scalar, type_ = _SCALARS[kind]
            node = self._leaf(scalar, writer, type_)
            node.wider, node.is_text = wider, kind == "string"
        else:
            raise Unsupported
        logical = logical_of(writer)
        if logical is not None:
            node.read = fastavro.read.LOGICAL_READERS[with_infinite(logical)]
            node.range = _LOGICAL[logical][1:] if logical in _LOGICAL else None
            node.infinite = tuple(INFINITE.get(logical, ()))
            if kind != "enum":
                node.type = _type_of_logical(logical, writer, frames=True)
        return node

    def _leaf(self, kind: int, schema: Any, type_: pa.DataType, extra: int = 0) -> Node:
        node = Node(kind, schema, type_, target=self._targets)
        if kind != kernels.NOTHING:
            self._targets += 1
        self._steps.append([kind, node.target, extra, 0])
        return node

    def _record(self, writer: Any, reader: Any) -> Node:
        same_name = writer["name"].rpartition(".")[2] == reader["name"].rpartition(".")[2]
        if not writer["fields"] or not same_name or logical_of(writer) is not None:
            raise Unsupported
        written, own = ({one["name"] for one in each["fields"]} for each in (writer, reader))
        wanted: dict[str, Any] = {}
        defaults: list[tuple[str, Node]] = []
        for one in reader["fields"]:
            # As in fastavro, the name of a reader's field is not an alias of another field.
            names = {one["name"], *(set(one.get("aliases", ())) - own)} & written
            if len(names) > 1 or not names.isdisjoint(wanted):
                raise Unsupported  # fastavro decides which of them is used
            if names:
                wanted[names.pop()] = one
            else:
                type_ = _plain_type(one["type"], frames=True)
                defaults.append((one["name"], Node(CONSTANT, one["type"], type_, default=_plain_default(one))))
        made = Node(RECORD, writer, columns=tuple(one["name"] for one in reader["fields"]))
        for one in writer["fields"]:
            field_ = wanted.get(one["name"])
            node = self._compile(one["type"], one["type"] if field_ is None else field_["type"])
            if field_ is not None:
                made.fields.append((field_["name"], node))
        made.fields += defaults
        return made


@dataclass(slots=True)
class Walked:
    """The result of a walk; `avro_kernels` describes the arrays."""

    data: Array
    cells: Array
    lengths: Array
    present: Array

    def bytes_of(self, node: Node) -> tuple[Array, Array]:
        """The bytes of all rows, concatenated, and the offset of each row."""
        starts, lengths = self.cells[node.target], self.lengths[node.target]
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] >= 1 << 31:
            raise NotOneColumn("its texts have more than 2 GB together")
        out = np.empty(int(offsets[-1]), np.uint8)
        kernels.gather(self.data, starts, lengths, offsets, out)
        return out, offsets

    def array(self, node: Node) -> pa.Array:
        missing = None if node.place < 0 else self.present[node.place] == 0
        count = self.present.shape[1]
        if node.kind == RECORD:
            parts = {name: self.array(inner) for name, inner in node.fields}
            fields = [pa.field(name, parts[name].type) for name in node.columns]
            mask = None if missing is None else pa.array(missing)
            return pa.StructArray.from_arrays([parts[name] for name in node.columns], fields=fields, mask=mask)
        if node.kind == kernels.NOTHING:
            return pa.nulls(count)
        if node.kind == CONSTANT:
            return pa.repeat(pa.scalar(node.default, node.type), count)
        made = self._leaf(node, missing)
        return made if node.wider is None else made.cast(node.wider, safe=False)

    def _leaf(self, node: Node, missing: Array | None) -> pa.Array:
        cells = self.cells[node.target]
        if node.range is not None:
            cells = _in_range(cells, node.range, node.infinite)
        match node.kind:
            case kernels.BOOLEAN:
                return pa.array(cells != 0, mask=missing)
            case kernels.FLOAT:
                bits = cells.astype(np.uint32).view(np.float32)
                return pa.array(bits, mask=missing, from_pandas=False)
            case kernels.DOUBLE:
                return pa.array(cells.view(np.float64), mask=missing, from_pandas=False)
            case kernels.INT:
                return pa.array(cells.astype(np.int32), mask=missing).view(node.type)
            case kernels.LONG:
                return pa.array(cells, mask=missing).view(node.type)
            case kernels.ENUM:
                indexes = pa.array(cells.astype(np.int32), mask=missing)
                return pa.array(node.schema["symbols"], pa.string()).take(indexes)
        if pa.types.is_decimal(node.type):
            return self._decimals(node, cells, missing)
        out, offsets = self.bytes_of(node)
        return pa.Array.from_buffers(
            node.type, len(cells), [_validity(missing), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
        )

    def _decimals(self, node: Node, starts: Array, missing: Array | None) -> pa.Array:
        out = np.zeros((len(starts), 16), np.uint8)
        if not kernels.unscaled(self.data, starts, self.lengths[node.target], out):
            raise NotOneColumn("a decimal has more than 16 bytes")
        widest = pa.decimal128(MOST_DIGITS, node.type.scale)
        wide = pa.Array.from_buffers(widest, len(starts), [_validity(missing), pa.py_buffer(out)])
        try:
            return wide.cast(node.type)
        except pa.ArrowInvalid as error:
            raise NotOneColumn(f"a decimal is wider than its type: {error}") from None


def _in_range(cells: Array, range_: tuple[int, int], infinite: tuple[int, ...]) -> Array:
    """Returns the numbers of dates or times that Python has; those of null values are 0. Raises `NotOneColumn`."""
    first, last = range_
    if len(cells) and (cells.min() < first or cells.max() > last):
        for number in infinite:
            cells = np.where(cells == number, first if number < first else last, cells)
        if cells.min() < first or cells.max() > last:
            raise NotOneColumn("a date or time is beyond what Python's calendar has")
    return cells


def _validity(missing: Array | None) -> pa.Buffer | None:
    if missing is None:
        return None
    return pa.py_buffer(np.packbits(~missing, bitorder="little").tobytes())


def expanded(schema: Any) -> Any:
    """Returns the schema with every name replaced by its definition. Raises `NotOneColumn`."""
    if AvroLimits.has_many_parts(schema):
        raise NotOneColumn(
            f"a schema that holds itself, or more than {MAX_PARTS} parts, or is nested too deeply, has no columns"
        )
    try:
        return fastavro.schema.expand_schema(schema)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise NotOneColumn(f"a union that refers to a type by its name has no columns: {error}") from None


def logical_of(schema: Any) -> str | None:
    """Returns fastavro's name of the logical type, if fastavro converts its values."""
    if not isinstance(schema, dict) or "logicalType" not in schema:
        return None
    name = f"{schema['type']}-{schema['logicalType']}"
    return name if name in fastavro.read.LOGICAL_READERS else None


def _type_of_logical(name: str, schema: Any, *, frames: bool) -> pa.DataType:
    if name in _LOGICAL:
        return _LOGICAL[name][0]
    if name in ("bytes-decimal", "fixed-decimal") and (digits := decimal_digits(schema)):
        return pa.decimal128(*digits)
    if name == "string-uuid" and frames:
        return pa.string()
    raise NotOneColumn(f"there is no column for Avro's {name}")


def arrow_type(schema: Any, *, frames: bool) -> pa.DataType:
    """Raises `NotOneColumn`."""
    return _plain_type(expanded(schema), frames)


def _plain_type(schema: Any, frames: bool) -> pa.DataType:
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) != 1 or len(schema) > 2:
            raise NotOneColumn("a union of several types has no column")
        return _plain_type(others[0], frames)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, dict | list):
        return _plain_type(kind, frames)
    logical = logical_of(schema)
    if logical is not None:
        return _type_of_logical(logical, schema, frames=frames)
    if kind == "record" and schema["fields"]:
        return pa.struct([pa.field(one["name"], _plain_type(one["type"], frames)) for one in schema["fields"]])
    if kind == "enum":
        return pa.string()
    if kind == "fixed":
        return pa.binary()
    if kind == "array":
        return pa.list_(_plain_type(schema["items"], frames))
    if kind == "map" and frames:
        return pa.map_(pa.string(), _plain_type(schema["values"], frames))
    if kind == "float" and not frames:
        return pa.float64()  # as in Python; the value of a reader's float may be an int with more digits
    if kind in _SCALARS:
        return _SCALARS[kind][1]
    raise NotOneColumn(f"there is no column for Avro's {kind}")


_WIDER = {
    "int": {"long", "double"},  # fastavro keeps more digits of an int than a float has
    "long": {"double"},
    "float": {"double"},
}


def parts_of(schema: Any) -> tuple[str, Any]:
    """Returns whether null is the "first" or the "last" of two branches, or "", and the type without it."""
    if isinstance(schema, list) and len(schema) == 2 and schema.count("null") == 1:
        return ("first", schema[1]) if schema[0] == "null" else ("last", schema[0])
    return "", schema


def type_of(schema: Any) -> Any:
    return schema["type"] if isinstance(schema, dict) else None if isinstance(schema, list) else schema


def _unnamed(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key in _MATTERS}


_MATTERS = ("type", "name", "size", "symbols", "items", "values", "logicalType", "precision", "scale")


def _plain_default(one: Any) -> Any:
    """The default of a field if it is a constant. Doubles that JSON cannot express are texts, such as "NaN"."""
    if "default" not in one:
        raise Unsupported
    is_nullable, kind = parts_of(one["type"])
    if one["default"] is None and (is_nullable or kind == "null"):
        return None
    if one["default"] is None or is_nullable or kind not in ("boolean", "int", "long", "double", "string"):
        raise Unsupported
    return float(one["default"]) if kind == "double" else one["default"]
