"""Runs regular expressions from untrusted schemas, in bounded time.

JSON Schema uses the syntax of ECMAScript. RE2 runs expressions without lookaround and back references in linear time.
Other expressions are run by `regex`, which stops after `BACKTRACKING_TIMEOUT_S` and releases the GIL meanwhile.
"""

from __future__ import annotations

import re
from functools import lru_cache

import re2
import regex

from suiro.registry.formats.parsed import TooComplex

BACKTRACKING_TIMEOUT_S = 1.0
MAX_BACKTRACKING_CHARS = 4_000
"""The length of an expression that RE2 does not support: `regex` parses it in more than linear time."""
RE2_BYTES = 2 << 20
"""The memory for one expression. If it needs more, `regex` runs it."""
MAX_LINEAR_STEPS = 500_000_000
"""For one search: the instructions of the expression times the characters of the text, about 150 million a second."""
CACHE_SIZE = 128

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|c([A-Za-z])|.)", re.DOTALL)


class InvalidPattern(ValueError):
    """The pattern is no regular expression that RE2 or `regex` can run."""


def search(pattern: str, text: str) -> bool:
    """Whether the pattern matches anywhere in the text. Raises `InvalidPattern`, and `TooComplex` after a timeout."""
    linear, backtracking = _compiled(pattern)
    if linear is not None:
        if linear.programsize * len(text) > MAX_LINEAR_STEPS:
            raise TooComplex(f"the pattern {pattern[:100]!r} is too large for a text of {len(text)} characters")
        try:
            return linear.search(text) is not None
        except UnicodeEncodeError:  # half of a surrogate pair
            linear, backtracking = None, _backtracking(pattern)
    if backtracking is None:
        raise InvalidPattern(pattern)
    try:
        return backtracking.search(text, timeout=BACKTRACKING_TIMEOUT_S) is not None
    except TimeoutError:
        raise TooComplex(
            f"the pattern {pattern[:100]!r} took more than {BACKTRACKING_TIMEOUT_S} s on a text of {len(text)} "
            "characters; write it without look-around and back references, then it is searched in linear time"
        ) from None


@lru_cache(maxsize=CACHE_SIZE)
def _compiled(pattern: str) -> tuple[re2._Regexp | None, regex.Pattern[str] | None]:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = RE2_BYTES
    try:
        return re2.compile(_ESCAPE.sub(_as_re2, pattern), options), None
    except (re2.error, UnicodeEncodeError):
        return None, _backtracking(pattern)


def _backtracking(pattern: str) -> regex.Pattern[str] | None:
    if len(pattern) > MAX_BACKTRACKING_CHARS:
        return None
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError):
        return None


def _as_re2(escape: re.Match[str]) -> str:
    code, letter = escape.groups()
    if code:
        return rf"\x{{{code}}}"
    return rf"\x{{{ord(letter) & 31:x}}}" if letter else escape.group()
