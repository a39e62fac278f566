"""The columns of a topic's values, for OpenLineage, from the latest schema of the topic's subject.

Avro and JSON Schema are read as text. A Protobuf schema is compiled, once in each process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from suiro.errors import SuiroError
from suiro.extras import is_installed
from suiro.registry.client import RegistryClient
from suiro.registry.in_memory import registry_client
from suiro.registry.schemas import MOCK_SCHEME, PROTOBUF, Schema
from suiro.telemetry import Column, columns_of
from suiro.telemetry.openlineage import COLUMNS_MAX, DEPTH_MAX

TIMEOUT_S = 5.0


def columns_of_topic(registry: str | None, topic: str) -> tuple[Column, ...]:
    """Empty if they are unknown or the registry does not return them."""
    schema = schema_of_topic(registry, topic)
    return () if schema is None else columns_of_schema(registry, schema)


def columns_of_schema(registry: str | None, schema: Schema, message_name: str | None = None) -> tuple[Column, ...]:
    """`registry` has the schemas that this one refers to. `message_name` names a message of a Protobuf schema; None is
    the first."""
    if schema.type != PROTOBUF:
        return columns_of(schema.type, schema.text)
    if not is_installed("google.protobuf"):
        return ()
    from suiro.registry.codecs import CodecSettings, codec_of
    from suiro.registry.formats import InvalidSchema, TooComplex

    try:
        settings = CodecSettings(registry=registry or MOCK_SCHEME, message=message_name)
        codec: Any = codec_of(PROTOBUF, settings)
        message = codec.message_to_write(schema)
    except (SuiroError, InvalidSchema, TooComplex):
        return ()
    return tuple(_protobuf(message, 0, [COLUMNS_MAX]))


def _protobuf(message: Any, depth: int, left: list[int]) -> Iterator[Column]:
    for field in message.fields if depth < DEPTH_MAX else ():
        left[0] -= 1
        if left[0] < 0:
            return
        inner = field.message_type
        is_map = inner is not None and inner.GetOptions().map_entry
        columns = () if inner is None or is_map else tuple(_protobuf(inner, depth + 1, left))
        yield Column(name=field.name, type=_protobuf_type(field), columns=columns)


def _protobuf_type(field: Any) -> str:
    """The type as the text of the schema names it."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    from suiro.registry.formats.protobuf_text import is_repeated

    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, value = (_protobuf_type(inner.fields_by_name[name]) for name in ("key", "value"))
        return f"map<{key}, {value}>"
    if inner is not None:
        name = str(inner.full_name)
    elif field.enum_type is not None:
        name = str(field.enum_type.full_name)
    else:
        name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"repeated {name}" if is_repeated(field) else name


def schema_of_topic(registry: str | None, topic: str) -> Schema | None:
    """`registry` is its URL. Returns None if it has no schema. Asks once, with a short timeout."""
    if registry is None:
        return None
    subject = f"{topic}-value"
    try:
        if registry.startswith(MOCK_SCHEME):
            return registry_client(registry).latest(subject).schema
        with RegistryClient(registry, timeout_s=TIMEOUT_S, retries=0) as client:
            return client.latest(subject).schema
    except SuiroError:
        return None
