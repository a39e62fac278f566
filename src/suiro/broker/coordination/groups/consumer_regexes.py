"""The regular expressions of one group of the consumer protocol: pure functions of how many members have which, and of
the topics that were found for each. The rules are Kafka's (GroupMetadataManager of 4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from suiro.broker.coordination.groups.consumer_member import ConsumerMember
from suiro.broker.coordination.groups.consumer_messages import Moment
from suiro.broker.coordination.groups.consumer_records import ConsumerRecord, Regex
from suiro.broker.coordination.groups.regexes import ResolvedRegex, check_regex

_REGEX_PAUSE_MS = 10_000


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
