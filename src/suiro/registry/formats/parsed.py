"""A parsed schema, and the errors of parsing and comparing. Shared by all languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from suiro.errors import UsageError

READER, WRITER = "\u27eareader\u27eb", "\u27eawriter\u27eb"
"""Placeholders in a description for "new" and "old", or for "old" and "new" if the old schema reads."""


class InvalidSchema(UsageError):
    """The text is not a schema of its language. The message says where and why."""


@dataclass(frozen=True, slots=True)
class Import:
    """A schema that another one refers to by `name`."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """A reason why a reader cannot read. `kind` is Confluent's name for it, `path` a place in the schema."""

    kind: str
    path: str
    description: str

    def message(self, *, reader_is_new: bool) -> str:
        """Returns the message of Confluent's registry."""
        reader, writer = ("new", "old") if reader_is_new else ("old", "new")
        description = self.description.replace(READER, reader).replace(WRITER, writer)
        return f"{{errorType:'{self.kind}', description:'{description}', additionalInfo:'{self.path}'}}"


def differs(kind: str, path: str, what: str) -> Incompatibility:
    """`what` says what the reader's schema does, up to the word before the place."""
    return Incompatibility(kind, path, f"The {READER} schema {what} path '{path}' in the {WRITER} schema")


@dataclass(frozen=True, slots=True)
class Parsed:
    """`canonical` is stored. It is the same for texts that differ only in layout. `model` is specific to the format."""

    type: str
    canonical: str
    normalized: str
    model: Any
