"""Schemas that ask for more work than anybody has: each is answered, within the steps of a budget, and never with
"compatible" where the answer is not known."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jsonschema.validators import Draft202012Validator
from support.registry import Api

from suiro.registry import Reference, Schema, registry_client
from suiro.registry.app import RegistryApp
from suiro.registry.codecs import CodecSettings, Undecodable, Unencodable, codec_of, wire
from suiro.registry.formats import Budget, Import, Incompatibility, InvalidSchema, TooComplex, compare, parse
from suiro.registry.formats.differences import Pairs
from suiro.registry.formats.json_format import validator
from suiro.registry.formats.parsed import Parsed
from suiro.registry.formats.patterns import InvalidPattern, search

BACKTRACKS = "^(a+)+$"
LONG = "a" * 40 + "!"


def json_diamond(combine: Callable[[dict[str, Any]], dict[str, Any]], last: Any, depth: int = 60) -> str:
    """Each definition asks twice for the next."""
    parts = {f"A{n}": combine({"$ref": f"#/definitions/A{n + 1}"}) for n in range(depth)}
    parts[f"A{depth}"] = last
    return json.dumps({"allOf": [{"$ref": "#/definitions/A0"}], "definitions": parts})


def objects(ref: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": ref, "y": dict(ref)}}


def sums(ref: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"allOf": [ref, {"minimum": 1}]}, {"allOf": [dict(ref), {"minimum": 2}]}]}


def all_of(ref: dict[str, Any]) -> dict[str, Any]:
    return {"allOf": [ref, dict(ref)]}


def avro_diamond(last: str, depth: int = 60, wrap: Callable[[Any], Any] = lambda one: one) -> str:
    inner: Any = last
    for n in reversed(range(depth)):
        again = inner["name"] if isinstance(inner, dict) else inner
        fields = [{"name": "x", "type": wrap(inner)}, {"name": "y", "type": wrap(again)}]
        inner = {"type": "record", "name": f"R{n}", "fields": fields}
    return json.dumps(inner)


def protobuf_diamond(last: str, depth: int = 60) -> str:
    parts = [f"message A{n} {{ A{n + 1} x = 1; A{n + 1} y = 2; }}" for n in range(depth)]
    return f'syntax = "proto3"; {" ".join(parts)} message A{depth} {{ {last} z = 1; }}'


@pytest.mark.parametrize(
    ("language", "make", "one", "other"),
    [
        ("JSON", lambda last: json_diamond(objects, {"type": last}), "string", "number"),
        ("JSON", lambda last: json_diamond(all_of, {"type": last}), "string", "number"),
        ("JSON", lambda last: json_diamond(sums, {"type": last}, depth=20), "string", "number"),
        ("AVRO", avro_diamond, "int", "string"),
        ("AVRO", lambda last: avro_diamond(last, wrap=lambda one: ["null", one]), "int", "string"),
        ("PROTOBUF", protobuf_diamond, "int32", "string"),
    ],
    ids=["properties", "allOf", "anyOf", "records", "unions", "messages"],
)
def test_what_doubles_at_each_level_is_compared_once(
    language: str, make: Callable[[str], str], one: str, other: str
) -> None:
    schema, same, changed = (parse(language, make(last)) for last in (one, one, other))
    assert compare(schema, same, Budget(100_000)) == []
    found = compare(changed, schema, Budget(100_000))
    assert 0 < len(found) < 1_000


@pytest.mark.parametrize("outer", [[], [Incompatibility("KIND", "#", "differs")]])
def test_a_verdict_that_rested_on_another_one_goes_with_it(outer: list[Incompatibility]) -> None:
    asked: list[str] = []

    def differences(reader: str, writer: str, path: str) -> Iterator[Incompatibility]:
        asked.append(reader)
        if reader == "B":
            yield from pairs("A", writer, path)  # B contains A again: it fits, if A does
        elif asked == ["A"]:
            assert pairs("B", writer, path) == []
            assert pairs("B", writer, path) == []
            yield from outer

    pairs = Pairs(Budget(), lambda reader, writer: reader, differences).compare
    assert pairs("A", "", "#") == outer
    assert asked == ["A", "B"]
    assert pairs("A", "", "#") == outer
    assert pairs("B", "", "#") == outer
    assert asked == (["A", "B", "B"] if outer else ["A", "B"])


def test_too_many_branches_are_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suiro.registry.work.MAX_COMPARED_STEPS", 10_000)

    def schema(last: str) -> str:
        return json.dumps({"anyOf": [{"type": "object", "maxProperties": n, "title": last} for n in range(400)]})

    with pytest.raises(TooComplex, match="steps"):
        compare(parse("JSON", schema("a")), parse("JSON", schema("b")), Budget(10_000))
    api = Api()
    wide = json.dumps({"anyOf": [{"type": "object", "minProperties": n} for n in range(200)]})
    api.register("s", wide, schemaType="JSON")
    other = wide.replace('"minProperties"', '"maxProperties"')
    for path in ("subjects/s/versions", "compatibility/subjects/s/versions/latest"):
        status, answer = api("POST", path, {"schema": other, "schemaType": "JSON"})
        assert (status, answer["error_code"]) == (422, 42201), answer
        assert "cannot be decided" in answer["message"]
        assert "steps" in answer["message"]
    status, answer = api(
        "POST", "compatibility/subjects/s/versions?verbose=true", {"schema": other, "schemaType": "JSON"}
    )
    assert (status, answer["is_compatible"]) == (200, False)
    assert "cannot be decided" in answer["messages"][0]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("JSON", json.dumps({"enum": [[n, str(n)] for n in range(400_000)]})),
        ("JSON", json.dumps({"properties": {f"p{n}": {"type": "string"} for n in range(100_000)}})),
        ("AVRO", json.dumps(["null", {"type": "array", "items": "int"}] * 400_000)),
    ],
    ids=["enum", "properties", "union"],
)
def test_a_text_of_many_parts_ends_too(language: str, text: str) -> None:
    with pytest.raises((TooComplex, InvalidSchema)):
        parse(language, text, budget=Budget(100_000))


def test_the_default_of_a_field_is_looked_at_once_for_each_branch() -> None:
    value: Any = None
    records: list[Any] = []
    for n in range(40):
        value = {"x": value}
        later = ["null", *(f"R{n - 1}{side}" for side in "ab")] if n else ["null"]
        records += [
            {"type": "record", "name": f"R{n}{side}", "fields": [{"name": "x", "type": later}, *extra]}
            for side, extra in (("a", [{"name": "m", "type": "int"}]), ("b", [{"name": "m", "type": "int"}]))
        ]
    fields = [{"name": f"f{n}", "type": one} for n, one in enumerate(records)]
    fields.append({"name": "last", "type": ["R39a", "R39b"], "default": value})
    with pytest.raises(InvalidSchema, match="default"):
        parse("AVRO", json.dumps({"type": "record", "name": "All", "fields": fields}), budget=Budget(20_000))


def test_references_to_references_are_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    api.register("s0", {"type": "string"}, schemaType="JSON")
    for n in range(1, 60):
        twice = [{"name": f"{side}{n}.json", "subject": f"s{n - 1}", "version": 1} for side in "ab"]
        api.register(f"s{n}", {"title": str(n)}, schemaType="JSON", references=twice)
    assert api.get("subjects/s59/versions/1")["references"]
    # The same for those who read a record with such a schema.
    url = f"mock://budgets-{uuid.uuid4()}"
    client = registry_client(url)
    client.register("s0", Schema('{"type": "string"}', "JSON"))
    for n in range(1, 60):
        both = tuple(Reference(name=f"{side}{n}.json", subject=f"s{n - 1}", version=1) for side in "ab")
        schema_id = client.register(f"s{n}", Schema(f'{{"title": "{n}"}}', "JSON", both))
    asked: list[str] = []
    version = client.version

    def counted(subject: str, number: int, **more: Any) -> Any:
        asked.append(subject)
        assert len(asked) <= 2 * 59
        return version(subject, number, **more)

    monkeypatch.setattr(client, "version", counted)
    assert codec_of("JSON", CodecSettings(registry=url)).decode(b"\0" + schema_id.to_bytes(4, "big") + b"{}") == {}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"multipleOf": 0.5}, "9" * 400),
        ({"multipleOf": 0.5}, "1e400"),
        ({"multipleOf": 10**400}, "1.5"),
        ({"multipleOf": 0}, "1"),
        ({"type": "strung"}, "1"),
        ({"maxLength": "a"}, '"x"'),
        ({"required": 5}, "{}"),
        ({"$id": 5}, "{}"),
    ],
    ids=["digits", "infinite", "step", "zero", "type", "length", "required", "id"],
)
def test_a_value_that_cannot_be_validated_is_one_that_cannot_be_read(
    schema: dict[str, Any], value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last ones are of a registry that does not check schemas. The readers ended."""
    url = f"mock://values-{uuid.uuid4()}"
    client = registry_client(url)
    monkeypatch.setattr(client, "schema", lambda number: Schema(json.dumps(schema), "JSON"))
    codec = codec_of("JSON", CodecSettings(registry=url))
    with pytest.raises(Undecodable, match=r"cannot be (validated|used)"):
        codec.decode(b"\0\0\0\0\1" + value.encode())


