"""JSON as UTF-8: compact, keys sorted, so that equal values give equal bytes. NaN and infinity are refused. Values are
written and read as by the standard library's `json`, with msgspec where the result is the same.

Keys and rows of state are found, and records are sent to partitions, by these bytes, so they must not change. msgspec
writes numbers beyond 1e16 and below 1e-4 another way, NaN as null, and takes dates, bytes, sets and more, which are
refused here; so it is given only what `are_exact` has looked at, and `json` has the rest. In reading, what msgspec
refuses is read by `json` (a lone surrogate, 1e400), which also says what is wrong.

Written and read values are nested no deeper than `MAX_NESTING`.

Rows are read one by one and made a column, which gives exactly what `deserialize` gives, down to an absent field being
no null and 1 being no 1.0. Where no column holds the values, it raises NotColumnarError. Some fields of objects are
read by msgspec, which checks the syntax of the others and makes nothing of them. Arrow has no JSON writer: a column is
written as columns of text where that gives exactly what `serialize` gives row by row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from operator import attrgetter, itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from suiro.foundation.nesting import MAX_NESTING, TooDeepError, is_too_deep, parse_json
from suiro.streams.serdes.block_forms import decode_rows, encode_block
from suiro.streams.serdes.serde import DeserializationError, NotColumnarError, SerializationError

if TYPE_CHECKING:
    import pyarrow as pa

_decode = msgspec.json.Decoder().decode
write_text = msgspec.json.Encoder(order="sorted").encode
"""Writes a value without checking it: for texts, and for values that are known to be exact."""
_WRITER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

_ATOMS = frozenset({str, int, bool, NoneType})
_NO_ATOMS = frozenset({float, dict, list})
_EXACT_LEVELS = 16
"""Deeper values are written by `json`: looking at them level by level would not end in one that holds itself."""
_AT_ONCE = 256
"""Values that are looked at together: one that is not exact sends no more than these to `json`."""
LEAST, BEYOND = 1e-4, 1e16
"""Floats from here to there are written without an exponent by both."""

_LEVELS = 16
"""Structs and lists within each other that are read and written; no type of a program has more. Arrow and what walks
its types go a frame of the stack deeper with each."""
_DECODERS = 256
_LENGTH = 4_300
"""In bytes. Python refuses integers of more digits than that, and msgspec reads over them."""


def write_value(serde: str, topic: str, value: Any) -> bytes:
    """The bytes of a value. `serde` is the name for errors."""
    try:
        return write_json(value)
    except (TypeError, ValueError) as error:
        raise SerializationError(serde, topic, type(value).__name__, f"JSON has no form for it: {error}") from None


@dataclass(frozen=True, slots=True)
class JsonSerde:
    """JSON; a value is a dict, list, str, int, float or bool."""

    name: ClassVar[str] = "json"

    def serialize(self, topic: str, value: Any) -> bytes:
        return write_value(self.name, topic, value)

    def deserialize(self, topic: str, data: bytes) -> Any:
        try:
            return read_json(data)
        except ValueError as error:
            raise DeserializationError(self.name, topic, f"it {error}") from None

    def decode_block(self, data: Sequence[bytes | None], topic: str) -> list[Any]:
        return [None if item is None else read_json(item) for item in data]

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]:
        return write_block(values)

    def decode_column(self, data: pa.Array, *, topic: str = "") -> pa.Array:
        return self._column(self._rows(data, topic), topic)

    def decode_fields(self, data: pa.Array, fields: Collection[str], *, topic: str = "") -> pa.Array:
        """Only these fields of objects, for expressions, to which an absent field is a null one.

        So rows need not have all fields, which `decode_column` insists on. Raises as `decode_column` does.
        """
        import pyarrow as pa

        column = data.cast(pa.binary())
        quick = read_fields(column, frozenset(fields))
        if quick is not None:
            return quick
        rows = self._rows(column, topic)
        if not all(row is None or isinstance(row, dict) for row in rows):
            raise NotColumnarError(self.name, topic, "some rows are no objects")
        found = [row if row is None else {field: row.get(field) for field in fields} for row in rows]
        return self._column(found, topic)

    def encode_column(self, values: pa.Array, *, topic: str = "") -> pa.Array:
        import pyarrow as pa

        quick = write_column(values)
        return pa.array(encode_block(self, values.to_pylist(), topic), pa.binary()) if quick is None else quick

    def _rows(self, data: pa.Array, topic: str) -> list[Any]:
        import pyarrow as pa

        items = data.cast(pa.binary()).to_pylist()
        rows, failed = decode_rows(self, items, topic)
        for row, error in failed.items():
            raise DeserializationError(self.name, topic, getattr(error, "reason", str(error)), row) from None
        for row, item in enumerate(items):
            if rows[row] is None and item is not None:
                raise NotColumnarError(self.name, topic, f"row {row} is the JSON null, which is not a null value")
        return rows

    def _column(self, rows: list[Any], topic: str) -> pa.Array:
        found = column_of(rows)
        if found is None:
            raise NotColumnarError(
                self.name,
                topic,
                "some fields are absent in some rows, have two types or more than 64 bits, or some values are "
                "nested too deeply",
            )
        return found


# Values


def read_json(data: bytes) -> Any:
    """Raises `ValueError`."""
    try:
        value = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return parse_json(data, allow_nan=False)
    # Most values are so short, or open so few, that they need no closer look.
    if len(data) > MAX_NESTING and data.count(b"[") + data.count(b"{") > MAX_NESTING and is_too_deep(value):
        raise TooDeepError
    return value


def write_json(value: Any) -> bytes:
    """Raises `ValueError` or `TypeError`. One value is written sooner than it is looked at."""
    try:
        data = _WRITER.encode(value).encode()
    except RecursionError:
        raise TooDeepError from None
    if data.count(b"[") + data.count(b"{") > MAX_NESTING and is_too_deep(value):
        raise TooDeepError
    return data


def write_block(
    values: Sequence[Any], before: bytes = b"", other: Callable[[Any], bytes] | None = None
) -> list[bytes | None]:
    """Returns the bytes of values; None stays None. `before`: bytes in front of each. `other`: writes values that are
    not exact, with what stands in front; by default `write_json`. Raises as these do."""
    found: list[bytes | None] = []
    for start in range(0, len(values), _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        if are_exact(part):
            found += [None if value is None else before + write_text(value) for value in part]
        else:
            write = other or write_json
            found += [None if value is None else write(value) for value in part]
    return found


def are_exact(values: Sequence[Any]) -> bool:
    """Tells whether msgspec writes the same bytes for the values as `json` does. The values are checked level by level,
    each level in C."""
    dicts: list[dict[Any, Any]] = []
    lists: list[Sequence[Any]] = [values]
    for _ in range(_EXACT_LEVELS):
        kinds = set(map(type, _items(dicts, lists))) - _ATOMS
        if not kinds <= _NO_ATOMS:
            return False
        if float in kinds and not all(map(_has_no_exponent, {it for it in _items(dicts, lists) if type(it) is float})):
            return False
        kinds.discard(float)
        if not kinds:
            return True
        dicts, lists = (
            _distinct(dict, dicts, lists) if dict in kinds else [],
            _distinct(list, dicts, lists) if list in kinds else [],
        )
        if not set(map(type, chain.from_iterable(dicts))) <= {str}:
            return False
    return False


def _items(dicts: list[dict[Any, Any]], lists: list[Sequence[Any]]) -> Iterator[Any]:
    """Iterates over their items, in C."""
    return chain(chain.from_iterable(map(dict.values, dicts)), chain.from_iterable(lists))


def _distinct(kind: type, dicts: list[dict[Any, Any]], lists: list[Sequence[Any]]) -> list[Any]:
    """Returns each object once. A list that holds itself ten times would otherwise become ten, a hundred, ..."""
    return list({id(it): it for it in _items(dicts, lists) if type(it) is kind}.values())


def _has_no_exponent(number: float) -> bool:
    return LEAST <= number < BEYOND or number == 0.0 or -BEYOND < number <= -LEAST


# Columns


def column_of(values: Sequence[Any], levels: int = _LEVELS) -> pa.Array | None:
    """Returns a column of values that were read from JSON. None if no column gives them back as they are: they have two
    types, a field is absent in some objects, a number is too large, or they are nested too deeply."""
    import pyarrow as pa

    kinds = set(map(type, values)) - {NoneType}
    if not kinds:
        return pa.nulls(len(values))
    kind = kinds.pop()
    if kinds or (levels == 0 and kind in (dict, list)):
        return None
    if kind is dict:
        return _column_of_objects(values, levels - 1)
    if kind is list:
        return _column_of_lists(values, levels - 1)
    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    try:
        return pa.array(values, types[kind])
    except (OverflowError, ValueError):  # also half of a surrogate pair
        return None


def _column_of_objects(values: Sequence[Any], levels: int) -> pa.Array | None:
    import pyarrow as pa

    objects = [value for value in values if value is not None]
    names = objects[0].keys()
    if any(each.keys() != names for each in objects):
        return None
    if not names:
        return pa.array(values, pa.struct([]))
    columns = []
    for name in names:
        items = map(itemgetter(name), values) if len(objects) == len(values) else (it and it[name] for it in values)
        columns.append(column_of(list(items), levels))
        if columns[-1] is None:
            return None
    return pa.StructArray.from_arrays(columns, list(names), mask=pa.array([value is None for value in values]))


def _column_of_lists(values: Sequence[Any], levels: int) -> pa.Array | None:
    import pyarrow as pa

    items = column_of(list(chain.from_iterable(value or () for value in values)), levels)
    if items is None:
        return None
    ends = accumulate((len(value or ()) for value in values), initial=0)
    # A null in the place of where it begins makes a list null.
    offsets = [end if value is not None else None for end, value in zip(ends, (*values, []), strict=True)]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)


def read_fields(column: pa.Array, fields: frozenset[str]) -> pa.StructArray | None:
    """Returns these fields of objects; an absent field is null. None if that is not sure."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = sorted(fields)
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    items = column.to_pylist()
    if not names or longest > _LENGTH:
        return None
    # msgspec does not say how deep a value is that it reads over.
    if longest > MAX_NESTING and any(it and it.count(b"[") + it.count(b"{") > MAX_NESTING for it in items):
        return None
    try:
        decode, absent = _decoder(tuple(names))  # which takes no name with a quotation mark or a backslash
        column.cast(pa.string())  # msgspec does not look at the bytes of a text that it reads over
        rows = [absent if item is None else decode(item) for item in items]
    except (pa.ArrowInvalid, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    parts = [column_of(list(map(attrgetter(f"field{number}"), rows))) for number in range(len(names))]
    if any(part is None for part in parts):
        return None
    return pa.StructArray.from_arrays(parts, names, mask=column.is_null())


@lru_cache(_DECODERS)
def _decoder(names: tuple[str, ...]) -> tuple[Callable[[bytes], Any], Any]:
    """Returns a function that reads an object, and its result for an object that has none of the fields."""
    own = {f"field{number}": name for number, name in enumerate(names)}
    row = msgspec.defstruct("Row", [(name, Any, None) for name in own], rename=own, gc=False)
    return msgspec.json.Decoder(row).decode, row()


# Columns as text


class _NotWritten(Exception):
    """There is no text for a column."""


def write_column(values: pa.Array) -> pa.Array | None:
    """Returns the bytes that `write_json` gives for each value; null stays null. None if that is not sure."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if values.null_count == len(values):
        return pa.nulls(len(values), pa.binary())
    try:
        text = _joined(_parts(values, _LEVELS))
    except (_NotWritten, ValueError, pa.ArrowException):
        return None
    if values.null_count:
        text = pc.if_else(values.is_valid(), text, None)
    if isinstance(text, pa.Scalar):
        text = pa.repeat(text, len(values))
    return text.cast(pa.binary())


def _parts(column: pa.Array, levels: int) -> list[str | pa.Array]:
    """Returns the parts of the text of each value: the same text for all values, or a column of texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if column.null_count == len(column):
        return ["null"]
    parts: list[str | pa.Array]
    if pa.types.is_struct(kind):
        parts = _parts_of_structs(column, levels)
    elif pa.types.is_string(kind):
        parts = ['"', _escaped(column), '"']
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        parts = [column.cast(pa.string())]
    elif pa.types.is_float64(kind):
        parts = [_float_texts(column)]
    else:
        raise _NotWritten
    return [pc.if_else(column.is_valid(), _joined(parts), "null")] if column.null_count else parts


def _parts_of_structs(column: pa.StructArray, levels: int) -> list[str | pa.Array]:
    names = [field.name for field in column.type]
    if levels == 0 or not names or len(set(names)) < len(names):
        raise _NotWritten
    parts: list[str | pa.Array] = []
    for name, child in sorted(zip(names, column.flatten(), strict=True), key=lambda pair: pair[0]):
        parts += ["," if parts else "{", write_json(name).decode(), ":", *_parts(child, levels - 1)]
    return [*parts, "}"]


def _joined(parts: Sequence[str | pa.Array]) -> pa.Array | pa.Scalar:
    """Joins the parts to texts. A text is null if one of its parts is. The result is a single text if no part is a
    column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: list[str | pa.Array] = []
    for part in parts:
        if found and isinstance(part, str) and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return pc.binary_join_element_wise(*found, pa.scalar(""))


def _escaped(column: pa.StringArray) -> pa.Array:
    """Returns the texts as they stand between quotation marks."""
    import numpy as np
    import pyarrow as pa

    _, offsets, data = column.buffers()
    if data is None:
        return column
    bounds = np.frombuffer(offsets, np.int32)[[column.offset, column.offset + len(column)]]
    text = np.frombuffer(data, np.uint8)[bounds[0] : bounds[1]]
    if not ((text < ord(" ")) | (text == ord('"')) | (text == ord("\\"))).any():
        return column
    return pa.array([None if item is None else write_text(item)[1:-1] for item in column.to_pylist()], pa.string())


def _float_texts(column: pa.DoubleArray) -> pa.Array:
    """Returns the texts of numbers; any text for null. Raises `ValueError` for NaN and infinity."""
    import numpy as np
    import pyarrow as pa

    numbers = column.fill_null(0.0).to_numpy()
    size = np.abs(numbers)
    if ((size == 0) | ((size >= LEAST) & (size < BEYOND))).all():
        texts = write_text(numbers.tolist())[1:-1].split(b",")
    else:
        texts = [write_json(number) for number in numbers.tolist()]
    return pa.array(texts, pa.string())
