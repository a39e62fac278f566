"""Converts the durations that users write to whole milliseconds.

A duration is text ("5 minutes", "1.5 s", "500 ms"), a `timedelta`, or an int that counts milliseconds.
Nothing is rounded: a duration that is not a whole number of milliseconds is an error.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import NoReturn

from suiro.errors import UsageError

LONGEST_MS = (1 << 63) - 1
"""The longest duration: Kafka's int64 holds no more."""

_TEXT = re.compile(r"\s*([+-]?)(\d{1,99}(?:\.\d{1,99})?)\s*([A-Za-z]+)\s*", re.ASCII)

_NAMES = {
    1: "ms milli millisecond",
    1_000: "s sec second",
    60_000: "m min minute",
    3_600_000: "h hour",
    86_400_000: "d day",
    604_800_000: "w week",
}
_UNITS = {name: ms for ms, names in _NAMES.items() for name in names.split()}


def milliseconds(duration: str | timedelta | int, *, what: str, allow_negative: bool = False) -> int:
    """The duration in milliseconds. `what` is its name in errors ("the window size").

    Raises UsageError for anything that is not a duration, for a fraction of a millisecond, for what does
    not fit into 64 bits and, unless `allow_negative`, for a negative one.
    """
    match duration:
        case bool():
            _refuse(duration, what)
        case int():
            exact = Fraction(duration)
        case timedelta():
            exact = Fraction(duration // timedelta(microseconds=1), 1_000)
        case str():
            exact = _parse(duration, what)
        case _:
            _refuse(duration, what)
    if exact.denominator != 1:
        raise UsageError(f"{what} is {duration!r}, which is not a whole number of milliseconds; round it")
    if abs(exact) > LONGEST_MS:
        raise UsageError(f"{what} is {duration!r}, which does not fit into 64 bits; give a shorter duration")
    if exact < 0 and not allow_negative:
        raise UsageError(f"{what} is {duration!r}, but must not be negative; give 0 or more")
    return int(exact)


def _parse(text: str, what: str) -> Fraction:
    found = _TEXT.fullmatch(text)
    if found is None:
        _refuse(text, what)
    sign, number, unit = found.groups()
    name = unit.lower()
    factor = _UNITS.get(name) or (_UNITS.get(name[:-1]) if len(name) > 3 and name.endswith("s") else None)
    if factor is None:
        raise UsageError(
            f"{what} is {text!r}, whose unit {unit!r} is unknown; use ms, seconds, minutes, hours, days or weeks"
        )
    return Fraction(f"{sign}{number}") * factor


def _refuse(duration: object, what: str) -> NoReturn:
    raise UsageError(
        f"{what} is {duration!r}, which is not a duration; "
        'give text such as "5 minutes", a timedelta, or milliseconds as an int'
    )
