"""How late each carrier departs: a view, in its own file like the view of a user.

suiro view deploy carrier_delays.py:carrier_delays
"""

from __future__ import annotations

from typing import Any

from suiro.streams import KTable, StreamsBuilder, coalesce, col, lit, serdes, struct, when
from suiro.views import view

FLIGHTS = "nyc.public.flights"  # the topic of `suiro capture` for the table

IS_CANCELLED = col("dep_delay").is_null()  # a flight that did not depart has no delay
CANCELLED = when(IS_CANCELLED, 1).otherwise(0)
MINUTES = coalesce(col("dep_delay"), 0)
DEPARTED = lit(1)


@view("carrier_delays", key="carrier")
def carrier_delays(builder: StreamsBuilder) -> KTable:
    departures = (
        builder.stream(FLIGHTS, key=serdes.avro, value=serdes.avro)
        .select_key(col("carrier"))
        .map_values(struct(flights=lit(1), cancelled=CANCELLED, minutes=MINUTES, departed=DEPARTED), name="departure")
    )
    totals = departures.group_by_key(key=serdes.string, value=serdes.json, name="by-carrier").aggregate(
        dict, add, value=serdes.json, name="totals"
    )
    return totals.map_values(figures, name="figures")


def add(carrier: str, flight: dict[str, int], totals: dict[str, int]) -> dict[str, int]:
    return {name: totals.get(name, 0) + number for name, number in flight.items()}


def figures(totals: dict[str, int]) -> dict[str, Any]:
    departed = totals["departed"]
    mean = totals["minutes"] / departed if departed else None
    return {"flights": totals["flights"], "cancelled": totals["cancelled"], "mean_dep_delay": mean}
