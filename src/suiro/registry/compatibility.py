"""The seven compatibility levels: which versions a new schema is compared with, and in which direction.

| level | compared with | must be readable |
|---|---|---|
| BACKWARD, BACKWARD_TRANSITIVE | the last, all | old data by the new schema |
| FORWARD, FORWARD_TRANSITIVE | the last, all | new data by the old schema |
| FULL, FULL_TRANSITIVE | the last, all | both |
| NONE | nothing | |

Deleted versions do not count. With a `compatibilityGroup`, only versions count whose metadata has the same value of
that property.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suiro.registry.api_errors import invalid_schema
from suiro.registry.formats import Import, InvalidSchema, Parsed, TooComplex
from suiro.registry.records import qualify_reference
from suiro.registry.settings import config_in_scope
from suiro.registry.state import State, StoredSchema
from suiro.registry.work import Work

MAX_IMPORTS = 2_000
"""The number of schemas that one schema may refer to, directly or not."""
MAX_IMPORT_CHARS = 16 << 20
MAX_MESSAGES = 200
"""The number of differences that a response names for one version."""
COMPARED_AT_ONCE = 50


def imports_of(state: State, references: Sequence[dict[str, Any]], parent: str) -> tuple[Import, ...]:
    """Returns the schemas that are referred to, directly or not, each before those that need it. Raises `ApiError`
    42201."""
    found: dict[str, Import] = {}
    visited: set[tuple[str, int]] = set()
    chars = 0

    def visit(one: dict[str, Any], parent: str, above: frozenset[tuple[str, int]]) -> None:
        nonlocal chars
        subject, version = qualify_reference(one["subject"], parent), one["version"]
        if version == -1 and state.versions(subject):  # Confluent's registry writes -1 for the latest
            version = state.versions(subject)[-1].version
        place = subject, version
        schema = state.subjects.get(subject, {}).get(version)
        if schema is None:
            raise invalid_schema(
                f'No schema reference found for subject "{subject}" and version {version} (reference {one["name"]!r}); '
                "register it first"
            )
        if place in above:
            raise invalid_schema(f"Reference {one['name']!r} leads back to itself: {subject} version {version}")
        if place not in visited:
            for inner in schema.references:
                visit(inner, schema.subject, above | {place})
            visited.add(place)
        if one["name"] not in found:
            found[one["name"]] = Import(one["name"], schema.text)
            chars += len(schema.text)
        if len(found) > MAX_IMPORTS or chars > MAX_IMPORT_CHARS:
            raise invalid_schema(
                f"The references lead to more than {MAX_IMPORTS} schemas, or {MAX_IMPORT_CHARS} characters of them"
            )

    try:
        for one in references:
            visit(one, parent, frozenset())
    except RecursionError:
        raise invalid_schema("The references lead too deep: one schema behind another") from None
    return tuple(found.values())


def parse_for(
    state: State,
    type_: str,
    text: str,
    references: Sequence[dict[str, Any]],
    subject: str,
    work: Work,
    *,
    strict: bool = True,
) -> Parsed:
    """Raises `ApiError` 42201."""
    imports = imports_of(state, references, subject)
    try:
        return work.parse(type_, text, imports, strict=strict)
    except (InvalidSchema, TooComplex) as error:
        shown = text if len(text) <= 500 else f"{text[:500]}..."
        raise invalid_schema(f"Invalid schema {shown} of type {type_}, details: {error}") from None


def parse_stored(state: State, schema: StoredSchema, work: Work) -> Parsed:
    """Raises `ApiError` 42201 if the registered schema cannot be parsed any more."""
    imports = imports_of(state, schema.references, schema.subject)
    try:
        return work.parse(schema.type, schema.text, imports, strict=False)
    except (InvalidSchema, TooComplex) as error:
        place = f"version {schema.version} of subject {schema.subject!r}"
        raise invalid_schema(f"{place}, which is registered, cannot be parsed: {error}") from None


def previous_versions(state: State, subject: str, metadata: dict[str, Any] | None) -> list[StoredSchema]:
    """The versions that a new schema is compared with, oldest first."""
    versions = state.versions(subject)
    group = config_in_scope(state, subject).get("compatibilityGroup")
    if not group:
        return versions
    wanted = _property(metadata, group)
    return [one for one in versions if _property(one.metadata, group) == wanted]


def _property(metadata: dict[str, Any] | None, name: str) -> str | None:
    value: str | None = ((metadata or {}).get("properties") or {}).get(name)
    return value


def check(state: State, level: str, new: Parsed, previous: Sequence[StoredSchema], work: Work) -> list[str]:
    """Returns why the new schema breaks the level; empty if it does not. `previous` is oldest first. Raises `ApiError`
    42201 if this cannot be decided."""
    if level == "NONE" or not previous:
        return []
    against = list(reversed(previous)) if level.endswith("_TRANSITIVE") else [previous[-1]]
    direction = level.removesuffix("_TRANSITIVE")
    work.each(lambda old: parse_stored(state, old, work), [one for one in against if one.type == new.type])
    for start in range(0, len(against), COMPARED_AT_ONCE):
        some = against[start : start + COMPARED_AT_ONCE]
        verdicts = work.each(lambda old: _compare(state, direction, new, old, work), some)
        for old, messages in zip(some, verdicts, strict=True):
            if messages:
                return [
                    *messages,
                    f"{{oldSchemaVersion: {old.version}}}",
                    f"{{oldSchema: '{old.text}'}}",
                    f"{{validateFields: 'false', compatibility: '{level}'}}",
                ]
    return []


def _compare(state: State, direction: str, new: Parsed, old: StoredSchema, work: Work) -> list[str]:
    if old.type != new.type:
        return [f"Incompatible because of different schema type: {new.type} after {old.type}"]
    parsed = parse_stored(state, old, work)
    messages: list[str] = []
    try:
        if direction in ("BACKWARD", "FULL"):
            messages += [one.message(reader_is_new=True) for one in work.compare(new, parsed)]
        if direction in ("FORWARD", "FULL"):
            messages += [one.message(reader_is_new=False) for one in work.compare(parsed, new)]
    except (InvalidSchema, TooComplex) as error:
        raise invalid_schema(
            f"Whether the schema is compatible with version {old.version} cannot be decided: {error}"
        ) from None
    messages = list(dict.fromkeys(messages))
    if len(messages) > MAX_MESSAGES:
        messages = [*messages[:MAX_MESSAGES], f"and {len(messages) - MAX_MESSAGES} more"]
    return messages
