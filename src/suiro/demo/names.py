"""The names of the demo: its application, topics, and their configuration."""

from __future__ import annotations

# The pipeline's transactional id, its group of source offsets and its directory of state have this name.
APPLICATION = "flights"

# The capture writes one topic for each table.
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
