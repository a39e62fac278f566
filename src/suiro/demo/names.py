"""The names of the demo: its application, tables, topics, and their configuration."""

from __future__ import annotations

# The pipeline's transactional id, its group of source offsets and its directory of state have this name.
APPLICATION = "flights"

# The capture writes one topic for each table.
PREFIX = "nyc"

# Columns in the order of the files. The key of flights begins with the time, so that a snapshot is in that order.
TABLES: dict[str, str] = {
    "airlines": "carrier text primary key, name text",
    "airports": "faa text primary key, name text, lat double precision, lon double precision, alt integer,"
    " tz integer, dst text, tzone text",
    "planes": "tailnum text primary key, year integer, type text, manufacturer text, model text, engines integer,"
    " seats integer, speed integer, engine text",
    "flights": "year integer, month integer, day integer, dep_time integer, sched_dep_time integer, dep_delay integer,"
    " arr_time integer, sched_arr_time integer, arr_delay integer, carrier text, flight integer, tailnum text,"
    " origin text, dest text, air_time integer, distance integer, hour integer, minute integer,"
    " time_hour timestamptz, primary key (time_hour, minute, carrier, flight, origin)",
}

AIRLINES, AIRPORTS, PLANES, RAW = CAPTURED = tuple(f"{PREFIX}.public.{table}" for table in TABLES)

WEATHER = "weather"
WEATHER_REJECTED = "weather.rejected"
VALIDATED = "flights.validated"
REJECTED = "flights.rejected"
ENRICHED = "flights.enriched"
DELAYS = "carrier.delays"
ALERTS = "carrier.alerts"
SCHEMAS = "_schemas.demo"  # a running cluster may have a registry of its own

# The view of `carrier_delays.py`.
VIEW = "carrier_delays"
VIEWS = "_suiro_views"  # the journal of the host of views

PARTITIONS = 4
STAGES = (RAW, VALIDATED, REJECTED, ENRICHED, DELAYS, ALERTS)

# The default retention of seven days would delete data of 2013.
_KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}
_COMPACT = {"cleanup.policy": "compact"}

# Topics that neither the capture nor the registry nor the host of views creates.
TOPICS: dict[str, dict[str, str]] = {
    WEATHER: _COMPACT,
    WEATHER_REJECTED: _KEEP,
    VALIDATED: _KEEP,
    REJECTED: _KEEP,
    ENRICHED: _KEEP,
    DELAYS: _COMPACT,
    ALERTS: _KEEP,
}


def columns_of(table: str) -> list[tuple[str, str]]:
    """Returns names and types of the columns, from the text of `CREATE TABLE`."""
    found = []
    for column in TABLES[table].split(", primary key (")[0].split(","):
        name, kind = column.strip().removesuffix(" primary key").split(" ", 1)
        found.append((name, kind))
    return found
