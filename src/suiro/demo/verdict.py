"""The rule for valid flights, and the processor that gives the reason why a flight is rejected."""

from __future__ import annotations

from typing import Any

from suiro.streams import ProcessorContext, Record

__all__ = ["Reasons", "reason_to_reject"]

DELETED = "the row was deleted"
NO_ARRIVAL_DELAY = "departed, but has no arrival delay"


def reason_to_reject(flight: dict[str, Any] | None) -> str | None:
    if flight is None:
        return DELETED
    if flight["dep_time"] is not None and flight["arr_delay"] is None:
        return NO_ARRIVAL_DELAY
    return None


class Reasons:
    """A processor: a rejected row tells in its headers why, and where it came from."""

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
