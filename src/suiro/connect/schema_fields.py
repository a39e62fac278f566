"""The fields of the schema that a record's value or key was written with, in the types that sinks give columns.

All whole numbers become `long` and all floating-point numbers `double`, so that a schema whose field was widened fits
the column that the table has. Structs, lists, maps and unions of several types become `json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from suiro.connect.values import PREFIX_BYTES, SCHEMA_LANGUAGES
from suiro.registry import CodecSettings, codec_of
from suiro.registry.codecs.avro_limits import decimal_digits


@dataclass(frozen=True, slots=True)
class Fields:
    """`names`: the columns of Postgres that a capture wrote under other names, as Avro allows fewer, each with the same
    of the record that it may have. `json_texts`: the columns whose json or jsonb a capture wrote as text: true, or for
    a record of a composite type the same of its fields."""

    types: Mapping[str, str]
    names: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    json_texts: Mapping[str, Any] = field(default_factory=dict)


FieldsReader = Callable[[bytes], Fields]
_Entry = Callable[[Mapping[str, Any], Any], tuple[str, Any]]
"""(a field that a capture wrote, the entries of its type) -> (the name of its entry, the entry or nothing)."""

SCHEMAS_MAX = 1_000
"""The limit of schemas whose fields are cached: writers to the topic choose the schemas."""


def fields_reader(format: str, registry: str | None) -> FieldsReader | None:
    """Returns a function that takes a value which can be decoded. None if the format has no schema."""
    language = SCHEMA_LANGUAGES.get(format)
    if language is None or registry is None:
        return None
    codec: Any = codec_of(language, CodecSettings(registry=registry))
    if language == "PROTOBUF":
        return _kept(codec.prefix, lambda data: _protobuf(codec.message_of(data)))
    if language == "JSON":
        return _kept(_prefix, lambda data: _json_schema(codec.schema_of(data)))
    return _kept(_prefix, lambda data: _avro(codec.writer_schema(_id(data))))


def _kept(identity: Callable[[bytes], bytes], read: FieldsReader) -> FieldsReader:
    """`read` needs no more of a value than its `identity`, which names the schema."""
    known = lru_cache(SCHEMAS_MAX)(read)
    return lambda data: known(identity(data))


def _prefix(data: bytes) -> bytes:
    return data[:PREFIX_BYTES]


def _id(data: bytes) -> int:
    return int.from_bytes(data[1:PREFIX_BYTES], "big")


# Avro

_AVRO = {
    "boolean": "boolean",
    "int": "long",
    "long": "long",
    "float": "double",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "fixed": "binary",
    "enum": "string",
}
_JSON_OF_POSTGRES = ("json", "jsonb", "json[]", "jsonb[]")
_AVRO_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp",
    "local-timestamp-micros": "timestamp",
    "time-millis": "json",
    "time-micros": "json",
    "uuid": "json",
}


def _avro(schema: Any) -> Fields:
    """`schema`: as fastavro parses it. A type that was defined earlier is its name."""
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        return Fields({})
    named = schema.get("__named_schemas", {})
    types = {one["name"]: _avro_type(one["type"], named) for one in schema["fields"]}
    return Fields(types, _of_capture(schema, named, {}, _name), _of_capture(schema, named, {}, _json_text))


def _of_capture(kind: Any, named: Mapping[str, Any], seen: dict[str, dict[str, Any]], entry: _Entry) -> dict[str, Any]:
    """Returns the entries of a type, which may be an array of records. `seen`: those of types by name. Writers to the
    topic choose the schema: a record may be within itself, and twice within each of many."""
    if isinstance(kind, str):
        if kind not in seen:
            seen[kind] = {}
            seen[kind] = _of_capture(named.get(kind, ()), named, seen, entry)
        return seen[kind]
    if not isinstance(kind, dict):
        return next((found for one in kind if (found := _of_capture(one, named, seen, entry))), {})
    fields = (one for one in kind.get("fields", ()) if "postgres.type" in one)
    entries = (entry(one, _of_capture(one["type"], named, seen, entry)) for one in fields)
    return {name: one for name, one in entries if one} or _of_capture(kind.get("items", ()), named, seen, entry)


def _column(one: Mapping[str, Any]) -> str:
    name = one.get("postgres.name")
    return name if isinstance(name, str) else str(one["name"])


def _name(one: Mapping[str, Any], within: Any) -> tuple[str, Any]:
    column = _column(one)
    return one["name"], (column, within) if within or column != one["name"] else None


def _json_text(one: Mapping[str, Any], within: Any) -> tuple[str, Any]:
    return _column(one), one.get("postgres.base", one["postgres.type"]) in _JSON_OF_POSTGRES or within


def _avro_type(kind: Any, named: Mapping[str, Any]) -> str:
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        return _avro_type(others[0], named) if len(others) == 1 else "json"
    if isinstance(kind, str):
        return _AVRO.get(kind) or (_avro_type(named[kind], named) if kind in named else "json")
    logical = kind.get("logicalType")
    if logical == "decimal":
        digits = decimal_digits(kind)
        return "json" if digits is None else f"decimal({digits[0]},{digits[1]})"
    if isinstance(logical, str) and logical in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[logical]
    base = kind["type"]
    return _AVRO.get(base, "json") if isinstance(base, str) else _avro_type(base, named)


# Protobuf

_WHOLE = ("INT32", "INT64", "UINT32", "SINT32", "SINT64", "FIXED32", "SFIXED32", "SFIXED64")
_PROTOBUF = {
    **dict.fromkeys(_WHOLE, "long"),
    **dict.fromkeys(("UINT64", "FIXED64"), "decimal(20,0)"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "double"),
    "BOOL": "boolean",
    "STRING": "string",
    "BYTES": "binary",
}


def _protobuf(message: Any) -> Fields:
    return Fields({field.name: _protobuf_type(field) for field in message.fields})


def _protobuf_type(field: Any) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    from suiro.registry.formats.protobuf_text import is_repeated

    if is_repeated(field):
        return "json"
    if field.message_type is not None:
        return "timestamp" if field.message_type.full_name == "google.protobuf.Timestamp" else "json"
    return _PROTOBUF.get(FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_"), "json")


# JSON Schema

_JSON = {"boolean": "boolean", "integer": "long", "number": "double", "string": "string"}


def _json_schema(text: str) -> Fields:
    """Returns the fields of `properties`. Fields that other keywords allow are found in the values."""
    schema = json.loads(text)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return Fields({})
    return Fields({name: _json_type(one) for name, one in properties.items()})


def _json_type(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        kind = others[0] if len(others) == 1 else None
    return _JSON.get(kind, "json") if isinstance(kind, str) else "json"