def test_an_endless_schema_is_one_error_wherever_the_stack_ends() -> None:
    """In a library in Rust, that is an error which is no `Exception`, and went past everybody."""
    url = f"mock://endless-{uuid.uuid4()}"
    number = registry_client(url).register("s", Schema('{"allOf": [{"$ref": "#"}]}', "JSON"))
    codec = codec_of("JSON", CodecSettings(registry=url))

    def decode(depth: int) -> Any:
        return decode(depth - 1) if depth else codec.decode(b"\0" + number.to_bytes(4, "big") + b"{}")

    for depth in range(12):
        with pytest.raises(Undecodable, match="nested too deeply"):
            decode(depth)


def test_a_number_that_its_field_cannot_hold_is_told() -> None:
    schema = Schema('syntax = "proto3"; message M { double d = 1; }', "PROTOBUF")
    codec = codec_of("PROTOBUF", CodecSettings(registry=f"mock://{uuid.uuid4()}", schema=schema))
    with pytest.raises(Unencodable, match=r"M\.d: "):
        codec.encode("t", {"d": 10**400})


def test_numbers_that_cannot_be_compared_are_told() -> None:
    huge, half = (parse("JSON", json.dumps({"multipleOf": step})) for step in (10**400, 0.5))
    with pytest.raises(TooComplex, match="cannot be compared"):
        compare(huge, half)


