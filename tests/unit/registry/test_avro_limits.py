"""Avro that is nested without end or long without bytes; and that everything else is walked as fastavro reads it."""

from __future__ import annotations

import datetime
import io
import json
import sys
import uuid
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suiro.registry import (
    AvroCodec,
    CodecSettings,
    NotOneColumn,
    Reference,
    Schema,
    Undecodable,
    registry_client,
)
from suiro.registry.codecs.avro_limits import MAX_EMPTY_ITEMS, MAX_NESTING, AvroLimits

LIST = {"type": "record", "name": "n", "fields": [{"name": "next", "type": ["null", "n"]}]}
TREE: dict[str, Any] = {
    "type": "record",
    "name": "t",
    "namespace": "some.where",
    "fields": [
        {"name": "label", "type": {"type": "enum", "name": "label", "symbols": ["a", "b"]}},
        {"name": "id", "type": {"type": "fixed", "name": "id", "size": 2}},
        {"name": "number", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "share", "type": "double"},
        {"name": "small", "type": "float"},
        {"name": "known", "type": "boolean"},
        {"name": "text", "type": ["null", "string", "bytes"]},
        {"name": "children", "type": {"type": "array", "items": "t"}},
        {"name": "named", "type": {"type": "map", "values": ["null", "some.where.t"]}},
    ],
}


def trees() -> st.SearchStrategy[dict[str, Any]]:
    def more(children: st.SearchStrategy[Any], named: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(
            {
                "label": st.sampled_from(["a", "b"]),
                "id": st.binary(min_size=2, max_size=2),
                "number": st.integers(-(2**40), 2**40),
                "share": st.floats(allow_nan=False),
                "small": st.just(0.5),
                "known": st.booleans(),
                "text": st.none() | st.text(max_size=3) | st.binary(max_size=3),
                "children": children,
                "named": named,
            }
        )

    def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        named = st.dictionaries(st.text(max_size=2), st.none() | inner, max_size=2)
        return more(st.lists(inner, max_size=2), named)

    return st.recursive(more(st.just([]), st.just({})), grown, max_leaves=4)


@given(trees(), st.data())
def test_what_fastavro_writes_is_within_the_limits_and_what_is_cut_is_not(value: Any, data: st.DataObject) -> None:
    parsed = fastavro.parse_schema(TREE)
    limits = AvroLimits.of(parsed)
    assert limits is not None
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, value)
    limits.check(b"ab" + out.getvalue(), 2)
    cut = data.draw(st.integers(0, len(out.getvalue()) - 1))
    with pytest.raises(ValueError, match=r"no end|not there"):
        limits.check(out.getvalue()[:cut], 0)


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        ["null", "long"],
        {"type": "array", "items": ["null", "long"]},
        {"type": "map", "values": "null"},
        {
            "type": "record",
            "name": "a",
            "fields": [
                {
                    "name": "b",
                    "type": {"type": "record", "name": "b", "fields": [{"name": "x", "type": "int"}]},
                },
                {"name": "c", "type": "b"},
            ],
        },
    ],
)
def test_most_schemas_need_no_look(schema: Any) -> None:
    assert AvroLimits.of(fastavro.parse_schema(schema)) is None


def codec_of(schema: str) -> tuple[AvroCodec, int]:
    url = "mock://avro-limits"
    schema_id = registry_client(url).register(f"s-{hash(schema)}", Schema(schema))
    return AvroCodec(CodecSettings(registry=url)), schema_id


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def test_nesting_without_end_is_undecodable_and_ends_no_process() -> None:
    codec, schema_id = codec_of(json.dumps(LIST))
    value = codec.decode(framed(schema_id, b"\x02" * (MAX_NESTING - 1) + b"\0"))
    for _ in range(MAX_NESTING - 1):
        value = value["next"]
    assert value == {"next": None}
    for levels in (MAX_NESTING, 5_000, 1_000_000):
        with pytest.raises(Undecodable, match=f"deeper than {MAX_NESTING} levels"):
            codec.decode(framed(schema_id, b"\x02" * levels + b"\0"))
    with pytest.raises(Undecodable, match="no branch -1"):
        codec.decode(framed(schema_id, b"\x01" * 10_000))


def test_a_schema_that_is_nested_deeply_is_read_by_rows() -> None:
    codec, schema_id = codec_of('{"type": "array", "items": ' * 600 + '"int"' + "}" * 600)
    data = framed(schema_id, b"\0")
    assert codec.decode_block([data]) == [[]]
    with pytest.raises(NotOneColumn, match="nested too deeply"):
        codec.decode_column(pa.array([data]))


COUNTS_C = pytest.mark.skipif(sys.version_info >= (3, 12), reason="fastavro's own frames do not count")


@pytest.mark.parametrize("depth", [pytest.param(600, marks=COUNTS_C), 850])
def test_a_chain_of_references_is_undecodable_where_it_is_too_deep(depth: int) -> None:
    """A reader met a RecursionError, which no setting for bad records takes. Most frames are the caller's here."""
    url = "mock://chain"
    client = registry_client(url)
    schema_id = client.register("s0", Schema(json.dumps(record("r0"))))
    for number in range(1, 150):
        before = Reference(name=f"r{number - 1}", subject=f"s{number - 1}", version=1)
        text = json.dumps(record(f"r{number}", before.name))
        schema_id = client.register(f"s{number}", Schema(text, "AVRO", (before,)))
    codec = AvroCodec(CodecSettings(registry=url))

    def below(levels: int) -> object:
        return codec.decode(framed(schema_id, b"")) if not levels else below(levels - 1)

    for _ in range(2):
        with pytest.raises(Undecodable, match="deep"):
            below(depth)


