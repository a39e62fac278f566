"""`serdes.avro`, `serdes.json_schema`, `serdes.protobuf`: Confluent's wire format, schemas in a registry.

Bare, the registry is the run's (`schema_registry_url=` of `KafkaStreams` and `TopologyTestDriver`, `suiro run
--registry`), else that of the environment (`SUIRO_REGISTRY`); values are read by the schema they name and
written by the latest one of the topic's subject. `with_(...)` gives a registry, a schema and the rest:

    orders = builder.stream("orders", value=serdes.avro)
    orders.to("checked", value=serdes.avro.with_(schema=CHECKED))

A serde is what was said and nothing more, so it is picklable and small; connections and schemas are kept by
`suiro.registry`, per process, and opened when the first value comes.

State stores and the topics between tasks are nobody else's, so values of these serdes are kept there in `tagged`'s
form: no schema is registered for them, and equal keys have equal bytes whatever schemas they were written by.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

from suiro.errors import ConfigError, UsageError
from suiro.registry import Reference, Schema, SchemaType, SubjectStrategy
from suiro.streams.serdes.block_forms import decode_block, encode_block
from suiro.streams.serdes.serde import DeserializationError, NotColumnarError, SerializationError
from suiro.streams.serdes.untyped import TaggedSerde

if TYPE_CHECKING:
    import pyarrow as pa

    from suiro.registry import Codec

ENVIRONMENT = "SUIRO_REGISTRY"

_UNSET: Any = object()


_process_id = os.getpid()
"""Kept here, because asking the system for it takes as long as reading a short value."""


def _ask_process_id() -> None:
    global _process_id
    _process_id = os.getpid()


os.register_at_fork(after_in_child=_ask_process_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSerde:
    """See `with_` for the fields. `is_key`: set by the topology, for the subject's name."""

    name: ClassVar[str] = ""
    language: ClassVar[SchemaType]

    registry: str | None = field(default=None, repr=False)  # it may hold a password
    schema: Schema | None = None
    subject_strategy: SubjectStrategy = "topic"
    auto_register: bool = True
    use_latest_version: bool = False
    normalize: bool = False
    validate: bool = True
    message: str | None = None
    is_key: bool = False
    _opened: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._said()), ()

    def _said(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.init}

    def with_(
        self,
        *,
        registry: str | None = _UNSET,
        schema: Any = _UNSET,
        references: Iterable[Reference] = (),
        subject_strategy: SubjectStrategy = _UNSET,
        auto_register: bool = _UNSET,
        use_latest_version: bool = _UNSET,
        normalize: bool = _UNSET,
        validate: bool = _UNSET,
        message: str | None = _UNSET,
        is_key: bool = _UNSET,
    ) -> Self:
        """This serde with something said about it.

        `registry`: http://HOST:PORT, with `user:password@` where it asks for one; `mock://NAME` is one in this
        process's memory. `schema`: its text, a dict, a `Schema`, for Protobuf also a generated class; what is written,
        and for Avro what is read into. `references`: schemas it refers to. `subject_strategy`: "topic" (Confluent's
        TopicNameStrategy), "record" or "topic-record". `auto_register`: a schema the subject does not have is
        registered; otherwise that is an error. `use_latest_version`: written by the subject's latest schema, whatever
        `schema` says. `normalize`: the registry compares schemas in a normal form. `validate`: JSON Schema only.
        `message`: which message of a Protobuf schema is written; the first otherwise.
        """
        refers_to = tuple(references)
        if refers_to and (schema is _UNSET or schema is None or isinstance(schema, Schema)):
            raise ConfigError(
                f"serdes.{self.name}: references go with the schema's text, with_(schema=..., references=[...]); a "
                "Schema has its own"
            )
        written = schema if schema is _UNSET else _schema_of(self.name, self.language, schema, refers_to)
        if subject_strategy is not _UNSET and subject_strategy not in get_args(SubjectStrategy):
            raise ConfigError(
                f"subject_strategy={subject_strategy!r} is none of {', '.join(map(repr, get_args(SubjectStrategy)))}"
            )
        given: dict[str, Any] = {
            "registry": registry,
            "schema": written,
            "subject_strategy": subject_strategy,
            "auto_register": auto_register,
            "use_latest_version": use_latest_version,
            "normalize": normalize,
            "validate": validate,
            "message": message,
            "is_key": is_key,
        }
        made = replace(self, **{name: value for name, value in given.items() if value is not _UNSET})
        named = getattr(getattr(schema, "DESCRIPTOR", None), "full_name", None)
        return replace(made, message=named) if named is not None and message is _UNSET else made

    def serialize(self, topic: str, value: Any) -> bytes:
        try:
            return self.codec().encode(topic, value)
        except UsageError as error:
            from suiro.registry import Unencodable

            if not isinstance(error, Unencodable):
                raise
            raise SerializationError(self.name, topic, type(value).__name__, str(error)) from None

    def deserialize(self, topic: str, data: bytes) -> Any:
        try:
            return self.codec().decode(data)
        except UsageError as error:
            from suiro.registry import Undecodable

            if not isinstance(error, Undecodable):
                raise
            raise DeserializationError(self.name, topic, error.reason) from None

    def codec(self) -> Codec:
        """Raises `ConfigError` where no registry was named."""
        if self._opened and self._opened[0] == _process_id:
            found: Codec = self._opened[1]
            return found
        from suiro.registry import CodecSettings, codec_of

        said = self._said()
        said["registry"] = self.registry or os.environ.get(ENVIRONMENT)
        if not said["registry"]:
            raise ConfigError(
                f"serdes.{self.name} has no registry: give the run one (schema_registry_url=, suiro run --registry), "
                f"the serde (serdes.{self.name}.with_(registry=...)), or set {ENVIRONMENT}"
            )
        found = codec_of(self.language, CodecSettings(**said))
        self._opened[:] = _process_id, found
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSerde(RegisteredSerde):
    """Avro; values as fastavro has them: dicts, Decimal, datetime, UUID, ..."""

    name: ClassVar[str] = "avro"
    language: ClassVar[SchemaType] = "AVRO"

    def decode_block(self, data: Sequence[bytes | None], topic: str) -> list[Any]:
        codec: Any = self.codec()
        found: list[Any] = codec.decode_block(data)
        return found

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]:
        codec: Any = self.codec()
        found: list[bytes | None] = codec.encode_block(topic, values)
        return found

    def decode_column(self, data: pa.Array, *, topic: str = "") -> pa.Array:
        from suiro.registry import NotOneColumn, Undecodable

        codec: Any = self.codec()
        try:
            return codec.decode_column(data)
        except Undecodable as error:
            raise DeserializationError(self.name, topic, error.reason, error.row) from None
        except NotOneColumn as error:
            raise NotColumnarError(self.name, topic, str(error)) from None

    def encode_column(self, values: pa.Array, *, topic: str = "") -> pa.Array:
        """As a block of rows."""
        import pyarrow as pa

        return pa.array(encode_block(self, values.to_pylist(maps_as_pydicts="strict"), topic), pa.binary())


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaSerde(RegisteredSerde):
    """JSON, validated by its schema on the way in and out."""

    name: ClassVar[str] = "json_schema"
    language: ClassVar[SchemaType] = "JSON"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufSerde(RegisteredSerde):
    """Protobuf; a message is a dict by the names of its fields (`suiro.registry.codecs.protobuf`)."""

    name: ClassVar[str] = "protobuf"
    language: ClassVar[SchemaType] = "PROTOBUF"