# -- patterns ----------------------------------------------------------------------------------------------


def test_patterns_take_linear_time_and_mean_what_ecmascript_says() -> None:
    assert not search(BACKTRACKS, "a" * 100_000 + "!")
    assert search(r"^[\u0041-\u0043]+$", "ABC")
    assert search(r"^\cA$", "\x01")
    assert search(r"^\p{L}+$", "äöü")
    assert search("^\ud83d$", "\ud83d")
    assert not search("^a$", "a\n")
    assert search(r"^(?=.*[0-9]).{3}$", "ab1")
    assert search(r"^(a|b)\1$", "bb")
    assert not search(r"^(?!x)a", "xa")
    with pytest.raises(InvalidPattern):
        search("(", "a")


@pytest.mark.parametrize("pattern", ["^(?=a)(a|aa)+$", r"^(a+)+\1$", "(.*){300}(.*)a.{900}b"])
def test_a_pattern_that_backtracks_or_is_too_large_is_ended(pattern: str) -> None:
    with pytest.raises(TooComplex, match="pattern"):
        search(pattern, "a" * 200_000 + "!")


def test_a_pattern_that_nobody_can_run_in_time_is_incompatible_and_not_the_contrary() -> None:
    pattern = {"patternProperties": {"^(?=a)(a|aa)+$": {"type": "string"}}}
    new, old = ({"type": "object", **pattern}, {"type": "object", **pattern})
    new["properties"] = {"a" * 100 + "!": {"type": "string"}}
    assert compare(parse("JSON", json.dumps(new)), parse("JSON", json.dumps(old)))


