"""Schemas of the registry.

A registry has no single request for all columns of the list. So rows are cached for a while, and a list fetches only
as many new rows as a user would wait for. Later lists fetch the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from weakref import WeakKeyDictionary

import msgspec

from suiro.console import schemas
from suiro.console.schemas import Checked, SubjectDetails, SubjectRow
from suiro.console.web.console import Console
from suiro.console.web.endpoint import Body, Call, fields_of, get, number_of, post
from suiro.console.web.turns import Turns
from suiro.errors import SchemaNotFoundError, UsageError
from suiro.foundation.http import Role
from suiro.registry import Reference, RegistryClient, Schema, SchemaType

ROW_KEPT_MS = 30_000
ROWS_ASKED_MAX = 300
"""The most rows that one list fetches, with three requests each."""
ASKING_THREADS = 4
AT_ONCE, WAITING = 4, 4
VERSION_MAX = (1 << 31) - 1

_turns = Turns("questions to the registry", at_once=AT_ONCE, waiting=WAITING)
_asking = ThreadPoolExecutor(ASKING_THREADS, thread_name_prefix="console-registry")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectList:
    """In a subject, null means not known yet: ask again."""

    subjects: tuple[SubjectRow, ...]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectPage(SubjectDetails):
    """`versions` has the newest first. `earlier` is the number of versions that are left out. `topics` are found by the
    name of the subject."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredVersion:
    id: int
    version: int


class ReferenceBody(Body):
    name: str
    subject: str
    version: int


class SchemaBody(Body):
    schema: str
    type: SchemaType = "AVRO"
    references: list[ReferenceBody] = msgspec.field(default_factory=list)


_rows: WeakKeyDictionary[Console, dict[str, tuple[SubjectRow, int]]] = WeakKeyDictionary()
"""The cached rows of a console, with the times at which they were fetched."""
_lock = Lock()


@get("/schemas")
def _list(call: Call) -> SubjectList:
    """All subjects; of many those that are not known yet come with the next lists."""
    console = call.console
    registry = console.registry()
    return _turns.shared(console, lambda: _listed(console, registry), call.gone)


def _listed(console: Console, registry: RegistryClient) -> SubjectList:
    there = set(registry.subjects())
    names = sorted(there)
    now_ms = console.clock.monotonic_ms()
    with _lock:
        known = _rows[console] = {name: row for name, row in _rows.get(console, {}).items() if name in there}
        old = [name for name, (_, at_ms) in known.items() if now_ms - at_ms >= ROW_KEPT_MS]
        old.sort(key=lambda name: known[name][1])
        asked = ([name for name in names if name not in known] + old)[:ROWS_ASKED_MAX]
    found = dict(zip(asked, _asking.map(lambda name: _row(registry, name), asked), strict=True))
    with _lock:
        for name, row in found.items():
            known.pop(name, None)
            if row is not None:
                known[name] = row, now_ms
        rows = {name: row for name, (row, _) in known.items()}
    gone = {name for name, row in found.items() if row is None}
    return SubjectList(
        subjects=tuple(rows.get(name) or SubjectRow(subject=name) for name in names if name not in gone),
        complete=all(name in rows or name in gone for name in names),
    )


def _row(registry: RegistryClient, subject: str) -> SubjectRow | None:
    """Returns None if the subject was deleted meanwhile."""
    try:
        return schemas.row_of(registry, subject)
    except SchemaNotFoundError:
        return None


@get("/schemas/{subject}")
def _one(call: Call) -> SubjectPage:
    """A subject with the text of its versions."""
    registry, subject = call.console.registry(), call.path["subject"]
    with _turns.taken(call.gone):
        found = schemas.describe_subject(registry, subject)
    topic = schemas.topic_of(subject)
    return SubjectPage(
        **fields_of(found),
        topics=(topic,) if topic is not None and topic in call.console.model.topics else (),
    )


@get("/schemas/{subject}/diff", query={"old": "a version", "new": "another version"})
def _diff(call: Call) -> Difference:
    """What changed between two versions, as a unified diff."""
    registry, subject = call.console.registry(), call.path["subject"]
    old, new = _version(call, "old"), _version(call, "new")
    with _turns.taken(call.gone):
        one, other = (schemas.get(registry, subject, version) for version in (old, new))
        return Difference(lines=schemas.diff(one, other))


def _version(call: Call, name: str) -> int:
    if name not in call.query:
        raise UsageError("give old=VERSION and new=VERSION")
    found = number_of(name, call.query[name], most=VERSION_MAX)
    if found < 1:
        raise UsageError(f"{name}={found}: versions count from 1")
    return found


@post("/schemas/{subject}/check", Role.VIEWER, SchemaBody)
def _check(call: Call) -> Checked:
    """Whether a schema could be registered now, by the subject's level; nothing is registered."""
    registry, schema = call.console.registry(), _schema(call.body)
    with _turns.taken(call.gone):
        return schemas.check(registry, call.path["subject"], schema)


@post("/schemas/{subject}/register", Role.OPERATOR, SchemaBody)
def _register(call: Call) -> RegisteredVersion:
    """Register a schema as a version."""
    registry, schema = call.console.registry(), _schema(call.body)
    subject = call.path["subject"]
    with _turns.taken(call.gone):
        made = schemas.register(registry, subject, schema)
    with _lock:
        _rows.get(call.console, {}).pop(subject, None)
    return RegisteredVersion(id=made.id, version=made.version)


def _schema(body: SchemaBody) -> Schema:
    if not body.schema.strip():
        raise UsageError('"schema" is empty')
    references: Sequence[ReferenceBody] = body.references
    return Schema(
        body.schema,
        body.type,
        tuple(Reference(name=one.name, subject=one.subject, version=one.version) for one in references),
    )
