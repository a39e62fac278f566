"""Which flights are valid: a rule over one raw record, and the processor that brings it into the pipeline.

A record is parsed once, here; what comes after takes the flight as it was parsed, and the bytes as they came.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from suiro.demo.dataset import FLIGHT_COLUMNS
from suiro.streams import ProcessorContext, Record

__all__ = ["Judge", "Judged", "reason_to_reject"]

KEY_COLUMNS = ("carrier", "flight", "origin", "time_hour", "minute")

NO_JSON = "the value is not a JSON object of a flight"
NO_KEY_COLUMN = "a key column is missing: "
NO_ARRIVAL_DELAY = "departed, but has no arrival delay"

_TYPES = {name: frozenset({str if text else int, type(None)}) for name, text in FLIGHT_COLUMNS.items()}


class Judged(NamedTuple):
    """`flight` is None if the record is rejected."""

    raw: bytes | None
    flight: dict[str, Any] | None


class Judge:
    """A processor: raw bytes in, `Judged` out. A rejected one tells why and where it came from in its headers."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        flight = parsed(record.value)
        reason = reason_to_reject(flight)
        if reason is None:
            self._context.forward(record.with_value(Judged(record.value, flight)))
            return
        origin = self._context.record_metadata()
        assert origin is not None
        told = {
            "reason": reason,
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": origin.offset,
        }
        headers = tuple((name, str(value).encode()) for name, value in told.items())
        self._context.forward(
            record.with_value(Judged(record.value, None)).with_headers(record.headers + headers)
        )


def parsed(value: bytes | None) -> dict[str, Any] | None:
    """The flight, whose columns are absent, null or of their type; None if it is anything else."""
    try:
        flight = None if value is None else json.loads(value)
    except ValueError:
        return None
    if not isinstance(flight, dict):
        return None
    get = flight.get
    for name, types in _TYPES.items():
        if type(get(name)) not in types:
            return None
    return flight


def reason_to_reject(flight: dict[str, Any] | None) -> str | None:
    if flight is None:
        return NO_JSON
    missing = [name for name in KEY_COLUMNS if flight.get(name) is None]
    if missing:
        return NO_KEY_COLUMN + ", ".join(missing)
    if flight.get("dep_time") is not None and flight.get("arr_delay") is None:
        return NO_ARRIVAL_DELAY
    return None
