"""Compatibility levels and modes: which one applies to a subject, and the records that change it.

A subject's own setting applies, or else that of its context (`:.sandbox:`), of all contexts (`:.__GLOBAL:`), the
global one, or the default: BACKWARD and READWRITE. Each member of a configuration is looked up separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from suiro.registry import records
from suiro.registry.api_errors import (
    ApiError,
    invalid_compatibility,
    not_permitted,
    subject_not_found,
    unprocessable,
)
from suiro.registry.merging import check_metadata, check_rule_set
from suiro.registry.records import Key
from suiro.registry.state import State
from suiro.registry.storage import Change, Decision
from suiro.registry.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, QualifiedSubject, normal

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
DEFAULT_LEVEL = "BACKWARD"

READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)

LEVEL = "compatibilityLevel"
_CONFIG_MEMBERS: Mapping[str, type] = {
    "alias": str,
    "normalize": bool,
    "validateFields": bool,
    "validateNames": bool,
    "validateRules": bool,
    "compatibilityPolicy": str,
    "compatibilityGroup": str,
    "defaultMetadata": dict,
    "overrideMetadata": dict,
    "defaultRuleSet": dict,
    "overrideRuleSet": dict,
}
_KINDS = {str: "a text", bool: "true or false", dict: "a JSON object"}


def scoped(name: str | None) -> str | None:
    """Returns the subject, or the name of a context (`:.sandbox:`), or None for all."""
    return (normal(name) or None) if name is not None else None


def _scopes(subject: str | None) -> Iterator[str | None]:
    if subject is not None:
        yield subject
        context = QualifiedSubject.parse(subject).context
        if context != DEFAULT_CONTEXT:
            yield f":{context}:"
    yield f":{GLOBAL_CONTEXT}:"
    yield None


def config_in_scope(state: State, subject: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for scope in _scopes(subject):
        for name, value in state.configs.get(scope, {}).items():
            if scope != subject and name == "alias":
                continue  # an alias applies to one subject only
            found.setdefault(name, value)
    found.setdefault(LEVEL, DEFAULT_LEVEL)
    return found


def level_of(state: State, subject: str) -> str:
    return str(config_in_scope(state, subject)[LEVEL])


def mode_in_scope(state: State, subject: str | None) -> str:
    if state.modes.get(None) == READONLY_OVERRIDE:
        return READONLY_OVERRIDE  # overrides the modes of subjects
    return next((state.modes[scope] for scope in _scopes(subject) if scope in state.modes), READWRITE)


def refuse_read_only(state: State, subject: str) -> None:
    if mode_in_scope(state, subject) in (READONLY, READONLY_OVERRIDE):
        raise not_permitted_in(subject, "is in read-only mode")


def not_permitted_in(subject: str, why: str) -> ApiError:
    name = QualifiedSubject.parse(subject)
    return not_permitted(f"Subject {name.subject} in context {name.context} {why}")


def check_name(subject: str) -> None:
    if not subject or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in subject):
        raise ApiError(422, 42208, f"The specified subject '{subject}' is not a valid.")


def config_of(state: State, subject: str | None, *, default_to_global: bool) -> dict[str, Any]:
    if subject is None or default_to_global:
        return config_in_scope(state, subject)
    config = state.configs.get(subject)
    if config is None:
        raise _has_no(40408, subject, "compatibility")
    return config


def mode_of(state: State, subject: str | None, *, default_to_global: bool) -> str:
    if subject is None or default_to_global:
        return mode_in_scope(state, subject)
    if subject not in state.modes:
        raise _has_no(40409, subject, "mode")
    return state.modes[subject]


def _has_no(code: int, subject: str, what: str) -> ApiError:
    return ApiError(404, code, f"Subject '{subject}' does not have subject-level {what} configured")


def update_config(state: State, subject: str | None, body: Mapping[str, Any]) -> Decision[dict[str, Any]]:
    """Members that the request does not have stay unchanged; null removes one."""
    if subject is not None:
        check_name(subject)
    level = body.get("compatibility", body.get(LEVEL))
    if level is not None and str(level).upper() not in LEVELS:
        raise invalid_compatibility(level)
    _refuse_override(state, subject)
    config = dict(state.configs.get(subject, {}))
    given = {name: _member(name, body[name]) for name in _CONFIG_MEMBERS if name in body}
    if level is not None:
        given[LEVEL] = str(level).upper()
    if not given and not {"compatibility", LEVEL} & set(body):
        raise invalid_compatibility(None)
    for name in ("compatibility", LEVEL):
        if name in body and body[name] is None:
            config.pop(LEVEL, None)
    for name, value in given.items():
        config[name] = value
        if value is None:
            del config[name]
    value = {"subject": subject, **config} if subject is not None else config
    answer = {"compatibility" if name == LEVEL else name: value for name, value in given.items()}
    return Decision(answer, (Change(Key.of_subject(records.CONFIG, subject), value),))


def _member(name: str, value: Any) -> Any:
    """Raises `ApiError` 422. A stored value affects each later registration."""
    kind = _CONFIG_MEMBERS[name]
    if kind is bool and isinstance(value, str) and value.lower() in ("true", "false"):
        value = value.lower() == "true"  # Jackson accepts this too
    if value is not None and not isinstance(value, kind):
        raise unprocessable(f"{name!r} is {_KINDS[kind]}")
    if name.endswith("Metadata"):
        check_metadata(name, value)
    if name.endswith("RuleSet"):
        check_rule_set(value)
    return value


def delete_config(state: State, subject: str | None) -> Decision[dict[str, Any]]:
    _refuse_override(state, subject)
    if subject is not None and subject not in state.configs:
        raise subject_not_found(subject)
    old = state.configs.get(subject, {LEVEL: DEFAULT_LEVEL})
    changes = (Change(Key.of_subject(records.CONFIG, subject), None),) if subject in state.configs else ()
    return Decision(old, changes)


def _refuse_override(state: State, subject: str | None) -> None:
    if mode_in_scope(state, subject) == READONLY_OVERRIDE:
        raise not_permitted(f"Subject {subject or 'global'} is in read-only mode")


def update_mode(state: State, subject: str | None, body: Mapping[str, Any], *, force: bool) -> Decision[dict[str, Any]]:
    if subject is not None:
        check_name(subject)
    mode = body.get("mode")
    if mode is None:
        raise unprocessable("The request has no member 'mode'")
    if str(mode).upper() not in MODES:
        raise ApiError(422, 42204, f"Invalid mode {mode!r}. Valid values are {', '.join(MODES)}.")
    mode = str(mode).upper()
    if mode == IMPORT and mode_in_scope(state, subject) != IMPORT and not force and _has_schemas(state, subject):
        raise not_permitted("Cannot import since found existing subjects; delete them, or use force=true")
    value = {"subject": subject, "mode": mode} if subject is not None else {"mode": mode}
    return Decision({"mode": mode}, (Change(Key.of_subject(records.MODE, subject), value),))


def _has_schemas(state: State, scope: str | None) -> bool:
    if scope is None:
        return any(not one.deleted for one in state.all_schemas())
    name = QualifiedSubject.parse(scope)
    if not name.subject:
        return any(not one.deleted for one in state.all_schemas() if one.context == name.context)
    return bool(state.versions(scope))


def delete_mode(state: State, subject: str | None) -> Decision[dict[str, Any]]:
    if subject is not None and subject not in state.modes:
        raise subject_not_found(subject)
    old = state.modes.get(subject, READWRITE)
    changes = (Change(Key.of_subject(records.MODE, subject), None),) if subject in state.modes else ()
    return Decision({"mode": old}, changes)
