"""The kernels against the plain rules: the same bytes for every value, the same error for every wrong one."""

from __future__ import annotations

import datetime
import struct
import uuid
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.postgres_rows import parsed_messages
from support.share import examples

from suiro.connect.postgres.encoding import avro_text, engine
from suiro.connect.postgres.encoding.avro_rows import RowEncoder
from suiro.connect.postgres.encoding.copy_binary import SIGNATURE
from suiro.connect.postgres.encoding.encoded_rows import EncodedRows
from suiro.connect.postgres.encoding.pgoutput import Block, CorruptMessageError, parse
from suiro.connect.postgres.encoding.schemas import Relation
from suiro.connect.postgres.encoding.types import Column, PgType, Rules
from suiro.errors import SuiroError

RULES = Rules(namespace="")
EXAMPLES = settings(max_examples=examples(40), deadline=None)
TYPES = {1007: PgType(oid=1007, schema="pg_catalog", name="_int4", kind="array", element=23)}


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    engine.load(timeout_s=None)


def typmod(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


def float_text(value: float, digits: str) -> bytes:
    return digits.replace("inf", "Infinity").replace("nan", "NaN").encode()


def stamp(moment: datetime.datetime) -> str:
    fraction = f".{moment.microsecond:06}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%m-%d %H:%M:%S}{fraction}"


integers = {bits: st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (16, 32, 64)}
float4s = st.floats(width=32)
years = st.one_of(st.integers(1, 9999), st.integers(1, 294_000))
moments = st.datetimes()
zones = st.sampled_from(["+00", "-08", "+05:30", "+15:59:59", "-00:00:01"])
words = st.sampled_from([b"infinity", b"-infinity"])


def shortest4(value: float) -> bytes:
    """The fewest digits that give this float again, as Postgres writes them."""
    text = str(np.float32(value))
    return float_text(value, text)


@st.composite
def timestamps(draw: st.DrawFn, zoned: bool) -> bytes:
    moment = draw(moments)
    zone = draw(zones) if zoned else ""
    era = draw(st.sampled_from(["", " BC"]))
    year = draw(st.integers(1, 4713)) if era else draw(years)
    if moment.month == 2 and moment.day == 29:
        moment = moment.replace(day=28)
    return f"{year:04}-{stamp(moment)}{zone}{era}".encode()


@st.composite
def decimals(draw: st.DrawFn, precision: int, scale: int) -> bytes:
    value = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    digits = str(abs(value)).zfill(scale + 1)
    point = len(digits) - scale
    return f"{'-' * (value < 0)}{digits[:point]}{'.' * (scale > 0)}{digits[point:]}".encode()


# (oid, typmod, texts as Postgres writes them)
KINDS: list[tuple[int, int, st.SearchStrategy[bytes]]] = [
    (21, -1, integers[16].map(lambda n: str(n).encode())),
    (23, -1, integers[32].map(lambda n: str(n).encode())),
    (20, -1, integers[64].map(lambda n: str(n).encode())),
    (26, -1, st.integers(0, 2**32 - 1).map(lambda n: str(n).encode())),
    (25, -1, st.text(max_size=200).map(str.encode)),
    (16, -1, st.sampled_from([b"t", b"f"])),
    (17, -1, st.binary(max_size=100).map(lambda b: b"\\x" + b.hex().encode())),
    (701, -1, st.floats().map(lambda f: float_text(f, repr(f)))),
    (700, -1, float4s.map(shortest4)),
    (1082, -1, st.one_of(words, moments.map(lambda m: f"{m.year:04}-{m:%m-%d}".encode()))),
    (1083, -1, st.one_of(st.just(b"24:00:00"), moments.map(lambda m: stamp(m)[6:].encode()))),
    (1114, -1, st.one_of(words, timestamps(zoned=False))),
    (1184, -1, st.one_of(words, timestamps(zoned=True))),
    (2950, -1, st.uuids().map(lambda u: str(u).encode())),
    (1700, typmod(10, 2), decimals(10, 2)),
    (1700, typmod(38, 0), decimals(38, 0)),
    (1700, typmod(300, 250), decimals(300, 250)),
    (1700, -1, st.sampled_from([b"NaN", b"1.50", b"-Infinity"])),
    (1007, -1, st.sampled_from([b"{}", b"{1,NULL,-3}", b"[0:1]={5,6}"])),
]  # fmt: skip


def relation_with(kinds: list[tuple[int, int]], key: tuple[int, ...] = (0,), nullable_key: bool = False) -> Relation:
    columns = tuple(Column(name=f"c{n}", type=oid, typmod=mod) for n, (oid, mod) in enumerate(kinds))
    return Relation(oid=9, schema="public", name="t", columns=columns, key=key, nullable_key=nullable_key, types=TYPES)


def tuple_bytes(values: list[Any]) -> bytes:
    out = len(values).to_bytes(2, "big")
    for value in values:
        if value is None:
            out += b"n"
        elif value is ...:
            out += b"u"
        else:
            out += b"t" + len(value).to_bytes(4, "big") + value
    return out


def copy_bytes(row: list[bytes | None]) -> bytes:
    out = len(row).to_bytes(2, "big")
    for value in row:
        out += b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value
    return out


def outcome(work: Callable[[], Any], *, compiled: bool) -> Any:
    with engine.choose(compiled=compiled):
        try:
            return work()
        except (SuiroError, ValueError) as error:
            return type(error), str(error)


def by_both(work: Callable[[], Any], *, faults: int = 1) -> Any:
    """Of several faults in one block the engines may tell different ones: one goes by rows, the other by columns."""
    plain, fast = (outcome(work, compiled=compiled) for compiled in (False, True))
    if faults > 1 and isinstance(plain, tuple) and isinstance(fast, tuple):
        assert fast[0] is plain[0]
    else:
        assert fast == plain
    return plain


def listed(encoded: EncodedRows) -> list[Any]:
    assert encoded.keys.to_pylist() == [encoded.key(n) for n in range(len(encoded))]
    assert encoded.values.to_pylist() == [encoded.value(n) for n in range(len(encoded))]
    return [(int(encoded.sources[n]), encoded.key(n), encoded.value(n)) for n in range(len(encoded))]


def changes(relation: Relation, messages: list[bytes], fill: list[bytes] | None = None) -> Any:
    def work() -> Any:
        parsed = parsed_messages(messages)
        encoder = RowEncoder(relation, RULES, key_schema_id=1, value_schema_id=2**31)
        fills = fill
        if fills is None:
            rows, columns = encoder.unchanged(parsed, np.arange(len(parsed)))
            fills = [b"\x02\x0a%5d" % (row * 100 + column) for row, column in zip(rows, columns, strict=True)]
        return listed(encoder.encode_changes(parsed, np.arange(len(parsed)), fill=fills))

    return by_both(work)


HEAD = b"\0\0\0\x09"


@st.composite
def change(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from("IUUUDX"))
    values = [draw(st.one_of(st.none(), st.just(...), texts) if n else texts) for n, (_, _, texts) in enumerate(KINDS)]
    if kind == "I":
        return b"I" + HEAD + b"N" + tuple_bytes([None if value is ... else value for value in values])
    old_values: list[Any] = [draw(st.one_of(st.none(), texts) if n else texts) for n, (_, _, texts) in enumerate(KINDS)]
    if draw(st.booleans()):
        old_values[0] = values[0]
    is_key_only = draw(st.booleans())
    mark = b"K" if is_key_only else b"O"
    if is_key_only:
        old_values = [value if n == 0 else None for n, value in enumerate(old_values)]
    old = mark + tuple_bytes(old_values)
    if kind == "D":
        return b"D" + HEAD + old
    return b"U" + HEAD + (old if kind == "X" else b"") + b"N" + tuple_bytes(values)


@EXAMPLES
@given(st.lists(change(), max_size=4))
def test_changes(messages: list[bytes]) -> None:
    found = changes(relation_with([(oid, mod) for oid, mod, _ in KINDS]), messages)
    assert isinstance(found, list)


@settings(max_examples=examples(25), deadline=None)  # each of all types
@given(st.data())
def test_any_bytes_as_any_value(data: st.DataObject) -> None:
    """A value that is none of its type is written by neither, or by both alike."""
    alphabet = b"0123456789-+.:e ntfNaINFiyBC\\x{},T"
    for oid, mod, texts in KINDS:
        text = bytearray(data.draw(st.one_of(texts, st.lists(st.sampled_from(alphabet), max_size=24).map(bytes))))
        for _ in range(data.draw(st.integers(0, 2))):
            if text:
                text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.sampled_from(alphabet))
        message = b"I" + HEAD + b"N" + tuple_bytes([bytes(text)])
        changes(relation_with([(oid, mod)]), [message])


