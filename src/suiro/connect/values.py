"""Formats of keys and values: json, string, bytes and avro (Confluent's wire format, schemas in the registry).

| format | a source writes | a sink sees |
|---|---|---|
| `bytes` | bytes or str, as they are | bytes |
| `string` | str in UTF-8 | str |
| `json` | any JSON value; bytes count as JSON already | what `json.loads` gives |
| `avro` | a dict or the bytes of a JSON object, by the schema file | the datum as fastavro reads it |

Null stays null in every format. What cannot be decoded raises `ValueError` with the reason.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suiro.connect.settings import SettingError
from suiro.errors import SchemaNotFoundError
from suiro.registry import Schema

if TYPE_CHECKING:
    from suiro.registry import RegistryClient

__all__ = ["FORMATS", "Decoder", "Encoder", "decoder", "encoder", "plain_json", "to_json"]

FORMATS = ("json", "string", "bytes", "avro")

Encoder = Callable[[Any], bytes | None]
Decoder = Callable[[bytes | None], Any]

_PREFIX = struct.Struct(">bI")


def decoder(key: str, name: str, registry: RegistryClient | None) -> Decoder:
    """`key` is the setting that chose the format, for the error."""
    match name:
        case "bytes":
            return lambda data: data
        case "string":
            return lambda data: None if data is None else data.decode()
        case "json":
            return lambda data: None if data is None else json.loads(data.decode())
        case "avro":
            return _AvroDecoder(_required(key, registry))
    raise SettingError(key, f"expected one of {', '.join(FORMATS)}, got {name!r}")


def encoder(
    key: str, name: str, registry: RegistryClient | None, *, subject: str, schema_file: Path | None = None
) -> Encoder:
    match name:
        case "bytes" | "string":
            return _text
        case "json":
            return lambda value: None if value is None else to_json(value)
        case "avro":
            if schema_file is None:
                raise SettingError(
                    f"{key}_schema", 'is missing: format "avro" needs the file of an Avro schema'
                )
            return _AvroEncoder(_required(key, registry), subject, _read(f"{key}_schema", schema_file))
    raise SettingError(key, f"expected one of {', '.join(FORMATS)}, got {name!r}")


def to_json(value: Any) -> bytes:
    """Compact UTF-8; bytes are taken as JSON already, and Avro's other types as `plain_json` has them."""
    if isinstance(value, bytes):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=plain_json).encode()


def plain_json(value: Any) -> Any:
    """For `json.dumps(default=)`: dates and times in ISO 8601, decimals and UUIDs as strings, bytes as `\\x` hex (as
    Postgres has it)."""
    match value:
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal() | uuid.UUID():
            return str(value)
        case bytes():
            return "\\x" + value.hex()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _text(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise ValueError(f"expected str or bytes, got {type(value).__name__}; choose the format json for it")


def _required(key: str, registry: RegistryClient | None) -> RegistryClient:
    if registry is None:
        raise SettingError(key, 'format "avro" needs `registry` in section [connect]')
    return registry


def _read(key: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingError(key, f"cannot read {path}: {error.strerror}") from None


class _AvroDecoder:
    """By the schema whose id stands before each value; schemas are parsed once."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._schemas: dict[int, Any] = {}

    def __call__(self, data: bytes | None) -> Any:
        if data is None:
            return None
        import fastavro

        if len(data) < _PREFIX.size or data[0] != 0:
            raise ValueError(
                f"does not begin with a zero byte and a schema id, but with {data[:5].hex() or 'nothing'}"
            )
        (_, schema_id) = _PREFIX.unpack_from(data)
        schema = self._schemas.get(schema_id)
        if schema is None:
            schema = self._schemas[schema_id] = self._parsed(schema_id)
        stream = io.BytesIO(data)
        stream.seek(_PREFIX.size)
        try:
            return fastavro.schemaless_reader(stream, schema, None)
        except Exception as error:  # fastavro raises whatever the bytes run into
            raise ValueError(f"is not of schema {schema_id}: {type(error).__name__}: {error}") from error

    def _parsed(self, schema_id: int) -> Any:
        import fastavro

        named: dict[str, Any] = {}

        def parse(schema: Schema) -> Any:
            for reference in schema.references:
                parse(self._registry.version(reference.subject, reference.version).schema)
            return fastavro.parse_schema(json.loads(schema.text), named)

        try:
            registered = self._registry.schema(schema_id)
        except SchemaNotFoundError as error:
            raise ValueError(f"names schema {schema_id}, which the registry does not have") from error
        if registered.type != "AVRO":
            raise ValueError(f"schema {schema_id} is {registered.type}, not AVRO")
        return parse(registered)


class _AvroEncoder:
    """Registers the schema at the first value."""

    def __init__(self, registry: RegistryClient, subject: str, text: str) -> None:
        self._registry = registry
        self._subject = subject
        self._text = text
        self._prefix: bytes | None = None
        self._schema: Any = None

    def __call__(self, value: Any) -> bytes | None:
        if value is None:
            return None
        import fastavro

        if self._prefix is None:
            self._schema = fastavro.parse_schema(json.loads(self._text))
            schema_id = self._registry.register(self._subject, Schema(self._text))
            self._prefix = _PREFIX.pack(0, schema_id)
        if isinstance(value, bytes):
            value = json.loads(value)
        out = io.BytesIO()
        out.write(self._prefix)
        try:
            fastavro.schemaless_writer(out, self._schema, value)
        except Exception as error:
            raise ValueError(
                f"is not of the schema of {self._subject}: {type(error).__name__}: {error}"
            ) from error
        return out.getvalue()
