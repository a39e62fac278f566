"""The deadlines of the members of a consumer group: for heartbeats, revocations, joins and syncs.

They are not stored: a start of the node gives every member its whole time again. Times are monotonic milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from suiro.broker.coordination.groups.consumer_member import (
    ConsumerGroupLimits,
    ConsumerMember,
    MemberState,
    PartitionEpochs,
)

# What a member did not do in time, as the log says it.
_SESSION = "sent no heartbeat"
_REVOCATION = "did not report that it gave its partitions back"
# Of classic members alone.
_JOIN = "did not join again"
_SYNC = "did not ask for its assignment"


@dataclass(slots=True)
class MemberTimers:
    _deadlines: dict[tuple[str, str], int] = field(default_factory=dict)  # (what is waited for, member id)
    _revoked: dict[str, PartitionEpochs] = field(default_factory=dict)  # what a member must give back in time

    def start(self, member: ConsumerMember, *, limits: ConsumerGroupLimits, now: int) -> None:
        """Start a new session, and a new deadline for the revocation if there is one."""
        member_id, classic = member.member_id, member.classic
        timeout_ms = limits.session_timeout_ms if classic is None else classic.session_timeout_ms
        self._deadlines[_SESSION, member_id] = now + timeout_ms
        if member.state is not MemberState.UNREVOKED_PARTITIONS or classic is not None:
            self._stop(_REVOCATION, member_id)
            self._revoked.pop(member_id, None)
        elif self._revoked.get(member_id) != member.pending_revocation:
            self._revoked[member_id] = member.pending_revocation
            self._deadlines[_REVOCATION, member_id] = now + member.rebalance_timeout_ms

    def expect_join(self, member: ConsumerMember, *, now: int) -> None:
        self._deadlines.setdefault((_JOIN, member.member_id), now + member.rebalance_timeout_ms)

    def joined(self, member: ConsumerMember, *, now: int) -> None:
        self._stop(_JOIN, member.member_id)
        self._deadlines[_SYNC, member.member_id] = now + member.rebalance_timeout_ms

    def synced(self, member_id: str) -> None:
        self._stop(_SYNC, member_id)

    def stop(self, member_id: str) -> None:
        for what in (_SESSION, _REVOCATION, _JOIN, _SYNC):
            self._stop(what, member_id)
        self._revoked.pop(member_id, None)

    def put_off(self, until: int) -> None:
        """Move earlier deadlines to this time: the actions that were due have failed."""
        for key, deadline in self._deadlines.items():
            self._deadlines[key] = max(deadline, until)

    def next_deadline(self) -> int | None:
        return min(self._deadlines.values(), default=None)

    def late(self, now: int) -> dict[str, str]:
        """Member id -> what this member did not do in time."""
        over = [key for key, deadline in self._deadlines.items() if deadline <= now]
        return {member_id: what for what, member_id in sorted(over, key=lambda key: key[1])}

    def _stop(self, what: str, member_id: str) -> None:
        self._deadlines.pop((what, member_id), None)
