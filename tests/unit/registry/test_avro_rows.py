"""Avro over a block: always what fastavro makes of one value after the other, rows that fail included."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import random
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_many
from hypothesis import given, settings
from hypothesis import strategies as st
from support import avro_schemas
from support.avro_schemas import DECIMAL, WIDE, record

from suiro.demo.schemas import FLIGHT, FLIGHT_KEY
from suiro.registry.codecs.avro_rows import rows_decoder
from suiro.streams import serdes
from suiro.streams.serdes import decode_rows

VECTORS = Path(__file__).parents[2] / "vectors" / "registry" / "avro-reader-writer.json"


class Registered(avro_schemas.Registered):
    def same(self, data: list[bytes | None], reader: Any = None) -> list[Any]:
        """By rows, when the block has said the same."""
        serde = serdes.avro.with_(registry=self.url, schema=reader)
        wanted: list[Any] = []
        wrong: dict[int, str] = {}
        for row, one in enumerate(data):
            wanted.append(None)
            try:
                wanted[row] = None if one is None else serde.deserialize("t", one)
            except serdes.DeserializationError as error:
                wrong[row] = str(error)
        found, failed = decode_rows(serde, data, "t")
        assert repr(found) == repr(wanted)
        assert {row: str(error) for row, error in failed.items()} == wrong
        return wanted


def is_fast(schema: Any, reader: Any = None) -> bool:
    parsed = fastavro.parse_schema(schema, {})
    return rows_decoder(parsed, None if reader is None else fastavro.parse_schema(reader, {})) is not None


LOGICAL = avro_schemas.LOGICAL | {"id": {"type": "string", "logicalType": "uuid"}, "price": DECIMAL}
TIMES = record(**LOGICAL, maybe=["null", LOGICAL["atus"]], none=["null", LOGICAL["id"]])


def test_scalars_nulls_and_records() -> None:
    assert is_fast(WIDE)
    random.seed(6)
    registered = Registered()
    data: list[bytes | None] = [*registered.write(WIDE, generate_many(WIDE, 300))]
    data[3] = data[200] = None
    assert len(registered.same(data)) == 300
    assert registered.same([None, None]) == [None, None]
    assert registered.same([]) == []


def test_edges_of_numbers_and_times() -> None:
    assert is_fast(TIMES)
    moment = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    low = {"date": datetime.date.min, "tms": datetime.time.min, "tus": datetime.time.min, "unknown": -1}
    low |= {
        "at": datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
        "atus": moment,
        "local": datetime.datetime.min,
    }
    low |= {"id": uuid.UUID(int=7), "price": decimal.Decimal("-1.5"), "maybe": None, "none": None}
    high = {"date": datetime.date.max, "tms": datetime.time(23, 59, 59, 999000), "tus": datetime.time.max}
    high |= {"unknown": 1, "at": moment, "atus": moment, "local": datetime.datetime(1969, 12, 31, 23)}
    high |= {
        "id": uuid.UUID(int=8),
        "price": decimal.Decimal("0.001"),
        "maybe": moment,
        "none": uuid.UUID(int=1),
    }
    registered = Registered()
    assert registered.same([*registered.write(TIMES, [low, high, high])]) == [low, high, high]
    numbers = record(i="int", l="long", d="double", f="float")
    edges = [
        {"i": -(1 << 31), "l": -(1 << 63), "d": -math.inf, "f": 0.1},
        {"i": (1 << 31) - 1, "l": (1 << 63) - 1, "d": math.nan, "f": -math.inf},
    ]
    assert len(registered.same([*registered.write(numbers, edges)])) == 2


def test_a_time_beyond_the_calendar_fails_alone() -> None:
    schema = record(at=LOGICAL["at"])
    registered = Registered()
    plain = registered.write(record(at="long"), [{"at": 0}, {"at": 1 << 61}])
    good = registered.write(schema, [{"at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)}])
    bad = good[0][:5] + plain[1][5:]
    rows = registered.same([good[0], bad, good[0]])
    assert rows[1] is None
    assert rows[0] == rows[2]


def test_infinity_of_postgres_is_the_first_or_the_last_date() -> None:
    """As captures write it, and as asyncpg reads it."""
    schema = record(
        day=LOGICAL["date"],
        at=["null", LOGICAL["atus"]],
        local={"type": "long", "logicalType": "local-timestamp-micros"},
    )
    ends = (datetime.date.max, datetime.datetime.max.replace(tzinfo=datetime.UTC), datetime.datetime.max)
    last = dict(zip(("day", "at", "local"), ends, strict=True))
    first = {"day": datetime.date.min, "at": datetime.datetime.min.replace(tzinfo=datetime.UTC)}
    first |= {"local": datetime.datetime.min}
    high, low = (1 << 63) - 1, -(1 << 63)
    written = [
        last,
        {"day": (1 << 31) - 1, "at": high, "local": high},
        {"day": -(1 << 31), "at": low, "local": low},
        {"day": (1 << 31) - 2, "at": high, "local": high},
        {"day": 0, "at": low + 1, "local": high},
    ]
    registered = Registered()
    data = [*registered.write(schema, written)]
    assert registered.same(data) == [last, last, first, None, None]
    reader = record(local=schema["fields"][2]["type"])
    assert registered.same(data[:3], reader) == [{"local": one["local"]} for one in (last, last, first)]


@pytest.mark.parametrize("schema", [FLIGHT, FLIGHT_KEY], ids=["FLIGHT", "FLIGHT_KEY"])
def test_records_of_the_demo_are_read_in_blocks(schema: Any) -> None:
    """Also what was written with one column more, before they knew of it."""
    more = schema | {"fields": [{"name": "gate", "type": "int", "default": 0}, *schema["fields"]]}
    assert is_fast(schema)
    assert is_fast(more, schema)
    random.seed(6)
    registered = Registered()
    moment = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    flights = [{**one, "time_hour": moment} for one in generate_many(more, 50)]
    assert registered.same([*registered.write(more, flights)], schema)[0]["time_hour"] == moment


def test_a_readers_schema() -> None:
    old = record(a="int", b=["null", "string"], c="long")
    reader = record(b=["null", "string"], c=["null", "double"], a="long")
    reader["fields"] += [
        {"name": "d", "type": "string", "default": "x"},
        {"name": "e", "type": "double", "default": 7},
    ]
    assert is_fast(old, reader)
    registered = Registered()
    data = registered.write(old, [{"a": 1, "b": None, "c": 3}, {"a": -1, "b": "é", "c": 1 << 60}])
    rows = registered.same([*data], reader)
    assert repr(rows[0]) == "{'a': 1, 'b': None, 'c': 3.0, 'd': 'x', 'e': 7.0}"
    aliased = record(a="int")
    aliased["fields"].append({"name": "bee", "type": ["null", "string"], "aliases": ["b"]})
    assert is_fast(old, aliased)
    assert registered.same([*data], aliased)[1] == {"a": -1, "bee": "é"}


def test_what_is_wrong_is_said_in_the_same_words_again() -> None:
    """A dead letter's headers have it, and a replay writes the same bytes."""
    registered = Registered()
    data = registered.write(record(a="double"), [{"a": 1.5}])
    serde = serdes.avro.with_(registry=registered.url)
    with pytest.raises(serdes.DeserializationError, match="EOFError: cannot read double; give"):
        serde.deserialize("t", data[0][:-1])


