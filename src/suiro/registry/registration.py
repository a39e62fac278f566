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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeGuard

from suiro.registry import compatibility
from suiro.registry.api_errors import ApiError, invalid_schema, invalid_version, not_permitted, unprocessable
from suiro.registry.compatibility import parse_for, parse_stored, previous_versions
from suiro.registry.formats import Parsed
from suiro.registry.records import Key, QualifiedSubject, content_hash, guid_of, qualify_reference
from suiro.registry.schemas import AVRO, MAX_NUMBER, PROTOBUF
from suiro.registry.settings import (
    IMPORT,
    check_metadata,
    check_name,
    check_rule_set,
    config_in_scope,
    level_of,
    merge_metadata,
    merge_rule_sets,
    mode_in_scope,
    not_permitted_in,
    refuse_read_only,
)
from suiro.registry.state import Change, Decision, State, StoredSchema
from suiro.registry.work import Work

_MERGED = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
"""Members of a configuration that change a schema before it is registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    text: str
    type: str = AVRO
    references: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int = -1
    version: int = 0

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()

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
                {"name": one["name"], "subject": one["subject"], "version": one["version"]} for one in references
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
    """Whether it fits the 32 bits that clients and the wire format have for ids and versions."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


def register(
    state: State, subject: str, request: Request, *, normalize: bool | None, work: Work
) -> Decision[dict[str, Any]]:
    """The result is the id, version and guid. `normalize` None: as the configuration says."""
    check_name(subject)
    refuse_read_only(state, subject)
    asked = _Asked(state, subject, request, normalize=normalize, work=work)
    is_import = mode_in_scope(state, subject) == IMPORT
    if is_import:
        candidate = asked.to_import()
        found = asked.find(candidate)
    elif request.is_blank or any(asked.config.get(name) for name in _MERGED):
        found = None
    else:
        found = asked.find_as_sent()
    if asked.is_meant(found):
        return _known(found)
    if is_import:
        if request.id < 0:
            raise not_permitted_in(subject, "is in import mode: a schema comes with its id and version")
        _check_json(candidate)
    else:
        if request.id >= 0:
            raise not_permitted_in(subject, "is not in import mode")
        candidate = asked.merged()
        found = asked.find(candidate)
        if asked.is_meant(found):
            return _known(found)
        if messages := asked.problems(candidate, previous_versions(state, subject, candidate.request.metadata)):
            raise ApiError(
                409,
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{subject}", details: [{", ".join(messages)}]',
            )
    version = _version(state, subject, request, importing=is_import)
    schema_id = _id(state, subject, candidate, request)
    value = candidate.value(subject, version, schema_id)
    result = {name: value[name] for name in ("id", "version", "guid")}
    return Decision(result, (Change(Key.schema(subject, version), value),))


def look_up(
    state: State, subject: str, request: Request, *, normalize: bool | None, deleted: bool, work: Work
) -> StoredSchema | None:
    """Returns the newest version of the subject with this schema."""
    asked = _Asked(state, subject, request, normalize=normalize, deleted=deleted, work=work)
    # A client that says nothing of metadata means the schema, whatever metadata it was registered with.
    return asked.find_as_sent(any_metadata=request.metadata is None and request.rule_set is None)


def compatible(
    state: State,
    subject: str,
    request: Request,
    *,
    against: Sequence[StoredSchema] | None,
    normalize: bool | None,
    work: Work,
) -> list[str]:
    """Returns the incompatibilities; empty if the schema would be accepted. `against` None: the versions that the
    subject's level requires."""
    asked = _Asked(state, subject, request, normalize=normalize, work=work)
    candidate = asked.merged()
    if against is None:
        against = previous_versions(state, subject, candidate.request.metadata)
    return asked.problems(candidate, against)


def _check_json(candidate: _Candidate) -> None:
    """Clients read the stored text, so its numbers must be valid JSON. Raises `ApiError` 42201."""

    def refuse(number: str) -> NoReturn:
        raise invalid_schema(f"It cannot be written as JSON: {number} is no number there")

    if candidate.parsed.type != PROTOBUF:
        json.loads(candidate.text, parse_constant=refuse)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    request: Request  # its references have their versions
    parsed: Parsed
    normalized: bool

    @property
    def text(self) -> str:
        return self.parsed.normalized if self.normalized else self.parsed.canonical

    @property
    def content(self) -> bytes:
        return content_hash(self.text, self.request.references, self.request.metadata, self.request.rule_set)

    def means(self, stored: Parsed) -> bool:
        if self.normalized and stored.normalized == self.parsed.normalized:
            return True
        return stored.canonical == self.parsed.canonical

    def value(self, subject: str, version: int, schema_id: int) -> dict[str, Any]:
        made: dict[str, Any] = {"subject": subject, "version": version, "id": schema_id, "guid": guid_of(self.content)}
        if self.parsed.type != AVRO:
            made["schemaType"] = self.parsed.type
        if self.request.references:
            made["references"] = list(self.request.references)
        if self.request.metadata is not None:
            made["metadata"] = self.request.metadata
        if self.request.rule_set is not None:
            made["ruleSet"] = self.request.rule_set
        return {**made, "schema": self.text, "deleted": False}