BINARY: list[tuple[int, st.SearchStrategy[bytes]]] = [
    (21, integers[16].map(lambda n: struct.pack(">h", n))),
    (23, integers[32].map(lambda n: struct.pack(">i", n))),
    (20, integers[64].map(lambda n: struct.pack(">q", n))),
    (26, st.integers(0, 2**32 - 1).map(lambda n: struct.pack(">I", n))),
    (25, st.text(max_size=50).map(str.encode)),
    (16, st.sampled_from([b"\0", b"\1"])),
    (17, st.binary(max_size=50)),
    (701, st.floats().map(lambda f: struct.pack(">d", f))),
    (700, float4s.map(lambda f: struct.pack(">f", f))),
    (1082, integers[32].map(lambda n: struct.pack(">i", n % 2_000_000_000))),
    (1083, st.integers(0, 86_400_000_000).map(lambda n: struct.pack(">q", n))),
    (1114, integers[64].map(lambda n: struct.pack(">q", n))),
    (1184, st.sampled_from([2**63 - 1, -(2**63), 0, 2**63 - 2]).map(lambda n: struct.pack(">q", n))),
    (2950, st.uuids().map(lambda u: u.bytes)),
    (1007, st.sampled_from([b"{}", b"{7}"])),
]


@EXAMPLES
@given(
    st.lists(st.tuples(*(st.one_of(st.none(), made) if n else made for n, (_, made) in enumerate(BINARY)))),
    st.data(),
)
def test_copy(rows: list[tuple[bytes | None, ...]], data: st.DataObject) -> None:
    relation = relation_with([(oid, -1) for oid, _ in BINARY])
    block = bytearray(b"".join(copy_bytes(list(row)) for row in rows))
    if data.draw(st.booleans()):
        block = bytearray(SIGNATURE + bytes(8)) + block + b"\xff\xff"
    damage = data.draw(st.sampled_from(["none", "none", "cut", "change"]))
    if damage == "cut" and block:
        del block[data.draw(st.integers(0, len(block) - 1)) :]
    if damage == "change" and block:
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))

    def work() -> Any:
        encoder = RowEncoder(relation, RULES, key_schema_id=1, value_schema_id=2)
        return listed(encoder.encode_copy(bytes(block)))

    by_both(work, faults=2 if damage == "change" else 1)  # a changed byte can be many values' fault


