"""JSON as UTF-8: compact, keys sorted, so that equal values give equal bytes. NaN and infinity are refused.

A column is read by Arrow's own reader where that gives exactly what `deserialize` gives row by row, down to
an absent field being no null and 1 being no 1.0. Where it cannot be sure, it reads with `json` and then makes
a column; where no column holds the values, it raises NotColumnarError.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from suiro.streams.serdes.block_forms import encode_block
from suiro.streams.serdes.json_values import read_json, write_block, write_json
from suiro.streams.serdes.serde import DeserializationError, NotColumnarError, SerializationError

if TYPE_CHECKING:
    import pyarrow as pa


_SAMPLE_BYTES = 20_000


def write_value(serde: str, topic: str, value: Any) -> bytes:
    """The bytes of a value. `serde` is the name for errors."""
    try:
        return write_json(value)
    except (TypeError, ValueError) as error:
        raise SerializationError(
            serde, topic, type(value).__name__, f"JSON has no form for it: {error}"
        ) from None


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
        import pyarrow as pa

        column = data.cast(pa.binary())
        quick = _read_objects(column)
        return self._decode_rows(column, topic) if quick is None else quick

    def decode_fields(self, data: pa.Array, fields: Collection[str], *, topic: str = "") -> pa.Array:
        """Only these fields of objects, for expressions, to which an absent field is a null one.

        So rows need not have all fields, which `decode_column` insists on. A field that no row has may be
        left out of the struct. Raises as `decode_column` does.
        """
        import pyarrow as pa

        column = data.cast(pa.binary())
        quick = _read_objects(column, fields)
        return self._decode_rows(column, topic, fields) if quick is None else quick

    def encode_column(self, values: pa.Array, *, topic: str = "") -> pa.Array:
        """As a block of rows: Arrow has no JSON writer."""
        import pyarrow as pa

        return pa.array(encode_block(self, values.to_pylist(), topic), pa.binary())

    def _decode_rows(self, column: pa.Array, topic: str, fields: Collection[str] | None = None) -> pa.Array:
        import pyarrow as pa

        rows: list[Any] = []
        for row, item in enumerate(column.to_pylist()):
            try:
                rows.append(None if item is None else self.deserialize(topic, item))
            except DeserializationError as error:
                raise DeserializationError(self.name, topic, error.reason, row) from None
            if item is not None and rows[-1] is None:
                raise NotColumnarError(
                    self.name, topic, f"row {row} is the JSON null, which is not a null value"
                )
        if fields is not None:
            if not all(row is None or isinstance(row, dict) for row in rows):
                raise NotColumnarError(self.name, topic, "some rows are no objects")
            rows = [row if row is None else {field: row.get(field) for field in fields} for row in rows]
        try:
            values = pa.array(rows)
        except (
            pa.ArrowInvalid,
            pa.ArrowTypeError,
            pa.ArrowNotImplementedError,
            OverflowError,
            ValueError,
        ) as error:
            raise NotColumnarError(self.name, topic, str(error)) from None
        if not _same(values.to_pylist(), rows):
            raise NotColumnarError(
                self.name, topic, "some fields are absent in some rows, or have two types of number"
            )
        return values


def _read_objects(column: pa.Array, fields: Collection[str] | None = None) -> pa.Array | None:
    """The column read by Arrow, or None where that might not be what `json` reads. `fields`: only these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    present = column.drop_null()
    if len(present) == 0:
        return None
    # Every row starts with { and ends with }, and there are as many objects as rows: then each row is one object.
    if not pc.all(pc.and_(pc.starts_with(present, b"{"), pc.ends_with(present, b"}"))).as_py():
        return None
    text = b"\n".join(present.to_pylist())
    if text.count(b"\n") != len(present) - 1 or b"\\ud" in text or b"\\uD" in text:
        return None  # a line break inside a row; a surrogate, which Python takes alone too
    try:
        text.decode()
        objects = _parse(text)
    except (UnicodeDecodeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if objects is None or len(objects) != len(present):
        return None
    if fields is not None:
        names = [field.name for field in objects.type if field.name in fields]
        if not names:
            return None
        parts = [objects.field(name) for name in names]
        objects = pa.StructArray.from_arrays(parts, names)
    if not _is_exact(objects, text, absent=fields is not None):
        return None
    if column.null_count == 0:
        return objects
    valid = pc.is_valid(column)
    positions = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
    return objects.take(pc.if_else(valid, positions, None))


def _parse(text: bytes) -> pa.StructArray | None:
    import pyarrow as pa

    # Arrow takes strings that look like times for timestamps; JSON has none. The first rows mostly tell which
    # fields these are, so that the whole text is read once.
    end = text.find(b"\n", _SAMPLE_BYTES)
    strings = _timestamps(_read(text[:end], [])) if 0 < end < len(text) // 2 else []
    table = _read(text, strings)
    late = _timestamps(table)
    if late:
        names = {field.name for field in late}
        table = _read(text, [*(field for field in strings if field.name not in names), *late])
        if _timestamps(table):
            return None
    if table.num_columns == 0:
        return None
    if b"null" in text and any(_has_list(field.type) for field in table.schema):
        return None  # Arrow reads a null inside a list into an array that is not valid
    return pa.StructArray.from_arrays(
        [column.combine_chunks() for column in table.columns], fields=list(table.schema)
    )


def _read(text: bytes, fields: list[pa.Field]) -> pa.Table:
    """`fields` have the types given, all others those that Arrow finds."""
    import pyarrow as pa
    import pyarrow.json as pj

    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pj.ParseOptions(explicit_schema=pa.schema(fields)) if fields else None,
    )


def _timestamps(table: pa.Table) -> list[pa.Field]:
    """The columns with timestamps anywhere, as they should be read instead."""
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


def _is_exact(objects: pa.StructArray, text: bytes, *, absent: bool) -> bool:
    """No field is absent (Arrow would say null) and no double could have been written as an int.

    With `absent`, fields of the outermost structs may be.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    nulls, mentions = 0, 0
    pending = [objects]
    if absent:
        pending = [objects.field(index) for index in range(objects.type.num_fields)]
        pending = [column.drop_null() for column in pending]
    while pending:
        column = pending.pop()
        kind = column.type
        nulls += column.null_count
        column = column.drop_null() if column.null_count else column
        if pa.types.is_struct(kind):
            mentions += sum("null" in field.name for field in kind)
            pending.extend(pc.struct_field(column, [index]) for index in range(kind.num_fields))
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
    if absent:
        return False
    # Every null literal must have been one of ours. The word inside a string would spoil the count.
    return mentions == 0 and b"\\null" not in text and text.count(b"null") == nulls


def _same(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
