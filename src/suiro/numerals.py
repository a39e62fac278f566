"""Parses the numbers of settings, options and commands, by one rule.

Digits are 0 to 9. A sign may stand before them, and spaces around. Python's own functions take more, which Kafka does
not: underscores, digits of other scripts, `nan` and `inf`.
"""

from __future__ import annotations

import math
import re

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def whole_number(text: str) -> int:
    """Raises `ValueError`."""
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def number(text: str) -> float:
    """A whole number or a decimal one, perhaps with an exponent. Raises `ValueError`."""
    if not _NUMBER.fullmatch(text.strip()) or math.isinf(value := float(text)):
        raise ValueError(f"{text!r} is not a number")
    return value


def natural(text: str, most: int = (1 << 63) - 1) -> int | None:
    """A number from 0 to `most`, of digits alone; None for any other text. Python converts at most 4,300 digits."""
    if not (text.isascii() and text.isdigit()) or len(text.lstrip("0")) > len(str(most)):
        return None
    return value if (value := int(text[-len(str(most)) :])) <= most else None
