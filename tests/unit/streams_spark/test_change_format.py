"""A table's changes on their way through a repartition topic, byte for byte as Kafka Streams writes them."""

from __future__ import annotations

import pytest

from suiro.streams import serdes
from suiro.streams.records import Change
from suiro.streams_spark.changes import read_change, write_change


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
    assert write_change(serdes.string, "t", change) == data
    assert read_change(serdes.string, "t", data) == change


def test_nothing_on_both_sides_is_no_value() -> None:
    assert write_change(serdes.string, "t", Change(None, None)) is None
