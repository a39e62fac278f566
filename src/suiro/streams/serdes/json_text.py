"""JSON as UTF-8: compact, keys sorted, so that equal values give equal bytes. NaN and infinity are refused.

Rows are read one by one and made a column (`json_columns`), which gives exactly what `deserialize` gives, down to an
absent field being no null and 1 being no 1.0. Where no column holds the values, it raises NotColumnarError. A column is
written as a whole where that gives exactly what `serialize` gives row by row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from suiro.streams.serdes.block_forms import decode_rows, encode_block
from suiro.streams.serdes.json_columns import column_of, read_fields, write_column
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
