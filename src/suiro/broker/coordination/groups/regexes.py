"""Subscriptions by regular expression: checking one, finding the topics that it matches, and when a group does so.

Kafka uses RE2J, a translation of RE2: the same dialect (no look-around, no back references) and time in proportion to
the text, so that no member's pattern can hold up the node. RE2 also has `\\C`, any single byte, which RE2J does not
have.

The time is in proportion to the size of the compiled pattern too, and a short one may be large. So all topics are
matched in a thread, and the memory of compiling a pattern is limited.

The rules of a group are Kafka's (GroupMetadataManager of 4.3): pure functions of how many members have which
expression, and of the topics that were found for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from suiro.broker.coordination.groups.consumer_member import ConsumerMember, Moment, ResolvedRegex
from suiro.broker.coordination.groups.consumer_records import ConsumerRecord, Regex
from suiro.broker.refusals import RefusedError
from suiro.protocol.messages import ErrorCode

_MOST_BYTES = 1 << 20
"""Of a new expression when it is compiled: room for some thousand names. Up to RE2's own limit, compiling one held the
node up for half a second."""
_RE2S_OWN = 8 << 20
_REGEX_PAUSE_MS = 10_000


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


def change_regex(
    member: ConsumerMember,
    updated: ConsumerMember,
    *,
    counts: Counter[str],
    resolved: Mapping[str, ResolvedRegex],
    records: list[ConsumerRecord],
) -> tuple[bool, bool]:
    """Returns whether the member's expression changed, and whether the topics of the new one are known. Removes an
    expression that no other member has. Raises `RefusedError`."""
    old, new = member.topic_regex, updated.topic_regex
    if old == new:
        return False, False
    if new and not counts[new]:
        check_regex(new)
    if old and counts[old] == 1:
        records.append(Regex(old, None))
    return True, (new in resolved and counts[new] > 0) if new else bool(old)


def regexes_to_resolve(
    member: ConsumerMember,
    updated: ConsumerMember,
    *,
    counts: Counter[str],
    resolved: Mapping[str, ResolvedRegex],
    at: Moment,
) -> frozenset[str]:
    """The group's regular expressions, if it is time to look for their topics."""
    old, new = member.topic_regex, updated.topic_regex
    is_new = bool(new and new != old and not counts[new])
    if not counts and not is_new:
        return frozenset()
    any_known = next(iter(resolved.values()), None)
    waited_ms = 0 if any_known is None else at.now_ms - any_known.timestamp_ms
    # A time that is still to come was noted before the clock was set back.
    if any_known is not None and 0 <= waited_ms <= _REGEX_PAUSE_MS:
        return frozenset()
    wanted = set(counts)
    if new != old:
        if old and counts[old] == 1:
            wanted.remove(old)
        if new:
            wanted.add(new)
    is_due = (
        is_new
        or len(wanted) != len(resolved)
        or any_known is None
        or any_known.version < at.image.version
        or not 0 <= waited_ms <= at.limits.regex_refresh_ms
    )
    return frozenset(wanted) if is_due else frozenset()


def add_to(counts: Counter[str], name: str, by: int) -> None:
    """Names that nobody has are not kept."""
    counts[name] += by
    if counts[name] <= 0:
        del counts[name]
