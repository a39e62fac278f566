"""Subscriptions by regular expression: checking one, and finding the topics that it matches.

Kafka uses RE2J, a translation of RE2: the same dialect (no look-around, no back references) and time in proportion to
the text, so that no member's pattern can hold up the node. RE2 also has `\\C`, any single byte, which RE2J does not
have.

The time is in proportion to the size of the compiled pattern too, and a short one may be large. So all topics are
matched in a thread, and the memory of compiling a pattern is limited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from suiro.broker.refusals import RefusedError
from suiro.protocol.messages import ErrorCode

_MOST_BYTES = 1 << 20
"""Of a new expression when it is compiled: room for some thousand names. Up to RE2's own limit, compiling one held the
node up for half a second."""
_RE2S_OWN = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRegex:
    """The topics that matched, when, and which version of the topic list that was."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def check_regex(regex: str) -> None:
    """Raises `RefusedError` where it is none."""
    import re2

    try:
        _matches(regex, [""], _MOST_BYTES)
        # Also in its frame, which may make it too large.
        matching_topics(regex, [""], most_bytes=_MOST_BYTES)
    except re2.error as error:
        why = error.args[0].decode(errors="replace")
        raise RefusedError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {why}.",
        ) from None


def matching_topics(regex: str, names: Iterable[str], *, most_bytes: int = _RE2S_OWN) -> frozenset[str]:
    """The names that a valid regular expression matches from the first character to the last."""
    import re2

    listed = list(names)
    try:
        found = _matches(rf"\A(?:{regex})\z", listed, most_bytes)
    except re2.error:  # a `\Q` that is left open runs to the end, over what stands behind it here
        found = _matches(rf"\A(?:{regex}\E)\z", listed, most_bytes)
    return frozenset(name for name, matches in zip(listed, found, strict=True) if matches)


def _matches(regex: str, names: list[str], most_bytes: int) -> list[bool]:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = most_bytes
    pattern = re2.compile(regex, options)
    return [pattern.search(name) is not None for name in names]
