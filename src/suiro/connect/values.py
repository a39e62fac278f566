"""Formats of keys and values: json, string, bytes, and avro, protobuf and json_schema (Confluent's wire format, schemas
in the registry).

| format | a source writes | a sink sees |
|---|---|---|
| `bytes` | bytes or str, as they are | bytes |
| `string` | str in UTF-8 | str |
| `json` | any JSON value; bytes count as JSON already | what `parse_json` gives |
| `avro`, `protobuf`, `json_schema` | a dict or the bytes of a JSON object, by the schema file | what the codec gives |

The last three are the codecs of the serdes: a field that an Avro schema does not have is refused, and one that is
missing needs a default.

Null stays null in every format. A value that cannot be decoded raises `ValueError` with the reason.
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from suiro.errors import UsageError
from suiro.foundation.nesting import check_json, parse_json
from suiro.foundation.settings import SettingError
from suiro.registry import Schema, SchemaType
from suiro.registry.codecs import Codec, CodecSettings, Undecodable, Unencodable, codec_of

SCHEMA_LANGUAGES: Mapping[str, SchemaType] = MappingProxyType(
    {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}
)
"""The formats whose records name a schema."""
FORMATS_WITHOUT_SCHEMA = ("json", "string", "bytes")
FORMATS = (*FORMATS_WITHOUT_SCHEMA, *SCHEMA_LANGUAGES)
PREFIX_BYTES = 5
"""The prefix that names the schema, in Confluent's wire format."""

Encoder = Callable[[Any], bytes | None]
Decoder = Callable[[bytes | None], Any]


def decoder(key: str, name: str, registry: str | None) -> Decoder:
    """`key`: the setting that chose the format, for errors. `registry`: its URL."""
    match name:
        case "bytes":
            return lambda data: data
        case "string":
            return lambda data: None if data is None else data.decode()
        case "json":
            return lambda data: None if data is None else parse_json(data, allow_half_pairs=False)
        case _ if name in SCHEMA_LANGUAGES:
            return _schema_decoder(SCHEMA_LANGUAGES[name], _required(key, name, registry))
    raise SettingError(key, f"expected one of {', '.join(FORMATS)}, got {name!r}")


def encoder(key: str, name: str, registry: str | None, *, subject: str, schema_file: Path | None = None) -> Encoder:
    match name:
        case "bytes" | "string":
            return _text
        case "json":
            return lambda value: None if value is None else to_json(value)
        case _ if name in SCHEMA_LANGUAGES:
            if schema_file is None:
                raise SettingError(f"{key}_schema", f'is missing: format "{name}" needs the file of a schema')
            schema = Schema(_read(f"{key}_schema", schema_file), SCHEMA_LANGUAGES[name])
            settings = CodecSettings(registry=_required(key, name, registry), subject=subject, schema=schema)
            codec = codec_of(schema.type, settings)
            try:
                codec.check(None)
            except UsageError as error:
                raise SettingError(f"{key}_schema", f"{schema_file}: {error}") from None
            return _schema_encoder(codec, subject)
    raise SettingError(key, f"expected one of {', '.join(FORMATS)}, got {name!r}")


def to_json(value: Any) -> bytes:
    """Returns compact JSON in UTF-8. Bytes are JSON already. Other types of Avro are written as `plain_json` does."""
    if isinstance(value, bytes):
        return value
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=plain_json)
    return text.encode()


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


def key_of(value: Any, names: Sequence[str], *, what: str) -> str | None:
    """Returns the key of a record whose settings name fields of the value; None without names. Raises `ValueError` if a
    field is missing; `what` is the value, for the message."""
    if not names:
        return None
    if not isinstance(value, dict) or any(name not in value for name in names):
        raise ValueError(f"{what} has no {', '.join(names)}")
    return key_text([value[name] for name in names])


def key_text(fields: Sequence[Any]) -> str:
    """The key of a record whose settings name fields: the field if there is one, a JSON list of several."""
    if len(fields) > 1:
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    (only,) = fields
    if type(only) is int:
        return str(only)  # as JSON has it, and faster
    return only if isinstance(only, str) else json.dumps(only)


def json_text(value: Any, *, default: Callable[[Any], Any] = plain_json) -> str:
    """Returns compact JSON, with texts for the numbers that JSON does not have: "NaN", "Infinity" and "-Infinity"."""
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=default).encode
    try:
        return encode(value)
    except ValueError:
        return encode(json.loads(json.dumps(value, default=default), parse_constant=str))


def _text(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise ValueError(f"expected str or bytes, got {type(value).__name__}; choose the format json for it")


def _required(key: str, name: str, registry: str | None) -> str:
    if registry is None:
        raise SettingError(key, f'format "{name}" needs `registry` in section [connect]')
    return registry


def _read(key: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingError(key, f"cannot read {path}: {error.strerror}") from None


def _schema_decoder(language: SchemaType, registry: str) -> Decoder:
    codec = codec_of(language, CodecSettings(registry=registry))

    def decode(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            value = codec.decode(data)
        except Undecodable as error:
            raise ValueError(str(error)) from error
        if language == "JSON":
            check_json(data[PREFIX_BYTES:].decode(), value, allow_half_pairs=False)
        return value

    return decode


def _schema_encoder(codec: Codec, subject: str) -> Encoder:
    def encode(value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return codec.encode(subject, parse_json(value) if isinstance(value, bytes) else value)
        except Unencodable as error:
            raise ValueError(str(error)) from error

    return encode