@pytest.mark.parametrize(
    ("root", "before", "behind"),
    [('["int", "n"]', b"\2", b""), ('"n"', b"", b""), ('{"type": "array", "items": "n"}', b"\2", b"\0")],
    ids=["union", "name", "array"],
)
def test_a_schema_that_is_no_record_may_refer_to_others(root: str, before: bytes, behind: bytes) -> None:
    """As a topic with several kinds of events has it. No value could be read, and a block ended its reader."""
    url = f"mock://roots-{uuid.uuid4()}"
    client = registry_client(url)
    day = {"name": "day", "type": {"type": "int", "logicalType": "date"}}
    client.register("n", Schema(json.dumps({**LIST, "fields": [day, *LIST["fields"]]})))
    schema = Schema(root, "AVRO", (Reference(name="n", subject="n", version=1),))
    schema_id = client.register("root", schema)
    codec = AvroCodec(CodecSettings(registry=url))
    day_bytes = b"\xfe\xff\xff\xff\x0f"  # Postgres's infinity
    data = framed(schema_id, before + day_bytes + b"\0" + behind)
    one = {"day": datetime.date.max, "next": None}
    value = [one] if behind else one
    assert codec.decode(data) == value
    assert codec.decode_block([data]) == [value]
    with pytest.raises(NotOneColumn):
        codec.decode_column(pa.array([data]))
    writer = AvroCodec(CodecSettings(registry=url, subject="root", schema=schema))
    assert codec.decode(writer.encode("t", value)) == value
    with pytest.raises(Undecodable, match=f"deeper than {MAX_NESTING} levels"):
        codec.decode(framed(schema_id, before + (day_bytes + b"\2") * 5_000))


def record(name: str, *types: str) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": one} for number, one in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def test_a_nested_value_is_resolved_into_a_schema_with_a_list_by_default() -> None:
    old = {**LIST, "fields": [{"name": "next", "type": ["null", "n"], "default": None}]}
    tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}
    new = Schema(json.dumps({**old, "fields": [*old["fields"], tags]}))
    _, schema_id = codec_of(json.dumps(old))
    codec = AvroCodec(CodecSettings(registry="mock://avro-limits", schema=new))
    value = codec.decode(framed(schema_id, b"\x02" * (MAX_NESTING - 1) + b"\0"))
    value["tags"].append("x")
    assert value["next"]["next"]["tags"] == []
    deep = Schema('{"type": "array", "items": ' * 600 + '"int"' + "}" * 600)
    _, schema_id = codec_of(deep.text)
    codec = AvroCodec(CodecSettings(registry="mock://avro-limits", schema=deep))
    assert codec.decode(codec.encode("deep", [])) == []


def test_items_without_bytes_are_counted() -> None:
    codec, schema_id = codec_of('{"type": "array", "items": "null"}')
    assert codec.decode(framed(schema_id, b"\x06\0")) == [None] * 3
    many = b"\x80\x80\x80\x80\x80\x80\x80\x01\0"
    with pytest.raises(Undecodable, match=f"more than {MAX_EMPTY_ITEMS} items"):
        codec.decode(framed(schema_id, many))
    with pytest.raises(Undecodable, match=f"more than {MAX_EMPTY_ITEMS} items"):
        codec.decode(framed(schema_id, b"\x90\x4e" * 3 + b"\0"))  # 5,000 at a time


def doubling(last: Any, depth: int = 60) -> dict[str, Any]:
    """Records that hold the next one twice."""
    inner: Any = last
    for number in reversed(range(depth)):
        again = inner["name"] if isinstance(inner, dict) else inner
        fields = [{"name": "x", "type": inner}, {"name": "y", "type": again}]
        inner = {"type": "record", "name": f"R{number}", "fields": fields}
    return inner  # type: ignore[no-any-return]


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: {"type": "array", "items": one}])
def test_records_that_double_without_bytes_end(wrap: Any) -> None:
    url = f"mock://doubling-{uuid.uuid4()}"
    schema_id = registry_client(url).register("t-value", Schema(json.dumps(wrap(doubling("null")))))
    codec = AvroCodec(CodecSettings(registry=url))
    data = b"\0" + schema_id.to_bytes(4, "big") + b"\x02\0"
    with pytest.raises(Undecodable, match="without bytes"):
        codec.decode(data)
    with pytest.raises((NotOneColumn, Undecodable)):
        codec.decode_column(pa.array([data], pa.binary()))


def test_records_that_double_with_bytes_are_read_by_rows_and_are_no_columns() -> None:
    url = f"mock://doubling-{uuid.uuid4()}"
    schema_id = registry_client(url).register("t-value", Schema(json.dumps(doubling("int"))))
    codec = AvroCodec(CodecSettings(registry=url, schema=Schema(json.dumps(doubling("long")))))
    data = b"\0" + schema_id.to_bytes(4, "big") + b"\x02" * 100
    with pytest.raises(Undecodable):
        codec.decode(data)
    with pytest.raises(NotOneColumn, match="parts"):
        codec.decode_column(pa.array([data], pa.binary()))


def test_a_few_empty_fields_are_read() -> None:
    small = fastavro.parse_schema(doubling("null", 8))
    limits = AvroLimits.of(small)
    limits.check(b"", 0)
    assert AvroLimits.of(fastavro.parse_schema(doubling("null", 2))) is None
    assert AvroLimits.of(fastavro.parse_schema(doubling("int"))) is None