def facts(messages: list[bytes]) -> Any:
    def work() -> Any:
        parsed = parsed_messages(messages)
        return [getattr(parsed, field.name).tolist() for field in fields(parsed)]

    return by_both(work)


names = st.sampled_from([b"public\0", b"t\0", b"\0"])
xids = st.integers(0, 2**32 - 1).map(lambda n: struct.pack(">I", n))
longs = st.integers(-(2**63), 2**63 - 1).map(lambda n: struct.pack(">q", n))
tuples = st.lists(st.sampled_from([None, ..., b"", b"12"]), max_size=3).map(tuple_bytes)
plain = st.one_of(
    st.tuples(st.just(b"B"), longs, longs, xids),
    st.tuples(st.just(b"C"), st.just(b"\0"), longs, longs, longs),
    st.tuples(st.just(b"O"), longs, names),
    st.tuples(st.just(b"M"), st.just(b"\0"), longs, names, st.just(b"\0\0\0\2hi")),
    st.tuples(st.just(b"T"), st.just(b"\0\0\0\1\0\0\0\0\x09")),
    st.tuples(st.just(b"A"), xids, xids),
    st.tuples(st.just(b"I"), xids, st.just(b"N"), tuples),
    st.tuples(st.just(b"U"), xids, st.sampled_from([b"K", b"O"]), tuples, st.just(b"N"), tuples),
    st.tuples(st.just(b"U"), xids, st.just(b"N"), tuples),
    st.tuples(st.just(b"D"), xids, st.sampled_from([b"K", b"O", b"N"]), tuples),
).map(b"".join)


