"""The data as it goes into Postgres and into files: complete, in order, its gaps null."""

from __future__ import annotations

import csv
from datetime import UTC, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from suiro.demo.dataset import as_csv, flights, references, write_weather
from suiro.demo.expected import Expected, expected
from suiro.demo.names import TABLES, VALIDATED
from suiro.demo.view_check import facts_of, row_of

EACH = 41  # of the rows of a year is compared


@pytest.fixture(scope="module")
def year() -> pa.Table:
    return flights()


@pytest.fixture(scope="module")
def by_other_means() -> Expected:
    return expected()


def test_every_flight_of_the_year_has_its_own_key(year: pa.Table) -> None:
    key = year.select(["time_hour", "minute", "carrier", "flight", "origin"])
    assert len(year) == key.group_by(key.column_names).aggregate([]).num_rows == 336_776
    assert "primary key (time_hour, minute, carrier, flight, origin)" in TABLES["flights"]


def test_flights_are_the_rows_of_the_file_in_the_order_of_their_departure(
    year: pa.Table, by_other_means: Expected
) -> None:
    wanted = list(by_other_means.flights.items())
    assert len(year) == len(wanted)
    before = None
    for row, expected_row in zip(year.take(list(range(0, len(year), EACH))).to_pylist(), wanted[::EACH], strict=True):
        hour = row["time_hour"].astimezone(UTC)
        at = hour + timedelta(minutes=row["minute"])
        assert before is None or before <= at
        before = at
        key = f"{row['carrier']}-{row['flight']}-{row['origin']}-{at:%Y-%m-%dT%H:%MZ}"
        assert (key, row | {"time_hour": f"{hour:%Y-%m-%dT%H:%M:%SZ}"}) == expected_row


def test_what_the_bug_of_the_view_changes_in_the_year(by_other_means: Expected) -> None:
    """Counted in the CSV file, outside of this project."""
    facts = facts_of(
        {v: {name: row_of(v, each) or {} for name, each in by_other_means.departures.items()} for v in (1, 2)}
    )
    assert (facts.carriers, facts.differing, facts.equal, facts.cancelled) == (16, 15, ("HA",), 8_255)
    assert (facts.name, facts.places) == ("YV", (5, 3))
    assert tuple(round(mean, 2) for mean in facts.means) == (17.23, 19.0)


def test_the_figures_by_other_means_split_the_year(by_other_means: Expected) -> None:
    assert len(by_other_means.rejected) == 1_175
    assert by_other_means.totals[VALIDATED] == 335_601
    assert sum(figures.flights for figures in by_other_means.carriers.values()) == 335_601
    assert sum(figures.cancelled for figures in by_other_means.carriers.values()) == 8_255
    every = by_other_means.flights.values()
    assert sum(flight["tailnum"] not in by_other_means.planes for flight in every) == 52_606
    assert sum(flight["dest"] not in by_other_means.airports for flight in every) == 7_602
    assert sum((f["origin"], f["time_hour"]) not in by_other_means.weather for f in every) == 1_556
    assert len(by_other_means.weather) == 26_115
    late = by_other_means.alerts
    assert max(hour for _, hour in late) < "2013-12-31"
    assert all(f.dep_count >= 5 and f.dep_total / f.dep_count > 60 for f in late.values())
    assert len(late) == 1_443


@pytest.mark.parametrize(("name", "count"), [("airlines", 16), ("airports", 1_458), ("planes", 3_322)])
def test_references_are_complete(name: str, count: int, by_other_means: Expected) -> None:
    rows = references(name).to_pylist()
    key = references(name).column_names[0]
    assert len(rows) == count
    found = {row[key]: row for row in rows}
    if name == "airlines":
        assert {code: row["name"] for code, row in found.items()} == by_other_means.airlines
    else:
        assert found == getattr(by_other_means, name)


def test_a_limit_takes_the_first_flights_of_both_readings(year: pa.Table) -> None:
    assert flights(limit=250).equals(year.slice(0, 250))
    assert len(expected(limit=250).flights) == 250


def test_csv_for_copy_tells_null_from_an_empty_text() -> None:
    rows = pa.table({"a": ["x, y", None, ""], "b": [None, 2, 3]})
    assert as_csv(rows) == b'"x, y",\n,2\n"",3\n'


def test_weather_files_have_every_line_once(tmp_path: Path, by_other_means: Expected) -> None:
    assert write_weather(tmp_path) == 26_115
    files = sorted(tmp_path.glob("*.csv"))
    assert len(files) == 36
    found = []
    for path in files:
        assert path.read_bytes().endswith(b"\n"), "a line without an end is read only once the file is settled"
        with path.open(newline="") as file:
            found += [(row["origin"], row["time_hour"]) for row in csv.DictReader(file)]
    assert sorted(found) == sorted(by_other_means.weather)
