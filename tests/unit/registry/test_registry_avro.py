"""Avro in the registry: what is a schema, its one form, and who can read what."""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import make_avsc_object
from support.registry import Api

from suiro.registry.formats import Import, InvalidSchema, compare, format_of, parse

VECTORS = Path(__file__).parents[2] / "vectors" / "registry"
PAIRS = json.loads((VECTORS / "avro-reader-writer.json").read_text())["pairs"]
LEVELS = json.loads((VECTORS / "avro-compatibility-levels.json").read_text())


def kinds(reader: Any, writer: Any) -> list[str]:
    found = compare(parse("AVRO", json.dumps(reader)), parse("AVRO", json.dumps(writer)))
    return [one.kind for one in found]


def canonical(text: str) -> str:
    return parse("AVRO", text).canonical


def test_verdicts_on_pairs_of_reader_and_writer() -> None:
    wrong = [pair for pair in PAIRS if (not kinds(pair["reader"], pair["writer"])) != pair["compatible"]]
    assert len(PAIRS) == 131
    assert not wrong


def test_the_avro_package_agrees_on_every_two_schemas_of_the_vectors() -> None:
    """All schemas of the pairs crossed with one another: the package is the second opinion."""
    texts = list(dict.fromkeys(json.dumps(pair[side]) for pair in PAIRS for side in ("reader", "writer")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = {text: make_avsc_object(json.loads(text)) for text in texts}
    checked = 0
    for reader, writer in itertools.product(texts, texts):
        verdict = ReaderWriterCompatibilityChecker().get_compatibility(theirs[reader], theirs[writer])
        ours = not kinds(json.loads(reader), json.loads(writer))
        assert ours == (verdict.compatibility is SchemaCompatibilityType.compatible), (reader, writer)
        checked += 1
    assert checked > 3_000


@pytest.mark.parametrize("case", LEVELS["cases"], ids=lambda case: f"{case['level']}-{case['new']}")
def test_levels(case: dict[str, Any]) -> None:
    api, schemas = Api(), LEVELS["schemas"]
    assert api("PUT", "config", {"compatibility": "NONE"})[0] == 200
    for name in case["previous_oldest_first"]:
        api.register("s", schemas[name])
    assert api("PUT", "config/s", {"compatibility": case["level"]})[0] == 200
    body = {"schema": json.dumps(schemas[case["new"]])}
    status, answer = api("POST", "compatibility/subjects/s/versions?verbose=true", body)
    assert (status, answer["is_compatible"], not answer["messages"]) == (
        200,
        case["compatible"],
        case["compatible"],
    )
    registered, _ = api("POST", "subjects/s/versions", body)
    assert registered == (200 if case["compatible"] else 409)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (' "string" ', '"string"'),
        ("string", '"string"'),
        ('{"type": "string"}', '"string"'),
        ('{"type": {"type": "int"}}', '"int"'),
        ('{"logicalType": "uuid", "type": "string"}', '{"type":"string","logicalType":"uuid"}'),
        ('["null", {"type": "map", "values": "long"}]', '["null",{"type":"map","values":"long"}]'),
        (
            '{"fields": [{"type": "int", "default": 1, "name": "a", "doc": "d", "x": 1, "aliases": ["b"]}], '
            '"namespace": "n", "name": "R", "type": "record", "doc": "é", "aliases": ["Q", "m.P"], "y": 2}',
            '{"type":"record","name":"R","namespace":"n","doc":"é","fields":[{"name":"a","type":"int","doc":"d",'
            '"default":1,"aliases":["b"],"x":1}],"y":2,"aliases":["Q","m.P"]}',
        ),
        (
            '{"type": "record", "name": "n.R", "fields": [{"name": "a", "type": {"type": "enum", "name": "E", '
            '"symbols": ["X"]}}, {"name": "b", "type": "E"}, {"name": "c", "type": "n.R"}]}',
            '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":{"type":"enum","name":"E",'
            '"symbols":["X"]}},{"name":"b","type":"E"},{"name":"c","type":"R"}]}',
        ),
        (
            '{"type": "record", "name": "a.R", "fields": [{"name": "f", "type": {"type": "fixed", "name": "b.F", '
            '"size": 2}}, {"name": "g", "type": "b.F"}]}',
            '{"type":"record","name":"R","namespace":"a","fields":[{"name":"f","type":{"type":"fixed","name":"F",'
            '"namespace":"b","size":2}},{"name":"g","type":"b.F"}]}',
        ),
    ],
)
def test_the_form_that_is_stored(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert canonical(expected) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"type": "int", "name": "n", "namespace": "m", "doc": "d", "aliases": ["b"]}', '"int"'),
        ('{"type": "string", "size": 1, "x": 2}', '{"type":"string","x":2}'),
        (
            '{"type": "array", "items": "int", "name": "n", "values": 1, "default": []}',
            '{"type":"array","items":"int","default":[]}',
        ),
        (
            '{"type": "fixed", "name": "F", "size": 1, "symbols": 1, "fields": 2}',
            '{"type":"fixed","name":"F","size":1}',
        ),
    ],
)
def test_reserved_attributes_are_dropped_from_every_type(text: str, expected: str) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (["string", "null"], None),
        (["null", "int"], 1),
        (["null", {"type": "array", "items": ["int", "string"]}], ["a", 1]),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "NO_SYMBOL"),
        ({"type": "fixed", "name": "F", "size": 4}, "x"),
        ({"type": "map", "values": ["null", "double"]}, {"a": 1.5, "b": None}),
    ],
)
def test_defaults_that_java_takes(kind: Any, default: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, "default": default}]}
    parsed = parse("AVRO", json.dumps(schema))
    assert json.loads(parsed.canonical)["fields"][0]["default"] == default
    assert compare(parsed, parse("AVRO", '{"type": "record", "name": "R", "fields": []}')) == []


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (["null", "int"], "x"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, 1),
        ({"type": "fixed", "name": "F", "size": 4}, 7),
        (["string", {"type": "array", "items": "int"}], ["a"]),
        ("boolean", 0),
    ],
)
def test_defaults_that_java_refuses(kind: Any, default: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, "default": default}]}
    with pytest.raises(InvalidSchema, match="Invalid default"):
        parse("AVRO", json.dumps(schema))


