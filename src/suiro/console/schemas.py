"""Subjects of a registry: listed, read, registered, checked, compared, deleted."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from suiro.errors import SchemaNotFoundError, UsageError
from suiro.registry import Reference, RegisteredSchema, RegistryClient, Schema, SchemaType

VERSIONS_MAX = 100
VERSIONS_AT_ONCE = 8
TEXT_CHARS_MAX = 8 * 1024 * 1024
"""The most characters of the versions that are described together, from the newest on."""
DIFF_WORK_MAX = 1_000_000
"""The product of the numbers of lines between the common beginning and end. Above it, the diff replaces all lines of
the one by all lines of the other."""
DIFF_CONTEXT = 3
_CONTEXT = re.compile(r":\.[^:]*:")
_PLACE = re.compile(r"([-+])(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRow:
    """Without versions, nothing but the name is known yet."""

    subject: str
    versions: tuple[int, ...] = ()
    latest_id: int | None = None
    type: SchemaType | None = None
    compatibility: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """`text` is laid out for people."""

    version: int
    id: int
    type: SchemaType
    text: str
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectDetails:
    """`versions` has the newest first. `earlier` is the number of versions that are left out."""

    subject: str
    compatibility: str
    versions: tuple[SchemaVersion, ...]
    earlier: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """`reasons` tells why it cannot be registered now; empty if it can."""

    compatible: bool
    reasons: tuple[str, ...]


def row_of(client: RegistryClient, subject: str) -> SubjectRow:
    """Asks the registry three times. Raises `SchemaNotFoundError`."""
    latest = client.latest(subject)
    return SubjectRow(
        subject=subject,
        versions=tuple(client.versions(subject)),
        latest_id=latest.id,
        type=latest.schema.type,
        compatibility=client.compatibility(subject),
    )


def describe_subject(client: RegistryClient, subject: str) -> SubjectDetails:
    """Raises `SchemaNotFoundError`."""
    numbers = sorted(client.versions(subject), reverse=True)
    found: list[SchemaVersion] = []
    chars = 0
    for one in _newest(client, subject, numbers[:VERSIONS_MAX]):
        text = pretty(one.schema)
        chars += len(text)
        if found and chars > TEXT_CHARS_MAX:
            break
        found.append(
            SchemaVersion(
                version=one.version,
                id=one.id,
                type=one.schema.type,
                text=text,
                references=one.schema.references,
            )
        )
    return SubjectDetails(
        subject=subject,
        compatibility=client.compatibility(subject),
        versions=tuple(found),
        earlier=len(numbers) - len(found),
    )


def _newest(client: RegistryClient, subject: str, numbers: list[int]) -> Iterator[RegisteredSchema]:
    """Yields the versions. A registry returns one in each request."""
    with ThreadPoolExecutor(VERSIONS_AT_ONCE, thread_name_prefix="console-versions") as threads:
        for at in range(0, len(numbers), VERSIONS_AT_ONCE):
            asked = numbers[at : at + VERSIONS_AT_ONCE]
            yield from threads.map(lambda number: client.version(subject, number, fresh=True), asked)


def topic_of(subject: str) -> str | None:
    """Returns the topic of a subject that clients named `TOPIC-key` or `TOPIC-value`."""
    name = _CONTEXT.sub("", subject, count=1) if subject.startswith(":") else subject
    for suffix in ("-key", "-value"):
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return None


def get(client: RegistryClient, subject: str, version: int | None = None) -> RegisteredSchema:
    """Returns the version, or the latest. Raises `SchemaNotFoundError`."""
    return client.latest(subject) if version is None else client.version(subject, version, fresh=True)


def register(client: RegistryClient, subject: str, schema: Schema) -> RegisteredSchema:
    """A schema that the subject already has keeps its version. Raises `IncompatibleSchemaError`."""
    client.register(subject, schema)
    try:
        return client.lookup(subject, schema)
    except SchemaNotFoundError:  # it was deleted after the client cached its id
        client.register(subject, schema)
        return client.lookup(subject, schema)


def check(client: RegistryClient, subject: str, schema: Schema) -> Checked:
    """Checks the schema by the subject's level. Registers nothing."""
    reasons = tuple(client.compatible(subject, schema))
    return Checked(compatible=not reasons, reasons=reasons)


def diff(old: RegisteredSchema, new: RegisteredSchema) -> tuple[str, ...]:
    """Returns the lines of a unified diff; none if both are the same."""
    before, after = pretty(old.schema).splitlines(), pretty(new.schema).splitlines()
    if before == after:
        return ()
    names = f"{old.subject} version {old.version}", f"{new.subject} version {new.version}"
    first = _common(before, after)
    last = _common(before[first:][::-1], after[first:][::-1])
    removed, added = before[first : len(before) - last], after[first : len(after) - last]
    if len(removed) * len(added) > DIFF_WORK_MAX:
        place = f"@@ -{first + 1},{len(removed)} +{first + 1},{len(added)} @@"
        lines = [f"-{line}" for line in removed] + [f"+{line}" for line in added]
        return (f"--- {names[0]}", f"+++ {names[1]}", place, *lines)
    # Only the context of the common lines at both ends is compared.
    ahead, behind = max(first - DIFF_CONTEXT, 0), max(last - DIFF_CONTEXT, 0)
    found = difflib.unified_diff(
        before[ahead : len(before) - behind],
        after[ahead : len(after) - behind],
        *names,
        n=DIFF_CONTEXT,
        lineterm="",
    )
    return tuple(_moved(line, ahead) for line in found)


def _common(one: list[str], other: list[str]) -> int:
    """Returns the number of equal lines at the beginning."""
    for count, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return count
    return min(len(one), len(other))


def _moved(line: str, by: int) -> str:
    """Moves the place of a hunk down by so many lines."""
    if not by or not line.startswith("@@ "):
        return line
    return _PLACE.sub(lambda match: f"{match[1]}{int(match[2]) + by}", line)


def pretty(schema: Schema) -> str:
    """Lays out JSON with one field a line, without changing numbers. Protobuf stays as it is."""
    if schema.type == "PROTOBUF":
        return schema.text
    try:
        return msgspec.json.format(schema.text, indent=2)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return schema.text


def delete(
    client: RegistryClient, subject: str, version: int | None = None, *, permanent: bool = False
) -> tuple[int, ...]:
    """Deletes a version or the whole subject, and returns the versions. `permanent` needs a delete without it
    before."""
    if version is None:
        return tuple(client.delete_subject(subject, permanent=permanent))
    if version < 1:
        raise UsageError(f"versions count from 1, got {version}")
    return (client.delete_version(subject, version, permanent=permanent),)
