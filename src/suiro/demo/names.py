"""The names of the demo: topics, their configuration, and the application of each query."""

from __future__ import annotations

__all__ = [
    "AIRLINES",
    "AIRPORTS",
    "DELAYS",
    "ENRICHED",
    "PARTITIONS",
    "PLANES",
    "QUERIES",
    "RAW",
    "REFERENCES",
    "REJECTED",
    "STAGES",
    "TOPICS",
    "VALIDATED",
]

RAW = "flights.raw"
VALIDATED = "flights.validated"
REJECTED = "flights.rejected"
ENRICHED = "flights.enriched"
DELAYS = "carrier.delays"
AIRLINES = "airlines"
AIRPORTS = "airports"
PLANES = "planes"

PARTITIONS = 4
STAGES = (RAW, VALIDATED, REJECTED, ENRICHED, DELAYS)
REFERENCES = (AIRLINES, AIRPORTS, PLANES)

# Real data of 2013 must not fall to the default retention of seven days.
_KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}
_COMPACT = {"cleanup.policy": "compact"}

TOPICS: dict[str, dict[str, str]] = {
    RAW: _KEEP,
    VALIDATED: _KEEP,
    REJECTED: _KEEP,
    ENRICHED: _KEEP,
    DELAYS: _COMPACT,
    AIRLINES: _COMPACT,
    AIRPORTS: _COMPACT,
    PLANES: _COMPACT,
}

# Each query is one application: its own transactional id, its own source offsets, its own checkpoint.
QUERIES = ("flights-validate", "flights-enrich", "carrier-delays")
