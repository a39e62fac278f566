"""JSON Schema in the registry: what a change of a schema means for those who read with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from suiro.registry.formats import Import, InvalidSchema, compare, parse

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
WHOLE = {"type": "integer"}


def kinds(reader: Any, writer: Any) -> list[str]:
    found = compare(parse("JSON", json.dumps(reader)), parse("JSON", json.dumps(writer)))
    return [one.kind for one in found]


def thing(properties: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties or {}, **members}


def closed(properties: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    return thing(properties, additionalProperties=False, **members)


NODE = {"next": {"$ref": "#/definitions/N"}}
TREE = {"definitions": {"N": closed({"v": TEXT, **NODE})}, "$ref": "#/definitions/N"}
OTHER_TREE = {"definitions": {"N": closed({"v": WHOLE, **NODE})}, "$ref": "#/definitions/N"}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (TEXT, TEXT),
        (True, TEXT),
        ({}, TEXT),
        (TEXT, False),
        ({"title": "t", "description": "d"}, {}),
        (NUMBER, WHOLE),
        ({"type": ["string", "null"]}, TEXT),
        (closed({"a": TEXT, "b": TEXT}), closed({"a": TEXT})),
        (thing({"a": TEXT, "b": {}}), thing({"a": TEXT})),
        (thing({"a": TEXT, "b": True}), thing({"a": TEXT})),
        (thing({"a": TEXT}), thing({"a": TEXT, "b": TEXT})),
        (closed({"a": TEXT}), closed({"a": TEXT, "b": False})),
        (thing({"a": TEXT}, additionalProperties=TEXT), thing(additionalProperties=TEXT)),
        (thing(additionalProperties=TEXT), thing({"a": TEXT}, additionalProperties=TEXT)),
        (thing({"a": TEXT}, patternProperties={"^a": TEXT}), thing(patternProperties={"^a": TEXT})),
        (thing({"a": {"type": "string", "default": "x"}}, required=["a"]), thing({"a": TEXT})),
        (thing({"a": TEXT}), thing({"a": TEXT}, required=["a"])),
        (thing(), closed()),
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 4}),
        ({"type": "string"}, {"type": "string", "pattern": "a", "minLength": 1}),
        ({"type": "integer", "maximum": 5}, {"type": "integer", "exclusiveMaximum": 5}),
        ({"type": "integer", "minimum": 5}, {"type": "integer", "minimum": 6}),
        ({"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 4}),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}),
        ({"enum": ["a", 1]}, {"const": 1.0}),
        ({"type": "array", "items": NUMBER}, {"type": "array", "items": WHOLE}),
        (
            {"type": "array", "items": [TEXT, TEXT]},
            {"type": "array", "items": [TEXT], "additionalItems": False},
        ),
        ({"type": "array", "items": [TEXT]}, {"type": "array", "items": [TEXT, TEXT]}),
        ({"type": "array", "maxItems": 3}, {"type": "array", "maxItems": 2, "uniqueItems": True}),
        ({"oneOf": [TEXT, {"type": "null"}]}, TEXT),
        ({"oneOf": [TEXT, {"type": "null"}]}, {"oneOf": [{"type": "null"}, TEXT]}),
        ({"anyOf": [TEXT, {"type": "null"}]}, {"oneOf": [TEXT]}),
        ({"type": ["string", "null"]}, {"oneOf": [TEXT, {"type": "null"}]}),
        ({"allOf": [TEXT]}, {"allOf": [{"type": "string"}, {"maxLength": 3}]}),
        ({"allOf": [TEXT, {"maxLength": 5}]}, {"type": "string", "maxLength": 5}),
        ({"not": TEXT}, {"not": {"type": ["string", "null"]}}),
        (thing(patternProperties={"\\p{L}": TEXT}), thing({"a": TEXT}, patternProperties={"\\p{L}": TEXT})),
        (thing(dependencies={"a": ["b"]}), thing(dependencies={"a": ["b", "c"]})),
        (TREE, TREE),
        (
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "array",
                "prefixItems": [TEXT],
            },
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "array",
                "prefixItems": [TEXT],
                "items": False,
            },
        ),
    ],
)
def test_what_passes(new: Any, old: Any) -> None:
    assert kinds(new, old) == []


@pytest.mark.parametrize(
    ("new", "old", "kind"),
    [
        (TEXT, WHOLE, "TYPE_CHANGED"),
        (TEXT, True, "TYPE_NARROWED"),
        (False, TEXT, "TYPE_NARROWED"),
        (WHOLE, NUMBER, "TYPE_NARROWED"),
        (TEXT, {"type": ["string", "null"]}, "TYPE_NARROWED"),
        (thing({"a": TEXT, "b": TEXT}), thing({"a": TEXT}), "PROPERTY_ADDED_OPEN_CONTENT_MODEL"),
        (closed({"a": TEXT}), closed({"a": TEXT, "b": TEXT}), "PROPERTY_REMOVED_CLOSED_CONTENT_MODEL"),
        (
            thing({"a": WHOLE}, additionalProperties=TEXT),
            thing(additionalProperties=TEXT),
            "PROPERTY_ADDED_PARTIALLY_OPEN_CONTENT_MODEL",
        ),
        (
            thing(additionalProperties=TEXT),
            thing({"a": WHOLE}, additionalProperties=TEXT),
            "PROPERTY_REMOVED_PARTIALLY_OPEN_CONTENT_MODEL",
        ),
        (thing({"a": TEXT}, required=["a"]), thing({"a": TEXT}), "REQUIRED_ATTRIBUTE_ADDED"),
        (closed({"a": TEXT}, required=["a"]), closed(), "REQUIRED_ATTRIBUTE_ADDED"),
        (closed(), thing(), "ADDITIONAL_PROPERTIES_REMOVED"),
        (thing(additionalProperties=TEXT), thing(), "ADDITIONAL_PROPERTIES_NARROWED"),
        (thing(patternProperties={"^a": TEXT}), thing(), "TYPE_NARROWED"),
        (thing({"a": thing({"b": TEXT})}), thing({"a": thing({"b": WHOLE})}), "TYPE_CHANGED"),
        (thing(maxProperties=1), thing(), "MAX_PROPERTIES_ADDED"),
        (thing(dependencies={"a": ["b"]}), thing(), "DEPENDENCY_ARRAY_ADDED"),
        ({"type": "string", "maxLength": 4}, {"type": "string", "maxLength": 5}, "MAX_LENGTH_DECREASED"),
        ({"type": "string", "minLength": 1}, TEXT, "MIN_LENGTH_ADDED"),
        ({"type": "string", "pattern": "a"}, TEXT, "PATTERN_ADDED"),
        ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, "PATTERN_CHANGED"),
        (
            {"type": "integer", "exclusiveMaximum": 5},
            {"type": "integer", "maximum": 5},
            "EXCLUSIVE_MAXIMUM_DECREASED",
        ),
        ({"type": "integer", "minimum": 5}, {"type": "integer", "minimum": 4}, "MINIMUM_INCREASED"),
        ({"type": "integer", "maximum": 5}, WHOLE, "MAXIMUM_ADDED"),
        ({"type": "integer", "multipleOf": 4}, {"type": "integer", "multipleOf": 2}, "MULTIPLE_OF_CHANGED"),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, "ENUM_ARRAY_NARROWED"),
        ({"enum": [1]}, {"enum": [True]}, "TYPE_CHANGED"),
        ({"type": "string", "enum": ["a"]}, TEXT, "ENUM_ARRAY_CHANGED"),
        ({"type": "array", "items": WHOLE}, {"type": "array", "items": NUMBER}, "TYPE_NARROWED"),
        ({"type": "array", "items": [TEXT, TEXT]}, {"type": "array", "items": [TEXT]}, "TYPE_NARROWED"),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, "UNIQUE_ITEMS_ADDED"),
        ({"type": "array", "contains": TEXT}, {"type": "array"}, "KEYWORD_CHANGED"),
        ({"oneOf": [TEXT]}, {"oneOf": [TEXT, {"type": "null"}]}, "SUM_TYPE_NARROWED"),
        ({"oneOf": [TEXT, WHOLE]}, {"anyOf": [TEXT, WHOLE]}, "COMBINED_TYPE_CHANGED"),
        ({"oneOf": [TEXT, WHOLE]}, {"type": "null"}, "COMBINED_TYPE_CHANGED"),
        (TEXT, {"oneOf": [TEXT, {"type": "null"}]}, "TYPE_CHANGED"),
        ({"not": {"type": ["string", "null"]}}, {"not": TEXT}, "NOT_TYPE_EXTENDED"),
        (
            closed(patternProperties={"\\p{L}": WHOLE}),
            closed({"a": TEXT}),
            "PROPERTY_REMOVED_CLOSED_CONTENT_MODEL",
        ),
        (TREE, OTHER_TREE, "TYPE_CHANGED"),
    ],
)
def test_what_is_refused(new: Any, old: Any, kind: str) -> None:
    assert kind in kinds(new, old)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "an object, true or false"),
        ('{"maximum": NaN}', "not JSON"),
        ('{"type": "text"}', "at /type"),
        ('{"properties": {"a": {"minLength": -1}}}', "at /properties/a/minLength"),
        ('{"$schema": "http://example.org/my-own"}', "not a draft"),
        ('{"$ref": "#/definitions/nix"}', "leads nowhere"),
        ('{"$ref": "other.json"}', "leads nowhere"),
        ('{"maxContains": {"$id": "a", "$schema": {}}}', "no text"),
        ('{"maxContains": {"$id": 5, "id": "a"}}', "no text"),
        ('{"minimum": 5, "$ref": "#/minimum/x"}', "leads nowhere"),
        ('{"required": ["a"], "$ref": "#/required/x"}', "leads nowhere"),
        (
            '{"definitions": {"a": {"$schema": "http://json-schema.org/draft-04/schema#", "id": 5}}, "$ref": "#b"}',
            "leads nowhere",
        ),
    ],
)
def test_what_is_no_schema(text: str, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parse("JSON", text)


def test_a_reference_that_was_not_checked_is_told() -> None:
    with pytest.raises(InvalidSchema, match="reference 'a': its id"):
        parse("JSON", '{"$ref": "a"}', (Import("a", '{"$id": 5}'),))


def test_a_reference_is_found_by_its_name_and_compared_through() -> None:
    def order(price: Any) -> Any:
        imports = (Import("price.json", json.dumps(price)),)
        return parse("JSON", json.dumps(closed({"price": {"$ref": "price.json"}})), imports)

    assert not compare(order(NUMBER), order(WHOLE))
    assert compare(order(WHOLE), order(NUMBER))


@pytest.mark.parametrize("name", ["$id", "id", "$schema", "$ref", "default", "enum", "const", "examples"])
def test_a_property_may_have_the_name_of_a_keyword(name: str) -> None:
    """A schema of documents that are schemas themselves has them all."""

    def of(inner: Any) -> dict[str, Any]:
        reference = {"$ref": "#/definitions/inner"}
        return thing({"$schema": TEXT, "id": TEXT, name: reference}, definitions={"inner": inner})

    assert kinds(of(TEXT), of(TEXT)) == []
    assert kinds(of(TEXT), of(NUMBER)) == ["TYPE_CHANGED"]
    with pytest.raises(InvalidSchema, match="leads nowhere"):
        parse("JSON", json.dumps(thing({name: {"$ref": "#/definitions/nix"}})))


@pytest.mark.parametrize(
    "keyword",
    [
        {"if": {"required": ["a"]}, "then": {"$ref": "#/definitions/inner"}},
        {"contains": {"$ref": "#/definitions/inner"}},
        {"propertyNames": {"$ref": "#/definitions/inner"}},
    ],
    ids=lambda keyword: next(iter(keyword)),
)
def test_what_must_be_the_same_is_the_same_behind_its_references(keyword: dict[str, Any]) -> None:
    def of(inner: Any) -> dict[str, Any]:
        return {**keyword, "definitions": {"inner": inner}}

    tree = {"minLength": 1, "properties": {"next": {"$ref": "#/definitions/inner"}}}
    assert kinds(of(tree), of(tree)) == []
    assert kinds(of({**tree, "minLength": 2}), of(tree))


@pytest.mark.parametrize("name", ["default", "const", "enum", "examples", "$ref"])
def test_what_must_be_the_same_is_so_behind_a_property_with_the_name_of_a_keyword(name: str) -> None:
    def of(inner: Any) -> dict[str, Any]:
        properties = {name: {"$ref": "#/definitions/inner"}}
        return {
            "if": {"properties": properties},
            "then": {"minProperties": 1},
            "definitions": {"inner": inner},
        }

    assert kinds(of(TEXT), of(TEXT)) == []
    assert kinds(of(NUMBER), of(TEXT)) == ["COMBINED_TYPE_CHANGED"]
    assert kinds({"if": {"default": 1}, "then": {"minimum": 1}}, {"if": {"default": 2}, "then": {"minimum": 1}})


def test_forms() -> None:
    parsed = parse("JSON", '{ "type": "object",\n "additionalProperties": false, "title": "é" }')
    assert parsed.canonical == '{"type":"object","additionalProperties":false,"title":"é"}'
    assert parsed.normalized == '{"additionalProperties":false,"title":"é","type":"object"}'


NEW_DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def new_draft(**members: Any) -> dict[str, Any]:
    return {**NEW_DRAFT, **members}


def tuple_of(*first: Any, **members: Any) -> dict[str, Any]:
    return new_draft(type="array", prefixItems=list(first), **members)


BOTH = {"properties": {"a": True, "b": True}}
CONTENT_MODELS: dict[str, tuple[Any, Any, bool]] = {
    "closed by unevaluatedProperties": (
        new_draft(properties={"a": TEXT, "b": NUMBER}, unevaluatedProperties=False),
        new_draft(properties={"a": TEXT}, unevaluatedProperties=False),
        True,
    ),
    "others by unevaluatedProperties, and one of them named": (
        new_draft(properties={"b": TEXT}, unevaluatedProperties=TEXT),
        new_draft(unevaluatedProperties=TEXT),
        True,
    ),
    "others by unevaluatedProperties, and one named that does not fit": (
        new_draft(properties={"b": NUMBER}, unevaluatedProperties=TEXT),
        new_draft(unevaluatedProperties=TEXT),
        False,
    ),
    "additionalProperties leave nothing unevaluated": (
        new_draft(properties={"b": NUMBER}, additionalProperties=True, unevaluatedProperties=False),
        new_draft(properties={"b": NUMBER}),
        True,
    ),
    "what allOf looked at is not closed": (
        new_draft(
            properties={"b": NUMBER},
            unevaluatedProperties=False,
            allOf=[BOTH],
        ),
        new_draft(
            properties={"a": NUMBER},
            unevaluatedProperties=False,
            allOf=[BOTH],
        ),
        False,
    ),
    "what a $ref looked at is not closed": (
        new_draft(properties={"b": NUMBER}),
        new_draft(unevaluatedProperties=False, **{"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"b": TEXT}}}}),
        False,
    ),
    "an item of those that unevaluatedItems take": (
        tuple_of(TEXT, TEXT, unevaluatedItems=TEXT),
        tuple_of(TEXT, unevaluatedItems=TEXT),
        True,
    ),
    "an item less, which was none of them": (
        tuple_of(TEXT, unevaluatedItems=TEXT),
        tuple_of(TEXT, NUMBER, unevaluatedItems=TEXT),
        False,
    ),
    "an item of a closed tuple": (
        tuple_of(TEXT, NUMBER, unevaluatedItems=False),
        tuple_of(TEXT, items=False),
        True,
    ),
    "an item of an open tuple": (tuple_of(TEXT, NUMBER), tuple_of(TEXT), False),
    "any item of an open tuple": (tuple_of(TEXT, True), tuple_of(TEXT), True),
    "additionalItems without items": ({"additionalItems": False}, {"additionalItems": True}, False),
    "additionalItems of another type": ({"additionalItems": NUMBER}, {"additionalItems": TEXT}, False),
    "additionalItems taken away": ({}, {"additionalItems": TEXT}, True),
    "fewer that contain": (
        new_draft(type="array", contains=NUMBER, minContains=1),
        new_draft(type="array", contains=NUMBER, minContains=2),
        True,
    ),
    "more that contain": (
        new_draft(type="array", contains=NUMBER, minContains=2),
        new_draft(type="array", contains=NUMBER),
        False,
    ),
    "one that contains, where none had to": (
        new_draft(type="array", contains=NUMBER),
        new_draft(type="array", contains=NUMBER, minContains=0),
        False,
    ),
    "a limit of those that contain": (
        new_draft(type="array", contains=NUMBER, maxContains=2),
        new_draft(type="array", contains=NUMBER, maxContains=3),
        False,
    ),
    "no limit of those that contain": (
        new_draft(type="array", contains=NUMBER),
        new_draft(type="array", contains=NUMBER, maxContains=3),
        True,
    ),
    "another one is required, which is not described": (
        thing({"a": TEXT}, required=["b"]),
        thing({"a": TEXT}, required=["a"]),
        True,
    ),
    "one is required that was described": (thing({"a": TEXT}, required=["a"]), thing({"a": TEXT}), False),
    "true for a schema": (thing({"a": True}), thing({"a": TEXT}), True),
    "a schema for true": (thing({"a": TEXT}), thing({"a": True}), False),
    "a schema for false": (thing({"a": TEXT}), thing({"a": False}), True),
    "false for a schema": (thing({"a": False}), thing({"a": TEXT}), False),
    "others that a pattern names": (
        closed(patternProperties={"^x": TEXT, "^y": TEXT}),
        closed({"x1": TEXT}, patternProperties={"^y": TEXT}),
        True,
    ),
}


@pytest.mark.parametrize(("new", "old", "passes"), CONTENT_MODELS.values(), ids=CONTENT_MODELS.keys())
def test_content_models(new: Any, old: Any, passes: bool) -> None:
    assert (kinds(new, old) == []) is passes
