"""The names of the demo: its application, topics, and their configuration."""

from __future__ import annotations

__all__ = [
    "AIRLINES",
    "AIRPORTS",
    "APPLICATION",
    "DELAYS",
    "ENRICHED",
    "PARTITIONS",
    "PLANES",
    "RAW",
    "REFERENCES",
    "REJECTED",
    "STAGES",
    "TOPICS",
    "VALIDATED",
]

# Its transactional id, its group of source offsets and its directory of state go by this name.
APPLICATION = "flights"

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
