"""JSON to Arrow's columns and back, a column at a time: each function gives exactly what `json_values` gives value by
value, or None where that is not sure.

Values that were read one by one become a column. Some fields of objects are read by msgspec, which checks the syntax of
the others and makes nothing of them. Arrow has no JSON writer: text is put together out of columns of text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from operator import attrgetter, itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec

from suiro.foundation.nesting import MAX_NESTING
from suiro.streams.serdes.json_values import BEYOND, LEAST, write_json, write_text

if TYPE_CHECKING:
    import pyarrow as pa

_LEVELS = 16
"""Structs and lists within each other that are read and written; no type of a program has more. Arrow and what walks
its types go a frame of the stack deeper with each."""
_DECODERS = 256
_LENGTH = 4_300
"""In bytes. Python refuses integers of more digits than that, and msgspec reads over them."""
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


# Reading


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
    if not names or longest > _LENGTH or _may_be_too_deep(items, longest):
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


def _may_be_too_deep(items: Sequence[bytes | None], longest: int) -> bool:
    return longest > MAX_NESTING and any(
        item and item.count(b"[") + item.count(b"{") > MAX_NESTING and _depth(item) > MAX_NESTING for item in items
    )


def _depth(item: bytes) -> int:
    """Returns how deeply arrays and objects are nested, up to where the text is not JSON."""
    import numpy as np

    data = np.frombuffer(_TEXT.sub(b"", item), np.uint8)
    begins = (data == ord("[")) | (data == ord("{"))
    ends = (data == ord("]")) | (data == ord("}"))
    return int(np.cumsum(begins.astype(np.int64) - ends).max(initial=0))


@lru_cache(_DECODERS)
def _decoder(names: tuple[str, ...]) -> tuple[Callable[[bytes], Any], Any]:
    """Returns a function that reads an object, and its result for an object that has none of the fields."""
    own = {f"field{number}": name for number, name in enumerate(names)}
    row = msgspec.defstruct("Row", [(name, Any, None) for name in own], rename=own, gc=False)
    return msgspec.json.Decoder(row).decode, row()


# Writing


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
