"""The check itself is checked: every kind of wrong record makes it fail, and is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from suiro.demo.expected import CarrierFigures, Expected
from suiro.demo.names import (
    AIRLINES,
    AIRPORTS,
    ALERTS,
    DELAYS,
    ENRICHED,
    PLANES,
    RAW,
    REJECTED,
    VALIDATED,
    WEATHER,
    WEATHER_REJECTED,
)
from suiro.demo.reading import Read
from suiro.demo.verify import Noted, verify

NONE: dict[str, str] = {}

Topics = dict[str, list[Read]]
HOUR = "2013-01-01T10:00:00Z"

FLIGHTS: dict[str, dict[str, Any]] = {
    name: {"carrier": name[0], "origin": "EWR", "time_hour": HOUR}
    | {"dep_time": time, "dep_delay": dep, "arr_delay": arr, "dest": dest, "tailnum": tail}
    for name, time, dep, arr, dest, tail in (
        ("A-1", 500, 1, 2, "X", "N1"),
        ("A-2", None, None, None, "Y", None),
        ("A-3", 600, 3, None, "X", "N1"),
        ("B-1", 700, 4, -7, "X", "N2"),
    )
}
AIRPORT = {"faa": "X", "name": "Ex", "lat": 1.5, "lon": 2.5, "alt": 3, "tz": -5, "dst": "A", "tzone": "T"}
PLANE = {"tailnum": "N1", "year": None, "type": "t", "manufacturer": "m", "model": "150", "seats": 2}
WEATHER_ROW = {
    "origin": "EWR",
    "time_hour": HOUR,
    "temp": 39.02,
    "wind_speed": 10.5,
    "precip": 0,
    "visib": 10,
}
ALERT = {"carrier": "A", "hour": HOUR, "departed": 5, "mean_dep_delay": 61.2}


@pytest.fixture
def expected() -> Expected:
    return Expected(
        flights=FLIGHTS,
        rejected=frozenset({"A-3"}),
        carriers={
            "A": CarrierFigures(flights=2, cancelled=1, dep_total=1, dep_count=1, arr_total=2, arr_count=1),
            "B": CarrierFigures(flights=1, dep_total=4, dep_count=1, arr_total=-7, arr_count=1),
        },
        alerts={("A", HOUR): CarrierFigures(flights=6, dep_total=306, dep_count=5)},
        airlines={"A": "Air A"},
        airports={"X": AIRPORT},
        planes={"N1": PLANE},
        weather={("EWR", HOUR): WEATHER_ROW},
    )


@pytest.fixture
def topics() -> Topics:
    """What a right run leaves behind."""
    raw = [Read(0, offset, key, flight, NONE) for offset, (key, flight) in enumerate(FLIGHTS.items())]
    destination = {"name": "Ex", "lat": 1.5, "lon": 2.5, "tzone": "T"}
    plane = {"year": None, "type": "t", "manufacturer": "m", "model": "150", "seats": 2}
    weather = {"temp": 39.02, "wind_speed": 10.5, "precip": 0.0, "visib": 10.0}
    extra = {
        "A-1": {"airline": "Air A", "destination": destination, "plane": plane, "weather": weather},
        "A-2": {"airline": "Air A", "destination": None, "plane": None, "weather": weather},
        "B-1": {"airline": None, "destination": destination, "plane": None, "weather": weather},
    }
    headers = {"reason": "departed, but has no arrival delay", "topic": RAW, "partition": "0", "offset": "2"}
    return {
        AIRLINES: [Read(0, 0, "A", {}, NONE)],
        AIRPORTS: [Read(0, 0, "X", {}, NONE)],
        PLANES: [Read(0, 0, "N1", {}, NONE)],
        WEATHER: [Read(3, 0, f'["EWR","{HOUR}"]', WEATHER_ROW, NONE)],
        WEATHER_REJECTED: [],
        RAW: raw,
        VALIDATED: [record for record in raw if record.key != "A-3"],
        REJECTED: [Read(1, 0, "A-3", FLIGHTS["A-3"], headers | {"lsn": "1"})],
        ENRICHED: [Read(2, i, key, FLIGHTS[key] | more, NONE) for i, (key, more) in enumerate(extra.items())],
        DELAYS: [
            _figures(0, "A", flights=1, cancelled=0, dep=1.0, arr=2.0),
            _figures(1, "B", flights=1, cancelled=0, dep=4.0, arr=-7.0),
            _figures(2, "A", flights=2, cancelled=1, dep=1.0, arr=2.0),
        ],
        ALERTS: [Read(3, 7, "A", ALERT, NONE)],
    }


@pytest.fixture
def delivered() -> dict[str, dict[str, Any]]:
    return {"carrier.alerts-3-7": {"key": "A", "value": ALERT}}


def _verified(topics: Topics, delivered: Any, expected: Expected) -> tuple[dict[str, int], list[str]]:
    noted = Noted(expected)
    for topic, records in topics.items():
        for record in records:
            noted.note(topic, record)
    return verify(noted, delivered)


def _figures(offset: int, carrier: str, *, flights: int, cancelled: int, dep: float, arr: float) -> Read:
    value = {"carrier": carrier, "flights": flights, "cancelled": cancelled}
    return Read(0, offset, carrier, value | {"mean_dep_delay": dep, "mean_arr_delay": arr}, NONE)


def test_a_right_run_has_no_differences(topics: Topics, delivered: Any, expected: Expected) -> None:
    counts, differences = _verified(topics, delivered, expected)
    assert differences == []
    assert counts == {
        "weather": 1,
        "raw": 4,
        "validated": 3,
        "rejected": 1,
        "enriched": 3,
        "carriers": 2,
        "carrier_updates": 3,
        "alerts": 1,
        "alerts_delivered": 1,
        "lost": 0,
        "duplicates": 0,
    }


def _lose(topic: str) -> Callable[[Topics], object]:
    return lambda topics: topics[topic].pop(0)


def _double(topic: str) -> Callable[[Topics], object]:
    return lambda topics: topics[topic].append(topics[topic][0]._replace(offset=99))


def _spoil(topic: str, **changes: Any) -> Callable[[Topics], object]:
    def spoil(topics: Topics) -> None:
        topics[topic][0] = topics[topic][0]._replace(**changes)

    return spoil


def _swap_updates(topics: Topics) -> None:
    topics[DELAYS] = [
        _figures(0, "A", flights=2, cancelled=1, dep=1.0, arr=2.0),
        _figures(1, "B", flights=1, cancelled=0, dep=4.0, arr=-7.0),
        _figures(2, "A", flights=2, cancelled=1, dep=1.0, arr=2.0),
    ]


WRONG = "A-1 (partition 0, offset 0): origin is None, expected 'EWR'"


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (_lose(RAW), f"{RAW}: 1 keys missing: A-1"),
        (_lose(AIRLINES), f"{AIRLINES}: 1 keys missing: A"),
        (_lose(WEATHER), f'weather: 1 keys missing: ["EWR","{HOUR}"]'),
        (_double(PLANES), f"{PLANES}: 1 keys there more than once: N1"),
        (
            lambda topics: topics[WEATHER_REJECTED].append(topics[WEATHER][0]._replace(key="bad")),
            "weather.rejected: 1 keys not expected: bad",
        ),
        (_lose(VALIDATED), "flights.validated: 1 keys missing: A-1"),
        (_lose(REJECTED), "flights.rejected: 1 keys missing: A-3"),
        (_lose(ENRICHED), "flights.enriched: 1 keys missing: A-1"),
        (_double(RAW), f"{RAW}: 1 keys there more than once: A-1"),
        (_double(VALIDATED), "flights.validated: 1 keys there more than once: A-1"),
        (_double(REJECTED), "flights.rejected: 1 keys there more than once: A-3"),
        (_double(ENRICHED), "flights.enriched: 1 keys there more than once: A-1"),
        (_spoil(RAW, value={"carrier": "A"}), WRONG),
        (_spoil(RAW, value=None), "A-1 (partition 0, offset 0): has no value that can be read"),
        (_spoil(RAW, value=FLIGHTS["A-1"] | {"more": 1}), "more is 1, expected None"),
        (_spoil(RAW, key="Z-9"), f"{RAW}: 1 keys not expected: Z-9"),
        (_spoil(VALIDATED, value={"carrier": "A"}), f"flights.validated: 1 records differ: {WRONG}"),
        (_spoil(REJECTED, value={}), "flights.rejected: 1 records differ: A-3"),
        (_spoil(REJECTED, headers={}), "headers are {'reason': None"),
        (_spoil(ENRICHED, value=None), "A-1 (partition 2, offset 0): has no value"),
        (
            _spoil(ENRICHED, value=FLIGHTS["A-1"] | {"airline": "Air B"}),
            "airline is 'Air B', expected 'Air A'",
        ),
        (lambda topics: topics[DELAYS].pop(), "carrier.delays: A flights is 1, expected 2"),
        (lambda topics: topics[DELAYS].pop(1), "carrier.delays: carrier B is missing"),
        (
            lambda topics: topics[DELAYS].append(_figures(3, "B", flights=2, cancelled=0, dep=4.000000002, arr=-7.0)),
            "carrier.delays: B mean_dep_delay is 4.000000002, expected 4.0",
        ),
        (_swap_updates, "carrier.delays: A went from 2 to 2 flights at offset 2"),
        (_spoil(DELAYS, partition=3), "carrier.delays: A is in two partitions"),
        (_spoil(DELAYS, value=None), "carrier.delays: partition 0, offset 0 is not JSON"),
        (_lose(ALERTS), f"carrier.alerts: 1 alerts missing: A at {HOUR}"),
        (_lose(ALERTS), "1 alerts were delivered, but are not in the topic: carrier.alerts-3-7"),
        (_double(ALERTS), f"carrier.alerts: 1 alerts there more than once: A at {HOUR}"),
        (_double(ALERTS), "carrier.alerts: 1 alerts were not delivered: carrier.alerts-3-99"),
        (_spoil(ALERTS, key="B"), f"carrier.alerts: 1 alerts not expected: B at {HOUR}"),
        (_spoil(ALERTS, value=ALERT | {"departed": 6}), "expected 61.2 minutes of 5 flights"),
        (
            _spoil(ALERTS, value=ALERT | {"mean_dep_delay": 61.3}),
            "1 alerts were delivered with something else in them: carrier.alerts-3-7",
        ),
    ],
)
def test_a_wrong_record_is_named(
    damage: Callable[[Topics], object], named: str, topics: Topics, delivered: Any, expected: Expected
) -> None:
    damage(topics)
    _, differences = _verified(topics, delivered, expected)
    assert any(named in difference for difference in differences), differences


def test_a_doubled_record_is_counted(topics: Topics, delivered: Any, expected: Expected) -> None:
    _double(ENRICHED)(topics)
    counts, differences = _verified(topics, delivered, expected)
    assert (counts["lost"], counts["duplicates"]) == (0, 1)
    assert "flights.enriched has 4 records, flights.validated 3" in differences


def test_long_lists_are_cut(topics: Topics, expected: Expected) -> None:
    empty: Topics = {topic: [] for topic in topics}
    many = {f"A-{i:03}": FLIGHTS["A-1"] for i in range(100)}
    wanted = Expected(flights=many, rejected=frozenset(), airlines={}, airports={}, planes={}, weather={})
    first = _verified(empty, {}, wanted)[1][0]
    assert first == f"{RAW}: 100 keys missing: A-000, A-001, A-002, A-003, A-004, ..."
