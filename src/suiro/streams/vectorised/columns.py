"""Records of one input partition as columns, in the order of their offsets.

A key or value column has the bytes that a serde wrote, the values, or both. Each is made from the other when it is
asked for. Values are those that the rules would see: if a serde has no column for the data, it raises an error and the
rules run instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.protocol.columnar import HEADERS_TYPE
from suiro.streams.records import Headers
from suiro.streams.serdes import (
    AvroSerde,
    BooleanSerde,
    BytesSerde,
    ColumnarSerde,
    DoubleSerde,
    IntSerde,
    JsonSerde,
    LongSerde,
    NaturalSerde,
    NotColumnarError,
    Serde,
    StringSerde,
    TimeWindowedSerde,
)
from suiro.streams.serdes.registered import AvroInside

_TYPES: dict[type, pa.DataType] = {
    BytesSerde: pa.binary(),
    StringSerde: pa.string(),
    IntSerde: pa.int32(),
    LongSerde: pa.int64(),
    DoubleSerde: pa.float64(),
    BooleanSerde: pa.bool_(),
}
_EXACT = (BytesSerde, StringSerde, IntSerde, LongSerde, BooleanSerde)


def is_usable(serde: Serde | None) -> bool:
    """Tells whether the serde can read and write columns."""
    return serde is not None and isinstance(serde, ColumnarSerde)


def is_exact(serde: Serde | None) -> bool:
    """Tells whether equal values have equal bytes, and bytes that were read are written again as they were."""
    return isinstance(serde.inner if isinstance(serde, TimeWindowedSerde) else serde, _EXACT)


def type_of(serde: Serde | None) -> pa.DataType | None:
    """Returns the type of the serde's columns; None if it depends on the data."""
    return _TYPES.get(type(serde))


class Column:
    """A column of keys or values. `serde`: the serde that wrote the bytes; None if there are only values. `fields`: the
    fields that expressions read of values that are objects; None: they may read all of them."""

    __slots__ = ("_fields", "_raw", "_read", "_values", "serde", "topic")

    def __init__(
        self,
        *,
        raw: pa.Array | None = None,
        values: pa.Array | None = None,
        serde: Serde | None = None,
        topic: str = "",
        fields: frozenset[str] | None = None,
    ) -> None:
        assert raw is not None or values is not None
        self._raw = raw
        self._values = values
        self._read: pa.Array | None = None
        self._fields = fields if fields and isinstance(serde, JsonSerde) else None
        self.serde = serde
        self.topic = topic

    def __len__(self) -> int:
        return len(self._any)

    @property
    def _any(self) -> pa.Array:
        return self._values if self._raw is None else self._raw

    @property
    def _with_nulls(self) -> pa.Array:
        """The column whose nulls count. In Avro, bytes may stand for null: those of a union's null."""
        if isinstance(self.serde, AvroSerde | AvroInside):
            return self.values
        return self._any

    @property
    def null_count(self) -> int:
        return int(self._with_nulls.null_count)

    def valid(self) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self._with_nulls.is_valid().to_numpy(zero_copy_only=False)
        return found

    @property
    def values(self) -> pa.Array:
        """Raises DeserializationError or NotColumnarError."""
        if self._values is None:
            if not isinstance(self.serde, ColumnarSerde):
                name = getattr(self.serde, "name", "none")
                raise NotColumnarError(name, self.topic, "it reads values one by one")
            self._values = self.serde.decode_column(self._raw, topic=self.topic)
        return self._values

    @property
    def read(self) -> pa.Array:
        """The values for expressions: perhaps without the fields that these do not read."""
        if self._fields is None or self._values is not None:
            return self.values
        if self._read is None:
            assert isinstance(self.serde, JsonSerde)
            self._read = self.serde.decode_fields(self._raw, self._fields, topic=self.topic)
        return self._read

    def bytes_for(self, serde: Serde | None, topic: str) -> pa.Array:
        """Returns the bytes that `serde` writes for the values; None is `serdes.natural`. Raises SerializationError."""
        if serde is None or isinstance(serde, NaturalSerde):
            if self._raw is not None and isinstance(self.serde, BytesSerde | StringSerde | LongSerde):
                return self._raw
            serde = _natural(self.values.type)
        if self._raw is not None and serde == self.serde and is_exact(serde):
            return self._raw
        if not isinstance(serde, ColumnarSerde):
            raise NotColumnarError(serde.name, topic, "it writes values one by one")
        return serde.encode_column(self.values, topic=topic)

    def readable_by(self, serde: Serde, topic: str) -> pa.Array:
        """Returns bytes from which `serde` reads these values. They may differ from those that it would write."""
        if self._raw is not None and (serde == self.serde or _reads(serde, self.serde)):
            return self._raw
        return self.bytes_for(serde, topic)

    @classmethod
    def joined(cls, columns: Sequence[Column]) -> Column:
        """Joins columns end to end. Raises ArrowInvalid if their values have different types."""
        first = columns[0]
        if first.serde is None or any(each.serde != first.serde for each in columns):
            return cls(values=pa.concat_arrays([each.values for each in columns]))
        found = cls(
            raw=pa.concat_arrays([each.readable_by(first.serde, first.topic) for each in columns]),
            serde=first.serde,
            topic=first.topic,
            fields=first._fields if all(each._fields == first._fields for each in columns) else None,
        )
        found._values = _one_behind_the_other([each._values for each in columns])
        if found._fields is not None:
            found._read = _one_behind_the_other([each._read for each in columns])
        return found

    def of(self, rows: Callable[[pa.Array], pa.Array]) -> Column:
        """Returns a column of the rows that the function takes of an array."""
        found = Column(
            raw=None if self._raw is None else rows(self._raw),
            values=None if self._values is None else rows(self._values),
            serde=self.serde,
            topic=self.topic,
            fields=self._fields,
        )
        found._read = None if self._read is None else rows(self._read)
        return found