def test_a_property_is_held_against_a_pattern_that_backtracks() -> None:
    pattern = {"type": "object", "patternProperties": {BACKTRACKS: {"type": "string"}}}
    named = {**pattern, "properties": {LONG: {"type": "string"}}}
    found = compare(parse("JSON", json.dumps(named)), parse("JSON", json.dumps(pattern)))
    assert [one.kind for one in found] == ["PROPERTY_ADDED_OPEN_CONTENT_MODEL"]


# -- values ------------------------------------------------------------------------------------------------


NEW_DRAFT = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("schema", "value", "sound"),
    [
        ({"properties": {"x": {"pattern": BACKTRACKS}}}, {"x": LONG}, False),
        ({"patternProperties": {BACKTRACKS: {"type": "string"}}}, {LONG: 1}, True),
        ({"patternProperties": {BACKTRACKS: {}}, "additionalProperties": False}, {LONG: 1}, False),
        ({"propertyNames": {"pattern": BACKTRACKS}}, {LONG: 1}, False),
        (
            {"$schema": NEW_DRAFT, "patternProperties": {BACKTRACKS: {}}, "unevaluatedProperties": False},
            {LONG: 1},
            False,
        ),
        ({"items": {"$schema": NEW_DRAFT, "pattern": BACKTRACKS}}, [LONG], False),
        ({"pattern": "^(?=a)(a|aa)+$"}, "a" * 100 + "!", False),
        ({"$ref": "#"}, 1, False),
        (json.loads(json_diamond(all_of, {"type": "number"})), 1, False),
        ({"uniqueItems": True}, [[n, str(n)] for n in range(20_000)], True),
        ({"uniqueItems": True}, [1, True, 0, False, "1", [1], {"a": 1}, 1.0], False),
        ({"uniqueItems": True}, [1, True, 0, False, "1", [1], [True]], True),
    ],
)
def test_a_record_is_validated_within_its_budget(schema: Any, value: Any, sound: bool) -> None:
    url = f"mock://budgets-{uuid.uuid4()}"
    codec = codec_of("JSON", CodecSettings(registry=url))
    schema_id = registry_client(url).register("t-value", Schema(json.dumps(schema), "JSON"))
    data = b"\0" + schema_id.to_bytes(4, "big") + json.dumps(value).encode()
    if sound:
        assert codec.decode(data) == value
    else:
        with pytest.raises(Undecodable, match="valid"):
            codec.decode(data)


@pytest.mark.parametrize(
    ("schema", "value", "sound"),
    [
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1}, True),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}, False),
        ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 1}, True),
        (
            {"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {}}}}, "unevaluatedProperties": False},
            {"a": 1},
            True,
        ),
        (
            {"if": {"required": ["a"]}, "then": {"properties": {"a": {}}}, "unevaluatedProperties": False},
            {"a": 1},
            True,
        ),
        (
            {"if": {"properties": {"a": {"const": 1}}}, "else": True, "unevaluatedProperties": False},
            {"a": 2},
            False,
        ),
        (
            {"anyOf": [{"properties": {"a": {"type": "string"}}}, True], "unevaluatedProperties": False},
            {"a": 1},
            False,
        ),
        (
            {"dependentSchemas": {"a": {"properties": {"b": {}, "a": {}}}}, "unevaluatedProperties": False},
            {"a": 1, "b": 2},
            True,
        ),
        (
            {"patternProperties": {"^a": {}}, "unevaluatedProperties": {"type": "string"}},
            {"ab": 1, "c": "x"},
            True,
        ),
        ({"not": {"properties": {"a": {"const": 2}}}, "unevaluatedProperties": False}, {"a": 1}, False),
    ],
)
def test_unevaluated_properties(schema: Any, value: Any, sound: bool) -> None:
    whole = {"$schema": NEW_DRAFT, **schema}
    assert (validator(json.dumps(whole), ()).problem(value, Budget()) is None) is sound
    assert Draft202012Validator(whole).is_valid(value) is sound


