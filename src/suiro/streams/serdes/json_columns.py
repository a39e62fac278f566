"""JSON to Arrow's columns and back, a column at a time: each function gives exactly what `json_values` gives value by
value, or None where that is not sure.

Whole objects are read by Arrow. Some fields of objects are read by msgspec, which checks the syntax of the others and
makes nothing of them. Arrow has no JSON writer: text is put together out of columns of text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from suiro.foundation.nesting import MAX_NESTING
from suiro.streams.serdes.json_values import BEYOND, LEAST, write_json, write_text

if TYPE_CHECKING:
    import pyarrow as pa

_SAMPLE_BYTES = 20_000
_LEVELS = 16
"""Structs and lists within each other that are read and written; no type of a program has more. Arrow and what walks
its types go a frame of the stack deeper with each."""
_DECODERS = 256
_LENGTH = 4_300
"""In bytes. Python refuses integers of more digits than that, and msgspec reads over them."""
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


# Whole objects


def read_objects(column: pa.Array) -> pa.Array | None:
    """Returns the column as Arrow reads it; None if `json` might read something else."""
    import pyarrow as pa
    import pyarrow.compute as pc

    present = column.drop_null()
    if len(present) == 0:
        return None
    # Every row starts with { and ends with }, and there are as many objects as rows: then each row is one object.
    if not pc.all(pc.and_(pc.starts_with(present, b"{"), pc.ends_with(present, b"}"))).as_py():
        return None
    items = present.to_pylist()
    if _may_be_too_deep(items, max(map(len, items))):
        return None
    text = b"\n".join(items)
    if text.count(b"\n") != len(present) - 1 or b"\\ud" in text or b"\\uD" in text:
        return None  # a line break inside a row; a surrogate, which Python takes alone too
    try:
        text.decode()
        objects = _parse(text)
    except (UnicodeDecodeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if objects is None or len(objects) != len(present):
        return None
    if not _is_exact(objects, text):
        return None
    if column.null_count == 0:
        return objects
    valid = pc.is_valid(column)
    positions = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
    return objects.take(pc.if_else(valid, positions, None))


def _parse(text: bytes) -> pa.StructArray | None:
    # Arrow takes strings that look like times for timestamps; JSON has none. The first rows mostly tell which
    # fields these are, so that the whole text is read once. They also tell where names are data, as ids are: of the
    # whole text each would be a column.
    strings: list[pa.Field] = []
    end = text.find(b"\n", _SAMPLE_BYTES)
    if 0 < end < len(text) // 2:
        sample = _read(text[:end], [])
        rows = _struct_of(sample, text[:end])
        if rows is None or not _is_exact(rows, text[:end]):
            return None
        strings = _timestamps(sample)
    table = _read(text, strings)
    late = _timestamps(table)
    if late:
        names = {field.name for field in late}
        table = _read(text, [*(field for field in strings if field.name not in names), *late])
        if _timestamps(table):
            return None
    return _struct_of(table, text)


def _struct_of(table: pa.Table, text: bytes) -> pa.StructArray | None:
    import pyarrow as pa

    if table.num_columns == 0:
        return None
    if b"null" in text and any(_has_list(field.type) for field in table.schema):
        return None  # Arrow reads a null inside a list into an array that is not valid
    return pa.StructArray.from_arrays([column.combine_chunks() for column in table.columns], fields=list(table.schema))


def _read(text: bytes, fields: list[pa.Field]) -> pa.Table:
    """`fields` have the types given, all others those that Arrow finds."""
    import pyarrow as pa
    import pyarrow.json as pj

    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pj.ParseOptions(explicit_schema=pa.schema(fields)) if fields else None,
    )
    if is_deep(pa.struct(list(table.schema))):
        raise pa.ArrowNotImplementedError("the objects are nested too deeply")
    return table


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


def is_deep(kind: pa.DataType) -> bool:
    """Tells whether structs and lists of the type are nested more than `_LEVELS` deep."""
    level = [kind]
    for _ in range(_LEVELS + 1):
        level = [each.field(index).type for each in level for index in range(each.num_fields)]
        if not level:
            return False
    return True


def _timestamps(table: pa.Table) -> list[pa.Field]:
    """Returns the columns that contain timestamps, with the types that they should be read with."""
    read = [(field, field.with_type(_without_times(field.type))) for field in table.schema]
    return [wanted for found, wanted in read if found != wanted]


def _without_times(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_times(kind.value_type)))
    return kind


def _has_list(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(_has_list(field.type) for field in kind)
    return bool(pa.types.is_list(kind))


def _is_exact(objects: pa.StructArray, text: bytes) -> bool:
    """Tells whether no field is absent, which Arrow would read as null, and no double could have been written as an
    int."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nulls, mentions = 0, 0
    pending = [objects]
    while pending:
        column = pending.pop()
        kind = column.type
        nulls += column.null_count
        column = column.drop_null() if column.null_count else column
        if pa.types.is_struct(kind):
            mentions += sum("null" in field.name for field in kind)
            pending.extend(column.flatten())
        elif pa.types.is_list(kind):
            pending.append(column.flatten())
        elif pa.types.is_string(kind):
            mentions += pc.any(pc.match_substring(column, "null")).as_py() or 0
        elif (
            pa.types.is_floating(kind)
            and not pc.all(pc.and_(pc.is_finite(column), pc.not_equal(column, pc.trunc(column)))).as_py()
            and len(column)
        ):
            return False
    if nulls == 0:
        return True
    # Every null literal must have been one of ours. The word inside a string would spoil the count.
    return mentions == 0 and b"\\null" not in text and text.count(b"null") == nulls


