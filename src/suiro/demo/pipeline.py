"""The demo's pipeline: every flight judged, enriched and counted, as one topology.

    flights.raw -> flights.validated -> flights.enriched -> carrier.delays
                -> flights.rejected

The records of a micro-batch, in all four topics, and its place in flights.raw commit together. Sums are whole minutes,
divided last, so that a mean does not depend on the order of the records.
"""

from __future__ import annotations

from typing import Any

from suiro.demo.names import AIRLINES, AIRPORTS, DELAYS, ENRICHED, PLANES, RAW, REJECTED, VALIDATED
from suiro.demo.verdict import Judge
from suiro.streams import Materialized, StreamsBuilder, col, serdes

__all__ = ["build"]

Row = dict[str, Any]


def build(builder: StreamsBuilder) -> None:
    airlines = builder.global_table(AIRLINES, key=serdes.string, value=serdes.json)
    airports = builder.global_table(AIRPORTS, key=serdes.string, value=serdes.json)
    planes = builder.global_table(PLANES, key=serdes.string, value=serdes.json)

    judged = builder.stream(RAW).process_values(Judge, name="judge")
    ways = judged.split().branch(lambda key, it: it.flight is not None, "valid").default_branch("rejected")
    ways["rejected"].map_values(lambda it: it.raw).to(REJECTED, value=serdes.bytes)
    ways["valid"].map_values(lambda it: it.raw).to(VALIDATED, value=serdes.bytes)

    enriched = (
        ways["valid"]
        .map_values(lambda it: it.flight, value=serdes.json)
        .left_join(airlines, col("carrier"), with_airline)
        .left_join(airports, col("dest"), with_destination)
        .left_join(planes, col("tailnum"), with_plane)
    )
    enriched.to(ENRICHED, value=serdes.json)
    (
        enriched.map(lambda key, flight: (flight["carrier"], delays_of(flight)))
        .group_by_key(key=serdes.string, value=serdes.json, name="by-carrier")
        .aggregate(lambda: [0] * 6, add, value=serdes.json, materialized=Materialized.as_("carrier-totals"))
        .to_stream()
        .map(lambda carrier, totals: (carrier, figures(carrier, *totals)))
        .to(DELAYS, key=serdes.string, value=serdes.json)
    )


def with_airline(flight: Row, airline: Row | None) -> Row:
    return flight | {"airline": None if airline is None else airline["name"]}


def with_destination(flight: Row, airport: Row | None) -> Row:
    return flight | {"destination": chosen(airport, "name", "lat", "lon", "tzone")}


def with_plane(flight: Row, plane: Row | None) -> Row:
    return flight | {"plane": chosen(plane, "year", "type", "manufacturer", "model", "seats")}


def chosen(row: Row | None, *names: str) -> Row | None:
    return None if row is None else {name: row[name] for name in names}


def delays_of(flight: Row) -> list[int]:
    """What the flight adds to its carrier's totals: flights, cancelled; minutes and flights with a delay, twice."""
    dep, arr = flight.get("dep_delay"), flight.get("arr_delay")
    return [1, flight.get("dep_time") is None, dep or 0, dep is not None, arr or 0, arr is not None]


def add(carrier: str, delays: list[int], totals: list[int]) -> list[int]:
    return [total + more for total, more in zip(totals, delays, strict=True)]


def figures(carrier: str, flights: int, cancelled: int, dep: int, deps: int, arr: int, arrs: int) -> Row:
    means = {"mean_dep_delay": dep / deps if deps else None, "mean_arr_delay": arr / arrs if arrs else None}
    return {"carrier": carrier, "flights": flights, "cancelled": cancelled} | means