@pytest.mark.parametrize(
    ("language", "text", "part"),
    [
        ("JSON", "{}", "json_schema.validator"),
        ("PROTOBUF", 'syntax = "proto3"; message A {}', "protobuf.compiled"),
    ],
)
def test_a_schema_that_cannot_be_used_is_the_fault_of_its_record(
    language: str, text: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come from another registry, or have been stored before a check."""

    def refuse(*_: Any) -> Any:
        raise InvalidSchema("for a reason")

    url = f"mock://budgets-{uuid.uuid4()}"
    schema_id = registry_client(url).register("t-value", Schema(text, language))  # type: ignore[arg-type]
    monkeypatch.setattr(f"suiro.registry.codecs.{part}", refuse)
    with pytest.raises(Undecodable, match="for a reason"):
        codec_of(language, CodecSettings(registry=url)).decode(b"\0" + schema_id.to_bytes(4, "big") + b"\0{}")


@pytest.mark.parametrize(
    ("language", "text", "more", "value"),
    [
        ("AVRO", '{"type": "fixed", "name": "A%d", "size": 1%s}', ', "doc": "%s"', b"x"),
        ("JSON", '{"title": "A%d"%s}', ', "description": "%s"', b"{}"),
        ("PROTOBUF", 'syntax = "proto3"; message A%d {} %s', "message B%s {}", b"\0"),
    ],
)
def test_a_reader_keeps_some_schemas_however_many_and_long_they_are(
    language: str, text: str, more: str, value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes to the topic chooses them. It kept a thousand, each perhaps of megabytes."""
    monkeypatch.setattr(wire, "KEPT_CHARS_MAX", 4 * wire.CHARS_OF_EACH)
    url = f"mock://budgets-{uuid.uuid4()}"
    codec: Any = codec_of(language, CodecSettings(registry=url))
    kept = []
    for number, chars in enumerate((0, 0, 0, 0, 2_000, 0, 1_000)):
        schema = Schema(text % (number, more % (chars * "x")), language)  # type: ignore[arg-type]
        schema_id = registry_client(url).register(f"{number}-value", schema)
        for _ in range(2):
            assert codec.decode(b"\0" + schema_id.to_bytes(4, "big") + value) in (b"x", {})
        kept.append(len(codec._of_writer.made))
    assert kept == [1, 2, 3, 1, 1, 1, 2]


# -- the server --------------------------------------------------------------------------------------------


class Slow:
    """A comparison that goes on until it is ended, and says when it began and how it ended."""

    def __init__(self) -> None:
        self.began, self.ended = threading.Event(), threading.Event()

    def __call__(self, reader: Any, writer: Any, budget: Budget) -> Any:
        self.began.set()
        try:
            while True:
                budget.pause()
                threading.Event().wait(0.01)
        finally:
            self.ended.set()


class Client:
    """Asks once, on a thread of its own, and goes when it is told to."""

    def __init__(self, app: RegistryApp, path: str, body: Any) -> None:
        self._app, self._path, self._body = app, path, json.dumps(body).encode()
        self._loop = asyncio.new_event_loop()
        self._gone = asyncio.Event()
        self.thread = threading.Thread(target=self._loop.run_until_complete, args=(self._ask(),))
        self.thread.start()

    def go(self) -> None:
        self._loop.call_soon_threadsafe(self._gone.set)

    async def _ask(self) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"registry"), (b"content-type", b"application/json")],
            "scheme": "http",
            "server": ("registry", 80),
        }
        messages = [{"type": "http.request", "body": self._body, "more_body": False}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            pass

        await self._app(scope, receive, send)


@pytest.mark.parametrize("path", ["/compatibility/subjects/s/versions/latest", "/subjects/s/versions"])
def test_others_are_answered_meanwhile_and_work_ends_with_its_client(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    monkeypatch.setattr("suiro.registry.work.compare", slow)
    api = Api()
    api.register("s", {"type": "record", "name": "R", "fields": []})
    client = Client(api.app, path, {"schema": '{"type": "record", "name": "R", "fields": [], "doc": "d"}'})
    assert slow.began.wait(30)
    assert api.get("subjects") == ["s"]
    assert api.register("other", '"string"') > 0
    assert not slow.ended.is_set()
    client.go()
    assert slow.ended.wait(30)
    client.thread.join(30)
    assert not client.thread.is_alive()
    assert api.get("subjects/s/versions") == [1]


def test_work_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    api.register("s", '"int"')
    monkeypatch.setattr("suiro.registry.work.compare", Slow())
    monkeypatch.setattr("suiro.registry.app.WORK_TIMEOUT_MS", 50)
    assert api.refused("POST", "subjects/s/versions", {"schema": '"long"'}) == 50002
    assert api.get("subjects/s/versions") == [1]


# -- Protobuf ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("../x.proto", "/tmp/x.proto", "a/../../x", "x\0y", "a\nb", "\ud800.proto", "a" * 300, "./a.proto"),
        *("-I/etc", "--plugin=x", ".set", "default.proto", "default.proto/x.proto", " ", "a;b{"),
        *("schema-default.proto/x", "google/protobuf/descriptor.proto"),
    ],
)
def test_odd_references_of_protobuf_are_taken_or_refused(name: str) -> None:
    other = 'syntax = "proto3"; message R {}'
    for text in (f'syntax = "proto3"; import "{name}"; message A {{}}', 'syntax = "proto3"; message A {}'):
        with contextlib.suppress(InvalidSchema):
            assert "message A" in parse("PROTOBUF", text, (Import(name, other),)).canonical


