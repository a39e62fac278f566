"""Columns of lake sinks by the schemas of the registry: types, nulls, evolution, for each language of schemas."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.connecting import committed, reaches, running, send
from support.delta import read_delta
from support.iceberg import metadata_of, read_iceberg

from suiro.client import Client, NewTopic
from suiro.foundation.nesting import MAX_NESTING
from suiro.registry import CodecSettings, RegistryProcess, Schema, SchemaType, codec_of

UTC = datetime.UTC
AT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123_000, UTC)
ID = uuid.UUID(int=7)

AVRO_FIELDS: list[dict[str, Any]] = [
    {"name": "n", "type": "int"},
    {"name": "ratio", "type": ["null", "float"]},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "hour", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "raw", "type": {"type": "fixed", "name": "Four", "size": 4}},
    {"name": "more_raw", "type": ["null", "Four"]},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "int"}]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "either", "type": ["null", "string", "long"]},
]
AVRO_VALUE = {
    "n": 1,
    "ratio": None,
    "price": decimal.Decimal("12.30"),
    "at": AT,
    "day": AT.date(),
    "hour": datetime.time(7, 8),
    "id": ID,
    "raw": b"\0\1\2\3",
    "more_raw": None,
    "kind": "B",
    "place": {"x": 1},
    "tags": ["a"],
    "either": 5,
}
AVRO_ROW = {
    "n": 1,
    "ratio": None,
    "price": decimal.Decimal("12.30"),
    "at": AT,
    "day": AT.date(),
    "hour": "07:08:00",
    "id": str(ID),
    "raw": b"\0\1\2\3",
    "more_raw": None,
    "kind": "B",
    "place": '{"x":1}',
    "tags": '["a"]',
    "either": "5",
}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Outer {
  enum Kind { A = 0; B = 1; }
  message Inner { int32 x = 1; }
  map<string, int32> counts = 1;
  int32 n = 2;
  optional double ratio = 3;
  uint64 big = 4;
  google.protobuf.Timestamp at = 5;
  Kind kind = 6;
  Inner inner = 7;
  repeated string tags = 8;
  bytes raw = 9;
  bool ok = 10;
  MORE
}
"""
PROTO_VALUE = {
    "counts": {"a": 1},
    "n": -5,
    "big": (1 << 64) - 1,
    "at": {"seconds": int(AT.timestamp()), "nanos": 123_000_999},
    "kind": "B",
    "inner": {"x": 3},
    "tags": ["a", "b"],
    "raw": b"\xff",
    "ok": True,
}
PROTO_ROW = {
    "counts": '{"a":1}',
    "n": -5,
    "ratio": None,
    "big": decimal.Decimal((1 << 64) - 1),
    "at": AT,
    "kind": "B",
    "inner": '{"x":3}',
    "tags": '["a","b"]',
    "raw": b"\xff",
    "ok": True,
}
JSON_FIELDS = {
    "n": {"type": "integer"},
    "ratio": {"type": ["null", "number"]},
    "name": {"type": "string"},
    "ok": {"type": "boolean"},
    "tags": {"type": "array"},
    "any": {},
}


def avro(*more: dict[str, Any]) -> Schema:
    return Schema(json.dumps({"type": "record", "name": "Row", "fields": [*AVRO_FIELDS, *more]}))


def proto(more: str = "") -> Schema:
    return Schema(PROTO.replace("MORE", more), "PROTOBUF")


def json_schema(**more: Any) -> Schema:
    schema = {"type": "object", "properties": JSON_FIELDS | more, "additionalProperties": False}
    return Schema(json.dumps(schema), "JSON")


