"""Serdes: Kafka's bytes, errors that name what is wrong, and columns that say what single values say."""

from __future__ import annotations

import json
import math
import pickle
import struct
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from support.share import examples

from suiro.errors import UsageError
from suiro.streams import serdes
from suiro.streams.records import Windowed
from suiro.streams.serdes import (
    ColumnarSerde,
    DeserializationError,
    NotColumnarError,
    Serde,
    SerializationError,
)
from suiro.streams.serdes.json_text import read_fields, write_column

WINDOWED = [serdes.time_windowed(serdes.string, 10), serdes.session_windowed(serdes.long)]
COLUMNAR: list[Any] = [
    serdes.bytes,
    serdes.string,
    serdes.int,
    serdes.long,
    serdes.double,
    serdes.boolean,
    serdes.json,
]
ALL: list[Any] = [*COLUMNAR, serdes.natural, serdes.tagged, *WINDOWED]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(max_size=9),
    "string": st.text(max_size=9),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "double": st.floats(),
    "boolean": st.booleans(),
    "json": JSON.filter(lambda value: value is not None),
}


def same(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)


@pytest.mark.parametrize("serde", ALL, ids=lambda serde: serde.name)
def test_it_is_a_serde_and_a_value(serde: Any) -> None:
    assert isinstance(serde, Serde)
    assert isinstance(serde, ColumnarSerde) is (serde in COLUMNAR)
    for dumps in (pickle.dumps, cloudpickle.dumps):
        copy = pickle.loads(dumps(serde))
        assert copy == serde
        assert hash(copy) == hash(serde)
    assert [other for other in ALL if other == serde] == [serde]


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (serdes.bytes, b"\x00a", b"\x00a"),
        (serdes.string, "é", b"\xc3\xa9"),
        (serdes.int, -2, b"\xff\xff\xff\xfe"),
        (serdes.long, 258, b"\0\0\0\0\0\0\x01\x02"),
        (serdes.double, 1.5, struct.pack(">d", 1.5)),
        (serdes.boolean, True, b"\x01"),
        (serdes.json, {"b": [1, 2.0, None], "a": "é"}, '{"a":"é","b":[1,2.0,null]}'.encode()),
        (WINDOWED[0], Windowed("k", 5, 15), b"k" + struct.pack(">q", 5)),
        (WINDOWED[1], Windowed(7, 5, 15), struct.pack(">qqq", 7, 15, 5)),
    ],
)
def test_the_bytes_are_kafkas(serde: Serde, value: Any, data: bytes) -> None:
    assert serde.serialize("t", value) == data
    assert serde.deserialize("t", data) == value


def test_equal_values_give_equal_json() -> None:
    assert serdes.json.serialize("t", {"a": 1, "b": 2}) == serdes.json.serialize("t", {"b": 2, "a": 1})


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (serdes.bytes, "text"),
        (serdes.string, b"bytes"),
        (serdes.string, "\ud800"),
        (serdes.int, 1 << 31),
        (serdes.int, True),
        (serdes.long, 1.0),
        (serdes.long, 1 << 63),
        (serdes.double, "1"),
        (serdes.double, (1 << 53) + 1),
        (serdes.boolean, 1),
        (serdes.json, {"a": math.nan}),
        (serdes.json, {"a": {1, 2}}),
        (serdes.natural, {1, 2}),
        (serdes.natural, {"a": b""}),
        (serdes.natural, 1 << 64),
        (serdes.tagged, NotImplemented),
        (WINDOWED[0], "k"),
        (WINDOWED[0], Windowed(None, 1, 2)),
        (WINDOWED[0], Windowed(b"k", 1, 2)),
        (WINDOWED[1], Windowed(1, 1, 1 << 63)),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused(serde: Serde, value: Any) -> None:
    with pytest.raises(SerializationError) as caught:
        serde.serialize("flights", value)
    assert caught.value.topic == "flights"
    assert "flights" in str(caught.value)
    assert caught.value.serde in str(caught.value)
    assert caught.value.type_name in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (serdes.string, b"\xff"),
        (serdes.int, b"123"),
        (serdes.long, b"1234"),
        (serdes.double, b""),
        (serdes.boolean, b"\x02"),
        (serdes.json, b""),
        (serdes.json, b"NaN"),
        (serdes.json, b'{"a":1}x'),
        (serdes.json, b'"\xff"'),
        (serdes.tagged, b""),
        (serdes.tagged, b"?"),
        (serdes.tagged, b"i123"),
        (serdes.tagged, b"l\0\0\0\x09s"),
        (WINDOWED[0], b"1234567"),
        (WINDOWED[1], b"123456789012345"),
    ],
    ids=str,
)
def test_bad_data_is_refused(serde: Serde, data: bytes) -> None:
    with pytest.raises(DeserializationError) as caught:
        serde.deserialize("flights", data)
    assert "flights" in str(caught.value)
    assert caught.value.serde in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (b"\0", b"\0"),
        ("é", b"\xc3\xa9"),
        (True, b"true"),
        ({"b": 1, "a": None}, b'{"a":null,"b":1}'),
        ([1, "x"], b'[1,"x"]'),
        ((1, 2), b"[1,2]"),
        (5, struct.pack(">q", 5)),
        (0.5, struct.pack(">d", 0.5)),
    ],
)
def test_natural_writes_what_a_reader_expects(value: Any, data: bytes) -> None:
    assert serdes.natural.serialize("t", value) == data