def are_alike(values: Sequence[Any], levels: int = _LEVELS) -> bool:
    """Tells whether objects that would be rows of one column have the same fields, and none is nested too deeply."""
    objects = [value for value in values if type(value) is dict]
    items = [item for value in values if type(value) is list for item in value]
    if not objects and not items:
        return True
    if levels == 0 or any(value.keys() != objects[0].keys() for value in objects):
        return False
    columns = [[value[name] for value in objects] for name in (objects[0] if objects else ())]
    return all(are_alike(each, levels - 1) for each in (*columns, items))


# Some fields


def read_fields(column: pa.Array, fields: frozenset[str]) -> pa.StructArray | None:
    """Returns these fields of objects; an absent field is null. None if that is not sure."""
    import pyarrow as pa

    names = sorted(fields)
    if not names:
        return None
    parts = _parts_of_rows(column, names)
    if parts is None:
        whole = read_objects(column)
        if whole is None or not fields.issubset(field.name for field in whole.type):
            return None
        parts = [whole.field(name) for name in names]
    return pa.StructArray.from_arrays(parts, names, mask=column.is_null())


def _parts_of_rows(column: pa.Array, names: Sequence[str]) -> list[pa.Array] | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    longest = pc.max(pc.binary_length(column)).as_py() or 0
    if longest > _LENGTH:
        return None
    items = column.to_pylist()
    if _may_be_too_deep(items, longest):
        return None
    try:
        decode, absent = _decoder(tuple(names))  # which takes no name with a quotation mark or a backslash
        column.cast(pa.string())  # msgspec does not look at the bytes of a text that it reads over
        rows = [absent if item is None else decode(item) for item in items]
    except (pa.ArrowInvalid, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), type(None): pa.null()}
    parts = []
    for number in range(len(names)):
        values = list(map(attrgetter(f"field{number}"), rows))
        kinds = set(map(type, values))
        if len(kinds) > 1:
            kinds.discard(type(None))
        kind = types.get(kinds.pop()) if len(kinds) == 1 else None
        if kind is None:
            return None  # two types, or values that have parts
        try:
            parts.append(pa.array(values, kind))
        except OverflowError:
            return None
    return parts


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
