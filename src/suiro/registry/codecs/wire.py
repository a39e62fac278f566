"""Confluent's wire format (a zero byte, the schema id as int32, the value), and the choice of the schema for writing.

A given schema is registered under the subject of the value when the first value is written. Depending on the settings,
it is looked up instead, or the latest version of the subject is used. Without a given schema the latest version is
used. Ids are cached without limit of time, latest versions for one minute.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from suiro.clock import monotonic_s
from suiro.errors import ConfigError, SchemaNotFoundError, UsageError
from suiro.registry.formats import Import, InvalidSchema, TooComplex
from suiro.registry.in_memory import registry_client
from suiro.registry.schemas import Schema, SubjectStrategy

V = TypeVar("V")

PREFIX = struct.Struct(">bI")
MAGIC = 0
LATEST_KEPT_S = 60.0
SCHEMAS_MAX = 1_000
"""The limit of schemas that a codec keeps as unusable: writers to a topic choose them."""
KEPT_CHARS_MAX = 4 << 20
"""The limit for the texts of the schemas that a codec keeps for reading. A hundred megabytes are made of them."""
CHARS_OF_EACH = 1_000
"""What counts for each beside its text: a short one takes memory, too."""


class Undecodable(UsageError):
    """The bytes are not a value of a schema of the registry. The message is the reason. `row`: of a column."""

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason, row)
        self.reason = reason
        self.row = row

    def __str__(self) -> str:
        return self.reason


class NotOneColumn(UsageError):
    """The data is valid, but its values have no common Arrow type."""


class Unencodable(UsageError):
    """The value does not fit the schema, or there is no schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecSettings:
    """`schema` is used for writing, and as the reader's schema if the language has one. None: the registry's."""

    registry: str = field(repr=False)  # it may hold a password
    schema: Schema | None = None
    message: str | None = None  # of a Protobuf schema with several messages
    is_key: bool = False
    subject: str | None = None  # instead of the strategy's
    subject_strategy: SubjectStrategy = "topic"
    auto_register: bool = True
    use_latest_version: bool = False
    normalize: bool = False
    validate: bool = True


class Codec(Protocol):
    def decode(self, data: bytes) -> Any:
        """Raises `Undecodable`, and `RegistryError` if the registry cannot be asked."""
        ...

    def encode(self, topic: str, value: Any) -> bytes:
        """Raises `Unencodable`, and `RegistryError` if the registry cannot be asked or refuses."""
        ...

    def check(self, topic: str | None) -> None:
        """Raises the errors that every value would have: the given schema is none, or there is none for values of the
        topic. Registers nothing. `topic`: None if it is not known."""
        ...


