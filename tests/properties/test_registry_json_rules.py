"""What the registry calls compatible is: every value that is valid for the old schema is valid for the new one."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from support.share import examples

from suiro.registry.formats import compare, parse

SCALARS: list[Any] = [None, True, False, 0, 1, 2, 3, 4, 1.5, 2.0, -1, "", "a", "ab", "abc", "b"]
NAMES = ["a", "ab", "b"]
LISTS: list[Any] = [[], [1], [1, 1], ["a"], [1, "a"], [None, 2, 3], [[1]], [{"a": 1}]]
OBJECTS: list[Any] = [
    dict(zip(names, values, strict=True))
    for size in range(3)
    for names in itertools.combinations(NAMES, size)
    for values in itertools.product([None, 1, "a", 4], repeat=size)
] + [{"a": {"b": 1}}, {"a": {"b": "x", "a": 1}}, {"b": [1]}, {"a": 1, "ab": 1, "b": 1}]
VALUES = SCALARS + LISTS + OBJECTS

numbers = st.integers(0, 4)
names = st.sampled_from(NAMES)
types = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
keywords: dict[str, st.SearchStrategy[Any]] = {
    "type": st.one_of(types, st.lists(types, min_size=1, max_size=3, unique=True)),
    "enum": st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3, unique_by=repr),
    "const": st.sampled_from(SCALARS),
    "minimum": numbers,
    "maximum": numbers,
    "exclusiveMinimum": numbers,
    "exclusiveMaximum": numbers,
    "multipleOf": st.integers(1, 4),
    "minLength": numbers,
    "maxLength": numbers,
    "pattern": st.sampled_from(["a", "^a", "b$"]),
    "minItems": numbers,
    "maxItems": numbers,
    "uniqueItems": st.booleans(),
    "minProperties": numbers,
    "maxProperties": numbers,
    "required": st.lists(names, max_size=2, unique=True),
    "dependencies": st.dictionaries(names, st.lists(names, max_size=2, unique=True), max_size=2),
}


def is_plain(schema: dict[str, Any]) -> bool:
    """jsonschema stumbles over `additionalItems` beside a boolean `items`."""
    return not ("additionalItems" in schema and isinstance(schema.get("items"), bool))


def described(schema: Any) -> Any:
    """Without the names that `required` has and `properties` has not: those pass although it is not safe, as in
    Confluent's registry."""
    if not isinstance(schema, dict) or "required" not in schema:
        return schema
    known = schema.get("properties", {})
    return {**schema, "required": [name for name in schema["required"] if name in known]}


def schemas_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    nested = {
        "properties": st.dictionaries(names, inner, max_size=2),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
        "additionalProperties": inner,
        "items": st.one_of(inner, st.lists(inner, min_size=1, max_size=2)),
        "additionalItems": inner,
        "propertyNames": inner,
        "contains": inner,
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "not": inner,
        "if": inner,
        "then": inner,
    }
    every = keywords | nested
    chosen = st.lists(st.sampled_from(sorted(every)), max_size=3, unique=True)
    made = chosen.flatmap(lambda picked: st.fixed_dictionaries({name: every[name] for name in picked}))
    return made.filter(is_plain).map(described)


schemas = st.recursive(st.one_of(st.booleans(), schemas_of(st.booleans())), schemas_of, max_leaves=4)


@st.composite
def changes(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two schemas, often one with a little more or less than the other."""
    one = draw(schemas)
    if not isinstance(one, dict) or draw(st.booleans()):
        return one, draw(schemas)
    other = dict(one)
    for name in draw(st.lists(st.sampled_from(sorted(one)), max_size=2)) if one else ():
        other.pop(name, None)
    more = draw(schemas)
    if isinstance(more, dict) and is_plain(other | more):
        other |= more
    other = described(other)
    return (one, other) if draw(st.booleans()) else (other, one)


@settings(max_examples=examples(150), deadline=None)
@given(changes())
def test_what_passes_is_safe(pair: tuple[Any, Any]) -> None:
    new, old = pair
    reader, writer = parse("JSON", json.dumps(new)), parse("JSON", json.dumps(old))
    if compare(reader, writer):
        return
    before, after = Draft7Validator(old), Draft7Validator(new)
    for value in VALUES:
        if before.is_valid(value):
            assert after.is_valid(value), value


@settings(max_examples=examples(100), deadline=None)
@given(schemas)
def test_a_schema_is_compatible_with_itself(schema: Any) -> None:
    text = json.dumps(schema)
    assert not compare(parse("JSON", text), parse("JSON", text + " "))
