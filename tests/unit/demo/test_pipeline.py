"""The demo's pipeline without Spark: the first flights of 2013 against the figures of `expected`, and odd rows."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from suiro.demo.dataset import REFERENCES, flights, references, write_weather
from suiro.demo.expected import Expected, expected
from suiro.demo.names import (
    AIRLINES,
    AIRPORTS,
    ALERTS,
    CAPTURED,
    DELAYS,
    ENRICHED,
    PLANES,
    PREFIX,
    RAW,
    REJECTED,
    TOPICS,
    VALIDATED,
    WEATHER,
    WEATHER_REJECTED,
)
from suiro.demo.pipeline import FLIGHT, FLIGHT_KEY, build, flight_id
from suiro.demo.reading import Read
from suiro.demo.verify import Noted, verify
from suiro.streams import StreamsBuilder, serdes
from suiro.testing import TopologyTestDriver

LIMIT = 2_500

Row = dict[str, Any]

TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)
FLIGHT_ROW: Row = {
    "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515, "dep_delay": 2, "arr_time": 830,
    "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR",
    "dest": "IAH", "air_time": 227, "distance": 1400, "hour": 5, "minute": 15, "time_hour": TEN,
}  # fmt: skip
CANCELLED = {"dep_time": None, "dep_delay": None, "arr_time": None, "arr_delay": None, "air_time": None}
KEY = [field["name"] for field in FLIGHT_KEY["fields"]]
ENRICHED_WITH = {"airline": None, "destination": None, "plane": None, "weather": None}


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build()) as driver:
        yield driver


def _capture(driver: TopologyTestDriver, topic: str, key: str, rows: list[Row]) -> None:
    """As capture writes a table of texts and numbers."""
    kinds: dict[type, str] = {int: "int", float: "double", str: "string"}
    names = {name: next((kinds[type(row[name])] for row in rows if row[name] is not None), "int") for name in rows[0]}
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in names.items()]
    common = {"type": "record", "namespace": topic}
    value = {**common, "name": "Value", "fields": fields}
    keys = {**common, "name": "Key", "fields": [{"name": key, "type": "string"}]}
    table = driver.create_input_topic(topic, key=serdes.avro.with_(schema=keys), value=serdes.avro.with_(schema=value))
    for row in rows:
        table.pipe_input({key: row[key]}, row)


def _feed(driver: TopologyTestDriver, *rows: Row) -> None:
    raw = driver.create_input_topic(
        RAW, key=serdes.avro.with_(schema=FLIGHT_KEY), value=serdes.avro.with_(schema=FLIGHT)
    )
    for row in rows:
        raw.pipe_input({name: row[name] for name in KEY}, row)


def _read(driver: TopologyTestDriver, topic: str) -> list[Read]:
    """As the check reads them; the test driver's topics have one partition."""
    found = []
    for offset, record in enumerate(driver.create_output_topic(topic).read_records_to_list()):
        key, value = record.key, record.value
        if isinstance(key, dict):
            key, value = flight_id(key), value | {"time_hour": f"{value['time_hour']:%Y-%m-%dT%H:%M:%SZ}"}
        headers = {name: (text or b"").decode() for name, text in record.headers}
        found.append(Read(0, offset, key, value, headers))
    return found


def test_the_first_flights_come_out_as_the_data_says(driver: TopologyTestDriver, tmp_path: Path) -> None:
    found: dict[str, list[Read]] = {WEATHER_REJECTED: []}
    for name in REFERENCES:
        rows = references(name).to_pylist()
        topic, key = f"{PREFIX}.public.{name}", references(name).column_names[0]
        _capture(driver, topic, key, rows)
        found[topic] = [Read(0, offset, row[key], row, {}) for offset, row in enumerate(rows)]
    found[WEATHER] = _load_weather(driver, tmp_path)
    loaded = flights(limit=LIMIT).to_pylist()
    _feed(driver, *loaded)
    found[RAW] = [
        Read(0, offset, flight_id(row), row | {"time_hour": f"{row['time_hour']:%Y-%m-%dT%H:%M:%SZ}"}, {})
        for offset, row in enumerate(loaded)
    ]
    found |= {topic: _read(driver, topic) for topic in (VALIDATED, REJECTED, ENRICHED, DELAYS, ALERTS)}
    delivered = {f"{ALERTS}-0-{record.offset}": {"value": record.value} for record in found[ALERTS]}
    wanted: Expected = expected(limit=LIMIT)
    noted = Noted(wanted)
    for topic, records in found.items():
        for record in records:
            noted.note(topic, record)
    counts, differences = verify(noted, delivered)
    assert differences == []
    assert counts["validated"] == counts["enriched"] == wanted.totals[VALIDATED]
    assert counts["rejected"] == len(wanted.rejected) > 0
    assert counts["carriers"] == len(wanted.carriers) == 15
    assert counts["alerts"] == len(wanted.alerts) > 0


