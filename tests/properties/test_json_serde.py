"""JSON is written and read as the standard library's `json` does it: keys and state are found by their bytes."""

from __future__ import annotations

import enum
import json
import math
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.share import examples

from suiro.foundation.nesting import MAX_NESTING
from suiro.streams import serdes
from suiro.streams.serdes import decode_rows, encode_rows
from suiro.streams.serdes.json_text import are_exact, read_json

WRITER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


READER = json.JSONDecoder(parse_constant=refuse)


class Text(str):
    pass


class Number(int):
    pass


class Real(float):
    def __repr__(self) -> str:
        return "1.5"


class Colour(str, enum.Enum):  # noqa: UP042
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Plain(enum.Enum):
    ONE = 1


@dataclass
class Point:
    x: int


class Odd(dict[str, Any]):
    pass


EDGES = [1e16, 9999999999999998.0, 1e20, -1e16, 1e-4, 9.999e-05, 1e-5, -0.0, 5e-324, 1.7976931348623157e308]
FLOATS = st.floats() | st.sampled_from(EDGES) | st.floats(1e-4, 1e16) | st.decimals(-9999, 9999, places=3).map(float)
TEXTS = st.text() | st.sampled_from(["\ud800", "\x7f\x1f\0\u2028", '"\\/', "é", "\uffff", "\U00010000"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([1 << 63, 1 << 64, -(1 << 63) - 1, 10**30])
    | FLOATS
    | TEXTS
)
HOSTILE = st.sampled_from(
    [
        *(Text("t"), Number(3), Real(2.5), Colour.RED, Size.SMALL, Plain.ONE, Point(1), Odd(a=1), ...),
        *(OrderedDict(b=1, a=2), b"x", bytearray(b"x"), {1, 2}, frozenset(), (1, "2"), range(3), 1j),
        *(uuid.UUID(int=1), Decimal("1.5"), datetime(2024, 1, 1, tzinfo=UTC)),
    ]
)
KEYS = TEXTS | st.sampled_from([1, 2.5, None, True, Text("k"), Colour.RED, 10, 9, (1,)])


def nested(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


SOUND = nested(LEAVES, st.text(max_size=4))
ANY = SOUND | nested(LEAVES | HOSTILE, KEYS)


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (ValueError, TypeError, RecursionError):
        return None


@given(st.lists(ANY.filter(lambda it: it is not None), max_size=5))
@settings(max_examples=examples(700))
def test_a_block_has_the_bytes_of_the_standard_library(values: list[Any]) -> None:
    found, failed = encode_rows(serdes.json, values, "t")
    wanted = [outcome(lambda: WRITER.encode(value).encode()) for value in values]  # noqa: B023
    assert found == wanted
    assert list(failed) == [row for row, data in enumerate(wanted) if data is None]
    assert all(isinstance(error, serdes.SerializationError) for error in failed.values())


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=1_000)
def test_a_float_has_the_bytes_of_the_standard_library(number: float) -> None:
    assert encode_rows(serdes.json, [number, [number]], "t") == (
        [repr(number).encode(), f"[{number!r}]".encode()],
        {},
    )


@given(st.lists(SOUND, max_size=4).map(tuple) | SOUND, st.booleans(), st.booleans())
@settings(max_examples=examples(700))
def test_what_was_written_is_read_as_by_the_standard_library(value: Any, ascii_only: bool, wide: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1 if wide else None)
    same_reading(text.encode(errors="surrogatepass"))


TOKENS = st.sampled_from(
    [
        *(b"{", b"}", b"[", b"]", b",", b":", b'"', b'"a"', b'"a":', b"1", b"-", b".5", b"e", b"E+400", b"0"),
        *(
            b"null",
            b"true",
            b"NaN",
            b"Infinity",
            b" ",
            b"\n",
            b"\t",
            b"\xff",
            b"\xef\xbb\xbf",
            b"\\u",
            b"d800",
        ),
        *(b"\\", b"\0", b"18446744073709551616", b"0.1", b"-0", b"-0.0", b"1e16", b"00", b'{"a":1,"a":2}'),
        *(b'"\\ud83d\\ude00"', b'"\\ud800"'),
    ]
)


@given(st.lists(TOKENS, max_size=8).map(b"".join) | st.binary(max_size=12))
@settings(max_examples=1_000)
def test_damaged_json_is_read_as_by_the_standard_library(data: bytes) -> None:
    same_reading(data)


@given(st.from_regex(rb"\A-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?\Z"))
@settings(max_examples=1_000)
def test_a_number_is_read_as_by_the_standard_library(data: bytes) -> None:
    same_reading(data)


def same_reading(data: bytes) -> None:
    wanted = outcome(lambda: ("read", READER.decode(data.decode())))
    found = outcome(lambda: ("read", read_json(data)))
    assert repr(found) == repr(wanted)


@pytest.mark.parametrize("write", ["[{}]", '{{"a":{}}}'])
@pytest.mark.parametrize("serde", [serdes.json, serdes.tagged], ids=lambda serde: serde.name)
def test_the_limit_of_nesting_is_the_same_in_both_directions(serde: Any, write: str) -> None:
    text, value = "1", 1
    make: Any = (lambda inner: [inner]) if write == "[{}]" else (lambda inner: {"a": inner})
    for _ in range(MAX_NESTING):
        text, value = write.format(text), make(value)
    before = b"j" if serde is serdes.tagged else b""
    sound = before + text.encode()
    assert serde.serialize("t", value) == sound
    assert encode_rows(serde, [value], "t") == ([sound], {})
    assert serde.deserialize("t", sound) == value
    with pytest.raises(serdes.SerializationError, match=f"deeper than {MAX_NESTING} levels"):
        serde.serialize("t", make(value))
    for levels in (1, 100_000):
        deeper = before + b"[" * levels + text.encode() + b"]" * levels
        with pytest.raises(serdes.DeserializationError, match=f"deeper than {MAX_NESTING} levels"):
            serde.deserialize("t", deeper)
        found, failed = decode_rows(serde, [sound, deeper, sound], "t")
        assert (found, list(failed)) == ([value, None, value], [1])


def test_a_value_that_holds_itself_is_refused_at_once() -> None:
    itself: list[Any] = []
    itself += [itself] * 50
    found, failed = encode_rows(serdes.json, [{"a": 1}, itself, {"b": 2}], "t")
    assert found == [b'{"a":1}', None, b'{"b":2}']
    assert "Circular" in str(failed[1])


def test_an_int_of_too_many_digits_is_refused() -> None:
    found, failed = encode_rows(serdes.json, [1, 10**5000, 10**4000], "t")
    assert found == [b"1", None, str(10**4000).encode()]
    assert "4300 digits" in str(failed[1])


def test_ordinary_values_are_exact() -> None:
    """Else nothing here has met the fast writer."""
    ordinary = {"id": 7, "price": 12.5, "tags": ["a", None, True], "at": {"lat": -0.0, "of": 1 << 70}}
    assert are_exact([ordinary, [1], "x", None])
    for other in (1e16, math.nan, Size.SMALL, (1,), {1: 2}, {Text("k"): 1}, Odd(), uuid.UUID(int=1), b""):
        assert not are_exact([ordinary, {"a": [other]}])