class WireFormat:
    """The shared part of all codecs. `language` is the type of the schema."""

    def __init__(self, language: str, settings: CodecSettings) -> None:
        self.language = language
        self.settings = settings
        self._latest: dict[str, tuple[float, int, Schema]] = {}
        self._written: dict[str, tuple[int, Schema]] = {}
        self._unusable: dict[int, str] = {}

    def split(self, data: bytes) -> int:
        """Returns the schema id of the data. Raises `Undecodable`."""
        if len(data) < PREFIX.size:
            raise Undecodable(f"{len(data)} bytes are too few: a zero byte and a schema id of 4 bytes come first")
        magic, schema_id = PREFIX.unpack_from(data)
        if magic != MAGIC:
            raise Undecodable(f"unknown magic byte {magic & 0xFF:#04x}: it was not written through a registry")
        return int(schema_id)

    def unusable(self, schema_id: int, reason: str) -> Undecodable:
        """Returns the error of a schema that is there and cannot be used. `schema` raises it from now on, so that its
        records do not each ask the registry for what it refers to."""
        if len(self._unusable) >= SCHEMAS_MAX:
            self._unusable.clear()
        self._unusable[schema_id] = reason
        return Undecodable(reason)

    def schema(self, schema_id: int) -> Schema:
        """Raises `Undecodable` if the registry does not have the id, or its schema is of another language or
        `unusable`."""
        if schema_id in self._unusable:
            raise Undecodable(self._unusable[schema_id])
        try:
            found = registry_client(self.settings.registry).schema(schema_id)
        except SchemaNotFoundError:
            raise Undecodable(f"schema id {schema_id} is not in the registry") from None
        if found.type != self.language:
            raise Undecodable(f"schema id {schema_id} is {found.type}, not {self.language}")
        return found

    def imports(self, schema: Schema) -> tuple[Import, ...]:
        """Returns the schemas that a schema refers to, directly or not, each once, each after those that it needs.
        Raises `InvalidSchema`.

        Asks the registry, so callers remember the result: a new schema may refer to a version whose number was used
        before.
        """
        client = registry_client(self.settings.registry)
        found: dict[str, Import] = {}
        known: dict[tuple[str, int], Schema] = {}

        def visit(one: Schema) -> None:
            for reference in one.references:
                place = reference.subject, reference.version
                if place not in known:
                    known[place] = client.version(*place, fresh=True).schema
                    visit(known[place])
                found.setdefault(reference.name, Import(reference.name, known[place].text))

        try:
            visit(schema)
        except RecursionError:
            raise InvalidSchema("its references lead too deep: one schema behind another") from None
        return tuple(found.values())

    def subject(self, topic: str, record: str | None) -> str:
        """`record` is the full name of the written type; None if it is not known before the schema is."""
        if self.settings.subject is not None:
            return self.settings.subject
        strategy = self.settings.subject_strategy
        if strategy == "topic":
            return f"{topic}-{'key' if self.settings.is_key else 'value'}"
        if record is None:
            raise Unencodable(
                f"subject_strategy={strategy!r} names subjects by the record, so give its schema: with_(schema=...); "
                "it needs a name (a JSON Schema's is its title)"
            )
        return record if strategy == "record" else f"{topic}-{record}"

    def to_write(self, topic: str, record: str | None) -> tuple[int, Schema]:
        """Returns the id and the schema for values of a topic."""
        settings = self.settings
        subject = self.subject(topic, record)
        if settings.schema is None or settings.use_latest_version:
            return self._latest_of(subject)
        found = self._written.get(subject)
        if found is None:
            client = registry_client(settings.registry)
            if settings.auto_register:
                schema_id = client.register(subject, settings.schema, normalize=settings.normalize)
            else:
                try:
                    schema_id = client.lookup(subject, settings.schema, normalize=settings.normalize).id
                except SchemaNotFoundError:
                    raise Unencodable(
                        f"the schema is not registered in subject {subject!r}, and auto_register is off: register it "
                        "first"
                    ) from None
            found = self._written[subject] = schema_id, settings.schema
        return found

    def check(self, topic: str | None, record: str | None) -> None:
        """As `Codec.check`, for what is no matter of the language."""
        settings = self.settings
        if topic is not None and (settings.schema is None or settings.use_latest_version or not settings.auto_register):
            self.to_write(topic, record)

    def _latest_of(self, subject: str) -> tuple[int, Schema]:
        kept = self._latest.get(subject)
        now = monotonic_s()
        if kept is None or now - kept[0] > LATEST_KEPT_S:
            try:
                latest = registry_client(self.settings.registry).latest(subject)
            except SchemaNotFoundError:
                raise Unencodable(
                    f"subject {subject!r} has no schema: give the serde one, with_(schema=...), or register it first"
                ) from None
            if latest.schema.type != self.language:
                raise Unencodable(f"the latest schema of {subject!r} is {latest.schema.type}, not {self.language}")
            kept = self._latest[subject] = now, latest.id, latest.schema
        return kept[1], kept[2]


class BySchema(Generic[V]):
    """What `make` makes of a schema and of those that it refers to, by the id in front of values.

    Writers to a topic choose the ids. At the limit, all are forgotten, and of a topic that needs more, some are found
    again. If only the oldest one went, each would be gone when its turn comes.
    """

    def __init__(self, wire: WireFormat, make: Callable[[Schema, tuple[Import, ...]], V]) -> None:
        self._wire = wire
        self._make = make
        self.made: dict[int, V] = {}
        self._chars = 0

    def __call__(self, schema_id: int) -> V:
        """Raises `Undecodable`."""
        found = self.made.get(schema_id)
        return self._add(schema_id) if found is None else found

    def _add(self, schema_id: int) -> V:
        schema = self._wire.schema(schema_id)
        try:
            imports = self._wire.imports(schema)
            made = self._make(schema, imports)
        except (ConfigError, InvalidSchema, TooComplex, ValueError) as error:
            raise self._wire.unusable(schema_id, f"schema {schema_id} cannot be used: {error}") from None
        except RecursionError:
            raise self._wire.unusable(schema_id, f"schema {schema_id} is nested too deeply") from None
        chars = CHARS_OF_EACH + len(schema.text) + sum(len(one.text) for one in imports)
        if self._chars + chars > KEPT_CHARS_MAX:
            self.made.clear()
            self._chars = 0
        self._chars += chars
        self.made[schema_id] = made
        return made
