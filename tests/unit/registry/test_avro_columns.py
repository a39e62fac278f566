"""Avro as columns: always what the rows give, or nothing."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro.utils import generate_many
from support import avro_schemas
from support.avro_schemas import LOGICAL, WIDE, record

from suiro.connect.schema_fields import fields_reader
from suiro.streams import serdes
from suiro.streams.serdes import DeserializationError, NotColumnarError

VECTORS = Path(__file__).parents[2] / "vectors" / "registry" / "avro-reader-writer.json"

Data = list[bytes | None]


class Registered(avro_schemas.Registered):
    def read(self, data: Data, reader: Any = None) -> tuple[list[Any], pa.Array]:
        """By rows and as a column."""
        serde = serdes.avro.with_(registry=self.url, schema=reader)
        rows = [None if one is None else serde.deserialize("t", one) for one in data]
        return rows, serde.decode_column(pa.array(data, pa.binary()), topic="t")


def test_scalars_nulls_and_records() -> None:
    random.seed(6)
    registered = Registered()
    values = list(generate_many(WIDE, 300))
    data = registered.write(WIDE, values)
    data[3] = data[200] = None
    rows, column = registered.read(data)
    assert column.to_pylist() == rows
    assert column.field("maybe_int").type == pa.int32()
    assert column.null_count == 2
    serde = serdes.avro.with_(registry=registered.url)
    sliced = pa.array(data, pa.binary()).slice(150, 100)
    assert serde.decode_column(sliced).to_pylist() == rows[150:250]
    written = serde.encode_column(column, topic="t").to_pylist()
    assert [None if one is None else serde.deserialize("t", one) for one in written] == rows
    assert serde.decode_column(pa.array([None, None], pa.binary())).to_pylist() == [None, None]


def test_edges_of_numbers_and_times() -> None:
    registered = Registered()
    schema = record(
        i="int",
        l="long",
        d="double",
        dec={"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4},
        fixed=[
            "null",
            {
                "type": "fixed",
                "name": "F",
                "size": 7,
                "logicalType": "decimal",
                "precision": 9,
                "scale": 2,
            },
        ],
        **LOGICAL,
    )
    low = {"i": -(1 << 31), "l": -(1 << 63), "d": -math.inf, "dec": decimal.Decimal("-" + "9" * 34 + ".9999")}
    low |= {"fixed": decimal.Decimal("-1234567.89"), "date": datetime.date.min, "tms": datetime.time.min}
    low |= {"tus": datetime.time.min, "unknown": -1}
    low |= {name: datetime.datetime(1, 1, 1, tzinfo=datetime.UTC) for name in ("at", "atus")}
    low |= {"local": datetime.datetime.min}
    high = {"i": (1 << 31) - 1, "l": (1 << 63) - 1, "d": 1e308, "dec": decimal.Decimal("0.0001")}
    high |= {"fixed": None, "date": datetime.date.max, "tms": datetime.time(23, 59, 59, 999000)}
    high |= {"tus": datetime.time.max, "unknown": 1}
    high |= {
        "at": datetime.datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=datetime.UTC),
        "atus": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC),
        "local": datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
    }
    rows, column = registered.read(registered.write(schema, [low, high]))
    assert rows == [low, high]
    assert column.to_pylist() == rows
    assert [str(one["dec"]) for one in column.to_pylist()] == [str(one["dec"]) for one in rows]


@pytest.mark.parametrize("more", ["int", {"type": "array", "items": "int"}], ids=["kernels", "fastavro"])
def test_infinity_of_postgres_is_the_first_or_the_last_date(more: Any) -> None:
    time = {"type": "long", "logicalType": "time-micros"}
    schema = record(day=["null", LOGICAL["date"]], at=LOGICAL["atus"], time=time, more=more)
    ends = [((1 << 31) - 1, (1 << 63) - 1, 86_400_000_000), (-(1 << 31), -(1 << 63), 0), (None, 0, 1)]
    rest = {"more": 0 if more == "int" else []}
    registered = Registered()
    data = registered.write(schema, [{"day": day, "at": at, "time": time} | rest for day, at, time in ends])
    rows, column = registered.read(data)
    assert column.to_pylist() == rows
    assert [(one["day"], one["at"].replace(tzinfo=None), one["time"]) for one in rows] == [
        (datetime.date.max, datetime.datetime.max, datetime.time.max),
        (datetime.date.min, datetime.datetime.min, datetime.time.min),
        (None, datetime.datetime(1970, 1, 1), datetime.time(microsecond=1)),
    ]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (record(a={"type": "array", "items": ["null", "string"]}), {"a": ["x", None]}),
        (record(a={"type": "array", "items": "int"}, s="string"), {"a": [], "s": "x"}),
        ("string", "plain"),
        (["null", "long"], 5),
        ("bytes", b""),
    ],
    ids=str,
)
def test_lists_and_what_is_no_record(schema: Any, value: Any) -> None:
    registered = Registered()
    rows, column = registered.read(registered.write(schema, [value, value]))
    assert rows == [value, value]
    assert column.to_pylist() == rows


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "map", "values": "int"},
        ["int", "string"],
        ["null", "R"],
        {"type": "string", "logicalType": "uuid"},
        {"type": "bytes", "logicalType": "decimal", "precision": 60},
    ],
    ids=str,
)
def test_what_has_no_column(kind: Any) -> None:
    registered = Registered()
    schema = record(x=kind)
    data = registered.write(schema, generate_many(schema, 1) if kind != ["null", "R"] else [{"x": None}])
    with pytest.raises(NotColumnarError):
        registered.read(data)


@pytest.mark.parametrize("digits", [{}, {"precision": None}, {"precision": 5, "scale": None}], ids=str)
def test_a_decimal_whose_digits_are_not_valid_has_no_column(digits: Any) -> None:
    """Registries accept it. The row encoder and the sinks that add columns met it, too."""
    registered = Registered()
    kind = {"type": "bytes", "logicalType": "decimal", **digits}
    data, null = registered.write(record(x=["null", kind]), [{"x": b"\5"}, {"x": None}])
    with pytest.raises(DeserializationError, match="not of schema"):
        registered.read([data])
    serde = serdes.avro.with_(registry=registered.url)
    assert serde.decode_block([null], "t") == [{"x": None}]
    with pytest.raises(NotColumnarError):
        serde.decode_column(pa.array([data], pa.binary()))
    fields = fields_reader("avro", registered.url)
    assert fields is not None
    assert fields(null or b"").types == {"x": "json"}


def test_records_twice_within_each_of_many_are_looked_at_once() -> None:
    """Each doubled the time in which a sink looked for the JSON of a capture. Writers to the topic could stop it."""
    fields: list[dict[str, Any]] = [{"name": "j", "type": ["null", "string"], "postgres.type": "json"}]
    for number in range(40):
        kind = {"type": "record", "name": f"R{number}", "fields": fields}
        fields = [
            {"name": name, "type": ["null", one], "postgres.type": "r"}
            for name, one in (("a", kind), ("b", kind["name"]))
        ]
    registered = Registered()
    (data,) = registered.write({"type": "record", "name": "R", "fields": fields}, [{"a": None, "b": None}])
    read = fields_reader("avro", registered.url)
    assert read is not None
    found = read(data or b"").json_texts
    for _ in range(40):
        found = found["b"]
    assert found == {"j": True}


def test_rows_of_several_schemas() -> None:
    registered = Registered()
    old = record(a="int", b=["null", "string"])
    new = {
        **old,
        "fields": [
            {"name": "c", "type": "double", "default": 1.5},
            *old["fields"],
            {"name": "d", "type": "int"},
        ],
    }
    reader = {
        **old,
        "fields": [
            {"name": "bee", "type": ["null", "string"], "aliases": ["b"]},
            {"name": "a", "type": ["null", "long"]},
            {"name": "c", "type": "double", "default": 7},
        ],
    }
    first = registered.write(old, [{"a": 1, "b": None}, {"a": 2, "b": "x"}])
    second = registered.write(new, [{"c": 2.5, "a": 3, "b": "y", "d": 9}])
    mixed = [first[0], None, *second, first[1]]
    with pytest.raises(NotColumnarError, match="2 schemas"):
        registered.read(mixed)
    rows, column = registered.read(mixed, reader)
    assert column.to_pylist() == rows
    assert rows[3] == {"bee": "x", "a": 2, "c": 7}
    assert column.type == pa.struct({"bee": pa.string(), "a": pa.int64(), "c": pa.float64()})


def _of_long(*names: str) -> dict[str, Any]:
    return record(**dict.fromkeys(names, "long"))


def test_a_field_that_the_reader_has_is_nobodys_alias() -> None:
    fields = [{"name": "b", "type": "long", "aliases": ["a"], "default": 7}, {"name": "a", "type": "long"}]
    for written, wanted in (("a", {"a": 1, "b": 7}), ("ab", {"a": 1, "b": 1})):
        registered = Registered()
        data = registered.write(_of_long(*written), [dict.fromkeys(written, 1)])
        rows, column = registered.read(data, {**_of_long(), "fields": fields})
        assert rows == [wanted]
        assert column.to_pylist() == rows


def test_two_fields_for_one_give_what_rows_have() -> None:
    registered = Registered()
    data = registered.write(_of_long("a", "b"), [{"a": 1, "b": 2}])
    rows, column = registered.read(data, {**_of_long(), "fields": [{"name": "b", "type": "long", "aliases": ["a"]}]})
    assert column.to_pylist() == rows


NEW = {
    "raw": ("bytes", "\u00ffa", b"\xffa"),
    "pair": ({"type": "fixed", "name": "P", "size": 2}, "\u0001\u0080", b"\x01\x80"),
    "price": (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        "\u0005",
        decimal.Decimal("0.05"),
    ),
    "day": ({"type": "int", "logicalType": "date"}, 1, datetime.date(1970, 1, 2)),
    "at": (
        {"type": "long", "logicalType": "timestamp-millis"},
        0,
        datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
    ),
    "share": ("double", 1, 1.0),
    "inner": (
        {"type": "record", "name": "I", "fields": [{"name": "b", "type": "bytes", "default": "\u00fe"}]},
        {},
        {"b": b"\xfe"},
    ),
    "tags": ({"type": "array", "items": "bytes"}, ["\u00fd"], [b"\xfd"]),
    "either": (["bytes", "null"], "\u00fc", b"\xfc"),
}


@pytest.mark.parametrize(("kind", "default", "value"), NEW.values(), ids=NEW)
def test_the_default_of_a_new_field_is_a_value_of_its_type(kind: Any, default: Any, value: Any) -> None:
    registered = Registered()
    old = record(a="int")
    new = {**old, "fields": [*old["fields"], {"name": "n", "type": kind, "default": default}]}
    rows, column = registered.read(registered.write(old, [{"a": 1}, {"a": 2}]), new)
    assert rows == column.to_pylist() == [{"a": 1, "n": value}, {"a": 2, "n": value}]
    assert {type(row["n"]) for row in rows} == {type(value)}
    serde = serdes.avro.with_(registry=registered.url, schema=new)
    assert serde.deserialize("t", serde.serialize("t", {"a": 1})) == rows[0]


def test_a_default_is_of_one_record_alone() -> None:
    registered = Registered()
    old = record(a="int")
    tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}
    data = registered.write(old, [{"a": 1}, {"a": 2}])
    serde = serdes.avro.with_(registry=registered.url, schema={**old, "fields": [*old["fields"], tags]})
    first, second = (serde.deserialize("t", one) for one in data)
    first["tags"].append("x")
    assert second["tags"] == serde.deserialize("t", data[1])["tags"] == []


def test_a_field_that_two_of_the_reader_mean_is_read_as_by_rows() -> None:
    """A field was renamed, and another one has its old name now."""
    registered = Registered()
    fields = [
        {"name": "x", "type": "int", "aliases": ["a"], "default": 0},
        {"name": "a", "type": "int", "default": 7},
    ]
    rows, column = registered.read(registered.write(record(a="int"), [{"a": 1}]), {**record(), "fields": fields})
    assert column.to_pylist() == rows


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9}


@pytest.mark.parametrize(
    ("written", "wanted", "value"),
    [
        ("long", LOGICAL["at"], 5),
        ({**MONEY, "scale": 2}, {**MONEY, "scale": 4}, decimal.Decimal("1.50")),
    ],
    ids=str,
)
def test_a_logical_type_that_only_one_schema_has(written: Any, wanted: Any, value: Any) -> None:
    """A row has what the writer meant; a column has that, or is none."""
    registered = Registered()
    data = registered.write(record(x=written), [{"x": value}])
    serde = serdes.avro.with_(registry=registered.url, schema=record(x=wanted))
    assert str(serde.deserialize("t", data[0] or b"")["x"]) == str(value)
    with pytest.raises(NotColumnarError):
        serde.decode_column(pa.array(data, pa.binary()), topic="t")


@pytest.mark.parametrize("kind", ["double", "float", ["double", "null"]], ids=str)
@pytest.mark.parametrize(("default", "value"), [(7, 7.0), ("-Infinity", -math.inf)])
def test_a_default_of_a_double_is_a_double(kind: Any, default: Any, value: float) -> None:
    registered = Registered()
    inner = {"type": "record", "name": "I", "fields": [{"name": "d", "type": kind, "default": default}]}
    reader = {**record(a="long"), "fields": [{"name": "a", "type": "long"}, *inner["fields"]]}
    data = registered.write(record(a="long"), [{"a": 1}])
    rows, column = registered.read(data, reader)
    block = serdes.avro.with_(registry=registered.url, schema=reader).decode_block(data, "t")
    for found in (rows[0], block[0], column.to_pylist()[0]):
        assert found == {"a": 1, "d": value}
        assert type(found["d"]) is float


@pytest.mark.parametrize("place", [0, 2])
def test_a_bad_row_is_named(place: int) -> None:
    registered = Registered()
    good = registered.write(WIDE, generate_many(WIDE, 4))
    assert all(good)
    one: bytes = good[place] or b""
    serde = serdes.avro.with_(registry=registered.url)
    for bad, why in [
        (b"", "too few"),
        (b"\1" + one[1:], "unknown magic byte 0x01"),
        (b"\0\0\0\xff\xff" + one[5:], "schema id 65535 is not in the registry"),
        (one[:-1], "not of schema"),
        (one + b"\0", "1 bytes are left over"),
        (one[:5] + b"\xff" * 30, "not of schema"),
    ]:
        data = [*good]
        data[place] = bad
        with pytest.raises(DeserializationError, match=why) as column:
            serde.decode_column(pa.array(data, pa.binary()))
        assert column.value.row == place
        with pytest.raises(DeserializationError, match=why):
            serde.deserialize("t", bad)


def test_text_that_is_not_utf8_and_enums_without_a_symbol() -> None:
    registered = Registered()
    text = registered.write("string", ["ab"])[0] or b""
    suit = registered.write({"type": "enum", "name": "S", "symbols": ["A"]}, ["A"])[0] or b""
    for bad in (text[:-2] + b"\xff\xfe", suit[:-1] + b"\x04"):
        with pytest.raises(DeserializationError):
            registered.read([bad])
        with pytest.raises(DeserializationError):
            serdes.avro.with_(registry=registered.url).decode_column(pa.array([bad]))


PAIRS = json.loads(VECTORS.read_text())["pairs"]


def test_reader_and_writer_of_the_vectors() -> None:
    """Whatever fastavro makes of a pair, the column makes the same of it, or is no column."""
    random.seed(6)
    registered = Registered()
    columns = compatible = 0
    for pair in PAIRS:
        try:
            written = list(generate_many(pair["writer"], 3))
        except (RecursionError, ValueError):
            continue  # a record without an end, an enum without symbols
        data = registered.write(pair["writer"], written)
        serde = serdes.avro.with_(registry=registered.url, schema=pair["reader"])
        try:
            rows = [serde.deserialize("t", one or b"") for one in data]
        except DeserializationError:
            assert not (pair["compatible"] and pair["writer"] == pair["reader"])
            rows = None
        try:
            column = serde.decode_column(pa.array(data, pa.binary()))
        except NotColumnarError:
            continue
        except DeserializationError:
            assert rows is None, pair
            continue
        assert column.to_pylist() == rows, pair
        columns += 1
        compatible += pair["compatible"]
    assert compatible > 40
    assert columns >= compatible
