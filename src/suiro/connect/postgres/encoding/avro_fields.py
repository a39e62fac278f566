"""Extracts the bytes of one field from an encoded Avro value, without decoding the rest.

The returned bytes include the branch of the field's union. Bytes that do not match the schema raise
`CorruptRecordError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suiro.connect.postgres.encoding.schemas import types_of_fields
from suiro.errors import CorruptRecordError
from suiro.registry.codecs.avro_limits import read_long

_FIXED = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class FieldExtractor:
    """Extracts fields from values with one schema of `schemas.value_schema`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._types = types_of_fields(schema)

    def extract(self, value: bytes, field: str) -> bytes:
        """Returns the bytes of `field` (its name in Avro) in a value in Confluent's wire format."""
        at = 5
        for name, kind in self._types.items():
            try:
                end = self._skip(value, at, kind)
            except ValueError as error:
                raise CorruptRecordError(f"the field {name}, at byte {at}: {error}") from None
            if end > len(value):
                raise CorruptRecordError(f"the value ends within its field {name}")
            if name == field:
                return value[at:end]
            at = end
        raise KeyError(f"the schema has no field {field}")

    def has(self, field: str, kind: Any) -> bool:
        """Whether the schema has this field with exactly this type, so that its bytes can be used again. `kind`: see
        `types_of_fields`."""
        return field in self._types and bool(self._types[field] == kind)

    def _skip(self, value: bytes, at: int, kind: Any) -> int:
        if isinstance(kind, list):
            branch, at = read_long(value, at)
            if not 0 <= branch < len(kind):
                raise CorruptRecordError(f"branch {branch} of a union of {len(kind)}, at byte {at}")
            return self._skip(value, at, kind[branch])
        if isinstance(kind, dict):
            if kind["type"] == "record":
                for field in kind["fields"]:
                    at = self._skip(value, at, field["type"])
                return at
            if kind["type"] == "array":
                return self._skip_array(value, at, kind["items"])
            return self._skip(value, at, kind["type"])
        if kind in _FIXED:
            return at + _FIXED[kind]
        if kind in ("int", "long"):
            return read_long(value, at)[1]
        if kind in ("string", "bytes"):
            size, at = read_long(value, at)
            if not 0 <= size <= len(value) - at:
                raise CorruptRecordError(f"a length of {size} with {len(value) - at} bytes left, at byte {at}")
            return at + size
        raise CorruptRecordError(f"{kind} is no type of a capture")

    def _skip_array(self, value: bytes, at: int, items: Any) -> int:
        while True:
            count, at = read_long(value, at)
            if count == 0:
                return at
            if count < 0:  # the block's size in bytes follows
                size, at = read_long(value, at)
                if not 0 <= size <= len(value) - at:
                    raise CorruptRecordError(f"a block of {size} bytes with {len(value) - at} left, at byte {at}")
                at += size
                continue
            for _ in range(count):
                at = self._skip(value, at, items)
