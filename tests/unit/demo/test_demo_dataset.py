"""The data as it is produced: complete, in order, its gaps null, its ids unique."""

from __future__ import annotations

import json

import pytest

from suiro.demo.dataset import FLIGHT_COLUMNS, Records, flights, references
from suiro.demo.expected import Expected, expected


@pytest.fixture(scope="module")
def year() -> Records:
    return flights()


@pytest.fixture(scope="module")
def by_other_means() -> Expected:
    return expected()


def test_every_flight_of_the_year_has_its_own_id(year: Records) -> None:
    assert len(year) == 336_776
    assert len(set(year.keys)) == 336_776
    assert year.keys[0] == "UA-1545-EWR-2013-01-01T10:15Z"


def test_flights_come_in_the_order_of_their_scheduled_departure(year: Records) -> None:
    assert year.timestamps_ms is not None
    assert year.timestamps_ms == sorted(year.timestamps_ms)
    assert year.timestamps_ms[0] == 1_357_035_300_000  # 05:15 in New York, 10:15 UTC


def test_values_are_the_rows_of_the_file_with_nulls_for_its_gaps(
    year: Records, by_other_means: Expected
) -> None:
    rows = {key: json.loads(value) for key, value in zip(year.keys, year.values, strict=True)}
    assert rows == by_other_means.flights
    assert list(rows[year.keys[0]]) == list(FLIGHT_COLUMNS)
    assert sum(row["dep_time"] is None for row in rows.values()) == 8_255
    assert sum(row["tailnum"] is None for row in rows.values()) == 2_512


def test_the_figures_by_other_means_split_the_year(by_other_means: Expected) -> None:
    assert len(by_other_means.rejected) == 1_175
    assert by_other_means.validated_count == 335_601
    assert sum(figures.flights for figures in by_other_means.carriers.values()) == 335_601
    assert sum(figures.cancelled for figures in by_other_means.carriers.values()) == 8_255
    without_plane = [f for f in by_other_means.flights.values() if f["tailnum"] not in by_other_means.planes]
    without_airport = [f for f in by_other_means.flights.values() if f["dest"] not in by_other_means.airports]
    assert (len(without_plane), len(without_airport)) == (52_606, 7_602)


@pytest.mark.parametrize(("name", "count"), [("airlines", 16), ("airports", 1_458), ("planes", 3_322)])
def test_references_are_complete(name: str, count: int, by_other_means: Expected) -> None:
    records = references(name)
    assert len(records) == len(set(records.keys)) == count
    rows = {key: json.loads(value) for key, value in zip(records.keys, records.values, strict=True)}
    if name == "airlines":
        assert {key: row["name"] for key, row in rows.items()} == by_other_means.airlines
    else:
        assert rows == getattr(by_other_means, name)


def test_a_limit_takes_the_first_flights_of_both_readings() -> None:
    assert set(flights(limit=250).keys) == set(expected(limit=250).flights)
