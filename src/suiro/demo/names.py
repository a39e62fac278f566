"""The names of the demo: its application, topics, and their configuration."""

from __future__ import annotations

# Its transactional id, its group of source offsets and its directory of state go by this name.
APPLICATION = "flights"

# What capture makes of the database: one topic a table.
PREFIX = "nyc"
TABLES = ("airlines", "airports", "planes", "flights")
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
VIEWS = "_suiro_views"  # where the host of views keeps what was decided

PARTITIONS = 4
STAGES = (RAW, VALIDATED, REJECTED, ENRICHED, DELAYS, ALERTS)

# Real data of 2013 must not fall to the default retention of seven days.
_KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}
_COMPACT = {"cleanup.policy": "compact"}

# What nobody else makes: capture and registry make their own.
TOPICS: dict[str, dict[str, str]] = {
    WEATHER: _COMPACT,
    WEATHER_REJECTED: _KEEP,
    VALIDATED: _KEEP,
    REJECTED: _KEEP,
    ENRICHED: _KEEP,
    DELAYS: _COMPACT,
    ALERTS: _KEEP,
}
