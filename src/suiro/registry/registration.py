"""Registers a schema, looks one up by its text, and tests whether one would be accepted.

Registering is idempotent: a schema that the subject already has returns its id. A schema that another subject of the
context has gets the same id, with a new version. Ids and versions only increase; a soft-deleted version keeps its
number.

Pure: decides from the `State` alone. `request` has Confluent's members: schema, schemaType, references, metadata,
ruleSet, and id and version in mode IMPORT.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from suiro.registry import compatibility
from suiro.registry.api_errors import (
    ApiError,
    incompatible,
    invalid_schema,
    invalid_version,
    not_permitted,
    unprocessable,
)
from suiro.registry.compatibility import parse_for, parse_stored, previous_versions
from suiro.registry.formats import Parsed
from suiro.registry.merging import check_metadata, check_rule_set, merge_metadata, merge_rule_sets
from suiro.registry.records import Key, content_hash, guid_of
from suiro.registry.schemas import AVRO, MAX_NUMBER, PROTOBUF
from suiro.registry.settings import (
    IMPORT,
    check_name,
    config_in_scope,
    level_of,
    mode_in_scope,
    refuse_read_only,
)
from suiro.registry.state import State, StoredSchema
from suiro.registry.storage import Change, Decision
from suiro.registry.subjects import QualifiedSubject, qualify_reference
from suiro.registry.work import Work

_MERGED = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
"""Of a configuration: with one of these, a schema is not registered as it was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    text: str
    type: str = AVRO
    references: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int = -1
    version: int = 0

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Request:
        """Raises `ApiError` 422 for members of a wrong type."""
        references = body.get("references") or []
        if not isinstance(references, list) or not all(_is_reference(one) for one in references):
            raise unprocessable("'references' is a list of {name, subject, version}")
        for name, kind in (("schema", str), ("schemaType", str), ("metadata", dict), ("ruleSet", dict)):
            if body.get(name) is not None and not isinstance(body[name], kind):
                raise unprocessable(f"{name!r} is a {'text' if kind is str else 'JSON object'}")
        for name in ("id", "version"):
            if body.get(name) is not None and not _is_number(body[name]):
                raise unprocessable(f"{name!r} is a whole number of 32 bits")
        check_metadata("metadata", body.get("metadata"))
        check_rule_set(body.get("ruleSet"))
        return cls(
            text=body.get("schema") or "",
            type=body.get("schemaType") or AVRO,
            references=tuple(
                {"name": one["name"], "subject": one["subject"], "version": one["version"]}
                for one in references
            ),
            metadata=body.get("metadata"),
            rule_set=body.get("ruleSet"),
            id=-1 if body.get("id") is None else body["id"],
            version=body.get("version") or 0,
        )


def _is_reference(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("name"), str)
        and isinstance(one.get("subject"), str)
        and _is_number(one.get("version"))
    )


def _is_number(value: Any) -> bool:
    """As clients and the wire format have ids and versions."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    id: int
    version: int
    guid: str


def register(
    subject: str, request: Request, *, normalize: bool | None, work: Work
) -> Callable[[State], Decision[Registered]]:
    """`normalize` None: as the configuration says."""

    def decide(state: State) -> Decision[Registered]:
        check_name(subject)
        refuse_read_only(state, subject)
        config = config_in_scope(state, subject)
        mode = mode_in_scope(state, subject)
        is_blank = not request.text.strip()
        found = None
        if mode == IMPORT:
            if is_blank:
                raise invalid_schema("Empty schema")
            # As it is where it comes from: nothing is added, and it is not checked, as old schemas may fail checks.
            candidate = _candidate(state, subject, request, normalized=False, strict=False, work=work)
            found = _find(state, subject, candidate, deleted=False, work=work)
        elif not is_blank and not any(config.get(name) for name in _MERGED):
            found = _registered(
                state,
                subject,
                request,
                config,
                normalize=normalize,
                deleted=False,
                any_metadata=False,
                work=work,
            )
        if (known := _known(found, request)) is not None:
            return known
        _check_import(mode, subject, request)
        if mode != IMPORT:
            candidate = _prepare(state, subject, request, config, normalize=normalize, work=work)
            found = _find(state, subject, candidate, deleted=False, work=work)
            if (known := _known(found, request)) is not None:
                return known
            previous = previous_versions(state, subject, candidate.metadata)
            messages = compatibility.check(state, level_of(state, subject), candidate.parsed, previous, work)
            if messages:
                raise incompatible(subject, messages)
        else:
            _check_json(candidate)
        version = _version(state, subject, request, importing=mode == IMPORT)
        schema_id = _id(state, subject, candidate, request)
        value = candidate.value(subject, version, schema_id)
        return Decision(
            Registered(id=schema_id, version=version, guid=value["guid"]),
            (Change(Key.schema(subject, version), value),),
        )

    return decide


def look_up(
    state: State, subject: str, request: Request, *, normalize: bool | None, deleted: bool, work: Work
) -> StoredSchema | None:
    """The newest version of the subject that is this schema."""
    return _registered(
        state,
        subject,
        request,
        config_in_scope(state, subject),
        normalize=normalize,
        deleted=deleted,
        # A client that says nothing of metadata means the schema, whatever metadata it was registered with.
        any_metadata=request.metadata is None and request.rule_set is None,
        work=work,
    )


def compatible(
    state: State,
    subject: str,
    request: Request,
    *,
    against: Sequence[StoredSchema] | None,
    normalize: bool | None,
    work: Work,
) -> list[str]:
    """Messages; empty: it would be accepted. Against these, or (None) those that the subject's level asks for."""
    config = config_in_scope(state, subject)
    candidate = _prepare(state, subject, request, config, normalize=normalize, work=work)
    if against is None:
        against = previous_versions(state, subject, candidate.metadata)
    return compatibility.check(state, level_of(state, subject), candidate.parsed, against, work)


