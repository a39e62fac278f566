"""Values of registry, client and serdes: a schema, and a schema registered as a version.

A schema is its text, its type and its references. Equal `Schema` values are the same schema. The registry decides
whether schemas with different texts are equivalent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

import msgspec

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]

MAX_NUMBER = (1 << 31) - 1
"""The largest id and version: the wire format and clients have 32 bits."""

MOCK_SCHEME = "mock://"
"""The scheme of the address of a registry in memory."""

SubjectStrategy = Literal["topic", "record", "topic-record"]
"""Confluent's TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy."""

AVRO: SchemaType = "AVRO"
JSON: SchemaType = "JSON"
PROTOBUF: SchemaType = "PROTOBUF"
SCHEMA_TYPES: tuple[SchemaType, ...] = (JSON, PROTOBUF, AVRO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """`name` is used in the schema's text: a full name in Avro, a URI in JSON Schema, an import in Protobuf."""

    name: str
    subject: str
    version: int

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(name=data["name"], subject=data["subject"], version=data["version"])

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it is sent to a registry: `Schema('{"type": "string"}')`."""

    text: str
    type: SchemaType = AVRO
    references: tuple[Reference, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "references", tuple(self.references))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schema:
        """Raises `ValueError` for what no registry answers."""
        return msgspec.convert(data, SchemaJson).value()

    def to_json(self) -> dict[str, Any]:
        """The body of a request. A registry takes a schema without a type for Avro."""
        body: dict[str, Any] = {"schema": self.text}
        if self.type != AVRO:
            body["schemaType"] = self.type
        if self.references:
            body["references"] = [one.to_json() for one in self.references]
        return body


class SchemaJson(msgspec.Struct, kw_only=True):
    """A schema in the answer of a registry."""

    schema: str
    type: str | None = msgspec.field(default=None, name="schemaType")  # registries may have others
    references: list[Reference] | None = None

    def value(self) -> Schema:
        return Schema(self.schema, cast("SchemaType", self.type or AVRO), tuple(self.references or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """One version of a subject. The id belongs to the schema: it is the same in every subject."""

    id: int
    subject: str
    version: int
    schema: Schema
