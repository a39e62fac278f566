"""The paths of the API and their functions. Confluent's API documentation is the reference.

A function gets the storage of the registry and the `Call`, and returns a value for the JSON response. It runs on a
worker thread and may block. It raises `ApiError` to return an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from suiro.foundation.http import Role
from suiro.numerals import natural, whole_number
from suiro.registry import associations, deletion, queries, settings
from suiro.registry.api_errors import (
    INVALID_SCHEMA,
    ApiError,
    schema_not_found,
    subject_not_found,
    unprocessable,
    version_not_found,
)
from suiro.registry.queries import parse_version
from suiro.registry.registration import Registered, Request, compatible, look_up, register
from suiro.registry.schemas import MAX_NUMBER, SCHEMA_TYPES
from suiro.registry.settings import scoped
from suiro.registry.state import State, StoredSchema
from suiro.registry.storage import Decision, Storage
from suiro.registry.subjects import DEFAULT_CONTEXT, WILDCARD, QualifiedSubject, normal
from suiro.registry.work import Work

API_VERSION = "8.0.0"  # the version of Confluent's registry that has this API
SCHEMAS_MAX = 1_000
"""The most schemas of an answer, as in Confluent's registry: all of them may be hundreds of megabytes."""


@dataclass(frozen=True, slots=True)
class PlainText:
    """A response that is sent as it is, not as JSON."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: Any = None
    context: str = DEFAULT_CONTEXT  # of a path below /contexts
    work: Work = field(default_factory=Work)

    def text(self, *names: str, default: str = "") -> str:
        return next((self.query[name][0] for name in names if self.query.get(name)), default)

    def flag(self, *names: str) -> bool:
        return self.text(*names).lower() == "true"

    def deleted_or_not(self) -> dict[str, bool]:
        """Whether a list has soft-deleted versions too, or only those."""
        return {"deleted": self.flag("deleted"), "deleted_only": self.flag("deletedOnly", "deleted_only")}

    def asked(self, name: str) -> bool | None:
        return self.flag(name) if self.query.get(name) else None

    def number(self, name: str, default: int) -> int:
        text = self.text(name, default=str(default))
        try:
            return whole_number(text)
        except ValueError:
            raise unprocessable(f"{name}={text}: a whole number is expected") from None

    def subject(self) -> str:
        return self.qualify(self.path["subject"])

    def aliased(self, state: State) -> str:
        """The subject of the path, or the one that it stands for (`alias` of its configuration)."""
        subject = self.subject()
        alias = state.configs.get(subject, {}).get("alias")
        return normal(alias) if alias else subject

    def qualify(self, name: str) -> str:
        if self.context == DEFAULT_CONTEXT or name.startswith(":"):
            return normal(name)
        return str(QualifiedSubject(self.context, name))

    def scope(self) -> str | None:
        """The scope of a setting: a subject, a context (`:.ctx:`), or None for all."""
        if "subject" in self.path:
            return scoped(self.subject())
        return None if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    def subject_asked(self) -> str | None:
        """The parameter `subject`; in a path below /contexts at least the context."""
        name = self.text("subject")
        return self.qualify(name) if name or self.context != DEFAULT_CONTEXT else None

    def prefix(self) -> str:
        if self.context != DEFAULT_CONTEXT:
            return f":{self.context}:{self.text('subjectPrefix')}"
        return self.text("subjectPrefix", default=WILDCARD)

    def paged(self, items: Sequence[Any], most: int = -1) -> list[Any]:
        limit = self.number("limit", most)
        if most > 0 and not 0 < limit <= most:
            limit = most
        return queries.page(items, self.number("offset", 0), limit)

    def object(self) -> Mapping[str, Any]:
        if not isinstance(self.body, dict):
            raise unprocessable("The request's body is a JSON object")
        return self.body


Endpoint = Callable[[Storage, Call], Any]

T = TypeVar("T")


def _from_state(storage: Storage, decide: Callable[[State], T]) -> T:
    with storage.state() as state:
        return decide(state)


def _decided(storage: Storage, call: Call, decide: Callable[[State], T]) -> T:
    """Decides from the current state, which is not locked while schemas are parsed or compared."""
    return call.work.run(lambda: _from_state(storage, decide))


def _reading(decide: Callable[[State, Call], Any]) -> Endpoint:
    """Makes an endpoint that answers from the current state and parses nothing."""
    return lambda storage, call: _from_state(storage, lambda state: decide(state, call))


def _computing(decide: Callable[[State, Call], Any]) -> Endpoint:
    """Makes an endpoint that answers from the current state and may parse a schema to format it."""
    return lambda storage, call: _decided(storage, call, lambda state: decide(state, call))


def _writing(decide: Callable[[State, Call], Decision[Any]]) -> Endpoint:
    """Makes an endpoint that reads the log to its end and then writes the decision."""
    return lambda storage, call: storage.write(lambda state: decide(state, call))


def _written(storage: Storage, call: Call, decide: Callable[[State], Decision[T]]) -> T:
    """Answers from the state if nothing needs to be written: every producer asks this when it starts, even while the
    log is unreachable. A request that the current state rejects may be accepted at the end of the log."""
    try:
        decision = _decided(storage, call, decide)
        if not decision.changes:
            return decision.result
    except ApiError:
        pass
    return call.work.run(lambda: storage.write(decide))


@_reading
def _subjects(state: State, call: Call) -> Any:
    return call.paged(queries.list_subjects(state, call.prefix(), **call.deleted_or_not()))


def _look_up(storage: Storage, call: Call) -> Any:
    request = Request.from_json(call.object())
    normalize, deleted = call.asked("normalize"), call.flag("deleted")

    def decide(state: State) -> dict[str, Any]:
        subject = call.aliased(state)
        if not state.versions(subject, deleted=deleted):
            raise subject_not_found(subject)
        found = look_up(state, subject, request, normalize=normalize, deleted=deleted, work=call.work)
        if found is None:
            raise schema_not_found()
        return _shown(state, call, found)

    return _decided(storage, call, decide)


@_writing
def _delete_subject(state: State, call: Call) -> Any:
    return deletion.delete_subject(state, call.aliased(state), permanent=call.flag("permanent"))


@_reading
def _versions(state: State, call: Call) -> Any:
    return call.paged(queries.list_versions(state, call.aliased(state), **call.deleted_or_not()))


def _register(storage: Storage, call: Call) -> Any:
    request = Request.from_json(call.object())
    normalize = call.asked("normalize")

    def decide(state: State) -> Decision[Registered]:
        return register(state, call.aliased(state), request, normalize=normalize, work=call.work)

    made = _written(storage, call, decide)
    return {"id": made.id, "version": made.version, "guid": made.guid}


def _shown(state: State, call: Call, found: StoredSchema) -> dict[str, Any]:
    return queries.version_json(state, found, form=call.text("format"), work=call.work)


@_computing
def _version(state: State, call: Call) -> Any:
    version = parse_version(call.path["version"])
    found = queries.version_of(state, call.aliased(state), version, deleted=call.flag("deleted"))
    return _shown(state, call, found)


def _version_text(storage: Storage, call: Call) -> Any:
    return PlainText(_version(storage, call)["schema"])


@_reading
def _referenced_by(state: State, call: Call) -> Any:
    version = parse_version(call.path["version"])
    return call.paged(queries.referenced_by(state, call.aliased(state), version))


@_writing
def _delete_version(state: State, call: Call) -> Any:
    version = parse_version(call.path["version"])
    return deletion.delete_version(state, call.aliased(state), version, permanent=call.flag("permanent"))


@_computing
def _latest_with_metadata(state: State, call: Call) -> Any:
    keys, values = call.query.get("key", ()), call.query.get("value", ())
    if len(keys) != len(values):
        raise unprocessable(f"{len(keys)} parameters 'key', {len(values)} 'value': each key has one value")
    properties = dict(zip(keys, values, strict=True))
    subject = call.aliased(state)
    return _shown(state, call, queries.latest_with_metadata(state, subject, properties, deleted=call.flag("deleted")))


@_reading
def _schemas(state: State, call: Call) -> Any:
    found = queries.list_schemas(state, call.prefix(), **call.deleted_or_not(), latest_only=call.flag("latestOnly"))
    return [queries.version_json(state, one, form="", work=call.work) for one in call.paged(found, SCHEMAS_MAX)]


def _types(storage: Storage, call: Call) -> Any:
    return list(SCHEMA_TYPES)


def _schema_id(call: Call) -> int:
    found = natural(call.path["id"], MAX_NUMBER)
    if found is None:
        raise schema_not_found(call.path["id"])
    return found


@_computing
def _by_id(state: State, call: Call) -> Any:
    return queries.by_id(
        state,
        _schema_id(call),
        call.subject_asked(),
        form=call.text("format"),
        max_id=call.flag("fetchMaxId"),
        work=call.work,
    )


def _text_by_id(storage: Storage, call: Call) -> Any:
    return PlainText(_by_id(storage, call)["schema"])


@_reading
def _subjects_by_id(state: State, call: Call) -> Any:
    return call.paged(list(dict.fromkeys(one.subject for one in _places(state, call))))


@_reading
def _versions_by_id(state: State, call: Call) -> Any:
    return [{"subject": one.subject, "version": one.version} for one in call.paged(_places(state, call))]


def _places(state: State, call: Call) -> list[StoredSchema]:
    asked, deleted = call.subject_asked(), call.flag("deleted")
    bare = asked is None or not QualifiedSubject.parse(asked).subject
    return [
        one
        for one in queries.with_id(state, _schema_id(call), asked)
        if (deleted or not one.deleted) and (bare or one.subject == asked)
    ]


@_computing
def _by_guid(state: State, call: Call) -> Any:
    return queries.by_guid(state, call.path["guid"], form=call.text("format"), work=call.work)


@_reading
def _ids_by_guid(state: State, call: Call) -> Any:
    found = {(one.context, one.id) for one in state.with_guid(call.path["guid"])}
    if not found:
        raise schema_not_found(call.path["guid"])
    return [{"context": context, "id": schema_id} for context, schema_id in sorted(found)]


def _verdict(storage: Storage, call: Call) -> Any:
    """Compares with the version of the path, or without one with those that the subject's level requires. With
    `verbose`, an invalid schema counts as incompatible, and the reason is returned."""
    version = parse_version(call.path["version"]) if "version" in call.path else None
    request, normalize = Request.from_json(call.object()), call.asked("normalize")
    verbose = call.flag("verbose")

    def decide(state: State) -> list[str]:
        subject, against = call.aliased(state), None
        if version is not None:
            found = queries.version_or_none(state, subject, version, deleted=False)
            if found is None and version != queries.LATEST:
                raise version_not_found(version)  # also where there is no such subject
            against = [found] if found is not None else []
        try:
            return compatible(state, subject, request, against=against, normalize=normalize, work=call.work)
        except ApiError as error:
            if error.code != INVALID_SCHEMA or not verbose:
                raise
            return [error.message.encode(errors="backslashreplace").decode()]  # it may have half of a surrogate pair

    messages = _decided(storage, call, decide)
    answer: dict[str, Any] = {"is_compatible": not messages}
    if verbose:
        answer["messages"] = messages
    return answer


@_reading
def _config(state: State, call: Call) -> Any:
    return _without_subject(settings.config_of(state, call.scope(), default_to_global=call.flag("defaultToGlobal")))


@_writing
def _update_config(state: State, call: Call) -> Any:
    return settings.update_config(state, call.scope(), call.object())


def _delete_config(storage: Storage, call: Call) -> Any:
    return _without_subject(storage.write(lambda state: settings.delete_config(state, call.scope())))


def _without_subject(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "subject"}


@_reading
def _mode(state: State, call: Call) -> Any:
    return {"mode": settings.mode_of(state, call.scope(), default_to_global=call.flag("defaultToGlobal"))}


@_writing
def _update_mode(state: State, call: Call) -> Any:
    return settings.update_mode(state, call.scope(), call.object(), force=call.flag("force"))


@_writing
def _delete_mode(state: State, call: Call) -> Any:
    return settings.delete_mode(state, call.scope())


@_reading
def _contexts(state: State, call: Call) -> Any:
    return call.paged(sorted(state.contexts))


@_reading
def _associations(state: State, call: Call) -> Any:
    found = associations.find(
        state,
        call.path["name"],
        call.path["namespace"],
        call.text("resourceType") or None,
        call.query.get("associationType", ()),
    )
    return call.paged(found)


def _create_associations(storage: Storage, call: Call, *, replace: bool = False) -> Any:
    body = call.object()
    associations.check(body)
    for one in body["associations"]:
        if one.get("schema"):
            _, subject = associations.named(body, one)
            request, normalize = Request.from_json(one["schema"]), one.get("normalize")
            made = partial(register, subject=subject, request=request, normalize=normalize, work=call.work)
            _written(storage, call, made)
    return storage.write(lambda state: associations.create(state, body, replace=replace))


def _replace_associations(storage: Storage, call: Call) -> Any:
    return _create_associations(storage, call, replace=True)


@_writing
def _delete_associations(state: State, call: Call) -> Any:
    return associations.delete(
        state,
        call.path["resource"],
        call.text("resourceType") or None,
        call.query.get("associationType", ()),
        cascade=call.flag("cascadeLifecycle"),
    )


def _root(storage: Storage, call: Call) -> Any:
    return {}


def _server_version(storage: Storage, call: Call) -> Any:
    return {"version": API_VERSION, "commitId": ""}


def _cluster_id(storage: Storage, call: Call) -> Any:
    return {"scope": {"path": [], "clusters": {"schema-registry-cluster": storage.topic}}, "id": ""}


ROUTES: dict[str, dict[str, Endpoint]] = {
    "": {"GET": _root},
    "subjects": {"GET": _subjects},
    "subjects/{subject}": {"POST": _look_up, "DELETE": _delete_subject},
    "subjects/{subject}/versions": {"GET": _versions, "POST": _register},
    "subjects/{subject}/versions/{version}": {"GET": _version, "DELETE": _delete_version},
    "subjects/{subject}/versions/{version}/schema": {"GET": _version_text},
    "subjects/{subject}/versions/{version}/referencedby": {"GET": _referenced_by},
    "subjects/{subject}/metadata": {"GET": _latest_with_metadata},
    "schemas": {"GET": _schemas},
    "schemas/types": {"GET": _types},
    "schemas/ids/{id}": {"GET": _by_id},
    "schemas/ids/{id}/schema": {"GET": _text_by_id},
    "schemas/ids/{id}/subjects": {"GET": _subjects_by_id},
    "schemas/ids/{id}/versions": {"GET": _versions_by_id},
    "schemas/guids/{guid}": {"GET": _by_guid},
    "schemas/guids/{guid}/ids": {"GET": _ids_by_guid},
    "compatibility/subjects/{subject}/versions": {"POST": _verdict},
    "compatibility/subjects/{subject}/versions/{version}": {"POST": _verdict},
    "config": {"GET": _config, "PUT": _update_config, "DELETE": _delete_config},
    "config/{subject}": {"GET": _config, "PUT": _update_config, "DELETE": _delete_config},
    "mode": {"GET": _mode, "PUT": _update_mode, "DELETE": _delete_mode},
    "mode/{subject}": {"GET": _mode, "PUT": _update_mode, "DELETE": _delete_mode},
    "contexts": {"GET": _contexts},
    "associations": {"POST": _create_associations, "PUT": _replace_associations},
    "associations/resources/{namespace}/{name}": {"GET": _associations},
    "associations/resources/{resource}": {"DELETE": _delete_associations},
    "v1/metadata/version": {"GET": _server_version},
    "v1/metadata/id": {"GET": _cluster_id},
}

WRITING = frozenset(
    endpoint
    for methods in ROUTES.values()
    for method, endpoint in methods.items()
    if method in ("PUT", "DELETE") or endpoint in (_register, _create_associations)
)
"""Endpoints that write. Each reads the whole log before it decides."""

WORKING = frozenset({_look_up, _verdict})
"""Endpoints that parse and compare schemas."""

_FOR_OPERATORS = frozenset({_register, _create_associations, _replace_associations})


def role_of(method: str, endpoint: Endpoint) -> Role:
    """The role that a request needs. A viewer may read, look up and check; an operator may register; only an admin may
    delete, or change what can be registered."""
    if method == "GET" or endpoint in WORKING:
        return Role.VIEWER
    return Role.OPERATOR if endpoint in _FOR_OPERATORS else Role.ADMIN
