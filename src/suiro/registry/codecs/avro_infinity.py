"""Postgres's `infinity` and `-infinity`: captures write them as the highest and the lowest number of an Avro date or
timestamp. Readers get Python's last and first date, as those of asyncpg do. For the time 24:00, which Python does not
have, they get its last time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time

_LONG = 1 << 63
_DAY = 86_400_000_000

INFINITE: Mapping[str, Mapping[int, date | time]] = {
    "int-date": {-(1 << 31): date.min, (1 << 31) - 1: date.max},
    "long-timestamp-micros": {-_LONG: datetime.min.replace(tzinfo=UTC), _LONG - 1: datetime.max.replace(tzinfo=UTC)},
    "long-local-timestamp-micros": {-_LONG: datetime.min, _LONG - 1: datetime.max},
    "long-time-micros": {_DAY: time.max},
}
"""By fastavro's name of the logical type, what is read for numbers beyond the range of Python."""

_TEXTS = {
    id(end): "24:00" if number == _DAY else "infinity" if number > 0 else "-infinity"
    for ends in INFINITE.values()
    for number, end in ends.items()
}


def infinity_text(value: object) -> str | None:
    """Returns Postgres's text of a value that was read for infinity. A date that is only equal to it has none."""
    return _TEXTS.get(id(value))
