"""The pipeline of the demo as one topology: validates, enriches and counts flights, and watches carriers.

    nyc.public.flights -> flights.validated -> flights.enriched -> carrier.delays
                       -> flights.rejected                      -> carrier.alerts

The records of a micro-batch in all five topics, and its source offsets, are committed together. Sums are integers of
minutes and are divided last, so that a mean does not depend on the order of the records.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from suiro.demo.names import (
    AIRLINES,
    AIRPORTS,
    ALERTS,
    DELAYS,
    ENRICHED,
    PLANES,
    PREFIX,
    RAW,
    REJECTED,
    VALIDATED,
    WEATHER,
    columns_of,
)
from suiro.streams import (
    EmitStrategy,
    Materialized,
    ProcessorContext,
    Record,
    StreamsBuilder,
    TimeWindows,
    Windowed,
    serdes,
)
from suiro.streams.extractors import SourceRecord

_AVRO = {"integer": "int", "text": "string", "timestamptz": {"type": "long", "logicalType": "timestamp-micros"}}
_COLUMNS = {name: _AVRO[kind] for name, kind in columns_of("flights")}

FLIGHT_KEY: dict[str, Any] = {
    "type": "record",
    "name": "Key",
    "namespace": f"{PREFIX}.public.flights",
    "fields": [
        {"name": name, "type": _COLUMNS[name]} for name in ("time_hour", "minute", "carrier", "flight", "origin")
    ],
}

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "namespace": f"{PREFIX}.public.flights",
    "fields": [{"name": name, "type": ["null", kind], "default": None} for name, kind in _COLUMNS.items()],
}


Row = dict[str, Any]

ALERT_ABOVE_MINUTES = 60
ALERT_FROM_FLIGHTS = 5
ALERT_GRACE = "1 day"  # the largest delay of a row, in event time

DELETED = "the row was deleted"
NO_ARRIVAL_DELAY = "departed, but has no arrival delay"


def build(builder: StreamsBuilder) -> None:
    avro, json, text = serdes.avro, serdes.json, serdes.string
    id_, row = avro.with_(schema=FLIGHT_KEY), avro.with_(schema=FLIGHT)
    airlines, airports, planes = (builder.global_table(it, key=avro, value=avro) for it in (AIRLINES, AIRPORTS, PLANES))
    weather = builder.global_table(WEATHER, key=text, value=json)

    flights = builder.stream(RAW, key=id_, value=row, timestamp=scheduled)
    ways = flights.split().branch(lambda key, it: reason_to_reject(it) is None, "valid").default_branch("rejected")
    ways["valid"].to(VALIDATED, key=id_, value=row)
    ways["rejected"].process_values(Reasons, name="reasons").to(REJECTED, key=id_, value=row)

    enriched = (
        ways["valid"]
        .map(lambda key, flight: (flight_id(flight), flight | {"time_hour": hour_of(flight)}))
        .left_join(airlines, lambda key, flight: {"carrier": flight["carrier"]}, with_airline)
        .left_join(airports, lambda key, flight: {"faa": flight["dest"]}, with_destination)
        .left_join(planes, lambda key, flight: {"tailnum": flight["tailnum"]}, with_plane)
        .left_join(weather, lambda key, flight: weather_key(flight), with_weather)
    )
    enriched.to(ENRICHED, key=text, value=json)

    by_carrier = enriched.map(lambda key, flight: (flight["carrier"], delays_of(flight))).group_by_key(
        key=text, value=json, name="by-carrier"
    )
    (
        by_carrier.aggregate(lambda: [0] * 6, add, value=json, materialized=Materialized.as_("carrier-totals"))
        .to_stream()
        .map(lambda carrier, totals: (carrier, figures(carrier, *totals)))
        .to(DELAYS, key=text, value=json)
    )
    (
        by_carrier.windowed_by(TimeWindows.of_size("1 hour").grace(ALERT_GRACE))
        .emit_strategy(EmitStrategy.on_window_close())
        .aggregate(lambda: [0] * 6, add, value=json, materialized=Materialized.as_("carrier-hours"))
        .to_stream()
        .filter(lambda window, totals: is_late(*totals))
        .map(lambda window, totals: (window.key, alert(window, *totals)))
        .to(ALERTS, key=text, value=json)
    )


def reason_to_reject(flight: Row | None) -> str | None:
    if flight is None:
        return DELETED
    if flight["dep_time"] is not None and flight["arr_delay"] is None:
        return NO_ARRIVAL_DELAY
    return None


class Reasons:
    """A processor that adds headers with the reason and the source to a rejected row."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        origin = self._context.record_metadata()
        assert origin is not None
        told = {
            "reason": reason_to_reject(record.value),
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": origin.offset,
        }
        headers = tuple((name, str(value).encode()) for name, value in told.items())
        self._context.forward(record.with_headers(record.headers + headers))


