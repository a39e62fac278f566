"""Encoded keys and values as columns, and the errors of encoding a row."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.connect.postgres.encoding.avro_text import Place
from suiro.connect.postgres.encoding.pgoutput import Bytes, Int64s
from suiro.errors import UsageError

Booleans = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]


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
    keys: pa.Array
    values: pa.Array
    tombstones: Booleans

    def __len__(self) -> int:
        return len(self.sources)

    def key(self, record: int) -> bytes:
        found: bytes = self.keys[record].as_py()
        return found

    def all_keys(self) -> list[bytes]:
        found: list[bytes] = self.keys.to_pylist()
        return found

    def value(self, record: int) -> bytes | None:
        found: bytes | None = self.values[record].as_py()
        return found

    def without_changes(self, skipped: Set[int]) -> EncodedRows:
        """Returns the rows without these changes (`sources`), except for their tombstones."""
        rows = zip(self.sources.tolist(), self.all_keys(), self.values.to_pylist(), strict=True)
        return rows_from([row for row in rows if row[2] is None or row[0] not in skipped])

    def with_schema(self, schema_id: int) -> EncodedRows:
        """Returns the rows with the id of their schema. They were encoded when it had no id yet."""
        _, offsets, data = self.values.buffers()
        written, places = np.frombuffer(data, np.uint8), np.frombuffer(offsets, np.int32)
        written = written if written.flags.writeable else written.copy()
        for byte, number in enumerate(schema_id.to_bytes(4, "big"), start=1):
            written[places[: len(self)].astype(np.int64) + byte] = number
        return replace(self, values=column_of(places[: len(self) + 1], written, self.tombstones))


def column_of(offsets: Int32s, data: Bytes, nulls: Booleans | None = None) -> pa.Array:
    """Returns an Arrow array of these buffers, without a copy."""
    bitmap = None
    if nulls is not None and nulls.any():
        bitmap = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def binary_column(parts: Sequence[bytes | None]) -> pa.Array:
    """As `pa.array(parts, pa.binary())`, which would import pandas: seconds, at a capture's start."""
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part or b"") for part in parts], out=offsets[1:])
    data = np.frombuffer(b"".join(part or b"" for part in parts), np.uint8)
    return column_of(offsets, data, np.array([part is None for part in parts], np.bool_))


def rows_from(records: Sequence[tuple[int, bytes, bytes | None]]) -> EncodedRows:
    """`records`: the source, the key and the value of each."""
    return EncodedRows(
        sources=np.array([source for source, _, _ in records], np.int64),
        keys=binary_column([key for _, key, _ in records]),
        values=binary_column([value for _, _, value in records]),
        tombstones=np.array([value is None for _, _, value in records], np.bool_),
    )