def test_natural_cannot_read() -> None:
    with pytest.raises(UsageError, match=r"flights.*give one"):
        serdes.natural.deserialize("flights", b"x")


STATE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.booleans(), inner, max_size=3)
        | st.frozensets(st.integers(0, 9))
        | st.sets(st.text(max_size=2))
        | st.builds(Windowed, inner, st.integers(0, 9), st.integers(0, 9))
    ),
    max_leaves=10,
)


def normal(value: Any) -> Any:
    """With types written out and the order of dicts and sets removed."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, sorted((repr(normal(key)), repr(normal(item))) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(normal(item)) for item in value)
    if isinstance(value, list | tuple):
        return kind, [normal(item) for item in value]
    if isinstance(value, Windowed):
        return kind, normal(value.key), value.start, value.end
    return kind, repr(value)


@given(value=STATE)
@settings(deadline=None)
def test_tagged_reads_back_what_it_wrote(value: Any) -> None:
    assert normal(serdes.tagged.deserialize("s", serdes.tagged.serialize("s", value))) == normal(value)


def test_tagged_gives_equal_dicts_equal_bytes() -> None:
    for one, other in (({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1: b"", 2: b""}, {2: b"", 1: b""})):
        assert serdes.tagged.serialize("s", one) == serdes.tagged.serialize("s", other)


@pytest.mark.parametrize("serde", COLUMNAR, ids=lambda serde: serde.name)
@given(data=st.data())
@settings(deadline=None, max_examples=examples(60))
def test_a_column_says_what_its_values_say(serde: Any, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[serde.name], max_size=8))
    junk = data.draw(st.lists(st.none() | st.binary(max_size=8), max_size=3)) if data.draw(st.booleans()) else []
    cells = [None if value is None else serde.serialize("t", value) for value in values] + junk
    cut = data.draw(st.integers(0, len(cells)))
    column, cells = pa.array(cells, pa.binary())[cut:], cells[cut:]

    wanted: list[Any] = []
    first_bad: int | None = None
    for row, cell in enumerate(cells):
        try:
            wanted.append(None if cell is None else serde.deserialize("t", cell))
        except DeserializationError:
            first_bad = row
            break
    if first_bad is not None:
        with pytest.raises(DeserializationError) as caught:
            serde.decode_column(column, topic="t")
        assert caught.value.row == first_bad
        return
    try:
        decoded = serde.decode_column(column, topic="t")
    except NotColumnarError:
        if serde is not serdes.json:
            raise
        return
    decoded.validate(full=True)
    assert normal(decoded.to_pylist()) == normal(wanted)
    encoded = serde.encode_column(decoded, topic="t")
    encoded.validate(full=True)
    assert encoded.type == pa.binary()
    assert encoded.to_pylist() == [None if item is None else serde.serialize("t", item) for item in wanted]


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "d": st.none() | st.floats(-9, 9) | st.sampled_from([0.5, 1.25]) | st.just(1),
        "s": st.none() | st.sampled_from(["2020-01-01", "2020-01-01T00:00:00Z", "null", "a\\null", "é\n", "\x00"]),
        "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(st.none() | st.integers(0, 9) | st.just("2020-01-01 10:00:00"), max_size=2),
        "o": st.none() | st.fixed_dictionaries({}, optional={"x": st.none() | st.integers(), "null": st.none()}),
    },
)


@given(rows=st.lists(st.none() | FIELDS, max_size=4), ascii_only=st.booleans(), alike=st.booleans())
@settings(deadline=None, max_examples=examples(400))
def test_objects_in_a_column_are_those_of_json(
    rows: list[dict[str, Any] | None], ascii_only: bool, alike: bool
) -> None:
    if alike:
        names = {name for row in rows if row for name in row}
        rows = [row and {name: row.get(name) for name in names} for row in rows]
    cells = [None if row is None else json.dumps(row, ensure_ascii=ascii_only).encode() for row in rows]
    try:
        decoded = serdes.json.decode_column(pa.array(cells, pa.binary()))
    except NotColumnarError:
        return
    assert normal(decoded.to_pylist()) == normal([cell and json.loads(cell) for cell in cells])


@given(rows=st.lists(st.none() | FIELDS, max_size=4), names=st.sets(st.sampled_from("idsblox")))
@settings(deadline=None, max_examples=examples(300))
def test_fields_of_objects_may_be_absent(rows: list[dict[str, Any] | None], names: set[str]) -> None:
    cells = [None if row is None else json.dumps(row).encode() for row in rows]
    try:
        decoded = serdes.json.decode_fields(pa.array(cells, pa.binary()), names)
    except NotColumnarError:
        return
    wanted = [None if row is None else {name: row.get(name) for name in names} for row in rows]
    found = [None if row is None else {name: row.get(name) for name in names} for row in decoded.to_pylist()]
    assert normal(found) == normal(wanted)


def test_fields_are_read_without_the_others() -> None:
    cells = pa.array([b'{"a":1,"b":"null"}', None, b'{"b":"x","c":0.5}', b'{"a":null,"z":[null]}'])
    decoded = read_fields(cells, frozenset("ac"))
    assert decoded.to_pylist() == [{"a": 1, "c": None}, None, {"a": None, "c": 0.5}, {"a": None, "c": None}]
    nested = read_fields(pa.array([b'{"a":{"x":1},"b":2}', None]), frozenset("a"))
    assert nested.to_pylist() == [{"a": {"x": 1}}, None]
    with pytest.raises(NotColumnarError):
        serdes.json.decode_fields(pa.array([b"[1]"]), {"a"})


@pytest.mark.parametrize("levels", [17, 300, 501, 100_000])
@pytest.mark.parametrize(("before", "after"), [(b'{"a":', b"}"), (b"[", b"]")], ids=["objects", "lists"])
@pytest.mark.parametrize("fields", [None, {"n", "x"}], ids=["whole", "fields"])
def test_no_column_is_nested_deeply(levels: int, before: bytes, after: bytes, fields: Any) -> None:
    """Who walks its type takes frames of the stack for each level. The rules take more, and say where it ends."""
    read = serdes.json.decode_column if fields is None else partial(serdes.json.decode_fields, fields=fields)
    deep = b'{"n":1,"x":' + before * levels + b"1" + after * levels + b"}"
    for cells in ([deep], [b'{"n":1,"x":0}', deep]):
        with pytest.raises((NotColumnarError, DeserializationError)):
            read(pa.array(cells))


@pytest.mark.parametrize("name", ["[{", "]}", '"[', "\\"])
def test_many_objects_in_a_row_are_not_nested_deeply(name: str) -> None:
    value = {"items": [{"n": number + 0.5, name: "x"} for number in range(600)]}
    column = pa.array([serdes.json.serialize("", value)] * 2)
    found = serdes.json.decode_column(column)
    assert found.to_pylist() == [value, value]
    assert read_fields(pa.array([b'"' + b"[" * 600 + b'"']), frozenset("a")) is None


@pytest.mark.parametrize("fields", [None, {"of"}], ids=["whole", "fields"])
def test_objects_whose_names_are_ids_have_no_column_for_each(fields: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name in one row would be a column of all rows: neither memory nor time is enough for those of a micro-batch."""
    cells = [
        json.dumps({"n": 1, "of": {f"id {row} {number}": number for number in range(8)}}).encode()
        for row in range(1_000)
    ]
    column, make, made = pa.array(cells), pa.array, []

    def array(values: Any, *more: Any) -> Any:
        made.append(values)
        return make(values, *more)

    monkeypatch.setattr(pa, "array", array)
    with pytest.raises(NotColumnarError):
        serdes.json.decode_column(column) if fields is None else serdes.json.decode_fields(column, fields)
    assert made in ([], [[1] * 1_000])


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "\u00e9", ""])
def test_a_field_may_have_any_name(name: str) -> None:
    cells = pa.array([json.dumps({name: 1}).encode(), b"{}"])
    assert serdes.json.decode_fields(cells, {name}).to_pylist() == [{name: 1}, {name: None}]


