"""A serde over a block gives what it gives for one value after the other, and tells each row that fails."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suiro.errors import ConfigError, RegistryError
from suiro.streams import serdes
from suiro.streams.records import Windowed
from suiro.streams.serdes import Serde, decode_block, decode_rows, encode_block, encode_rows

SERDES: list[Any] = [
    serdes.bytes,
    serdes.string,
    serdes.int,
    serdes.long,
    serdes.double,
    serdes.boolean,
    serdes.json,
    serdes.natural,
    serdes.tagged,
    serdes.time_windowed(serdes.string, 10),
    serdes.session_windowed(serdes.long),
    serdes.time_windowed(serdes.json, 10),
]


class Text(str):
    pass


class Number(int):
    pass


PLAIN: list[Any] = [None, b"x", "x", "é", 7, -1, 1 << 31, 1 << 63, 1.5, True, False, {"a": 1}, [1, None], {}]
OTHERS: list[Any] = [
    *(Text("t"), Number(3), "\ud800", bytearray(b"x"), float("nan"), 1e16, (1, 2), {1: 2}, {"a": b"x"}, {1}),
    *([{"a": (1,)}], [1 << 70], Decimal("1.5"), date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), object),
    *(
        Windowed("k", 1, 11),
        Windowed(7, 1, 11),
        Windowed(None, 1, 2),
        Windowed("k", 1 << 63, 2),
        [[1.5], "x"],
    ),
]
VALUES = (
    st.lists(st.sampled_from(PLAIN), max_size=6)
    | st.lists(st.sampled_from(PLAIN + OTHERS), max_size=6)
    | st.sampled_from(PLAIN).flatmap(lambda one: st.lists(st.just(one) | st.none(), max_size=4))
    | st.lists(st.builds(Windowed, st.sampled_from(["k", 7]), st.integers(0, 99), st.integers(0, 99)), max_size=4)
)  # fmt: skip
DATA = st.none() | st.binary(max_size=20) | st.sampled_from([b"0", b"{}", b'"x"', b"\0" * 8, b"jnull", b"s\xff"])


def one_by_one(one: Any, items: list[Any]) -> tuple[list[Any], list[tuple[int, str]]]:
    found, failed = [], []
    for row, item in enumerate(items):
        made = None
        if item is not None:
            try:
                made = one("t", item)
            except Exception as error:
                failed.append((row, f"{type(error).__name__}: {error}"))
        found.append(made)
    return found, failed


def told(rows: tuple[list[Any], dict[int, Exception]]) -> tuple[str, list[tuple[int, str]]]:
    found, failed = rows
    return repr(found), [(row, f"{type(error).__name__}: {error}") for row, error in failed.items()]


@pytest.mark.parametrize("serde", SERDES, ids=lambda serde: serde.name)
@given(values=VALUES, data=st.lists(DATA, max_size=6))
@settings(max_examples=150)
def test_a_block_is_its_values(serde: Serde, values: list[Any], data: list[bytes | None]) -> None:
    wanted, failed = one_by_one(serde.serialize, values)
    assert told(encode_rows(serde, values, "t")) == (repr(wanted), failed)
    written = [item for item in wanted if item is not None]
    for items in (data, written, [*written, *data]):
        wanted, failed = one_by_one(serde.deserialize, items)
        assert told(decode_rows(serde, items, "t")) == (repr(wanted), failed)


@pytest.mark.parametrize("serde", [*SERDES[:7], serdes.tagged, SERDES[9]], ids=lambda serde: serde.name)
def test_what_was_written_is_read(serde: Serde) -> None:
    values = {
        "bytes": b"x",
        "string": "é",
        "double": 0.5,
        "boolean": False,
        "json": {"a": [1, "é", None, 2.5]},
        "tagged": {"a": [1, "é", None, 2.5]},
        "time_windowed(string, 10)": Windowed("k", 3, 13),
    }
    block = [values.get(serde.name, 17), None] * 300
    assert decode_block(serde, encode_block(serde, block, "t"), "t") == block


def test_the_error_is_that_of_the_first_row_that_fails() -> None:
    with pytest.raises(serdes.DeserializationError, match="takes 8 bytes, not 3"):
        decode_block(serdes.long, [struct.pack(">q", 1), b"abc", b"d"], "t")
    with pytest.raises(serdes.SerializationError, match="type str"):
        encode_block(serdes.long, [1, "x", None, 1.5], "t")


class Down:
    """Its registry does not answer."""

    name = "down"

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, 0

    def serialize(self, topic: str, value: Any) -> bytes:
        self.asked += 1
        raise self.error

    def deserialize(self, topic: str, data: bytes) -> Any:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize(
    "error",
    [RegistryError("it does not answer", 503, 50301), ConfigError("none was named")],
    ids=["down", "unnamed"],
)
def test_a_registry_that_is_down_is_no_values_fault(error: Exception) -> None:
    serde = Down(error)
    with pytest.raises(type(error)):
        decode_rows(serde, [b"1", b"2"], "t")
    with pytest.raises(type(error)):
        encode_rows(serde, [1, 2], "t")
    assert serde.asked == 2