class _Asked:
    """A request about a subject, with the state that decides it. `deleted`: soft-deleted versions count too."""

    def __init__(
        self, state: State, subject: str, request: Request, *, normalize: bool | None, work: Work, deleted: bool = False
    ) -> None:
        self.config = config_in_scope(state, subject)
        self._state = state
        self._subject = subject
        self._request = request
        self._normalized = bool(self.config.get("normalize")) if normalize is None else normalize
        self._deleted = deleted
        self._work = work

    def to_import(self) -> _Candidate:
        """The schema as the other registry has it. It is not checked: old schemas may fail newer checks."""
        if self._request.is_blank:
            raise invalid_schema("Empty schema")
        return self._candidate(self._request, normalized=False, strict=False)

    def merged(self) -> _Candidate:
        """The schema with the metadata and rules of the latest version and of the configuration."""
        request, config = self._request, self.config
        latest = next(reversed(self._state.versions(self._subject)), None)
        if request.is_blank:
            if latest is None:
                raise invalid_schema("Empty schema")
            # The request changes only metadata or rules.
            request = replace(request, text=latest.text, type=latest.type, references=latest.references)
        metadata, rule_set = request.metadata, request.rule_set
        if latest is not None:
            metadata = latest.metadata if metadata is None else metadata
            rule_set = latest.rule_set if rule_set is None else rule_set
        request = replace(
            request,
            metadata=merge_metadata(config.get("defaultMetadata"), metadata, config.get("overrideMetadata")),
            rule_set=merge_rule_sets(config.get("defaultRuleSet"), rule_set, config.get("overrideRuleSet")),
        )
        return self._candidate(request, normalized=self._normalized, strict=True)

    def _candidate(self, request: Request, *, normalized: bool, strict: bool) -> _Candidate:
        references = tuple(map(self._pinned, request.references))
        parsed = parse_for(
            self._state, request.type, request.text, references, self._subject, self._work, strict=strict
        )
        return _Candidate(request=replace(request, references=references), parsed=parsed, normalized=normalized)

    def _pinned(self, reference: dict[str, Any]) -> dict[str, Any]:
        """The reference with the number of its version: -1 is the latest."""
        if reference["version"] != -1:
            return reference
        target = qualify_reference(reference["subject"], self._subject)
        versions = self._state.versions(target)
        if not versions:
            raise invalid_schema(f'No schema reference found for subject "{target}" and version -1')
        return {**reference, "version": versions[-1].version}

    def find_as_sent(self, *, any_metadata: bool = False) -> StoredSchema | None:
        """Returns the newest version with the schema as it was sent. If the schema fails a check, it may have been
        registered before the check existed."""

        def find(*, strict: bool) -> StoredSchema | None:
            candidate = self._candidate(self._request, normalized=self._normalized, strict=strict)
            found = self.find(candidate)
            return self._find_text(candidate) if found is None and any_metadata else found

        try:
            return find(strict=True)
        except ApiError:
            found = find(strict=False)
            if found is None:
                raise
            return found

    def find(self, candidate: _Candidate) -> StoredSchema | None:
        """Returns the newest version with this content, or else one whose text means the same."""
        context = QualifiedSubject.parse(self._subject).context
        found = [
            one
            for one in self._state.with_content(context, candidate.content)
            if one.subject == self._subject and one.type == candidate.parsed.type and (self._deleted or not one.deleted)
        ]
        if found:
            return max(found, key=lambda one: one.version)
        return self._find_text(candidate, metadata=candidate.request.metadata, rule_set=candidate.request.rule_set)

    def _find_text(self, candidate: _Candidate, **same: Any) -> StoredSchema | None:
        """Compares parsed texts, because another registry may have stored the schema in another form."""
        versions = [
            one
            for one in reversed(self._state.versions(self._subject, deleted=self._deleted))
            if one.type == candidate.parsed.type
            and one.references == candidate.request.references
            and all(getattr(one, name) == value for name, value in same.items())
        ]

        def parsed(one: StoredSchema) -> Parsed | None:
            with contextlib.suppress(ApiError):
                return parse_stored(self._state, one, self._work)
            return None

        for one, stored in zip(versions, self._work.each(parsed, versions), strict=True):
            if stored is not None and candidate.means(stored):
                return one
        return None

    def is_meant(self, found: StoredSchema | None) -> TypeGuard[StoredSchema]:
        """Whether the schema is already registered, with the id and version of the request if it names them."""
        request = self._request
        return found is not None and request.id in (-1, found.id) and request.version in (0, -1, found.version)

    def problems(self, candidate: _Candidate, against: Sequence[StoredSchema]) -> list[str]:
        """Returns why the candidate breaks the subject's level; empty if it does not."""
        level = level_of(self._state, self._subject)
        return compatibility.check(self._state, level, candidate.parsed, against, self._work)


def _known(found: StoredSchema) -> Decision[dict[str, Any]]:
    return Decision({"id": found.id, "version": found.version, "guid": found.guid})


def _version(state: State, subject: str, request: Request, *, importing: bool) -> int:
    following = max(state.subjects.get(subject, {}), default=0) + 1
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
        raise invalid_schema(f"Version is not one more than previous version: {request.version} after {following - 1}")
    return following


def _id(state: State, subject: str, candidate: _Candidate, request: Request) -> int:
    context = QualifiedSubject.parse(subject).context
    if request.id >= 0:
        for one in state.with_id(context, request.id):
            if one.content != candidate.content or one.type != candidate.parsed.type:
                raise not_permitted(f"Overwrite new schema with id {request.id} is not permitted.")
        return request.id
    same = [one for one in state.with_content(context, candidate.content) if one.type == candidate.parsed.type]
    schema_id = same[0].id if same else state.max_id(context) + 1
    if schema_id > MAX_NUMBER:
        raise not_permitted(
            f"Context {context!r} has given the id {MAX_NUMBER}, the last one that there is; it was imported. Register "
            "in another context"
        )
    return schema_id
