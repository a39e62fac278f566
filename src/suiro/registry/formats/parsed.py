"""A parsed schema, and the errors of parsing and comparing. Shared by all languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from suiro.errors import UsageError

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

    def message(self, *, reader_is_new: bool) -> str:
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
