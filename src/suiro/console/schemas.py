"""Subjects of a registry: listed, read, registered, checked, compared, deleted."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass

from suiro.errors import UsageError
from suiro.registry import RegisteredSchema, RegistryClient, Schema, SchemaType

__all__ = [
    "Checked",
    "SubjectRow",
    "check",
    "delete",
    "diff",
    "get",
    "list_subjects",
    "pretty",
    "register",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRow:
    subject: str
    versions: tuple[int, ...]
    latest_id: int
    type: SchemaType
    compatibility: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """`reasons`: what speaks against registering it now; empty where nothing does."""

    compatible: bool
    reasons: tuple[str, ...]


def list_subjects(
    client: RegistryClient, *, details: bool = True
) -> tuple[SubjectRow, ...] | tuple[str, ...]:
    """By name. `details` asks three questions for each subject."""
    names = sorted(client.subjects())
    if not details:
        return tuple(names)
    rows = []
    for name in names:
        latest = client.latest(name)
        rows.append(
            SubjectRow(
                subject=name,
                versions=tuple(client.versions(name)),
                latest_id=latest.id,
                type=latest.schema.type,
                compatibility=client.compatibility(name),
            )
        )
    return tuple(rows)


def get(client: RegistryClient, subject: str, version: int | None = None) -> RegisteredSchema:
    """The latest unless a version is given. Raises `SchemaNotFoundError`."""
    return client.latest(subject) if version is None else client.version(subject, version)


def register(client: RegistryClient, subject: str, schema: Schema) -> RegisteredSchema:
    """A schema that the subject has already stays the version it is. Raises `IncompatibleSchemaError`."""
    client.register(subject, schema)
    return client.lookup(subject, schema)


def check(client: RegistryClient, subject: str, schema: Schema) -> Checked:
    """By the subject's own level; registers nothing."""
    reasons = tuple(client.compatible(subject, schema))
    return Checked(compatible=not reasons, reasons=reasons)


def diff(old: RegisteredSchema, new: RegisteredSchema) -> tuple[str, ...]:
    """Lines of a unified diff; none where both say the same."""
    return tuple(
        difflib.unified_diff(
            pretty(old.schema).splitlines(),
            pretty(new.schema).splitlines(),
            f"{old.subject} version {old.version}",
            f"{new.subject} version {new.version}",
            lineterm="",
        )
    )


def pretty(schema: Schema) -> str:
    """JSON with a field a line; Protobuf as it is."""
    if schema.type == "PROTOBUF":
        return schema.text
    try:
        return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return schema.text


def delete(
    client: RegistryClient, subject: str, version: int | None = None, *, permanent: bool = False
) -> tuple[int, ...]:
    """A version, or the whole subject; returns what is gone. For good only what was deleted before."""
    if version is None:
        return tuple(client.delete_subject(subject, permanent=permanent))
    if version < 1:
        raise UsageError(f"versions count from 1, got {version}")
    return (client.delete_version(subject, version, permanent=permanent),)