def test_the_normalised_form_orders_what_users_added() -> None:
    one = parse("AVRO", '{"type": "string", "b": 1, "a": 2}')
    other = parse("AVRO", '{"type": "string", "a": 2, "b": 1}')
    assert one.canonical != other.canonical
    assert one.normalized == other.normalized


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"name": "R"}', "No type"),
        ('{"type": "record", "fields": []}', "No name"),
        ('{"type": "record", "name": "R"}', "no fields"),
        ('{"type": "record", "name": "1R", "fields": []}', "Illegal name"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "No field type"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Nix"}]}', "Undefined"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
            "Duplicate",
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "x"}]}',
            "default",
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": 2147483648}]}',
            "default",
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"], "default": "x"}]}',
            "default",
        ),
        ('["int", "int"]', "Duplicate in union"),
        ('["int", ["string"]]', "Nested union"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "Duplicate enum symbol"),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "Default"),
        ('{"type": "fixed", "name": "F"}', "size"),
        ('{"type": "fixed", "name": "F", "size": 2147483648}', "size"),
        *(
            (
                f'{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": "int", "aliases": {one}}}]}}',
                "names",
            )
            for one in ("7", '"abc"', "[{}]")
        ),
        ('{"type": "array"}', "items"),
    ],
)
def test_what_is_no_schema(text: str, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parse("AVRO", text)


@pytest.mark.parametrize("namespace", ["null", "7"])
def test_a_namespace_that_is_no_text_is_none(namespace: str) -> None:
    """As Java reads it: the one around it holds."""
    inner = f'{{"type": "fixed", "name": "F", "namespace": {namespace}, "size": 1}}'
    text = f'{{"type": "record", "name": "R", "namespace": "n", "fields": [{{"name": "a", "type": {inner}}}]}}'
    assert canonical(text) == canonical(text.replace(f'"namespace": {namespace}, ', ""))


def test_a_schema_of_other_schemas() -> None:
    money = Import("n.Money", '{"type": "record", "name": "n.Money", "fields": [{"name": "cents", "type": "long"}]}')
    text = '{"type": "record", "name": "n.Order", "fields": [{"name": "price", "type": "n.Money"}]}'
    parsed = parse("AVRO", text, (money,))
    assert parsed.canonical.count("cents") == 0
    assert "cents" in format_of("AVRO").formatted(parsed, "resolved")
    with pytest.raises(InvalidSchema, match=r"Undefined schema: n\.Money"):
        parse("AVRO", text)


def test_an_incompatibility_names_the_place() -> None:
    def record(*fields: Any) -> dict[str, Any]:
        return {"type": "record", "name": "R", "fields": list(fields)}

    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    changed = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "string"}]}
    new = parse("AVRO", json.dumps(record({"name": "i", "type": {"type": "array", "items": changed}})))
    old = parse("AVRO", json.dumps(record({"name": "i", "type": {"type": "array", "items": inner}})))
    (found,) = compare(new, old)
    assert (found.kind, found.path) == ("TYPE_MISMATCH", "/fields/0/type/items/fields/0/type")
    assert "in the new schema does not match with the old schema" in found.message(reader_is_new=True)
    assert "in the old schema does not match with the new schema" in found.message(reader_is_new=False)
