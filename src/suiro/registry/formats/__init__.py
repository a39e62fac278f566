"""Schema languages: what a text means, its canonical form, and whether a reader of one can read what another wrote.

Each language is one `Format`. Texts are parsed once and kept; a parsed schema is never changed. A schema that refers
to others is parsed with their texts, which come in the order in which they can be parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from suiro.errors import UsageError
from suiro.registry.schemas import AVRO, JSON, PROTOBUF

__all__ = [
    "READER",
    "WRITER",
    "Format",
    "Import",
    "Incompatibility",
    "InvalidSchema",
    "Parsed",
    "format_of",
    "parse",
]

CACHE_SIZE = 1_000

READER, WRITER = "\u27eareader\u27eb", "\u27eawriter\u27eb"
"""Stand in a description for "new" and "old", or the other way round where the old schema is the one that reads."""


class InvalidSchema(UsageError):
    """The text is not a schema of its language. The message says where and why."""


@dataclass(frozen=True, slots=True)
class Import:
    """A schema that another one refers to by `name`."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Why a reader cannot read. `kind` is Confluent's name for it, `path` a place in the schema."""

    kind: str
    path: str
    description: str

    def told(self, *, reader_is_new: bool) -> str:
        """In the form in which Confluent's registry tells it."""
        reader, writer = ("new", "old") if reader_is_new else ("old", "new")
        description = self.description.replace(READER, reader).replace(WRITER, writer)
        return f"{{errorType:'{self.kind}', description:'{description}', additionalInfo:'{self.path}'}}"


@dataclass(frozen=True, slots=True)
class Parsed:
    """`canonical` is what is stored: the same for texts that differ in layout only. `model` is the format's own."""

    type: str
    canonical: str
    normalized: str
    model: Any


class Format(Protocol):
    def parse(self, text: str, imports: Sequence[Import], *, strict: bool) -> Parsed:
        """Raises `InvalidSchema`. What is registered already is not parsed strictly: it may be older than a check."""
        ...

    def incompatibilities(self, reader: Parsed, writer: Parsed) -> list[Incompatibility]:
        """Why data written with `writer` cannot be read with `reader`; empty: it can."""
        ...

    def formatted(self, parsed: Parsed, imports: Sequence[Import], form: str) -> str:
        """The schema in another form that clients ask for. Raises `InvalidSchema` for one we do not have."""
        ...


def format_of(type_: str) -> Format:
    """Loads the language's modules on first use. Raises `InvalidSchema` for a language we do not know."""
    match type_:
        case "AVRO":
            from suiro.registry.formats.avro_format import AvroFormat

            return AvroFormat()
        case "JSON":
            from suiro.registry.formats.json_format import JsonFormat

            return JsonFormat()
        case "PROTOBUF":
            from suiro.registry.formats.protobuf_format import ProtobufFormat

            return ProtobufFormat()
    raise InvalidSchema(f"Invalid schema type {type_}; there are {AVRO}, {JSON} and {PROTOBUF}")


@lru_cache(maxsize=CACHE_SIZE)
def parse(type_: str, text: str, imports: tuple[Import, ...] = (), *, strict: bool = True) -> Parsed:
    """Raises `InvalidSchema`."""
    try:
        return format_of(type_).parse(text, imports, strict=strict)
    except RecursionError:
        raise InvalidSchema("nested too deeply") from None
