"""The paths of the API and their functions. Confluent's API documentation is the reference.

A function gets the storage of the registry and the `Call`, and returns a value for the JSON response. It runs on a
worker thread and may block. It raises `ApiError` to return an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from suiro.foundation.http import Role
from suiro.registry import associations, deletion, settings
from suiro.registry.api_errors import (
    INVALID_SCHEMA,
    ApiError,
    schema_not_found,
    subject_not_found,
    unprocessable,
    version_not_found,
)
from suiro.registry.call import LATEST, Call
from suiro.registry.compatibility import imports_of
from suiro.registry.formats import InvalidSchema, TooComplex
from suiro.registry.records import QualifiedSubject
from suiro.registry.registration import Request, compatible, look_up, register
from suiro.registry.schemas import SCHEMA_TYPES
from suiro.registry.state import Decision, State, StoredSchema
from suiro.registry.storage import Storage

API_VERSION = "8.0.0"  # the version of Confluent's registry that has this API
SCHEMAS_MAX = 1_000
"""The most schemas of an answer, as in Confluent's registry: all of them may be hundreds of megabytes."""


Endpoint = Callable[[Storage, Call], Any]
"""A text that it returns is sent as it is, not as JSON."""

T = TypeVar("T")


def _decided(storage: Storage, call: Call, decide: Callable[[State], T]) -> T:
    """Decides from the current state, which is not locked while schemas are parsed or compared."""

    def from_state() -> T:
        with storage.state() as state:
            return decide(state)

    return call.work.run(from_state)


def _reading(decide: Callable[[State, Call], Any]) -> Endpoint:
    """Makes an endpoint that answers from the current state."""
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


def _schema_json(state: State, call: Call, schema: StoredSchema, form: str) -> dict[str, Any]:
    """Returns the schema without the subject and version in which it is registered."""
    answer: dict[str, Any] = {"schema": schema.text, "schemaType": schema.type}
    if form:
        imports = imports_of(state, schema.references, schema.subject)
        try:
            parsed = call.work.parse(schema.type, schema.text, imports, strict=False)
            answer["schema"] = call.work.formatted(parsed, form)
        except (InvalidSchema, TooComplex) as error:
            raise unprocessable(str(error)) from None
    if schema.references:
        answer["references"] = list(schema.references)
    if schema.metadata is not None:
        answer["metadata"] = schema.metadata
    if schema.rule_set is not None:
        answer["ruleSet"] = schema.rule_set
    return {**answer, "guid": schema.guid}


def _version_json(state: State, call: Call, schema: StoredSchema, form: str) -> dict[str, Any]:
    answer = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    answer |= _schema_json(state, call, schema, form)
    answer["ts"] = schema.timestamp
    return answer | {"deleted": True} if schema.deleted else answer


@_reading
def _subjects(state: State, call: Call) -> Any:
    return call.paged([name for name in call.prefixed(state.subjects) if call.chosen(state.subjects[name].values())])


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
        return _version_json(state, call, found, call.text("format"))

    return _decided(storage, call, decide)


@_writing
def _delete_subject(state: State, call: Call) -> Any:
    return deletion.delete_subject(state, call.aliased(state), permanent=call.flag("permanent"))


@_reading
def _versions(state: State, call: Call) -> Any:
    subject = call.aliased(state)
    with_deleted = call.flag("deleted") or call.flag("deletedOnly", "deleted_only")
    if not state.versions(subject, deleted=with_deleted):
        raise subject_not_found(subject)
    return call.paged([one.version for one in call.chosen(state.subjects[subject].values())])


def _register(storage: Storage, call: Call) -> Any:
    request = Request.from_json(call.object())
    normalize = call.asked("normalize")

    def decide(state: State) -> Decision[dict[str, Any]]:
        return register(state, call.aliased(state), request, normalize=normalize, work=call.work)

    return _written(storage, call, decide)


