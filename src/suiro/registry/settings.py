"""Compatibility levels and modes: which one applies to a subject, and the records that change it. Metadata and rules of
a schema, merged with those of a configuration: the last one wins.

A subject's own setting applies, or else that of its context (`:.sandbox:`), of all contexts (`:.__GLOBAL:`), the
global one, or the default: BACKWARD and READWRITE. Each member of a configuration is looked up separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from suiro.registry import records
from suiro.registry.api_errors import ApiError, not_permitted, subject_not_found, unprocessable
from suiro.registry.records import DEFAULT_CONTEXT, GLOBAL_CONTEXT, Key, QualifiedSubject
from suiro.registry.state import Change, Decision, State

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
DEFAULT_LEVEL = "BACKWARD"
_LEVELS_SHOWN = "none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive"

READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)

_PHASES = ("migrationRules", "domainRules", "encodingRules")
_RULE_KINDS = ("CONDITION", "TRANSFORM")
_RULE_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN", "READ", "WRITE", "WRITEREAD")

Part = dict[str, Any] | None
T = TypeVar("T")

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
    LEVEL: str,
}
_KINDS = {str: "a text", bool: "true or false", dict: "a JSON object"}


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
        raise ApiError(42208, f"The specified subject '{subject}' is not a valid.")


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
    return ApiError(code, f"Subject '{subject}' does not have subject-level {what} configured")


def update_config(state: State, subject: str | None, body: Mapping[str, Any]) -> Decision[dict[str, Any]]:
    """Members that the request does not have stay unchanged; null removes one."""
    if subject is not None:
        check_name(subject)
    body = {**body, LEVEL: body["compatibility"]} if "compatibility" in body else body
    given = {name: _member(name, body[name]) for name in _CONFIG_MEMBERS if name in body}
    if not given:
        raise _invalid_level(None)
    _refuse_override(state, subject)
    config = {name: value for name, value in {**state.configs.get(subject, {}), **given}.items() if value is not None}
    value = {"subject": subject, **config} if subject is not None else config
    level = given.pop(LEVEL, None)
    answer = {**given, "compatibility": level} if level is not None else given
    return Decision(answer, (Change(Key.of_subject(records.CONFIG, subject), value),))


def _invalid_level(level: object) -> ApiError:
    return ApiError(42203, f"Invalid compatibility level {level!r}. Valid values are {_LEVELS_SHOWN}")


def _member(name: str, value: Any) -> Any:
    """Raises `ApiError` 422. A stored value affects each later registration."""
    if name == LEVEL and value is not None:
        if str(value).upper() not in LEVELS:
            raise _invalid_level(value)
        return str(value).upper()
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
    return _deleted(state.configs, records.CONFIG, subject, {LEVEL: DEFAULT_LEVEL})


def _deleted(settings: Mapping[str | None, T], kind: str, subject: str | None, default: T) -> Decision[T]:
    """The result is what applied before."""
    if subject in settings:
        return Decision(settings[subject], (Change(Key.of_subject(kind, subject), None),))
    if subject is not None:
        raise subject_not_found(subject)
    return Decision(default)


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
        raise ApiError(42204, f"Invalid mode {mode!r}. Valid values are {', '.join(MODES)}.")
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
    deleted = _deleted(state.modes, records.MODE, subject, READWRITE)
    return Decision({"mode": deleted.result}, deleted.changes)


def merge_metadata(default: Part, given: Part, override: Part) -> Part:
    """Merges properties by name, and joins tags and sensitive names. None if there is nothing."""
    if default is None and override is None:
        return given
    tags: dict[str, list[str]] = {}
    properties: dict[str, str] = {}
    sensitive: list[str] = []
    for one in filter(None, (default, given, override)):
        for path, names in (one.get("tags") or {}).items():
            tags[path] = list(dict.fromkeys([*tags.get(path, ()), *names]))
        properties |= one.get("properties") or {}
        sensitive = list(dict.fromkeys([*sensitive, *(one.get("sensitive") or ())]))
    merged = {"tags": tags, "properties": properties, "sensitive": sensitive}
    return {name: part for name, part in merged.items() if part}


def merge_rule_sets(default: Part, given: Part, override: Part) -> Part:
    """Merges rules by name within each phase."""
    if default is None and override is None:
        return given
    parts = list(filter(None, (default, given, override)))
    merged: dict[str, Any] = {}
    for one in parts:
        merged |= {name: value for name, value in one.items() if name not in _PHASES}
    for phase in _PHASES:
        rules: dict[str, Any] = {}
        for one in parts:
            for rule in one.get(phase) or ():
                rules.pop(rule["name"], None)
                rules[rule["name"]] = rule
        if rules:
            merged[phase] = list(rules.values())
    return merged


def check_metadata(name: str, metadata: Any) -> None:
    """Raises `ApiError` 422. Stored metadata must be valid, because it is merged with later metadata."""
    if not isinstance(metadata, dict):
        return
    tags, properties, sensitive = (metadata.get(part) or {} for part in ("tags", "properties", "sensitive"))
    if not isinstance(tags, dict) or not all(isinstance(names, list) for names in tags.values()):
        raise unprocessable(f"'tags' of {name!r} is a JSON object of lists")
    if not isinstance(properties, dict):
        raise unprocessable(f"'properties' of {name!r} is a JSON object")
    if sensitive and not isinstance(sensitive, list):
        raise unprocessable(f"'sensitive' of {name!r} is a list of names")


def check_rule_set(rule_set: Any) -> None:
    """Raises `ApiError` 42210. Expressions are not checked: clients execute them."""
    if not isinstance(rule_set, dict):
        return
    for phase in _PHASES:
        if not isinstance(rule_set.get(phase) or [], list):
            raise ApiError(42210, f"{phase} is no list of rules")
        names: set[str] = set()
        for rule in rule_set.get(phase) or ():
            name = rule.get("name") if isinstance(rule, dict) else None
            if not isinstance(name, str) or not name:
                raise ApiError(42210, f"A rule of {phase} has no name")
            if name in names:
                raise ApiError(42210, f"Found rule with duplicate name '{name}'")
            names.add(name)
            if not rule.get("type"):
                raise ApiError(42210, f"Rule {name!r} has no type")
            if rule.get("kind") is not None and rule["kind"] not in _RULE_KINDS:
                raise ApiError(42210, f"Rule {name!r}: kind is one of {', '.join(_RULE_KINDS)}, not {rule['kind']!r}")
            if rule.get("mode") is not None and rule["mode"] not in _RULE_MODES:
                raise ApiError(42210, f"Rule {name!r}: mode is one of {', '.join(_RULE_MODES)}, not {rule['mode']!r}")
