"""Encodes rows value by value with the plain rules. The kernels must produce the same bytes.

Used until the kernels are loaded, for the values that they do not encode (arrays, composites, rare values), and to
report errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import EllipsisType

from suiro.connect.postgres.encoding.avro_text import ConversionError, array_depth
from suiro.connect.postgres.encoding.copy_binary import BINARY_RULES
from suiro.connect.postgres.encoding.encoded_rows import (
    EncodedRows,
    MissingValueError,
    NullKeyError,
    UnsupportedValueError,
    rows_from,
)
from suiro.connect.postgres.encoding.schemas import Relation
from suiro.connect.postgres.encoding.types import ColumnEncoding, depth_of_array, type_name

Values = Sequence["bytes | EllipsisType | None"]
"""The values of a tuple. None is null, `...` an unchanged TOAST value."""

Row = tuple[Values | None, Values | None]
"""(old tuple, new tuple)"""


def completed(old: Values | None, new: Values) -> Values:
    """Returns the new tuple, with unchanged values from the old tuple if it has them."""
    if old is None:
        return new
    return [before if value is ... and before is not None else value for value, before in zip(new, old, strict=True)]


@dataclass
class PlainRows:
    """`key_header` and `value_header`: the beginning of every key and value, in Confluent's wire format."""

    relation: Relation
    encodings: Sequence[ColumnEncoding]
    key_header: bytes
    value_header: bytes

    @cached_property
    def _encoders(self) -> dict[bool, list[Callable[[bytes], bytes]]]:
        """Whether the value is in COPY's binary form -> the rule of each column."""
        return {
            False: [encoding.encode for encoding in self.encodings],
            True: [BINARY_RULES[one.code] if one.copy == "binary" else one.encode for one in self.encodings],
        }

    def encode(self, rows: Iterable[Row], *, binary: bool, fills: Mapping[tuple[int, int], bytes]) -> EncodedRows:
        records: list[tuple[int, bytes, bytes | None]] = []
        for position, (old, new) in enumerate(rows):
            self._check_width(old)
            self._check_width(new)
            if new is None:
                if old is None:
                    raise ValueError(f"change {position} is no insert, update or delete")
                records.append((position, self._key(old, binary), None))
                continue
            cells = [
                fills[position, column]
                if value is ... and (position, column) in fills
                else self.cell(value, column, binary=binary)
                for column, value in enumerate(completed(old, new))
            ]
            key = self.key_header + b"".join(self._key_cell(cells[column], column) for column in self.relation.key)
            if old is not None and (old_key := self._key(old, binary)) != key:
                records.append((position, old_key, None))
            records.append((position, key, self.value_header + b"".join(cells)))
        return rows_from(records)

    def cell(self, value: bytes | EllipsisType | None, column: int, *, binary: bool) -> bytes:
        """Encodes a value with the branch of its union."""
        if value is None:
            return b"\0"
        if value is ...:
            raise MissingValueError(
                f"{self._column(column)} is an unchanged TOAST value and no previous value is available; set "
                "REPLICA IDENTITY FULL"
            )
        try:
            return b"\x02" + self._encoders[binary][column](value)
        except ConversionError as error:
            raise self._unsupported(value, column, error) from None

    def _key(self, values: Values, binary: bool) -> bytes:
        cells = (
            self._key_cell(self.cell(values[column], column, binary=binary), column) for column in self.relation.key
        )
        return self.key_header + b"".join(cells)

    def _key_cell(self, cell: bytes, column: int) -> bytes:
        if self.relation.nullable_key:
            return cell
        if cell == b"\0":
            raise NullKeyError(
                f"{self.relation.full_name}.{self.relation.columns[column].name} is part of the key and null:"
                " the row is older than the key. Start once with --snapshot new, which reads every table"
            )
        return cell[1:]

    def _check_width(self, values: Values | None) -> None:
        if values is not None and len(values) != len(self.relation.columns):
            raise ValueError(
                f"a row with {len(values)} columns for {self.relation.full_name}, which has"
                f" {len(self.relation.columns)}: make a new encoder after each announcement of the table"
            )

    def _unsupported(self, value: bytes, column: int, error: ConversionError) -> UnsupportedValueError:
        shown = value[:60].decode(errors="backslashreplace") + ("..." if len(value) > 60 else "")
        name = f"{self.relation.full_name}.{self.relation.columns[column].name}"
        unsupported = UnsupportedValueError(
            f"{self._column(column)} holds {shown!r}: {error}. Change the value, or capture the column as text:"
            f" as_text = {name}"
        )
        unsupported.table = self.relation.full_name
        if error.place is not None:
            unsupported.place, unsupported.depth = error.place, error.depth
        elif depth_of_array(self.encodings[column].avro):
            unsupported.place, unsupported.depth = (0, self.relation.columns[column].name), array_depth(value)
        return unsupported

    def _column(self, column: int) -> str:
        known = self.relation.columns[column]
        kind = type_name(known.type, known.typmod, self.relation.types)
        return f"{self.relation.full_name}.{known.name} of type {kind}"