UNSOUND = st.sampled_from(
    [
        b"{",
        b"}",
        b'"',
        b",",
        b":",
        b"\\",
        b"\\ud83d",
        b"0",
        b"1" * 4_301,
        b"1e400",
        b".",
        b"-",
        b"null",
        b"\0",
        b"\xff",
        b"[" * 200,
    ]
)


@given(
    before=st.binary(max_size=3),
    text=st.text(max_size=4),
    parts=st.lists(UNSOUND, max_size=3),
    place=st.integers(0, 60),
)
@settings(deadline=None, max_examples=examples(400))
def test_fields_are_not_read_of_what_is_no_json(before: bytes, text: str, parts: list[bytes], place: int) -> None:
    """Also where what is wrong is in a field that nobody reads."""
    cell = json.dumps({"o": {"x": [1.5, text]}, "a": 1, "s": text, "i": -7}, ensure_ascii=False).encode()
    cell = cell[:place] + b"".join(parts) + cell[place:]
    try:
        decoded = serdes.json.decode_fields(pa.array([before * (place % 2) + cell]), {"a"})
    except (DeserializationError, NotColumnarError):
        return
    assert decoded.to_pylist() == [{"a": serdes.json.deserialize("t", before * (place % 2) + cell).get("a")}]


TEXTS = st.text(max_size=5) | st.sampled_from(['"', "\\", "\x1f", "\x7f", "é", "null", "\U0001f600", ""])
NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, 1e-4, 9.9e-5, 1e16, 9.9e15, -1e16, 0.1, 3.0])
CELLS: dict[Any, st.SearchStrategy[Any]] = {
    pa.string(): TEXTS,
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.int16(): st.integers(-9, 9),
    pa.uint64(): st.integers(0, (1 << 64) - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): NUMBERS,
    pa.null(): st.none(),
    pa.list_(pa.int64()): st.lists(st.integers(0, 9), max_size=2),
}


