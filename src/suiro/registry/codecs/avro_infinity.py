"""Postgres's `infinity` and `-infinity`: captures write them as the highest and the lowest number of an Avro date or
timestamp. Readers get Python's last and first date, as those of asyncpg do.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime

_LONG = 1 << 63

INFINITE: Mapping[str, Mapping[int, date]] = {
    "int-date": {-(1 << 31): date.min, (1 << 31) - 1: date.max},
    "long-timestamp-micros": {
        -_LONG: datetime.min.replace(tzinfo=UTC),
        _LONG - 1: datetime.max.replace(tzinfo=UTC),
    },
    "long-local-timestamp-micros": {-_LONG: datetime.min, _LONG - 1: datetime.max},
}
"""By fastavro's name of the logical type, what is read for the lowest and for the highest number."""

_TEXTS = {
    id(end): text
    for ends in INFINITE.values()
    for end, text in zip(ends.values(), ("-infinity", "infinity"), strict=True)
}


def infinity_text(value: object) -> str | None:
    """Returns Postgres's text of a value that was read for infinity. A date that is only equal to it has none."""
    return _TEXTS.get(id(value))