def scheduled(record: SourceRecord, partition_time: int) -> int:
    """The event time of a flight: its scheduled departure, from the key, so that a deleted row has it too."""
    at: datetime = record.key["time_hour"] + timedelta(minutes=record.key["minute"])
    return int(at.timestamp()) * 1000


def flight_id(flight: Row) -> str:
    at = flight["time_hour"] + timedelta(minutes=flight["minute"])
    return f"{flight['carrier']}-{flight['flight']}-{flight['origin']}-{at:%Y-%m-%dT%H:%MZ}"


def hour_of(flight: Row) -> str:
    return f"{flight['time_hour']:%Y-%m-%dT%H:%M:%SZ}"


def weather_key(flight: Row) -> str:
    """The key that the files source makes of two fields: a JSON list."""
    return f'["{flight["origin"]}","{flight["time_hour"]}"]'


def with_airline(flight: Row, airline: Row | None) -> Row:
    return flight | {"airline": None if airline is None else airline["name"]}


def with_columns(field: str, *names: str) -> Callable[[Row, Row | None], Row]:
    """Returns a joiner that adds some columns of the other row."""
    return lambda flight, row: flight | {field: None if row is None else {name: row[name] for name in names}}


with_destination = with_columns("destination", "name", "lat", "lon", "tzone")
with_plane = with_columns("plane", "year", "type", "manufacturer", "model", "seats")
with_weather = with_columns("weather", "temp", "wind_speed", "precip", "visib")


def delays_of(flight: Row) -> list[int]:
    """The numbers that a flight adds to its carrier's totals: flights, cancelled; minutes and flights with a delay, for
    departures and arrivals."""
    dep, arr = flight["dep_delay"], flight["arr_delay"]
    return [1, flight["dep_time"] is None, dep or 0, dep is not None, arr or 0, arr is not None]


def add(carrier: str, delays: list[int], totals: list[int]) -> list[int]:
    return [total + more for total, more in zip(totals, delays, strict=True)]


def figures(carrier: str, flights: int, cancelled: int, dep: int, deps: int, arr: int, arrs: int) -> Row:
    means = {"mean_dep_delay": dep / deps if deps else None, "mean_arr_delay": arr / arrs if arrs else None}
    return {"carrier": carrier, "flights": flights, "cancelled": cancelled} | means


def is_late(flights: int, cancelled: int, dep: int, deps: int, arr: int, arrs: int) -> bool:
    return deps >= ALERT_FROM_FLIGHTS and dep / deps > ALERT_ABOVE_MINUTES


def alert(window: Windowed, flights: int, cancelled: int, dep: int, deps: int, arr: int, arrs: int) -> Row:
    hour = datetime.fromtimestamp(window.start / 1000, UTC)
    return {
        "carrier": window.key,
        "hour": f"{hour:%Y-%m-%dT%H:%M:%SZ}",
        "departed": deps,
        "mean_dep_delay": dep / deps,
    }