NEW = {"name": "added", "type": ["null", "long"], "default": None}
CASES = {
    "avro": (avro(), avro(NEW), AVRO_VALUE, AVRO_ROW),
    "protobuf": (proto(), proto("optional int64 added = 11;"), PROTO_VALUE, PROTO_ROW),
    "json_schema": (
        json_schema(),
        json_schema(added={"type": ["null", "integer"]}),
        {"n": 1, "name": "x", "ok": False, "tags": [1], "any": "text"},
        {"n": 1, "ratio": None, "name": "x", "ok": False, "tags": "[1]", "any": "text"},
    ),
}
LANGUAGES: dict[str, SchemaType] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}


@pytest.fixture
def client(suiro_node: Any, unique: str) -> Iterator[Client]:
    with Client(suiro_node.bootstrap_servers) as made:
        made.create_topics([NewTopic(unique, 1)])
        yield made


@pytest.fixture(scope="module")
def registry(suiro_node: Any) -> Iterator[RegistryProcess]:
    with RegistryProcess.start(suiro_node.bootstrap_servers, options=["--topic", "_schemas-lake"]) as process:
        yield process


def configuration(registry: RegistryProcess, servers: str, kind: str, topic: str, format: str) -> str:
    place = {
        "delta": 'table = "lake"',
        "iceberg": 'table = "db.t"\ncatalog = { type = "sql", uri = "sqlite:///lake.db", warehouse = "lake" }',
    }[kind]
    return (
        f'[connect]\nbootstrap_servers = "{servers}"\nlisten = "127.0.0.1:0"\nregistry = "{registry.url}"\n'
        f'[sink.{topic}]\nkind = "{kind}"\n{place}\ntopics = ["{topic}"]\nlinger_ms = 1\nformat = "{format}"\n'
        f'unknown_fields = "add"\ndead_letter_topic = "dead-{topic}"\n'
    )


def read(kind: str, folder: Path) -> list[dict[str, Any]]:
    if kind == "delta":
        rows, _ = read_delta(folder / "lake")
    else:
        rows = read_iceberg(folder / "lake.db", "db.t")
    ordered = sorted(rows, key=lambda row: row["_offset"])
    return [{name: item for name, item in row.items() if not name.startswith("_")} for row in ordered]


def encoded(registry: RegistryProcess, topic: str, schema: Schema, value: Any) -> bytes:
    codec = codec_of(schema.type, CodecSettings(registry=registry.url, schema=schema))
    return codec.encode(topic, value)


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("format", [*CASES])
def test_columns_are_those_of_the_schema(
    tmp_path: Path,
    suiro_node: Any,
    client: Client,
    registry: RegistryProcess,
    unique: str,
    kind: str,
    format: str,
) -> None:
    first, second, value, row = CASES[format]
    text = configuration(registry, suiro_node.bootstrap_servers, kind, unique, format)
    send(client, unique, [encoded(registry, unique, first, value), None])
    with running(tmp_path, suiro_node.bootstrap_servers, text) as runtime:
        reaches(runtime, unique, lambda at: at["records"] == 2, "a row of the first schema")
    empty = dict.fromkeys(row)
    assert read(kind, tmp_path) == [row, empty], "columns are there where every value is null, too"

    # A process that starts anew takes rows of both schemas; the new column is there though its value is null.
    values = [
        encoded(registry, unique, second, value),
        encoded(registry, unique, first, value),
        encoded(registry, unique, second, {**value, "added": 1 << 40}),
    ]
    send(client, unique, values)
    with running(tmp_path, suiro_node.bootstrap_servers, text) as runtime:
        reaches(runtime, unique, lambda at: at["records"] == 3, "rows of both schemas")
    found = read(kind, tmp_path)[2:]
    assert [one.get("added") for one in found] == [None, None, 1 << 40]
    assert [{name: one[name] for name in row} for one in found] == [row] * 3
    assert committed(client, f"dead-{unique}") == []


