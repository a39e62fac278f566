"""Read-only requests, answered from the `State` in Confluent's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from suiro.numerals import natural
from suiro.registry.api_errors import (
    invalid_version,
    schema_not_found,
    subject_not_found,
    unprocessable,
    version_not_found,
)
from suiro.registry.compatibility import imports_of
from suiro.registry.formats import InvalidSchema, TooComplex
from suiro.registry.schemas import MAX_NUMBER
from suiro.registry.state import State, StoredSchema
from suiro.registry.subjects import WILDCARD, QualifiedSubject
from suiro.registry.work import Work

LATEST = -1

T = TypeVar("T")


def parse_version(text: str) -> int:
    """Returns the number, or -1 for the latest. Raises `ApiError` 42202."""
    if text.strip().lower() in ("latest", "-1"):
        return LATEST
    version = natural(text, MAX_NUMBER)
    if not version:
        raise invalid_version(text)
    return version


def page(items: Sequence[T], offset: int, limit: int) -> list[T]:
    """A negative `limit` means no limit."""
    start = max(offset, 0)
    return list(items[start:] if limit < 0 else items[start : start + limit])


def list_subjects(state: State, prefix: str, *, deleted: bool, deleted_only: bool) -> list[str]:
    return [
        name
        for name in _with_prefix(state, prefix)
        if _chosen(state.subjects[name].values(), deleted=deleted, deleted_only=deleted_only)
    ]


def _with_prefix(state: State, prefix: str) -> list[str]:
    """`:*:abc` selects from all contexts, `:.ctx:abc` from one, `abc` from the default context."""
    names = sorted(state.subjects)
    if prefix.startswith(WILDCARD):
        wanted = prefix.removeprefix(WILDCARD)
        return [name for name in names if QualifiedSubject.parse(name).subject.startswith(wanted)]
    wanted_name = QualifiedSubject.parse(prefix)
    parsed = ((name, QualifiedSubject.parse(name)) for name in names)
    return [
        name
        for name, one in parsed
        if one.context == wanted_name.context and one.subject.startswith(wanted_name.subject)
    ]


def _chosen(schemas: Iterable[StoredSchema], *, deleted: bool, deleted_only: bool) -> list[StoredSchema]:
    """Returns the versions that are not deleted; with `deleted` all; with `deleted_only` the deleted ones."""
    if deleted_only:
        return [one for one in schemas if one.deleted]
    return [one for one in schemas if deleted or not one.deleted]


def list_versions(state: State, subject: str, *, deleted: bool, deleted_only: bool) -> list[int]:
    if not state.versions(subject, deleted=deleted or deleted_only):
        raise subject_not_found(subject)
    chosen = _chosen(state.subjects[subject].values(), deleted=deleted, deleted_only=deleted_only)
    return [one.version for one in chosen]


def version_of(state: State, subject: str, version: int, *, deleted: bool) -> StoredSchema:
    versions = state.versions(subject, deleted=deleted)
    if not versions:
        raise subject_not_found(subject)
    found = version_or_none(state, subject, version, deleted=deleted)
    if found is None:
        raise version_not_found(version)
    return found


def version_or_none(state: State, subject: str, version: int, *, deleted: bool) -> StoredSchema | None:
    if version == LATEST:
        return next(reversed(state.versions(subject, deleted=deleted)), None)
    found = state.subjects.get(subject, {}).get(version)
    return None if found is None or (found.deleted and not deleted) else found


def latest_with_metadata(state: State, subject: str, properties: dict[str, str], *, deleted: bool) -> StoredSchema:
    for one in reversed(state.versions(subject, deleted=deleted)):
        has = (one.metadata or {}).get("properties") or {}
        if all(has.get(name) == value for name, value in properties.items()):
            return one
    if not state.versions(subject, deleted=deleted):
        raise subject_not_found(subject)
    raise schema_not_found()


def referenced_by(state: State, subject: str, version: int) -> list[int]:
    schema = version_of(state, subject, version, deleted=True)
    ids = {one.id for one in state.referrers(subject, schema.version) if not one.deleted}
    return sorted(ids)


def with_id(state: State, schema_id: int, subject: str | None) -> list[StoredSchema]:
    """Looks in the subject's context. For a subject without a context it looks in the others if the default context
    does not have the id."""
    context = QualifiedSubject.parse(subject or "").context
    found = state.with_id(context, schema_id)
    if not found and subject and not subject.startswith(":."):
        for other in sorted(state.contexts):
            in_other = state.with_id(other, schema_id)
            found = [one for one in in_other if QualifiedSubject.parse(one.subject).subject == subject]
            if found:
                break
    if not found:
        raise schema_not_found(schema_id)
    return sorted(found, key=lambda one: (one.subject, one.version))


def by_id(state: State, schema_id: int, subject: str | None, *, form: str, max_id: bool, work: Work) -> dict[str, Any]:
    found = with_id(state, schema_id, subject)
    in_subject = [one for one in found if subject and one.subject == subject]
    schema = in_subject[-1] if in_subject else found[0]
    answer = schema_json(state, schema, form=form, work=work)
    if in_subject:
        answer = {"subject": schema.subject, "version": schema.version, "id": schema.id, **answer}
    if max_id:
        answer["maxId"] = state.max_id(schema.context)
    return answer


def by_guid(state: State, guid: str, *, form: str, work: Work) -> dict[str, Any]:
    found = state.with_guid(guid)
    if not found:
        raise schema_not_found(guid)
    return schema_json(state, found[0], form=form, work=work)


def list_schemas(
    state: State, prefix: str, *, deleted: bool, deleted_only: bool, latest_only: bool
) -> list[StoredSchema]:
    found: list[StoredSchema] = []
    for name in _with_prefix(state, prefix):
        chosen = _chosen(state.subjects[name].values(), deleted=deleted, deleted_only=deleted_only)
        found += chosen[-1:] if latest_only else chosen
    return found


def schema_json(state: State, schema: StoredSchema, *, form: str, work: Work) -> dict[str, Any]:
    """Returns the schema without the subject and version in which it is registered."""
    answer: dict[str, Any] = {"schema": _formatted(state, schema, form, work)}
    answer["schemaType"] = schema.type
    if schema.references:
        answer["references"] = list(schema.references)
    if schema.metadata is not None:
        answer["metadata"] = schema.metadata
    if schema.rule_set is not None:
        answer["ruleSet"] = schema.rule_set
    answer["guid"] = schema.guid
    return answer


def version_json(state: State, schema: StoredSchema, *, form: str, work: Work) -> dict[str, Any]:
    answer = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    answer |= schema_json(state, schema, form=form, work=work)
    answer["ts"] = schema.timestamp
    if schema.deleted:
        answer["deleted"] = True
    return answer


def _formatted(state: State, schema: StoredSchema, form: str, work: Work) -> str:
    if not form:
        return schema.text
    imports = imports_of(state, schema.references, schema.subject)
    try:
        return work.formatted(work.parse(schema.type, schema.text, imports, strict=False), form)
    except (InvalidSchema, TooComplex) as error:
        raise unprocessable(str(error)) from None