def _load_weather(driver: TopologyTestDriver, folder: Path) -> list[Read]:
    """As the files source reads it."""
    write_weather(folder)
    topic = driver.create_input_topic(WEATHER, key=serdes.string, value=serdes.json)
    found = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                key = f'["{row["origin"]}","{row["time_hour"]}"]'
                value: Row = {name: None if text in ("", "NA") else text for name, text in row.items()}
                for name in ("temp", "wind_speed", "precip", "visib"):
                    value[name] = None if value[name] is None else float(value[name])
                if path.name.endswith("-01.csv"):
                    topic.pipe_input(key, value)
                found.append(Read(0, len(found), key, value, {}))
    return found


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (FLIGHT_ROW, None),
        (FLIGHT_ROW | CANCELLED, None),
        (FLIGHT_ROW | {"tailnum": None}, None),
        (FLIGHT_ROW | {"arr_delay": None}, "departed, but has no arrival delay"),
        (None, "the row was deleted"),
    ],
)
def test_verdict(driver: TopologyTestDriver, row: Row | None, reason: str | None) -> None:
    other = FLIGHT_ROW | {"flight": 7}
    _feed(driver, other)
    raw = driver.create_input_topic(
        RAW, key=serdes.avro.with_(schema=FLIGHT_KEY), value=serdes.avro.with_(schema=FLIGHT)
    )
    key = {name: FLIGHT_ROW[name] for name in KEY}
    raw.pipe_input(key, row, headers=[("lsn", b"1")])
    valid, rejected = (driver.create_output_topic(topic).read_records_to_list() for topic in (VALIDATED, REJECTED))
    assert len(valid) + len(rejected) == 2
    last = (valid if reason is None else rejected)[-1]
    assert (last.key, last.value) == (key, row)
    told = {name: (text or b"").decode() for name, text in last.headers}
    where = {"reason": reason, "topic": RAW, "partition": "0", "offset": "1"}
    assert told == ({"lsn": "1"} if reason is None else {"lsn": "1"} | where)


def test_what_is_not_known_stays_null(driver: TopologyTestDriver) -> None:
    plane = {"year": None, "type": "t", "manufacturer": "BOEING", "model": "737", "seats": 149}
    airport = {"name": "Houston", "lat": 29.5, "lon": -95.25, "tzone": "America/Chicago"}
    weather = {"temp": 39.02, "wind_speed": None, "precip": 0.0, "visib": 10.0}
    _capture(driver, AIRLINES, "carrier", [{"carrier": "UA", "name": "United"}])
    _capture(driver, AIRPORTS, "faa", [airport | {"faa": "IAH"}])
    _capture(driver, PLANES, "tailnum", [plane | {"tailnum": "N14228"}])
    hours = driver.create_input_topic(WEATHER, key=serdes.string, value=serdes.json)
    hours.pipe_input('["EWR","2013-01-01T10:00:00Z"]', weather | {"dewp": "1"})
    changed = {"carrier": "ZZ", "dest": "BQN", "tailnum": None, "origin": "LGA"}
    _feed(driver, FLIGHT_ROW, FLIGHT_ROW | changed)
    known, unknown = driver.create_output_topic(ENRICHED).read_records_to_list()
    as_text = FLIGHT_ROW | {"time_hour": "2013-01-01T10:00:00Z"}
    assert known.key == "UA-1545-EWR-2013-01-01T10:15Z"
    assert known.value == as_text | {
        "airline": "United",
        "destination": airport,
        "plane": plane,
        "weather": weather,
    }
    assert unknown.value == as_text | changed | ENRICHED_WITH


def test_delays_leave_cancelled_flights_out_of_the_means(driver: TopologyTestDriver) -> None:
    cancelled = FLIGHT_ROW | CANCELLED
    _feed(driver, FLIGHT_ROW | {"dep_delay": 1, "arr_delay": -2}, FLIGHT_ROW | {"arr_delay": 0}, cancelled)
    _feed(driver, cancelled | {"carrier": "AA"})
    assert driver.create_output_topic(DELAYS).read_key_values_to_map() == {
        "UA": {"carrier": "UA", "flights": 3, "cancelled": 1, "mean_dep_delay": 1.5, "mean_arr_delay": -1.0},
        "AA": {"carrier": "AA", "flights": 1, "cancelled": 1, "mean_dep_delay": None, "mean_arr_delay": None},
    }


def test_an_alert_is_an_hour_with_a_mean_above_sixty_minutes_once_it_is_closed(
    driver: TopologyTestDriver,
) -> None:
    def hour(carrier: str, *delays: int | None) -> None:
        for number, delay in enumerate(delays):
            gone = CANCELLED if delay is None else {"dep_delay": delay}
            _feed(driver, FLIGHT_ROW | gone | {"carrier": carrier, "flight": number})

    hour("UA", 61, 61, 61, 61, 61, None)
    hour("AA", 60, 60, 60, 60, 60)
    hour("DL", 300, 300, 300, 300, None)
    alerts = driver.create_output_topic(ALERTS)
    _feed(driver, FLIGHT_ROW | {"minute": 59, "time_hour": TEN.replace(day=2)})
    assert alerts.read_key_values_to_map() == {}, "rows may still come"
    _feed(driver, FLIGHT_ROW | {"minute": 0, "time_hour": TEN.replace(day=2, hour=11)})
    assert alerts.read_key_values_to_map() == {
        "UA": {"carrier": "UA", "hour": "2013-01-01T10:00:00Z", "departed": 5, "mean_dep_delay": 61.0}
    }


def test_it_uses_the_demos_topics_and_no_other() -> None:
    builder = StreamsBuilder()
    build(builder)
    topology = builder.build()
    assert set(topology.source_topics) | set(topology.sink_topics) == set(CAPTURED) | set(TOPICS) - {WEATHER_REJECTED}


def test_the_page_of_the_demo_shows_it_as_it_is() -> None:
    page = (Path(__file__).parents[3] / "docs" / "demo.md").read_text(encoding="utf-8")
    assert inspect.getsource(build) in page
