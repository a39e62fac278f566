"""Makes untrusted text safe to print: names, records and messages may contain control sequences of terminals."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def printable(text: str) -> str:
    """Escapes all characters that are not printable: control characters, marks that change the direction of text,
    halves of surrogate pairs, and ends of lines. The result is one line."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def iso_time(timestamp_ms: int) -> str:
    """Returns the time in UTC, to the millisecond; "" for a negative number, and the number itself beyond the
    calendar."""
    if timestamp_ms < 0:
        return ""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Returns milliseconds since the epoch of a time in ISO 8601, in UTC if it has no zone. Raises `ValueError`."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def plain(value: Any) -> Any:
    """Replaces NaN and infinities, which JSON cannot express, by strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
