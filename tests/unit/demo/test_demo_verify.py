"""The check itself is checked: every kind of wrong record makes it fail, and is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from suiro.demo.expected import CarrierFigures, Expected
from suiro.demo.names import DELAYS, ENRICHED, RAW, REJECTED, VALIDATED
from suiro.demo.verify import Read, verify

NONE = MappingProxyType({})
Topics = dict[str, list[Read]]

FLIGHTS: dict[str, dict[str, Any]] = {
    "A-1": {"carrier": "A", "dep_time": 500, "dep_delay": 1, "arr_delay": 2, "dest": "X", "tailnum": "N1"},
    "A-2": {
        "carrier": "A",
        "dep_time": None,
        "dep_delay": None,
        "arr_delay": None,
        "dest": "Y",
        "tailnum": None,
    },
    "A-3": {"carrier": "A", "dep_time": 600, "dep_delay": 3, "arr_delay": None, "dest": "X", "tailnum": "N1"},
    "B-1": {"carrier": "B", "dep_time": 700, "dep_delay": 4, "arr_delay": -7, "dest": "X", "tailnum": "N2"},
}
AIRPORT = {"faa": "X", "name": "Ex", "lat": 1.5, "lon": 2.5, "alt": 3, "tz": -5, "dst": "A", "tzone": "T"}
PLANE = {"tailnum": "N1", "year": None, "type": "t", "manufacturer": "m", "model": "150", "seats": 2}


@pytest.fixture
def expected() -> Expected:
    return Expected(
        flights=FLIGHTS,
        rejected=frozenset({"A-3"}),
        carriers={
            "A": CarrierFigures(flights=2, cancelled=1, dep_total=1, dep_count=1, arr_total=2, arr_count=1),
            "B": CarrierFigures(flights=1, dep_total=4, dep_count=1, arr_total=-7, arr_count=1),
        },
        airlines={"A": "Air A"},
        airports={"X": AIRPORT},
        planes={"N1": PLANE},
    )


@pytest.fixture
def topics() -> Topics:
    """What a right run leaves behind."""
    raw = [Read(0, offset, key, _json(flight), NONE) for offset, (key, flight) in enumerate(FLIGHTS.items())]
    destination = {"name": "Ex", "lat": 1.5, "lon": 2.5, "tzone": "T"}
    plane = {"year": None, "type": "t", "manufacturer": "m", "model": "150", "seats": 2}
    extra = {
        "A-1": {"airline": "Air A", "destination": destination, "plane": plane},
        "A-2": {"airline": "Air A", "destination": None, "plane": None},
        "B-1": {"airline": None, "destination": destination, "plane": None},
    }
    headers = {"reason": "departed, but has no arrival delay", "topic": RAW, "partition": "0", "offset": "2"}
    return {
        RAW: raw,
        VALIDATED: [record for record in raw if record.key != "A-3"],
        REJECTED: [Read(1, 0, "A-3", _json(FLIGHTS["A-3"]), headers)],
        ENRICHED: [
            Read(2, i, key, _json(FLIGHTS[key] | more), NONE) for i, (key, more) in enumerate(extra.items())
        ],
        DELAYS: [
            _figures(0, "A", flights=1, cancelled=0, dep=1.0, arr=2.0),
            _figures(1, "B", flights=1, cancelled=0, dep=4.0, arr=-7.0),
            _figures(2, "A", flights=2, cancelled=1, dep=1.0, arr=2.0),
        ],
    }


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _figures(offset: int, carrier: str, *, flights: int, cancelled: int, dep: float, arr: float) -> Read:
    value = {"carrier": carrier, "flights": flights, "cancelled": cancelled}
    return Read(0, offset, carrier, _json(value | {"mean_dep_delay": dep, "mean_arr_delay": arr}), NONE)


def test_a_right_run_has_no_differences(topics: Topics, expected: Expected) -> None:
    verdict = verify(topics, expected)
    assert verdict.differences == ()
    counts = verdict.counts
    assert (counts.raw, counts.validated, counts.rejected, counts.enriched) == (4, 3, 1, 3)
    assert (counts.carriers, counts.carrier_updates, counts.duplicates) == (2, 3, 0)


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


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (_lose(RAW), "flights.raw: 1 flight ids missing: A-1"),
        (_lose(VALIDATED), "flights.validated: 1 flight ids missing: A-1"),
        (_lose(REJECTED), "flights.rejected: 1 flight ids missing: A-3"),
        (_lose(ENRICHED), "flights.enriched: 1 flight ids missing: A-1"),
        (_double(RAW), "flights.raw: 1 flight ids there more than once: A-1"),
        (_double(VALIDATED), "flights.validated: 1 flight ids there more than once: A-1"),
        (_double(REJECTED), "flights.rejected: 1 flight ids there more than once: A-3"),
        (_double(ENRICHED), "flights.enriched: 1 flight ids there more than once: A-1"),
        (
            _spoil(RAW, value=b'{"carrier": "A"}'),
            "A-1 (partition 0, offset 0): is not the flight in the data",
        ),
        (_spoil(RAW, key="Z-9"), "flights.raw: 1 flight ids not expected: Z-9"),
        (_spoil(VALIDATED, value=b"{}"), "flights.validated: 1 records differ: A-1"),
        (_spoil(REJECTED, value=b"{}"), "flights.rejected: 1 records differ: A-3"),
        (_spoil(REJECTED, headers={}), "headers are {}, expected {'reason': 'departed"),
        (_spoil(ENRICHED, value=b"not JSON"), "A-1 (partition 2, offset 0): is not JSON"),
        (
            _spoil(ENRICHED, value=_json(FLIGHTS["A-1"] | {"airline": "Air B"})),
            "airline is 'Air B', expected 'Air A'",
        ),
        (lambda topics: topics[DELAYS].pop(), "carrier.delays: A flights is 1, expected 2"),
        (lambda topics: topics[DELAYS].pop(1), "carrier.delays: carrier B is missing"),
        (
            lambda topics: topics[DELAYS].append(
                _figures(3, "B", flights=2, cancelled=0, dep=4.000000002, arr=-7.0)
            ),
            "carrier.delays: B mean_dep_delay is 4.000000002, expected 4.0",
        ),
        (_swap_updates, "carrier.delays: A went from 2 to 2 flights at offset 2"),
        (_spoil(DELAYS, partition=3), "carrier.delays: A is in two partitions"),
        (_spoil(DELAYS, value=b"["), "carrier.delays: partition 0, offset 0 is not JSON"),
    ],
)
def test_a_wrong_record_is_named(
    damage: Callable[[Topics], object], named: str, topics: Topics, expected: Expected
) -> None:
    damage(topics)
    differences = verify(topics, expected).differences
    assert any(named in difference for difference in differences), differences


def test_a_doubled_record_is_counted(topics: Topics, expected: Expected) -> None:
    _double(ENRICHED)(topics)
    verdict = verify(topics, expected)
    assert verdict.counts.duplicates == 1
    assert "flights.enriched has 4 records, flights.validated 3" in verdict.differences


def test_long_lists_are_cut(expected: Expected) -> None:
    empty: Topics = {RAW: [], VALIDATED: [], REJECTED: [], ENRICHED: [], DELAYS: []}
    many = {f"A-{i:03}": FLIGHTS["A-1"] for i in range(100)}
    wanted = Expected(flights=many, rejected=frozenset(), airlines={}, airports={}, planes={})
    first = verify(empty, wanted).differences[0]
    assert first == "flights.raw: 100 flight ids missing: A-000, A-001, A-002, A-003, A-004, ..."
