"""Memory that groups keep for their members: what a member brought with its join stays for its whole session, which may
last half an hour, also when its connection is gone. So it is bounded for a member, a group, and all groups together.

Bytes are those of ids, names and metadata, with a flat rate for the objects around them. Members of the classic
protocol that were only given an id count too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from suiro.broker.coordination.groups.consumer_member import ConsumerMember

A_MEMBER = 1024
"""What any member is counted with, for its objects."""
A_NAME = 100
"""The same for a protocol or a topic that it names."""


class MemoryLimits(Protocol):
    """Of the node's settings."""

    @property
    def group_max_member_bytes(self) -> int: ...
    @property
    def group_max_bytes(self) -> int: ...
    @property
    def group_max_total_bytes(self) -> int: ...


class GroupMemory:
    """Who asks to keep something is refused, or has it counted by `hold` once it is kept."""

    def __init__(self, limits: Callable[[], MemoryLimits]) -> None:
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
        """The same of bytes that are shared out to the group's members, as its assignment is."""
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
    """Of a member of the classic protocol."""
    size = A_MEMBER + sum(len(name or "") for name in names)
    return size + sum(A_NAME + len(name) + len(metadata) for name, metadata in protocols)


class ConsumerSizes:
    """Of the members of one group of the new protocol. A member is a value: it is measured again when it is another."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[ConsumerMember, int]] = {}

    def measure(self, members: Iterable[ConsumerMember]) -> int:
        known, self._known = self._known, {}
        for member in members:
            entry = known.get(member.member_id)
            if entry is None or entry[0] is not member:
                entry = (member, consumer_size(member))
            self._known[member.member_id] = entry
        return sum(size for _, size in self._known.values())

    def of(self, member_id: str) -> int:
        entry = self._known.get(member_id)
        return 0 if entry is None else entry[1]


def consumer_size(member: ConsumerMember) -> int:
    classic = () if member.classic is None else member.classic.protocols
    names = (member.member_id, member.instance_id, member.rack_id, member.client_id, member.topic_regex)
    return classic_size(classic, *names) + subscription_size(member.topic_names)


def subscription_size(topics: Iterable[str]) -> int:
    return sum(A_NAME + len(topic) for topic in topics)
