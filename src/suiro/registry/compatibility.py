"""The seven levels: which versions a new schema is held against, and which of the two must be able to read the other.

| level | held against | must read |
|---|---|---|
| BACKWARD, BACKWARD_TRANSITIVE | the last, all | the new schema what the old wrote |
| FORWARD, FORWARD_TRANSITIVE | the last, all | the old schema what the new writes |
| FULL, FULL_TRANSITIVE | the last, all | both |
| NONE | nothing | |

Versions that were deleted do not count. With a `compatibilityGroup`, only versions count whose metadata has the same
value for the property of that name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from suiro.registry.formats import Import, InvalidSchema, Parsed, format_of, parse
from suiro.registry.refusals import ApiError, invalid_schema
from suiro.registry.settings import config_in_scope
from suiro.registry.state import State, StoredSchema
from suiro.registry.subjects import qualify_reference

__all__ = ["Text", "check", "imports_of", "parse_for", "parse_stored", "prepare", "previous_versions"]


def imports_of(state: State, references: Sequence[dict[str, Any]], parent: str) -> tuple[Import, ...]:
    """What is referred to, and what that refers to, each before whoever needs it. Raises `ApiError` 42201."""
    found: dict[str, Import] = {}

    def visit(one: dict[str, Any], parent: str, above: tuple[tuple[str, int], ...]) -> None:
        subject, version = qualify_reference(one["subject"], parent), one["version"]
        schema = state.subjects.get(subject, {}).get(version)
        if schema is None:
            raise invalid_schema(
                f'No schema reference found for subject "{subject}" and version {version} (reference {one["name"]!r}); '
                "register it first"
            )
        if (subject, version) in above:
            raise invalid_schema(
                f"Reference {one['name']!r} leads back to itself: {subject} version {version}"
            )
        for inner in schema.references:
            visit(inner, schema.subject, (*above, (subject, version)))
        found.setdefault(one["name"], Import(one["name"], schema.text))

    for one in references:
        visit(one, parent, ())
    return tuple(found.values())


def prepare(
    state: State, subject: str, type_: str, text: str, references: Sequence[dict[str, Any]]
) -> list[Text]:
    """All that will be parsed to register this: parsing takes its time, and need not hold the state up."""
    found: list[Text] = []
    with contextlib.suppress(ApiError):  # what is wrong is said when it counts
        found.append(Text(type_, text, imports_of(state, references, subject), True))
    for one in state.versions(subject):
        with contextlib.suppress(ApiError):
            found.append(Text(one.type, one.text, imports_of(state, one.references, one.subject), False))
    return found


class Text(NamedTuple):
    """What is parsed once and then known."""

    type: str
    text: str
    imports: tuple[Import, ...]
    strict: bool

    def warm(self) -> None:
        with contextlib.suppress(InvalidSchema):
            parse(self.type, self.text, self.imports, strict=self.strict)


def parse_for(
    state: State, type_: str, text: str, references: Sequence[dict[str, Any]], subject: str
) -> Parsed:
    """Raises `ApiError` 42201."""
    imports = imports_of(state, references, subject)
    try:
        return parse(type_, text, imports, strict=True)
    except InvalidSchema as error:
        shown = text if len(text) <= 500 else f"{text[:500]}..."
        raise invalid_schema(f"Invalid schema {shown} of type {type_}, details: {error}") from None


def parse_stored(state: State, schema: StoredSchema) -> Parsed:
    """Raises `ApiError` 42201 where what is registered cannot be understood any more."""
    imports = imports_of(state, schema.references, schema.subject)
    try:
        return parse(schema.type, schema.text, imports, strict=False)
    except InvalidSchema as error:
        place = f"version {schema.version} of subject {schema.subject!r}"
        raise invalid_schema(f"{place}, which is registered, cannot be parsed: {error}") from None


def previous_versions(state: State, subject: str, metadata: dict[str, Any] | None) -> list[StoredSchema]:
    """Those that count, oldest first."""
    versions = state.versions(subject)
    group = config_in_scope(state, subject).get("compatibilityGroup")
    if not group:
        return versions
    wanted = _property(metadata, group)
    return [one for one in versions if _property(one.metadata, group) == wanted]


def _property(metadata: dict[str, Any] | None, name: str) -> str | None:
    value: str | None = ((metadata or {}).get("properties") or {}).get(name)
    return value


def check(state: State, level: str, new: Parsed, previous: Sequence[StoredSchema]) -> list[str]:
    """Why the new schema breaks the level; empty: it does not. `previous` is oldest first."""
    if level == "NONE" or not previous:
        return []
    against = list(reversed(previous)) if level.endswith("_TRANSITIVE") else [previous[-1]]
    direction = level.removesuffix("_TRANSITIVE")
    for old in against:
        messages = _compare(state, direction, new, old)
        if messages:
            return [
                *messages,
                f"{{oldSchemaVersion: {old.version}}}",
                f"{{oldSchema: '{old.text}'}}",
                f"{{validateFields: 'false', compatibility: '{level}'}}",
            ]
    return []


def _compare(state: State, direction: str, new: Parsed, old: StoredSchema) -> list[str]:
    if old.type != new.type:
        return [f"Incompatible because of different schema type: {new.type} after {old.type}"]
    parsed = parse_stored(state, old)
    rules = format_of(new.type)
    messages: list[str] = []
    try:
        if direction in ("BACKWARD", "FULL"):
            messages += [one.told(reader_is_new=True) for one in rules.incompatibilities(new, parsed)]
        if direction in ("FORWARD", "FULL"):
            messages += [one.told(reader_is_new=False) for one in rules.incompatibilities(parsed, new)]
    except RecursionError:
        return [f"The schemas are nested too deeply to be compared with version {old.version}"]
    return list(dict.fromkeys(messages))
