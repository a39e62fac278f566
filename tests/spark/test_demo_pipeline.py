"""The demo's expressions on plain DataFrames: verdicts, headers, joins that keep the unknown, exact means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from suiro.demo.names import REJECTED, VALIDATED
from suiro.demo.pipeline import REFERENCE_SCHEMAS, delays, enriched, latest, validated

pytestmark = pytest.mark.spark

FLIGHT: dict[str, Any] = {
    "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515, "dep_delay": 2, "arr_time": 830,
    "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR",
    "dest": "IAH", "air_time": 227, "distance": 1400, "hour": 5, "minute": 15, "time_hour": "2013-01-01T10:00:00Z",
}  # fmt: skip
CANCELLED = {"dep_time": None, "dep_delay": None, "arr_time": None, "arr_delay": None, "air_time": None}


def _raw(spark: Any, *values: bytes) -> Any:
    rows = [
        (f"key-{offset}".encode(), value, "flights.raw", 3, 100 + offset)
        for offset, value in enumerate(values)
    ]
    schema = "key binary, value binary, topic string, partition int, offset long"
    return spark.createDataFrame(
        [(bytearray(k), None if v is None else bytearray(v), *r) for k, v, *r in rows], schema
    )


def _json(**changes: Any) -> bytes:
    return json.dumps(FLIGHT | changes).encode()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (_json(), None),
        (_json(**CANCELLED), None),
        (_json(tailnum=None), None),
        (_json(arr_delay=None), "departed, but has no arrival delay"),
        (_json(carrier=None), "a key column is missing: carrier"),
        (_json(flight=None, minute=None), "a key column is missing: flight, minute"),
        (b'{"carrier": "UA"', "the value is not a JSON object of a flight"),
        (b"", "the value is not a JSON object of a flight"),
        (b"\xff\xfe\x00", "the value is not a JSON object of a flight"),
        (b"[1, 2]", "the value is not a JSON object of a flight"),
        (_json(flight="many"), "the value is not a JSON object of a flight"),
        (None, "the value is not a JSON object of a flight"),
        (b"{}", "a key column is missing: carrier, flight, origin, time_hour, minute"),
    ],
)
def test_verdict(spark: Any, value: bytes | None, reason: str | None) -> None:
    (row,) = validated(_raw(spark, value)).collect()  # type: ignore[arg-type]
    assert row.topic == (VALIDATED if reason is None else REJECTED)
    assert bytes(row.key) == b"key-0"
    assert (None if row.value is None else bytes(row.value)) == value, "the bytes stay as they came"
    if reason is None:
        assert row.headers is None
    else:
        headers = {header.key: bytes(header.value).decode() for header in row.headers}
        assert headers == {"reason": reason, "topic": "flights.raw", "partition": "3", "offset": "100"}


def _table(spark: Any, name: str, *rows: dict[str, Any]) -> Any:
    records = [(bytearray(b"k%d" % i), bytearray(json.dumps(row).encode()), i) for i, row in enumerate(rows)]
    return latest(
        spark.createDataFrame(records, "key binary, value binary, offset long"), REFERENCE_SCHEMAS[name]
    )


def test_what_is_not_known_stays_null(spark: Any) -> None:
    plane = {
        "tailnum": "N14228",
        "year": None,
        "type": "t",
        "manufacturer": "BOEING",
        "model": "737",
        "seats": 149,
    }
    airport = {"faa": "IAH", "name": "Houston", "lat": 29.5, "lon": -95.25, "tzone": "America/Chicago"}
    frame = enriched(
        _raw(spark, _json(), _json(carrier="ZZ", dest="BQN", tailnum=None)),
        airlines=_table(spark, "airlines", {"carrier": "UA", "name": "United"}),
        airports=_table(spark, "airports", airport),
        planes=_table(spark, "planes", plane),
    )
    known, unknown = (json.loads(row.value) for row in frame.orderBy("key").collect())
    del airport["faa"], plane["tailnum"]
    assert known == FLIGHT | {"airline": "United", "destination": airport, "plane": plane}
    left = {
        "carrier": "ZZ",
        "dest": "BQN",
        "tailnum": None,
        "airline": None,
        "destination": None,
        "plane": None,
    }
    assert unknown == FLIGHT | left


def test_a_compacted_topic_is_its_last_value_per_key(spark: Any) -> None:
    records = [(b"a", b'{"carrier":"a","name":"old"}', 1), (b"a", b'{"carrier":"a","name":"new"}', 7)]
    records += [(b"b", b'{"carrier":"b","name":"gone"}', 2), (b"b", None, 3)]
    rows = [
        (bytearray(key), None if value is None else bytearray(value), offset)
        for key, value, offset in records
    ]
    frame = latest(
        spark.createDataFrame(rows, "key binary, value binary, offset long"), REFERENCE_SCHEMAS["airlines"]
    )
    # A tombstone at the end takes the key out; `max_by` must not fall back to the value before it.
    assert [tuple(row) for row in frame.collect()] == [("a", "new")]


def test_delays_leave_cancelled_flights_out_of_the_means(spark: Any) -> None:
    values = [_json(dep_delay=1, arr_delay=-2), _json(dep_delay=2, arr_delay=0), _json(**CANCELLED)]
    values += [_json(carrier="AA", **CANCELLED)]
    rows = {bytes(row.key).decode(): json.loads(row.value) for row in delays(_raw(spark, *values)).collect()}
    assert rows == {
        "UA": {"carrier": "UA", "flights": 3, "cancelled": 1, "mean_dep_delay": 1.5, "mean_arr_delay": -1.0},
        "AA": {"carrier": "AA", "flights": 1, "cancelled": 1, "mean_dep_delay": None, "mean_arr_delay": None},
    }
