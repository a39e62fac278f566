"""Avro written as a block: always the bytes that fastavro gives for each value alone, failing rows included."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import itertools
import math
import random
import uuid
from collections import OrderedDict
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_many
from hypothesis import given, settings
from hypothesis import strategies as st
from support import avro_schemas
from support.avro_schemas import DECIMAL, record

from suiro.demo.schemas import FLIGHT, FLIGHT_KEY
from suiro.registry.codecs import avro_rows
from suiro.registry.codecs.avro_rows import rows_encoder
from suiro.streams import serdes
from suiro.streams.serdes import decode_block, encode_block, encode_rows

_numbers = itertools.count()
LOGICAL = avro_schemas.LOGICAL | {
    "id": {"type": "string", "logicalType": "uuid"},
    "price": DECIMAL,
    "fixed": {"type": "fixed", "name": "F", "size": 7, "logicalType": "decimal", "precision": 9, "scale": 2},
}
LAST = [{"name": "still", "type": "Suit"}, {"name": "given", "type": "int", "default": 5}]
WIDE = {**avro_schemas.WIDE, "fields": [*avro_schemas.WIDE["fields"], *LAST]}
MAYBE = {name: kind | ({"name": "G"} if name == "fixed" else {}) for name, kind in LOGICAL.items()}
TIMES = record(**LOGICAL, **{f"maybe_{name}": ["null", kind] for name, kind in MAYBE.items()})


def serde_of(schema: Any) -> Any:
    return serdes.avro.with_(registry=f"mock://writing-{next(_numbers)}", schema=schema)


def same(serde: Any, values: list[Any]) -> list[bytes | None]:
    """One by one, when the block has said the same."""
    wanted: list[bytes | None] = []
    wrong: dict[int, str] = {}
    for row, value in enumerate(values):
        wanted.append(None)
        try:
            wanted[row] = None if value is None else serde.serialize("t", value)
        except serdes.SerializationError as error:
            wrong[row] = str(error)
    found, failed = encode_rows(serde, values, "t")
    assert found == wanted
    assert {row: str(error) for row, error in failed.items()} == wrong
    return wanted


def is_fast(schema: Any, values: list[Any]) -> bool:
    encoder = rows_encoder(fastavro.parse_schema(schema, {}))
    return encoder is not None and encoder(values, 1) is not None


def test_scalars_nulls_and_records() -> None:
    random.seed(6)
    values: list[Any] = list(generate_many(WIDE, 300))
    assert is_fast(WIDE, values)
    values[3] = values[200] = None
    serde = serde_of(WIDE)
    assert None not in [row for row in same(serde, values) if row is not None]
    assert same(serde, []) == []
    assert same(serde, [None]) == [None]


def test_edges_of_numbers_and_texts() -> None:
    schema = record(i="int", l="long", d="double", f="float", s="string", b="bytes")
    low = {"i": -(1 << 31), "l": -(1 << 63), "d": -math.inf, "f": -0.0, "s": "", "b": b""}
    high = {"i": (1 << 31) - 1, "l": (1 << 63) - 1, "d": 5e-324, "f": 3.4e38, "s": "é\0😀", "b": b"\xff" * 70}
    whole = {"i": -1, "l": -65, "d": 1 << 60, "f": 3, "s": "x" * 200, "b": b"\0"}
    assert is_fast(schema, [low, high, whole])
    same(serde_of(schema), [low, high, whole])
    same(serde_of(schema), [{**low, "d": math.nan}, {**low, "f": math.nan}, {**low, "f": math.inf}])


def test_dates_times_and_decimals() -> None:
    moment = datetime.datetime(2024, 2, 29, 12, 30, 1, 999_999, tzinfo=datetime.UTC)
    east = datetime.timezone(datetime.timedelta(hours=9))
    one: dict[str, Any] = {
        "date": datetime.date.min,
        "tms": datetime.time(23, 59, 59, 999_999),
        "unknown": -1,
    }
    one |= {
        "tus": datetime.time.max,
        "at": moment,
        "atus": moment.astimezone(east),
        "local": datetime.datetime.max,
    }
    one |= {"id": uuid.UUID(int=7), "price": decimal.Decimal("-1.5"), "fixed": decimal.Decimal("-1234567.89")}
    two = {**one, "date": datetime.date.max, "at": datetime.datetime(1, 1, 1, tzinfo=datetime.UTC), "atus": 7}
    two |= {
        "price": decimal.Decimal("999999999.999"),
        "fixed": decimal.Decimal("0"),
        "id": str(uuid.UUID(int=8)),
    }
    values = [
        {**one, **{f"maybe_{name}": None for name in MAYBE}},
        {**two, **{f"maybe_{name}": one[name] for name in MAYBE}},
    ] * 3
    assert is_fast(TIMES, values)
    assert all(same(serde_of(TIMES), values))
    # Equal, but only one of them has the scale of the schema.
    prices = [decimal.Decimal("1.500"), decimal.Decimal("1.5000"), decimal.Decimal("1.5")]
    assert same(serde_of(record(p=DECIMAL)), [{"p": price} for price in prices])[1] is None


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    pass


OTHERS: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        1 << 31,
        1 << 63,
        1 << 70,
        1.5,
        1e300,
        math.nan,
        "x",
        "H",
        "\ud800",
        b"ab",
        b"abc",
        1j,
    ),
    *(Level.LOW, Text("H"), bytearray(b"ab"), ("string", "x"), {"x": 1}, [1], datetime.date(2024, 1, 1), ...),
    *(datetime.datetime(2024, 1, 1), decimal.Decimal("1.5"), uuid.UUID(int=1), OrderedDict(x=1)),
]


@given(st.data())
@settings(max_examples=60)
@pytest.mark.parametrize("schema", [WIDE, TIMES], ids=["WIDE", "TIMES"])
def test_values_that_do_not_fit_fail_as_they_do_alone(schema: Any, data: st.DataObject) -> None:
    random.seed(data.draw(st.integers(0, 5)))
    values: list[Any] = list(generate_many(schema, 4))
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.integers(0, 3))
        if not isinstance(values[row], dict):
            continue
        value = copy.copy(values[row])
        name = data.draw(st.sampled_from([one["name"] for one in schema["fields"]]))
        match data.draw(st.sampled_from(["other", "other", "gone", "more", "whole", "ordered"])):
            case "other":
                value[name] = data.draw(st.sampled_from(OTHERS))
            case "gone":
                value.pop(name, None)
            case "more":
                value["more"] = 1
            case "ordered":
                value = OrderedDict(value)
            case "whole":
                values[row] = data.draw(st.sampled_from([None, "x", 7, [value]]))
                continue
        values[row] = value
    same(serde_of(schema), values)


@pytest.mark.parametrize("schema", [FLIGHT, FLIGHT_KEY], ids=["FLIGHT", "FLIGHT_KEY"])
def test_records_of_the_demo_are_written_in_blocks(schema: Any) -> None:
    random.seed(6)
    moment = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    values = [{**one, "time_hour": moment} for one in generate_many(schema, 50)]
    assert is_fast(schema, values)
    serde = serde_of(schema)
    assert decode_block(serde, same(serde, values), "t") == values


def test_a_row_that_fastavro_has_to_write_takes_few_others_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_rows, "ROWS_AT_ONCE", 4)
    schema = record(a="int")
    schema["fields"].append({"name": "b", "type": "int", "default": 9})
    serde = serde_of(schema)
    codec = serde.codec()
    slow: list[Any] = []
    encode = codec.encode
    monkeypatch.setattr(codec, "encode", lambda topic, value: slow.append(value) or encode(topic, value))
    values = [{"a": n, "b": n} for n in range(20)]
    values[9] = {"a": 9}
    assert decode_block(serde, encode_block(serde, values, "t"), "t") == [{"a": n, "b": n} for n in range(20)]
    assert slow == values[8:12]


@pytest.mark.parametrize(
    "schema",
    [
        record(a={"type": "array", "items": "int"}),
        record(a=["int", "string"]),
        record(a=["null", "R"]),
        {"type": "map", "values": "int"},
        ["null", "string"],
        "long",
    ],
    ids=str,
)
def test_schemas_of_every_kind(schema: Any) -> None:
    random.seed(6)
    values = [{"a": None}, {"a": {"a": None}}] if "R" in str(schema) and "null" in str(schema) else None
    same(serde_of(schema), values or list(generate_many(schema, 5)))


def test_a_value_takes_the_branch_of_its_own_type() -> None:
    """As in Java, though an earlier branch of the union can hold it: not exactly, or as another type."""
    fields = {
        "number": ["null", "float", {"type": "long"}],
        "count": ["double", "int"],
        "parts": {"type": "array", "items": ["null", "string", "bytes"]},
        "inner": ["null", "double", "long", {**record(n=["float", "long"]), "name": "Inner"}],
    }
    value = {"number": 2**53 + 1, "count": 7, "parts": [b"\xff", "text"], "inner": {"n": 2**53 + 1}}
    url = f"mock://writing-{next(_numbers)}"
    written = serdes.avro.with_(registry=url, schema=record(**fields))
    data = written.serialize("t", value)
    assert repr(written.deserialize("t", data)) == repr(value)
    more = {**fields, "inner": ["double", "long", "null", fields["inner"][-1]], "added": ["null", "double"]}
    reader = record(**more)
    reader["fields"][-1]["default"] = None
    later = serdes.avro.with_(registry=url, schema=reader)
    assert repr(later.deserialize("t", data)) == repr(value | {"added": None})
    edges = {"number": 1.5, "count": 2**31, "parts": [], "inner": 2**53 + 1}
    assert later.deserialize("t", written.serialize("t", edges)) == edges | {"added": None}


def test_a_dict_takes_the_record_of_exactly_its_fields() -> None:
    """Another one that can hold it has more fields, which would get their defaults."""
    wide, narrow = ({**record(a="int"), "name": name} for name in ("Wide", "Narrow"))
    wide["fields"].append({"name": "b", "type": "int", "default": 7})
    deep = {"type": "array", "items": {"type": "map", "values": ["Wide", "Narrow"]}}
    schema = record(
        one=["null", wide, narrow], many={"type": "array", "items": ["Wide", "string", "Narrow"]}, deep=deep
    )
    value = {"one": {"a": 1}, "many": [{"a": 4, "b": 5}, "text", {"a": 6}], "deep": [{"key": {"a": 2}}]}
    written = serde_of(schema)
    assert written.deserialize("t", written.serialize("t", value)) == value
    same(written, [value, value | {"one": ("Wide", {"a": 1})}, value | {"many": [{"c": 1}]}])
    chain = {"one": {"a": 0}}
    for _ in range(400):
        chain = {"one": chain}
    recursive = serde_of(record(one=["R", narrow]))
    assert recursive.deserialize("t", recursive.serialize("t", chain)) == chain


def test_a_union_of_the_reader_has_another_order_and_wider_types() -> None:
    """A branch of exactly the type goes first, and otherwise the first of the wider ones, as in Java."""
    inner = {**record(n=["string", "bytes"]), "name": "Inner"}
    written = {
        "mixed": ["bytes", "string", inner],
        "wider": ["null", "int", "double"],
        "both": ["int", "long"],
    }
    later = {
        "mixed": ["string", inner, "bytes"],
        "wider": ["null", "long", "double"],
        "both": ["double", "long"],
    }
    url = f"mock://writing-{next(_numbers)}"
    writer, reader = (serdes.avro.with_(registry=url, schema=record(**fields)) for fields in (written, later))
    for value, read in (
        ({"mixed": b"\xff", "wider": 7, "both": 2**53 + 1}, None),
        ({"mixed": "text", "wider": 1.5, "both": 7}, {"mixed": "text", "wider": 1.5, "both": 7.0}),
        ({"mixed": {"n": b"\xff"}, "wider": None, "both": 2**31}, None),
    ):
        assert repr(reader.deserialize("t", writer.serialize("t", value))) == repr(read or value)