@st.composite
def columns(draw: st.DrawFn, levels: int = 2) -> pa.Array:
    """With a slice's offset."""
    kind = draw(st.sampled_from(list(CELLS)))
    names = draw(st.lists(TEXTS, max_size=3, unique=True)) if levels else []
    if names:
        kind = pa.struct([(name, draw(columns(levels - 1)).type) for name in names])

    def cell(kind: pa.DataType) -> st.SearchStrategy[Any]:
        if pa.types.is_struct(kind):
            return st.none() | st.fixed_dictionaries({field.name: cell(field.type) for field in kind})
        return st.none() | CELLS[kind]

    rows = draw(st.lists(cell(kind), max_size=4))
    return pa.array(rows, kind)[draw(st.integers(0, len(rows))) :]


@given(column=columns())
@settings(deadline=None, max_examples=examples(600))
def test_a_column_is_written_as_its_values_are(column: pa.Array) -> None:
    def written(row: Any) -> bytes | None:
        return None if row is None else serdes.json.serialize("t", row)

    try:
        wanted = [written(row) for row in column.to_pylist()]
    except SerializationError:
        with pytest.raises(SerializationError):
            serdes.json.encode_column(column, topic="t")
    else:
        assert serdes.json.encode_column(column, topic="t").to_pylist() == wanted


def test_texts_and_numbers_are_written_as_columns() -> None:
    """That the property above is not only about what `json` writes row by row."""
    rows = [
        {"s": 'a"b', "n": 1, "d": 0.5, "o": {"b": True}},
        None,
        {"s": None, "n": 2, "d": 1e300, "o": None},
    ]
    found = write_column(pa.array(rows))
    assert found.to_pylist() == [None if row is None else serdes.json.serialize("t", row) for row in rows]
    assert write_column(pa.array([[1], [2]])) is None


