"""Limits on the memory of groups: for a member, a group, and all groups together.

The data of a member's join stays for its whole session, which may last half an hour, even when its connection is gone.
Counted are the bytes of ids, names and metadata, with a flat rate for the objects around them. Members of the classic
protocol that have only an id count too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from suiro.broker.coordination.groups.consumer_member import ConsumerMember
from suiro.config import NodeSettings

A_MEMBER = 1024
"""Bytes that any member counts for its objects."""
A_NAME = 100
"""The same for each protocol or topic that it names."""


class GroupMemory:
    """`refusal` says whether a group may keep more; `hold` counts what it keeps."""

    def __init__(self, limits: Callable[[], NodeSettings]) -> None:
        self._limits = limits
        self._of: dict[str, int] = {}
        self.used = 0

    def hold(self, group_id: str, size: int) -> None:
        """The group has so many bytes now."""
        self.used += size - self._of.pop(group_id, 0)
        if size:
            self._of[group_id] = size

    def refusal(self, group_id: str, *, before: int, after: int) -> str | None:
        """Why a member that has `before` bytes (a new one: 0) cannot have `after`; None: it can."""
        grown, most = after - before, self._limits().group_max_member_bytes
        if grown > 0 and after > most:
            return f"a member of {after} bytes is over group.max.member.bytes = {most}"
        return self.refusal_together(group_id, grown)

    def refusal_together(self, group_id: str, grown: int) -> str | None:
        """The same for bytes that are spread over the members of the group, such as its assignment."""
        if grown <= 0:
            return None
        limits, of_group = self._limits(), self._of.get(group_id, 0) + grown
        if of_group > limits.group_max_bytes:
            return f"members of {of_group} bytes together are over group.max.bytes = {limits.group_max_bytes}"
        if self.used + grown > limits.group_max_total_bytes:
            return (
                f"members of all groups of {self.used + grown} bytes together are over group.max.total.bytes = "
                f"{limits.group_max_total_bytes}"
            )
        return None


def classic_size(protocols: Iterable[tuple[str, bytes]], *names: str | None) -> int:
    """The size of a member of the classic protocol."""
    size = A_MEMBER + sum(len(name or "") for name in names)
    return size + sum(A_NAME + len(name) + len(metadata) for name, metadata in protocols)


def consumer_size(member: ConsumerMember) -> int:
    classic = () if member.classic is None else member.classic.protocols
    names = (member.member_id, member.instance_id, member.rack_id, member.client_id, member.topic_regex)
    return classic_size(classic, *names) + subscription_size(member.topic_names)


def subscription_size(topics: Iterable[str]) -> int:
    return sum(A_NAME + len(topic) for topic in topics)