@EXAMPLES
@given(st.lists(plain, max_size=6), st.data())
def test_facts_of_messages(messages: list[bytes], data: st.DataObject) -> None:
    facts(messages)
    if messages and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(messages) - 1))
        torn = bytearray(messages[at])
        if data.draw(st.booleans()):
            del torn[data.draw(st.integers(0, len(torn) - 1)) :]
        else:
            torn[data.draw(st.integers(0, len(torn) - 1))] = data.draw(st.integers(0, 255))
        messages[at] = bytes(torn)
        facts(messages)


@settings(max_examples=examples(120), deadline=None)
@given(st.floats(allow_nan=False), st.integers(1, 19))
def test_doubles_are_the_nearest(value: float, digits: int) -> None:
    for text in (repr(value), f"{value:.{digits}e}", f"{value:.{digits}g}"):
        written = float_text(value, text)
        found = changes(relation_with([(701, -1)]), [b"I" + HEAD + b"N" + tuple_bytes([written])])
        if isinstance(found, list):
            assert found[0][2][6:] == struct.pack("<d", float(text))


@settings(max_examples=examples(120), deadline=None)
@given(float4s, st.integers(1, 17))
def test_floats_are_the_nearest(value: float, digits: int) -> None:
    found = changes(relation_with([(700, -1)]), [b"I" + HEAD + b"N" + tuple_bytes([shortest4(value)])])
    wanted = struct.pack("<f", value)
    assert found[0][2][6:] == wanted or value != value
    changes(
        relation_with([(700, -1)]),
        [b"I" + HEAD + b"N" + tuple_bytes([float_text(value, f"{value:.{digits}e}")])],
    )


def test_a_number_half_way_between_two_floats_is_rounded_once() -> None:
    # 1 + 2**-24 lies half way; a little more in decimal digits vanishes in a double.
    text = b"1.000000059604644775390625000000000001"
    assert avro_text.float_(text) == struct.pack("<f", 1 + 2**-23)
    (record,) = changes(relation_with([(700, -1)]), [b"I" + HEAD + b"N" + tuple_bytes([text])])
    assert record[2][6:] == struct.pack("<f", 1 + 2**-23)


def test_a_changed_key_leaves_a_tombstone_at_the_old_one() -> None:
    relation = relation_with([(23, -1), (25, -1)])
    update = b"U" + HEAD + b"K" + tuple_bytes([b"1", None]) + b"N" + tuple_bytes([b"2", b"x"])
    head = b"\0\0\0\0\1"
    assert changes(relation, [update]) == [
        (0, head + b"\x02", None),
        (0, head + b"\x04", b"\0\x80\0\0\0\x02\x04\x02\x02x"),
    ]


def test_an_untouched_value_comes_from_the_old_tuple_or_the_caller_or_fails() -> None:
    relation = relation_with([(23, -1), (25, -1)])
    bare = b"U" + HEAD + b"N" + tuple_bytes([b"1", ...])
    full = b"U" + HEAD + b"O" + tuple_bytes([b"1", b"old"]) + b"N" + tuple_bytes([b"1", ...])
    found = changes(relation, [full, bare], [b"\x02\x06top"])
    assert [value[5:] for _, _, value in found] == [b"\x02\x02\x02\x06old", b"\x02\x02\x02\x06top"]
    kind, message = changes(relation, [full, bare], [])
    assert kind.__name__ == "MissingValueError"
    assert "public.t (c1)" in message


def test_a_key_kept_out_of_line_comes_from_the_old_key() -> None:
    """Postgres sends the old key of a row whose key is stored out of line, and no new one."""
    relation = relation_with([(25, -1), (23, -1)])
    update = b"U" + HEAD + b"K" + tuple_bytes([b"long", None]) + b"N" + tuple_bytes([..., b"5"])
    assert changes(relation, [update], []) == [(0, b"\0\0\0\0\1\x08long", b"\0\x80\0\0\0\x02\x08long\x02\x0a")]