def _version_or_none(state: State, subject: str, version: int, *, deleted: bool) -> StoredSchema | None:
    if version == LATEST:
        return next(reversed(state.versions(subject, deleted=deleted)), None)
    found = state.subjects.get(subject, {}).get(version)
    return None if found is None or (found.deleted and not deleted) else found


def _version_of(state: State, call: Call, *, deleted: bool) -> StoredSchema:
    """Returns the version of the path."""
    version, subject = call.version(), call.aliased(state)
    if not state.versions(subject, deleted=deleted):
        raise subject_not_found(subject)
    found = _version_or_none(state, subject, version, deleted=deleted)
    if found is None:
        raise version_not_found(version)
    return found


@_reading
def _version(state: State, call: Call) -> Any:
    found = _version_of(state, call, deleted=call.flag("deleted"))
    return _version_json(state, call, found, call.text("format"))


@_reading
def _referenced_by(state: State, call: Call) -> Any:
    schema = _version_of(state, call, deleted=True)
    ids = {one.id for one in state.referrers(schema.subject, schema.version) if not one.deleted}
    return call.paged(sorted(ids))


@_writing
def _delete_version(state: State, call: Call) -> Any:
    version, subject = call.version(), call.aliased(state)
    return deletion.delete_version(state, subject, version, permanent=call.flag("permanent"))


@_reading
def _latest_with_metadata(state: State, call: Call) -> Any:
    keys, values = call.query.get("key", ()), call.query.get("value", ())
    if len(keys) != len(values):
        raise unprocessable(f"{len(keys)} parameters 'key', {len(values)} 'value': each key has one value")
    wanted = dict(zip(keys, values, strict=True))
    subject = call.aliased(state)
    versions = state.versions(subject, deleted=call.flag("deleted"))
    for one in reversed(versions):
        has = (one.metadata or {}).get("properties") or {}
        if all(has.get(name) == value for name, value in wanted.items()):
            return _version_json(state, call, one, call.text("format"))
    raise schema_not_found() if versions else subject_not_found(subject)


@_reading
def _schemas(state: State, call: Call) -> Any:
    found: list[StoredSchema] = []
    for name in call.prefixed(state.subjects):
        chosen = call.chosen(state.subjects[name].values())
        found += chosen[-1:] if call.flag("latestOnly") else chosen
    return [_version_json(state, call, one, "") for one in call.paged(found, SCHEMAS_MAX)]


def _with_id(state: State, call: Call) -> list[StoredSchema]:
    """Looks in the subject's context. For a subject without a context it looks in the others if the default context
    does not have the id."""
    schema_id, subject = call.schema_id(), call.subject_asked()
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


@_reading
def _by_id(state: State, call: Call) -> Any:
    found, subject = _with_id(state, call), call.subject_asked()
    in_subject = [one for one in found if subject and one.subject == subject]
    schema = in_subject[-1] if in_subject else found[0]
    answer = _schema_json(state, call, schema, call.text("format"))
    if in_subject:
        answer = {"subject": schema.subject, "version": schema.version, "id": schema.id, **answer}
    if call.flag("fetchMaxId"):
        answer["maxId"] = state.max_id(schema.context)
    return answer


@_reading
def _subjects_by_id(state: State, call: Call) -> Any:
    return call.paged(list(dict.fromkeys(one.subject for one in _places(state, call))))


@_reading
def _versions_by_id(state: State, call: Call) -> Any:
    return [{"subject": one.subject, "version": one.version} for one in call.paged(_places(state, call))]


def _places(state: State, call: Call) -> list[StoredSchema]:
    asked, deleted = call.subject_asked(), call.flag("deleted")
    bare = asked is None or not QualifiedSubject.parse(asked).subject
    return [one for one in _with_id(state, call) if (deleted or not one.deleted) and (bare or one.subject == asked)]


def _with_guid(state: State, call: Call) -> list[StoredSchema]:
    found = state.with_guid(call.path["guid"])
    if not found:
        raise schema_not_found(call.path["guid"])
    return found


@_reading
def _by_guid(state: State, call: Call) -> Any:
    return _schema_json(state, call, _with_guid(state, call)[0], call.text("format"))