def test_a_widened_field_keeps_its_column_and_another_type_is_put_aside(
    tmp_path: Path, suiro_node: Any, client: Client, registry: RegistryProcess, unique: str
) -> None:
    def schema(kind: str) -> Schema:
        fields = [{"name": "n", "type": kind}]
        return Schema(json.dumps({"type": "record", "name": "R", "fields": fields}))

    text = configuration(registry, suiro_node.bootstrap_servers, "iceberg", unique, "avro")
    # The topics of the subjects differ, so that the registry does not refuse the change that is not compatible.
    send(
        client,
        unique,
        [
            encoded(registry, unique, schema("int"), {"n": 1}),
            encoded(registry, unique, schema("long"), {"n": 1 << 50}),
            encoded(registry, f"{unique}-other", schema("string"), {"n": "x"}),
        ],
    )
    with running(tmp_path, suiro_node.bootstrap_servers, text) as runtime:
        reaches(runtime, unique, lambda at: at["records"] == 3, "three records")
    assert read("iceberg", tmp_path) == [{"n": 1}, {"n": 1 << 50}]
    (dead,) = committed(client, f"dead-{unique}")
    assert b"field 'n' is 'x', not of type long" in dead["headers"]["__connect.errors.exception.message"]
    (fields,) = [one["fields"] for one in metadata_of(tmp_path / "lake.db", "db.t")["schemas"][-1:]]
    assert {one["name"]: one["type"] for one in fields}["n"] == "long"


def test_files_become_protobuf_and_json_schema(
    tmp_path: Path, suiro_node: Any, client: Client, registry: RegistryProcess, unique: str
) -> None:
    (tmp_path / "row.proto").write_text('syntax = "proto3"; message Row { string name = 1; int64 n = 2; }')
    (tmp_path / "row.json").write_text(json_schema().text)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"name": "ann", "n": 5}\n{"name": "bob", "n": "many"}\n')
    servers = suiro_node.bootstrap_servers
    text = f'[connect]\nbootstrap_servers = "{servers}"\nlisten = "127.0.0.1:0"\nregistry = "{registry.url}"\n'
    for format, file in (("protobuf", "row.proto"), ("json_schema", "row.json")):
        text += (
            f'[source.{format}]\nkind = "files"\nfolder = "in"\nformat_of_files = "jsonl"\n'
            f'topic = "{unique}-{format}"\nformat = "{format}"\nformat_schema = "{file}"\n'
            f'dead_letter_topic = "dead-{unique}"\n'
        )
    with running(tmp_path, servers, text) as runtime:
        for format in ("protobuf", "json_schema"):
            reaches(runtime, format, lambda at: at["records"] == 2, "both")
    for format in ("protobuf", "json_schema"):
        (row,) = committed(client, f"{unique}-{format}")
        found = codec_of(LANGUAGES[format], CodecSettings(registry=registry.url)).decode(row["value"])
        assert (found["name"], found["n"]) == ("ann", 5)
    assert len(committed(client, f"dead-{unique}")) == 2


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_text_that_has_no_utf_8_stops_no_sink_for_ever(
    tmp_path: Path, suiro_node: Any, client: Client, registry: RegistryProcess, unique: str, kind: str
) -> None:
    """JSON Schema allows any JSON; so the rest of what plain JSON is refused for is refused here, too."""
    text = configuration(registry, suiro_node.bootstrap_servers, kind, unique, "json_schema")
    prefix = encoded(registry, unique, Schema("{}", "JSON"), {})[:5]
    deep = b'{"n":' * (MAX_NESTING + 1) + b"1" + b"}" * (MAX_NESTING + 1)
    bodies = [rb'{"name": "\ud800"}', rb'{"\ud800": 1}', deep, b'{"name": "ann"}']
    send(client, unique, [prefix + body for body in bodies])
    with running(tmp_path, suiro_node.bootstrap_servers, text) as runtime:
        told = reaches(runtime, unique, lambda at: at["records"] == 4, "four records")
    assert (told["rejected"], told["restarts"]) == (3, 0)
    assert [row["name"] for row in read(kind, tmp_path)] == ["ann"]