def test_rows_of_several_schemas() -> None:
    registered = Registered()
    first = registered.write(record(a="int"), [{"a": 1}, {"a": 2}])
    second = registered.write(record(a="string"), [{"a": "x"}])
    third = registered.write(record(a={"type": "array", "items": "int"}), [{"a": [1, 2]}])
    mixed = [first[0], None, *second, *third, first[1]]
    assert registered.same(mixed) == [{"a": 1}, None, {"a": "x"}, {"a": [1, 2]}, {"a": 2}]


@given(st.data())
@settings(max_examples=60)
def test_damaged_values_fail_as_they_do_alone(data: st.DataObject) -> None:
    random.seed(6)
    registered = Registered()
    items: list[bytes | None] = [*registered.write(WIDE, generate_many(WIDE, 4))]
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.integers(0, 3))
        one = items[row] or b"\0"
        at = data.draw(st.integers(0, len(one) - 1))
        items[row] = data.draw(
            st.sampled_from(
                [
                    one[:at],
                    one + b"\0",
                    one[:at] + b"\xff" + one[at + 1 :],
                    one[:at] + bytes([one[at] ^ 1]) + one[at + 1 :],
                    one[:at] + b"\x80\x80" + one[at:],
                    None,
                ]
            )
        )
    registered.same(items)


PAIRS = json.loads(VECTORS.read_text())["pairs"]


def test_reader_and_writer_of_the_vectors() -> None:
    random.seed(6)
    registered = Registered()
    fast = 0
    for pair in PAIRS:
        try:
            written = list(generate_many(pair["writer"], 3))
        except (RecursionError, ValueError):
            continue  # a record without an end, an enum without symbols
        registered.same([*registered.write(pair["writer"], written)], pair["reader"])
        fast += is_fast(pair["writer"], pair["reader"])
    assert fast > 20


def test_many_values_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suiro.registry.codecs.avro_rows._READ_CELLS", 7)
    schema = record(a="int", b="string", c=["null", "long"])
    registered = Registered()
    values = [{"a": n, "b": f"é{n}", "c": None if n % 3 else n} for n in range(20)]
    assert registered.same([*registered.write(schema, values)]) == values
