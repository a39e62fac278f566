"""JSON as UTF-8: compact, keys sorted, so that equal values give equal bytes. NaN and infinity are refused.

A column is read and written as a whole (`json_columns`) where that gives exactly what `deserialize` and `serialize`
give row by row, down to an absent field being no null and 1 being no 1.0. Where that is not sure, rows are read by
`json` and then made a column; where no column holds the values, it raises NotColumnarError.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from suiro.streams.serdes.block_forms import encode_block
from suiro.streams.serdes.json_columns import are_alike, read_fields, read_objects, write_column
from suiro.streams.serdes.json_values import read_json, write_block, write_json
from suiro.streams.serdes.serde import DeserializationError, NotColumnarError, SerializationError

if TYPE_CHECKING:
    import pyarrow as pa


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
        import pyarrow as pa

        column = data.cast(pa.binary())
        quick = read_objects(column)
        return self._decode_rows(column, topic) if quick is None else quick

    def decode_fields(self, data: pa.Array, fields: Collection[str], *, topic: str = "") -> pa.Array:
        """Only these fields of objects, for expressions, to which an absent field is a null one.

        So rows need not have all fields, which `decode_column` insists on. Raises as `decode_column` does.
        """
        import pyarrow as pa

        column = data.cast(pa.binary())
        quick = read_fields(column, frozenset(fields))
        return self._decode_rows(column, topic, fields) if quick is None else quick

    def encode_column(self, values: pa.Array, *, topic: str = "") -> pa.Array:
        import pyarrow as pa

        quick = write_column(values)
        return pa.array(encode_block(self, values.to_pylist(), topic), pa.binary()) if quick is None else quick

    def _decode_rows(self, column: pa.Array, topic: str, fields: Collection[str] | None = None) -> pa.Array:
        import pyarrow as pa

        rows: list[Any] = []
        for row, item in enumerate(column.to_pylist()):
            try:
                rows.append(None if item is None else self.deserialize(topic, item))
            except DeserializationError as error:
                raise DeserializationError(self.name, topic, error.reason, row) from None
            if item is not None and rows[-1] is None:
                raise NotColumnarError(self.name, topic, f"row {row} is the JSON null, which is not a null value")
        if fields is not None:
            if not all(row is None or isinstance(row, dict) for row in rows):
                raise NotColumnarError(self.name, topic, "some rows are no objects")
            rows = [row if row is None else {field: row.get(field) for field in fields} for row in rows]
        if not are_alike(rows):
            raise NotColumnarError(
                self.name, topic, "some fields are absent in some rows, or some values are nested too deeply"
            )
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
            raise NotColumnarError(self.name, topic, "some fields have two types of number")
        return values


def _same(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
