"""Merges metadata and rules of a schema with the defaults and overrides of a configuration. The last one wins."""

from __future__ import annotations

from typing import Any

from suiro.registry.api_errors import invalid_rule_set, unprocessable

_PHASES = ("migrationRules", "domainRules", "encodingRules")
_KINDS = ("CONDITION", "TRANSFORM")
_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN", "READ", "WRITE", "WRITEREAD")


Part = dict[str, Any] | None


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
            raise invalid_rule_set(f"{phase} is no list of rules")
        names: set[str] = set()
        for rule in rule_set.get(phase) or ():
            name = rule.get("name") if isinstance(rule, dict) else None
            if not isinstance(name, str) or not name:
                raise invalid_rule_set(f"A rule of {phase} has no name")
            if name in names:
                raise invalid_rule_set(f"Found rule with duplicate name '{name}'")
            names.add(name)
            if not rule.get("type"):
                raise invalid_rule_set(f"Rule {name!r} has no type")
            if rule.get("kind") is not None and rule["kind"] not in _KINDS:
                raise invalid_rule_set(f"Rule {name!r}: kind is one of {', '.join(_KINDS)}, not {rule['kind']!r}")
            if rule.get("mode") is not None and rule["mode"] not in _MODES:
                raise invalid_rule_set(f"Rule {name!r}: mode is one of {', '.join(_MODES)}, not {rule['mode']!r}")
