"""On columns the prefilter lets through what it lets through one by one, whatever the records hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suiro.lineage import InputRecord, KeyPrefilter
from suiro.streams import KStream, StreamsBuilder, col, record_key, serdes, struct

GATE = "gate"
WAYS: dict[str, Callable[[KStream], KStream]] = {
    "a field": lambda rows: rows.select_key(col("carrier")),
    "the key": lambda rows: rows.map_values(struct(n=col("n") + 1)),
    "filtered": lambda rows: rows.filter(col("n") > 3).select_key(col("carrier")),
    "changed first": lambda rows: rows.map_values(struct(carrier=col("other"))).select_key(col("carrier")),
    "of the key": lambda rows: rows.select_key(record_key() + col("carrier")),
    "a function": lambda rows: rows.select_key(lambda key, row: row["carrier"]),
}
sound = st.fixed_dictionaries({
    "carrier": st.sampled_from(["AA", "UA", "9E", "ä"]) | st.none(),
    "other": st.sampled_from(["AA", "UA"]),
    "n": st.integers(0, 9),
})  # fmt: skip
row_bytes = sound.map(lambda row: json.dumps(row).encode())
odd_bytes = st.sampled_from([b"{", b"[1]", b"{}", b'{"carrier":5,"n":"x"}', b'{"carrier":{"a":1},"n":9}', None])
key_bytes = st.sampled_from([b"AA", b"b", b"\xff", None])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("odd", [True, False], ids=["odd records", "sound records"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_columns_and_one_by_one_agree(way: str, odd: bool, data: Any) -> None:
    values = data.draw(st.lists(st.one_of(row_bytes, odd_bytes) if odd else row_bytes, max_size=30))
    records = [InputRecord("in", 0, offset, offset, data.draw(key_bytes), value) for offset, value in enumerate(values)]
    prefilter = made(way)
    checked = list(prefilter.filtered(records))
    assert [passes for _, passes, _ in checked] == [prefilter.passes(record) for record in records]
    for record, passes, decoded in checked:
        if decoded is not None:
            assert passes
            assert decoded == (_decoded(serdes.string, record.key), _decoded(serdes.json, record.value))


@pytest.mark.parametrize("way", WAYS)
def test_what_is_of_another_key_is_left_out(way: str) -> None:
    def record(offset: int, carrier: str) -> InputRecord:
        value = json.dumps({"carrier": carrier, "other": carrier, "n": 5}).encode()
        key = b"" if way == "of the key" else carrier.encode()
        return InputRecord("in", 0, offset, offset, key, value)

    records = [record(offset, carrier) for offset, carrier in enumerate(["AA", "UA", "AA", "9E"])]
    checked = list(made(way).filtered(records))
    assert [passes for _, passes, _ in checked] == [True, False, True, False]
    for one, passes, decoded in checked:
        assert one.key is not None
        assert one.value is not None
        assert decoded == ((one.key.decode(), json.loads(one.value)) if passes else None)


def test_records_are_read_one_by_one_where_one_of_them_cannot_be_read() -> None:
    values = b'{"carrier":"AA","n":5}', b"{"
    records = [InputRecord("in", 0, offset, offset, b"AA", value) for offset, value in enumerate(values)]
    checked = made("a function").filtered(records)
    assert [(passes, decoded) for _, passes, decoded in checked] == [(True, None), (True, None)]


def _decoded(serde: Any, data: bytes | None) -> Any:
    return None if data is None else serde.deserialize("in", data)


def made(way: str) -> KeyPrefilter:
    builder = StreamsBuilder()
    rows = WAYS[way](builder.stream("in", key=serdes.string, value=serdes.json))
    rows.map_values(struct(n=col("n")), name=GATE).to("out", key=serdes.string, value=serdes.json)
    return KeyPrefilter(builder.build(), {GATE}, lambda key: key == "AA")