def _check_json(candidate: _Candidate) -> None:
    """What is stored is read by clients, so its numbers must be some of JSON. Raises `ApiError` 42201."""

    def refuse(number: str) -> NoReturn:
        raise invalid_schema(f"It cannot be written as JSON: {number} is no number there")

    if candidate.parsed.type != PROTOBUF:
        json.loads(candidate.text, parse_constant=refuse)


# -- steps -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    parsed: Parsed
    text: str
    references: tuple[dict[str, Any], ...]
    metadata: dict[str, Any] | None
    rule_set: dict[str, Any] | None
    normalized: bool

    @property
    def content(self) -> bytes:
        return content_hash(self.text, self.references, self.metadata, self.rule_set)

    def value(self, subject: str, version: int, schema_id: int) -> dict[str, Any]:
        made: dict[str, Any] = {
            "subject": subject,
            "version": version,
            "id": schema_id,
            "guid": guid_of(self.content),
        }
        if self.parsed.type != AVRO:
            made["schemaType"] = self.parsed.type
        if self.references:
            made["references"] = list(self.references)
        if self.metadata is not None:
            made["metadata"] = self.metadata
        if self.rule_set is not None:
            made["ruleSet"] = self.rule_set
        return {**made, "schema": self.text, "deleted": False}


def _prepare(
    state: State,
    subject: str,
    request: Request,
    config: Mapping[str, Any],
    *,
    normalize: bool | None,
    work: Work,
) -> _Candidate:
    versions = state.versions(subject)
    latest = versions[-1] if versions else None
    if not request.text.strip():
        if latest is None:
            raise invalid_schema("Empty schema")
        # Only metadata or rules are to change.
        request = replace(request, text=latest.text, type=latest.type, references=latest.references)
    metadata = request.metadata if request.metadata is not None else (latest.metadata if latest else None)
    rule_set = request.rule_set if request.rule_set is not None else (latest.rule_set if latest else None)
    request = replace(
        request,
        metadata=merge_metadata(config.get("defaultMetadata"), metadata, config.get("overrideMetadata")),
        rule_set=merge_rule_sets(config.get("defaultRuleSet"), rule_set, config.get("overrideRuleSet")),
    )
    return _candidate(
        state, subject, request, normalized=_is_normalized(config, normalize), strict=True, work=work
    )


def _candidate(
    state: State, subject: str, request: Request, *, normalized: bool, strict: bool, work: Work
) -> _Candidate:
    """The request as it is."""
    references = _pinned(state, subject, request)
    parsed = parse_for(state, request.type, request.text, references, subject, work, strict=strict)
    return _Candidate(
        parsed=parsed,
        text=parsed.normalized if normalized else parsed.canonical,
        references=references,
        metadata=request.metadata,
        rule_set=request.rule_set,
        normalized=normalized,
    )


def _is_normalized(config: Mapping[str, Any], asked: bool | None) -> bool:
    return bool(config.get("normalize")) if asked is None else asked


