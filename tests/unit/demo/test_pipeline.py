"""The demo's pipeline without Spark: the first flights of 2013 against the figures of `expected`, and odd records."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suiro.demo.dataset import flights, references
from suiro.demo.expected import Expected, expected
from suiro.demo.names import DELAYS, ENRICHED, RAW, REFERENCES, REJECTED, TOPICS, VALIDATED
from suiro.demo.pipeline import build
from suiro.demo.verify import Read, verify
from suiro.streams import StreamsBuilder
from suiro.testing import TopologyTestDriver

LIMIT = 5_000

FLIGHT: dict[str, Any] = {
    "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515, "dep_delay": 2, "arr_time": 830,
    "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR",
    "dest": "IAH", "air_time": 227, "distance": 1400, "hour": 5, "minute": 15, "time_hour": "2013-01-01T10:00:00Z",
}  # fmt: skip
CANCELLED = {"dep_time": None, "dep_delay": None, "arr_time": None, "arr_delay": None, "air_time": None}
NO_JSON = "the value is not a JSON object of a flight"


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build()) as driver:
        yield driver


def _json(**changes: Any) -> bytes:
    return json.dumps(FLIGHT | changes).encode()


def _load(driver: TopologyTestDriver, topic: str, **rows: dict[str, Any] | None) -> None:
    table = driver.create_input_topic(topic)
    for key, row in rows.items():
        table.pipe_input(key, row)


def _feed(driver: TopologyTestDriver, *values: bytes | None) -> None:
    raw = driver.create_input_topic(RAW)
    for offset, value in enumerate(values):
        raw.pipe_raw(b"key-%d" % offset, value)


def _read(driver: TopologyTestDriver, topic: str) -> list[Read]:
    """As a consumer would have them; the test driver's topics have one partition."""
    return [
        Read(
            0,
            offset,
            record.key.decode() if isinstance(record.key, bytes) else record.key,
            record.value if isinstance(record.value, bytes) else json.dumps(record.value).encode(),
            {name: (value or b"").decode() for name, value in record.headers},
        )
        for offset, record in enumerate(driver.create_output_topic(topic).read_records_to_list())
    ]


def test_the_first_flights_come_out_as_the_data_says(driver: TopologyTestDriver) -> None:
    for name in REFERENCES:
        table = driver.create_input_topic(name)
        rows = references(name)
        for key, value in zip(rows.keys, rows.values, strict=True):
            table.pipe_raw(key.encode(), value.encode())
    loaded = flights(limit=LIMIT)
    raw = driver.create_input_topic(RAW)
    found: dict[str, list[Read]] = {RAW: []}
    for offset, (key, value) in enumerate(zip(loaded.keys, loaded.values, strict=True)):
        raw.pipe_raw(key.encode(), value.encode())
        found[RAW].append(Read(0, offset, key, value.encode(), {}))
    found |= {topic: _read(driver, topic) for topic in (VALIDATED, REJECTED, ENRICHED, DELAYS)}
    wanted: Expected = expected(limit=LIMIT)
    verdict = verify(found, wanted)
    assert verdict.differences == ()
    assert verdict.counts.validated == verdict.counts.enriched == wanted.validated_count
    assert verdict.counts.rejected == len(wanted.rejected) > 0
    assert verdict.counts.carriers == len(wanted.carriers) == 15


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (_json(), None),
        (_json(**CANCELLED), None),
        (_json(tailnum=None), None),
        (_json(arr_delay=None), "departed, but has no arrival delay"),
        (_json(carrier=None), "a key column is missing: carrier"),
        (_json(flight=None, minute=None), "a key column is missing: flight, minute"),
        (b'{"carrier": "UA"', NO_JSON),
        (b"", NO_JSON),
        (b"\xff\xfe\x00", NO_JSON),
        (b"[1, 2]", NO_JSON),
        (_json(flight="many"), NO_JSON),
        (_json(flight=1.5), NO_JSON),
        (_json(flight=True), NO_JSON),
        (_json(carrier=7), NO_JSON),
        (None, NO_JSON),
        (b"{}", "a key column is missing: carrier, flight, origin, time_hour, minute"),
    ],
)
def test_verdict(driver: TopologyTestDriver, value: bytes | None, reason: str | None) -> None:
    _feed(driver, _json(), value)
    valid, rejected = (
        driver.create_output_topic(topic).read_records_to_list() for topic in (VALIDATED, REJECTED)
    )
    assert [record.key for record in (valid if reason is None else rejected)][-1] == b"key-1"
    assert len(valid) + len(rejected) == 2
    last = (valid if reason is None else rejected)[-1]
    assert last.value == value, "the bytes stay as they came"
    if reason is None:
        assert last.headers == ()
    else:
        told = {name: (text or b"").decode() for name, text in last.headers}
        assert told == {"reason": reason, "topic": RAW, "partition": "0", "offset": "1"}


def test_what_is_not_known_stays_null(driver: TopologyTestDriver) -> None:
    plane = {"year": None, "type": "t", "manufacturer": "BOEING", "model": "737", "seats": 149}
    airport = {"name": "Houston", "lat": 29.5, "lon": -95.25, "tzone": "America/Chicago"}
    _load(driver, "airlines", UA={"carrier": "UA", "name": "United"})
    _load(driver, "airports", IAH=airport | {"faa": "IAH"})
    _load(driver, "planes", N14228=plane | {"tailnum": "N14228"})
    _feed(driver, _json(), _json(carrier="ZZ", dest="BQN", tailnum=None))
    known, unknown = (record.value for record in driver.create_output_topic(ENRICHED).read_records_to_list())
    assert known == FLIGHT | {"airline": "United", "destination": airport, "plane": plane}
    changed = {"carrier": "ZZ", "dest": "BQN", "tailnum": None}
    assert unknown == FLIGHT | changed | {"airline": None, "destination": None, "plane": None}


def test_a_row_is_its_keys_last_value_and_a_tombstone_takes_it_out(driver: TopologyTestDriver) -> None:
    _load(driver, "airlines", UA={"carrier": "UA", "name": "old"})
    _load(driver, "airlines", UA={"carrier": "UA", "name": "new"})
    _feed(driver, _json())
    _load(driver, "airlines", UA=None)
    _feed(driver, _json())
    enriched = driver.create_output_topic(ENRICHED).read_records_to_list()
    assert [record.value["airline"] for record in enriched] == ["new", None]


def test_delays_leave_cancelled_flights_out_of_the_means(driver: TopologyTestDriver) -> None:
    _feed(driver, _json(dep_delay=1, arr_delay=-2), _json(dep_delay=2, arr_delay=0), _json(**CANCELLED))
    _feed(driver, _json(carrier="AA", **CANCELLED))
    assert driver.create_output_topic(DELAYS).read_key_values_to_map() == {
        "UA": {"carrier": "UA", "flights": 3, "cancelled": 1, "mean_dep_delay": 1.5, "mean_arr_delay": -1.0},
        "AA": {"carrier": "AA", "flights": 1, "cancelled": 1, "mean_dep_delay": None, "mean_arr_delay": None},
    }


def test_it_uses_the_demos_topics_and_no_other() -> None:
    builder = StreamsBuilder()
    build(builder)
    topology = builder.build()
    assert set(topology.source_topics) | set(topology.sink_topics) == set(TOPICS)


def test_the_readme_shows_it_as_it_is() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert inspect.getsource(build) in readme