@_reading
def _ids_by_guid(state: State, call: Call) -> Any:
    found = {(one.context, one.id) for one in _with_guid(state, call)}
    return [{"context": context, "id": schema_id} for context, schema_id in sorted(found)]


def _verdict(storage: Storage, call: Call) -> Any:
    """Compares with the version of the path, or without one with those that the subject's level requires. With
    `verbose`, an invalid schema counts as incompatible, and the reason is returned."""
    version = call.version() if "version" in call.path else None
    request, normalize = Request.from_json(call.object()), call.asked("normalize")
    verbose = call.flag("verbose")

    def decide(state: State) -> list[str]:
        subject, against = call.aliased(state), None
        if version is not None:
            found = _version_or_none(state, subject, version, deleted=False)
            if found is None and version != LATEST:
                raise version_not_found(version)  # also where there is no such subject
            against = [found] if found is not None else []
        try:
            return compatible(state, subject, request, against=against, normalize=normalize, work=call.work)
        except ApiError as error:
            if error.code != INVALID_SCHEMA or not verbose:
                raise
            return [error.message.encode(errors="backslashreplace").decode()]  # it may have half of a surrogate pair

    messages = _decided(storage, call, decide)
    return {"is_compatible": not messages, **({"messages": messages} if verbose else {})}


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
    types = call.query.get("associationType", ())
    name, namespace = call.path["name"], call.path["namespace"]
    return call.paged(associations.find(state, name, namespace, call.text("resourceType"), types))


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


_replace_associations = partial(_create_associations, replace=True)


@_writing
def _delete_associations(state: State, call: Call) -> Any:
    types, cascade = call.query.get("associationType", ()), call.flag("cascadeLifecycle")
    return associations.delete(state, call.path["resource"], call.text("resourceType"), types, cascade=cascade)


def _cluster_id(storage: Storage, call: Call) -> Any:
    return {"scope": {"path": [], "clusters": {"schema-registry-cluster": storage.topic}}, "id": ""}


ROUTES: dict[str, dict[str, Endpoint]] = {
    "": {"GET": lambda storage, call: {}},
    "subjects": {"GET": _subjects},
    "subjects/{subject}": {"POST": _look_up, "DELETE": _delete_subject},
    "subjects/{subject}/versions": {"GET": _versions, "POST": _register},
    "subjects/{subject}/versions/{version}": {"GET": _version, "DELETE": _delete_version},
    "subjects/{subject}/versions/{version}/schema": {"GET": lambda storage, call: _version(storage, call)["schema"]},
    "subjects/{subject}/versions/{version}/referencedby": {"GET": _referenced_by},
    "subjects/{subject}/metadata": {"GET": _latest_with_metadata},
    "schemas": {"GET": _schemas},
    "schemas/types": {"GET": lambda storage, call: list(SCHEMA_TYPES)},
    "schemas/ids/{id}": {"GET": _by_id},
    "schemas/ids/{id}/schema": {"GET": lambda storage, call: _by_id(storage, call)["schema"]},
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
    "v1/metadata/version": {"GET": lambda storage, call: {"version": API_VERSION, "commitId": ""}},
    "v1/metadata/id": {"GET": _cluster_id},
}

WORKING = frozenset({_look_up, _verdict})
"""Endpoints that parse and compare schemas."""

_FOR_OPERATORS = frozenset({_register, _create_associations, _replace_associations})


def role_of(method: str, endpoint: Endpoint) -> Role:
    """The role that a request needs. A viewer may read, look up and check; an operator may register; only an admin may
    delete, or change what can be registered."""
    if method == "GET" or endpoint in WORKING:
        return Role.VIEWER
    return Role.OPERATOR if endpoint in _FOR_OPERATORS else Role.ADMIN


WRITING = frozenset(
    one for methods in ROUTES.values() for method, one in methods.items() if role_of(method, one) > Role.VIEWER
)
"""Endpoints that write. Each reads the whole log before it decides."""