@pytest.mark.parametrize(
    ("kinds", "values", "says"),
    [
        ([(23, -1)], [b"1x"], "public.t.c0 of type integer holds '1x': it is not an integer of 32 bits"),
        ([(1700, typmod(5, 2))], [b"NaN"], "an Avro decimal cannot hold NaN or infinity"),
        ([(1700, typmod(5, 2))], [b"1000.00"], "more than the declared 5 digits"),
        ([(1184, -1)], [b"294247-01-10 04:00:55+00"], "after 294247-01-10 04:00:54"),
        ([(23, -1)], [None], "public.t.c0 is part of the key and null"),
        ([(23, -1)], [b"1", b"2"], "a row with 2 columns for public.t, which has 1"),
        ([(1007, -1)], [b"{{1},{2}}"], "it has not 1 dimension, as its column is declared with"),
    ],
)
def test_errors_name_the_column_and_the_way_out(kinds: Any, values: list[Any], says: str) -> None:
    _, message = changes(relation_with(kinds), [b"I" + HEAD + b"N" + tuple_bytes(values)])
    assert says in message
    if "holds" in message:
        assert "as_text = public.t.c0" in message


def test_a_key_of_the_whole_row_may_hold_nulls() -> None:
    relation = relation_with([(23, -1), (25, -1)], key=(0, 1), nullable_key=True)
    delete = b"D" + HEAD + b"O" + tuple_bytes([None, b"x"])
    assert changes(relation, [delete]) == [(0, b"\0\0\0\0\1\0\x02\x02x", None)]


def test_many_rows_with_hard_values_among_them() -> None:
    relation = relation_with([(23, -1), (701, -1), (20, -1)])
    messages = [
        b"I" + HEAD + b"N" + tuple_bytes([str(n).encode(), b"5e-324" if n % 3 else b"1.5", str(-(2**63)).encode()])
        for n in range(500)
    ]
    found = changes(relation, messages)
    assert len(found) == 500


def test_places_outside_the_buffer_are_refused() -> None:
    with pytest.raises(CorruptMessageError, match="outside the buffer"):
        parse(Block(buffer=b"abc", starts=np.array([0]), ends=np.array([4]), lsns=np.array([0])))


def test_uuid_of_copy_and_of_pgoutput() -> None:
    value = uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
    relation = relation_with([(2950, -1)])
    encoder = RowEncoder(relation, RULES, key_schema_id=1, value_schema_id=2**31)
    copied = by_both(lambda: listed(encoder.encode_copy(copy_bytes([value.bytes]))))
    assert copied == changes(relation, [b"I" + HEAD + b"N" + tuple_bytes([str(value).encode()])])


def test_every_nan_of_copy_is_that_of_pgoutput() -> None:
    """Postgres computes some with a sign, and a row may be its own key."""
    relation = relation_with([(701, -1), (700, -1)], key=(0, 1), nullable_key=True)
    encoder = RowEncoder(relation, RULES, key_schema_id=1, value_schema_id=2**31)
    streamed = changes(relation, [b"I" + HEAD + b"N" + tuple_bytes([b"NaN", b"NaN"])])
    for wide, narrow in [
        ("7ff8000000000000", "7fc00000"),
        ("fff8000000000000", "ffc00000"),
        ("7ff0000000000001", "ff800001"),
    ]:
        row = copy_bytes([bytes.fromhex(wide), bytes.fromhex(narrow)])
        assert by_both(lambda row=row: listed(encoder.encode_copy(row))) == streamed
    infinite = copy_bytes([bytes.fromhex("fff0000000000000"), bytes.fromhex("7f800000")])
    assert by_both(lambda: listed(encoder.encode_copy(infinite))) == changes(
        relation, [b"I" + HEAD + b"N" + tuple_bytes([b"-Infinity", b"Infinity"])]
    )


def test_messages_are_looked_at_one_by_one() -> None:
    parsed = parsed_messages([b"I" + HEAD + b"N" + tuple_bytes([b"1", None, ...])])
    assert parsed.values(0) == [b"1", None, ...]
    assert parsed.values(0, old=True) is None