def test_references_of_protobuf_that_cannot_be_beside_each_other() -> None:
    other = 'syntax = "proto3"; message R {}'
    for names in (("a", "a/b"), ("a/b", "a")):
        with pytest.raises(InvalidSchema, match="reference"):
            parse("PROTOBUF", 'syntax = "proto3";', tuple(Import(name, other) for name in names))


@pytest.mark.parametrize("path", ["numpy/version.py", "numpy/__init__.pyi", "google/protobuf/any_pb2.py"])
def test_what_is_installed_is_not_imported(path: str) -> None:
    with pytest.raises(InvalidSchema, match="not found"):
        parse("PROTOBUF", f'syntax = "proto3"; import "{path}"; message A {{}}')
    assert parse(
        "PROTOBUF",
        'syntax = "proto3"; import "google/type/date.proto"; message A { google.type.Date d = 1; }',
    )


def test_half_of_a_surrogate_pair_is_refused() -> None:
    api = Api()
    for language, text in (
        ("AVRO", '{"type": "record", "name": "R", "fields": [], "doc": "\\ud800"}'),
        ("JSON", '{"title": "\\ud800"}'),
        ("PROTOBUF", 'syntax = "proto3"; // \ud800\nmessage A {}'),
    ):
        code = 422 if "\ud800" in text else 42201
        assert api.refused("POST", "subjects/s/versions", {"schema": text, "schemaType": language}) == code
    body = {"schema": '"int"', "metadata": {"properties": {"a": "\ud800"}}}
    assert api.refused("POST", "subjects/s/versions", body) == 422
    assert api.refused("POST", "subjects/s/versions", b'{"schema": "\xed\xa0\x80"}') == 400


@pytest.mark.parametrize("is_record", [True, False])
def test_types_that_are_nested_deeply_are_compared(is_record: bool) -> None:
    """Each level takes few frames of Python's stack."""

    def nested(inner: Any) -> Parsed:
        for level in range(210 if is_record else 270):
            record = {"type": "record", "name": f"R{level}", "fields": [{"name": "f", "type": inner}]}
            inner = record if is_record else {"type": "array", "items": inner}
        return parse("AVRO", json.dumps(inner))

    assert compare(nested("long"), nested("int")) == []