def _one_behind_the_other(columns: Sequence[pa.Array | None]) -> pa.Array | None:
    """Joins arrays end to end. Returns None if some are missing or their types differ."""
    there = [each for each in columns if each is not None]
    if len(there) < len(columns) or any(each.type != there[0].type for each in there):
        return None
    return pa.concat_arrays(there)


def _reads(serde: Serde, other: Serde | None) -> bool:
    reads = getattr(serde, "reads", None)
    return reads is not None and bool(reads(other))


def _natural(kind: pa.DataType) -> Serde:
    if pa.types.is_string(kind):
        return StringSerde()
    if pa.types.is_binary(kind) or pa.types.is_null(kind):
        return BytesSerde()
    if pa.types.is_integer(kind):
        return LongSerde()
    if pa.types.is_floating(kind):
        return DoubleSerde()
    if pa.types.is_boolean(kind) or pa.types.is_struct(kind) or pa.types.is_list(kind):
        return JsonSerde()
    raise NotColumnarError("natural", "", f"no rule for columns of type {kind}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """`places`: the place of each row in the first chunk, if paths part and meet again. `headers`: None if no record
    has any."""

    key: Column
    value: Column
    timestamps: npt.NDArray[np.int64]
    headers: pa.Array | None = None
    places: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    def filter(self, mask: npt.NDArray[np.bool_]) -> Chunk:
        if mask.all():
            return self
        rows = pa.array(mask)
        return self._of(lambda column: column.filter(rows), mask)

    def slice(self, start: int, count: int) -> Chunk:
        return self._of(lambda column: column.slice(start, count), slice(start, start + count))

    def take(self, rows: npt.NDArray[Any]) -> Chunk:
        taken = pa.array(rows)
        return self._of(lambda column: column.take(taken), rows)

    def present(self, part: Literal["key", "value"], dropped: dict[str, int]) -> Chunk:
        """Returns the chunk without the records whose key or value is null, and counts those."""
        column: Column = getattr(self, part)
        if not column.null_count:
            return self
        wanted = column.valid()
        reason = f"null {part}"
        dropped[reason] = dropped.get(reason, 0) + len(self) - int(wanted.sum())
        return self.filter(wanted)

    def _of(self, rows: Callable[[pa.Array], pa.Array], indices: Any) -> Chunk:
        """Returns the rows that the function takes of an Arrow array, which are the indices of a NumPy array."""
        return Chunk(
            key=self.key.of(rows),
            value=self.value.of(rows),
            timestamps=self.timestamps[indices],
            headers=None if self.headers is None else rows(self.headers),
            places=None if self.places is None else self.places[indices],
        )


def headers_array(headers: Sequence[Headers]) -> pa.Array | None:
    """Returns the column of these headers; None if no record has any."""
    if not any(headers):
        return None
    return pa.array([[{"key": name, "value": value} for name, value in each] for each in headers], HEADERS_TYPE)


def headers_of(column: pa.Array | None) -> list[Headers] | None:
    """Returns the headers of a column as `Record` has them."""
    if column is None:
        return None
    return [tuple((item["key"], item["value"]) for item in each) if each else () for each in column.to_pylist()]


def headers_in(columns: pa.RecordBatch) -> pa.Array | None:
    return columns.column("headers") if "headers" in columns.schema.names else None