_INSIDE = b"\xff"
_TAGGED = TaggedSerde()


@dataclass(frozen=True, slots=True)
class AvroInside:
    """Values on their way between tasks: bytes of `inner` that nobody had to read travel as they are, values in
    `tagged`'s form behind a byte that is not the wire format's."""

    inner: AvroSerde

    @property
    def name(self) -> str:
        return self.inner.name

    def reads(self, other: object) -> bool:
        """Tells whether this serde reads the bytes of the other one."""
        return other == self.inner

    def serialize(self, topic: str, value: Any) -> bytes:
        return _INSIDE + _TAGGED.serialize(topic, value)

    def deserialize(self, topic: str, data: bytes) -> Any:
        if data[:1] == _INSIDE:
            return _TAGGED.deserialize(topic, data[1:])
        return self.inner.deserialize(topic, data)

    def decode_block(self, data: Sequence[bytes | None], topic: str) -> list[Any]:
        inside = {item[:1] == _INSIDE for item in data if item is not None}
        if True not in inside:
            return self.inner.decode_block(data, topic)
        if False in inside:
            return [None if item is None else self.deserialize(topic, item) for item in data]
        return decode_block(_TAGGED, [None if item is None else item[1:] for item in data], topic)

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]:
        found = encode_block(_TAGGED, values, topic)
        return [None if item is None else _INSIDE + item for item in found]

    def decode_column(self, data: pa.Array, *, topic: str = "") -> pa.Array:
        import pyarrow.compute as pc

        if pc.any(pc.starts_with(data, _INSIDE)).as_py():
            raise NotColumnarError(self.name, topic, "a task before has read the values one by one")
        return self.inner.decode_column(data, topic=topic)

    def encode_column(self, values: pa.Array, *, topic: str = "") -> pa.Array:
        import pyarrow as pa

        rows = values.to_pylist(maps_as_pydicts="strict")
        return pa.array([None if row is None else self.serialize(topic, row) for row in rows], pa.binary())


def _schema_of(name: str, language: SchemaType, given: Any, references: tuple[Reference, ...]) -> Schema | None:
    if given is None:
        return None
    if isinstance(given, Schema):
        if given.type != language:
            raise ConfigError(f"serdes.{name} takes a schema of type {language}, not {given.type}")
        return given
    descriptor = getattr(given, "DESCRIPTOR", None)
    if language == "PROTOBUF" and descriptor is not None:
        import base64

        return Schema(base64.standard_b64encode(descriptor.file.serialized_pb).decode(), language, references)
    if language != "PROTOBUF" and isinstance(given, Mapping | list):
        return Schema(json.dumps(given), language, references)
    if isinstance(given, str):
        return Schema(given, language, references)
    raise ConfigError(f"serdes.{name}: schema= takes the schema's text or a Schema, not {type(given).__name__}")
