"""Encoded keys and values as columns, and the errors of encoding a row."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from suiro.connect.postgres.encoding.avro_text import Place
from suiro.connect.postgres.encoding.blocks import Bytes, Int64s
from suiro.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

_Int32s = npt.NDArray[np.int32]


class UnsupportedValueError(UsageError):
    """The Avro type of a column cannot hold a value. The message names the column and the choices. `place` and `depth`:
    of the arrays that the value may have."""

    table = ""
    place: Place = (0, "")
    depth = 0


class NullKeyError(UnsupportedValueError):
    """A column of the key is null: the row is older than the key."""


class MissingValueError(UsageError):
    """Neither the old tuple nor `fill` has an unchanged TOAST value."""


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Records of a topic in the order of the changes.

    sources[i]: the change of record i (a position in `indices`, or in the rows of COPY). A change of a row's key has
    two records: the old key without a value, then the new one. tombstones[i]: whether record i has no value.
    """

    sources: Int64s
    key_offsets: _Int32s
    key_data: Bytes
    value_offsets: _Int32s
    value_data: Bytes
    tombstones: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.sources)

    def key(self, record: int) -> bytes:
        return self.key_data[self.key_offsets[record] : self.key_offsets[record + 1]].tobytes()

    def all_keys(self) -> list[bytes]:
        return [self.key(record) for record in range(len(self))]

    def value(self, record: int) -> bytes | None:
        if self.tombstones[record]:
            return None
        return self.value_data[self.value_offsets[record] : self.value_offsets[record + 1]].tobytes()

    def without_changes(self, skipped: Set[int]) -> EncodedRows:
        """Returns the rows without these changes (`sources`), except for their tombstones."""
        return rows_from(
            [
                (source, self.key(record), self.value(record))
                for record, source in enumerate(self.sources.tolist())
                if self.tombstones[record] or source not in skipped
            ]
        )

    def with_schema(self, schema_id: int) -> EncodedRows:
        """Returns the rows with the id of their schema. They were encoded when it had no id yet."""
        data = self.value_data if self.value_data.flags.writeable else self.value_data.copy()
        places = self.value_offsets[:-1].astype(np.int64)
        for byte, number in enumerate(schema_id.to_bytes(4, "big"), start=1):
            data[places + byte] = number
        return replace(self, value_data=data)

    @property
    def keys(self) -> pa.Array:
        """Returns the keys as an Arrow array, without a copy."""
        return _arrow(self.key_offsets, self.key_data, None)

    @property
    def values(self) -> pa.Array:
        return _arrow(self.value_offsets, self.value_data, self.tombstones)


def _arrow(offsets: _Int32s, data: Bytes, nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
    import pyarrow as pa

    bitmap = None
    if nulls is not None and nulls.any():
        bitmap = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def binary_column(parts: Sequence[bytes]) -> pa.Array:
    """As `pa.array(parts, pa.binary())`, which would import pandas: seconds, at a capture's start."""
    return _arrow(_offsets(parts), np.frombuffer(b"".join(parts), np.uint8), None)


def rows_from(records: Sequence[tuple[int, bytes, bytes | None]]) -> EncodedRows:
    """`records`: the source, the key and the value of each."""
    keys = [key for _, key, _ in records]
    values = [value or b"" for _, _, value in records]
    return EncodedRows(
        sources=np.array([source for source, _, _ in records], np.int64),
        key_offsets=_offsets(keys),
        key_data=np.frombuffer(b"".join(keys), np.uint8),
        value_offsets=_offsets(values),
        value_data=np.frombuffer(b"".join(values), np.uint8),
        tombstones=np.array([value is None for _, _, value in records], np.bool_),
    )


def _offsets(parts: Sequence[bytes]) -> _Int32s:
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return offsets
