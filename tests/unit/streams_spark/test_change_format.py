"""A table's changes on their way through a repartition topic, byte for byte as Kafka Streams writes them."""

from __future__ import annotations

from typing import Any

import pytest

from suiro.streams import serdes
from suiro.streams.records import Change
from suiro.streams.serdes.serde import DeserializationError
from suiro.streams_spark.changes import read_changes, write_changes


@pytest.mark.parametrize(
    ("change", "data"),
    [
        (Change("new", None), b"new\x01"),
        (Change(None, "old"), b"old\x00"),
        (Change("new", "old"), b"\x06newold\x02"),
        (Change("", "old"), b"\x00old\x02"),
        (Change("n" * 100, ""), b"\xc8\x01" + b"n" * 100 + b"\x02"),
    ],
)
def test_bytes(change: Change, data: bytes) -> None:
    assert write_changes(serdes.string, [None, change], "t") == ([None, data], {})
    assert read_changes(serdes.string, [data, None], "t") == [change, None]


def test_nothing_on_both_sides_is_no_value() -> None:
    assert write_changes(serdes.string, [Change(None, None)], "t") == ([None], {})


def test_a_change_that_cannot_be_written_is_told_by_its_new_side_first() -> None:
    changes = [Change("a", "b"), Change(1, b"old"), Change("c", 2), Change(None, "d")]
    found, failed = write_changes(serdes.string, changes, "t")
    assert found == [b"\x02ab\x02", None, None, b"d\x00"]
    assert {row: str(error).split(" for ")[0] for row, error in failed.items()} == {
        1: "serde 'string' cannot write a value of type int",
        2: "serde 'string' cannot write a value of type int",
    }


@pytest.mark.parametrize("bad", [b"", b"\x80", b"\xff\x01", b"\x02\xffold\x02", b"\xff\x00"])
def test_a_change_that_cannot_be_read_is_an_error(bad: bytes) -> None:
    good: Any = [b"new\x01", b"\x06newold\x02"]
    with pytest.raises((ValueError, DeserializationError)):
        read_changes(serdes.string, [*good, bad], "t")