def _registered(
    state: State,
    subject: str,
    request: Request,
    config: Mapping[str, Any],
    *,
    normalize: bool | None,
    deleted: bool,
    any_metadata: bool,
    work: Work,
) -> StoredSchema | None:
    """The newest version that is the schema as it was sent. A schema that fails a check may be older than the check."""
    normalized = _is_normalized(config, normalize)

    def find(*, strict: bool) -> StoredSchema | None:
        candidate = _candidate(state, subject, request, normalized=normalized, strict=strict, work=work)
        found = _find(state, subject, candidate, deleted=deleted, work=work)
        if found is None and any_metadata:
            found = _find_text(state, subject, candidate, deleted=deleted, work=work)
        return found

    try:
        return find(strict=True)
    except ApiError:
        found = find(strict=False)
        if found is None:
            raise
        return found


def _known(found: StoredSchema | None, request: Request) -> Decision[Registered] | None:
    """The answer, if what is asked for is there: with this id and version, where the request names them."""
    if found is None or request.id not in (-1, found.id) or request.version not in (0, -1, found.version):
        return None
    return Decision(Registered(id=found.id, version=found.version, guid=found.guid))


def _pinned(state: State, subject: str, request: Request) -> tuple[dict[str, Any], ...]:
    """References with numbers for versions: -1 is the latest."""
    pinned = []
    for one in request.references:
        if one["version"] == -1:
            target = qualify_reference(one["subject"], subject)
            versions = state.versions(target)
            if not versions:
                raise invalid_schema(f'No schema reference found for subject "{target}" and version -1')
            one = {**one, "version": versions[-1].version}
        pinned.append(one)
    return tuple(pinned)


def _find(
    state: State, subject: str, candidate: _Candidate, *, deleted: bool, work: Work
) -> StoredSchema | None:
    context = QualifiedSubject.parse(subject).context
    found = [
        one
        for one in state.with_content(context, candidate.content)
        if one.subject == subject and one.type == candidate.parsed.type and (deleted or not one.deleted)
    ]
    if found:
        return max(found, key=lambda one: one.version)
    return _find_text(
        state,
        subject,
        candidate,
        deleted=deleted,
        work=work,
        metadata=candidate.metadata,
        rule_set=candidate.rule_set,
    )


def _find_text(
    state: State, subject: str, candidate: _Candidate, *, deleted: bool, work: Work, **same: Any
) -> StoredSchema | None:
    """By what the text means: another registry may have stored it in another form."""
    versions = [
        one
        for one in reversed(state.versions(subject, deleted=deleted))
        if one.type == candidate.parsed.type
        and one.references == candidate.references
        and all(getattr(one, name) == value for name, value in same.items())
    ]

    def parsed(one: StoredSchema) -> Parsed | None:
        with contextlib.suppress(ApiError):
            return parse_stored(state, one, work)
        return None

    for one, stored in zip(versions, work.each(parsed, versions), strict=True):
        if stored is None:
            continue
        if candidate.normalized and stored.normalized == candidate.parsed.normalized:
            return one
        if stored.canonical == candidate.parsed.canonical:
            return one
    return None


def _check_import(mode: str, subject: str, request: Request) -> None:
    name = QualifiedSubject.parse(subject)
    if mode == IMPORT and request.id < 0:
        raise not_permitted(
            f"Subject {name.subject} in context {name.context} is in import mode: a schema comes with its "
            "id and version"
        )
    if mode != IMPORT and request.id >= 0:
        raise not_permitted(f"Subject {name.subject} in context {name.context} is not in import mode")


def _version(state: State, subject: str, request: Request, *, importing: bool) -> int:
    following = state.next_version(subject)
    if request.version in (0, -1):
        if following > MAX_NUMBER:
            raise not_permitted(
                f"Subject {subject!r} has version {MAX_NUMBER}, the last one that there is; it was imported. Delete it "
                "permanently"
            )
        return following
    if request.version < 0:
        raise invalid_version(request.version)
    if importing:
        return request.version
    if request.version != following:
        raise invalid_schema(
            f"Version is not one more than previous version: {request.version} after {following - 1}"
        )
    return following


def _id(state: State, subject: str, candidate: _Candidate, request: Request) -> int:
    context = QualifiedSubject.parse(subject).context
    if request.id >= 0:
        for one in state.with_id(context, request.id):
            if one.content != candidate.content or one.type != candidate.parsed.type:
                raise not_permitted(f"Overwrite new schema with id {request.id} is not permitted.")
        return request.id
    same = [
        one for one in state.with_content(context, candidate.content) if one.type == candidate.parsed.type
    ]
    schema_id = same[0].id if same else state.next_id(context)
    if schema_id > MAX_NUMBER:
        raise not_permitted(
            f"Context {context!r} has given the id {MAX_NUMBER}, the last one that there is; it was imported. Register "
            "in another context"
        )
    return schema_id