@pytest.mark.parametrize(
    "cells",
    [
        [b'{"a":1}{"a":2}', b""],
        [b'{"a":{}', b"{}}"],
        [b'{"a":1}{"a":2}', b'{"a":', b"{}}"],
        [b'{"a":"\n"}'],
        [b'{"a":NaN}'],
        [b'{"a":01}'],
        [b'{"a":1},'],
        [b'\xef\xbb\xbf{"a":1}'],
    ],
    ids=str,
)
def test_rows_that_only_look_like_objects_are_refused(cells: list[bytes]) -> None:
    with pytest.raises(DeserializationError) as caught:
        serdes.json.decode_column(pa.array([None, *cells], pa.binary()), topic="flights")
    assert caught.value.row == 1


def test_objects_are_read_by_arrow() -> None:
    cells = [
        b'{"a":1,"t":"2020-01-01","n":null,"o":{"d":0.5}}',
        None,
        b'{"a":2,"t":"2021-01-01","n":1,"o":null}',
    ]
    decoded = serdes.json.decode_column(pa.array(cells, pa.binary()))
    assert pa.types.is_string(decoded.type.field("t").type)
    assert decoded.to_pylist() == [cell and json.loads(cell) for cell in cells]


@pytest.mark.parametrize("first", ["2020-01-01", "no time"])
@pytest.mark.parametrize("last", ["2021-01-01", "never", None, 0.5])
def test_times_in_long_columns_stay_strings(first: str, last: str | float | None) -> None:
    values: list[Any] = [{"t": first, "o": {"u": "2020-01-01"}, "pad": "x" * 50} for _ in range(2_000)]
    values.append({"t": last, "o": {"u": last}, "pad": "2020-01-01"})
    cells = [json.dumps(value).encode() for value in values]
    if isinstance(last, float):
        with pytest.raises(NotColumnarError):
            serdes.json.decode_column(pa.array(cells, pa.binary()))
        return
    decoded = serdes.json.decode_column(pa.array(cells, pa.binary()))
    assert decoded.to_pylist() == values


@pytest.mark.parametrize(
    "cells", [[b'{"a":1}', b'{"b":1}'], [b'{"a":1}', b'{"a":1.0}'], [b"1", b'"x"'], [b"null"]], ids=str
)
def test_values_without_a_common_type_are_not_a_column(cells: list[bytes]) -> None:
    with pytest.raises(NotColumnarError):
        serdes.json.decode_column(pa.array(cells, pa.binary()))


def test_null_cells_that_own_bytes_stay_null() -> None:
    offsets, cells = pa.py_buffer(struct.pack("<4i", 0, 8, 11, 19)), struct.pack(">q3sq", 1, b"???", 2)
    column = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), offsets, pa.py_buffer(cells)])
    assert serdes.long.decode_column(column).to_pylist() == [1, None, 2]


@pytest.mark.parametrize(
    ("serde", "column"),
    [
        (serdes.string, pa.array([1])),
        (serdes.bytes, pa.array(["a"])),
        (serdes.int, pa.array([1 << 31])),
        (serdes.long, pa.array([1.0])),
        (serdes.double, pa.array([(1 << 53) + 1])),
        (serdes.boolean, pa.array([1])),
        (serdes.json, pa.array([math.nan])),
    ],
    ids=str,
)
def test_a_wrong_column_is_refused(serde: Any, column: pa.Array) -> None:
    with pytest.raises(SerializationError, match="flights"):
        serde.encode_column(column, topic="flights")


def test_a_serde_of_a_registry_says_where_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUIRO_REGISTRY", raising=False)
    with pytest.raises(UsageError, match=r"serdes\.avro has no registry: .*schema_registry_url="):
        serdes.avro.deserialize("t", b"\0\0\0\0\1")


def test_a_windows_size_is_checked() -> None:
    with pytest.raises(UsageError, match="size"):
        serdes.time_windowed(serdes.string, -1)
    assert serdes.time_windowed(serdes.string, 10).deserialize("t", struct.pack(">q", (1 << 63) - 1)).end == (
        (1 << 63) - 1
    )
