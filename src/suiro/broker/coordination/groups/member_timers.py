"""How long the members of a consumer group may be silent, and take to do what they were told.

Soft state: a start of the node gives every member its whole time again. All times are monotonic milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from suiro.broker.coordination.groups.consumer_member import ConsumerMember, MemberState, PartitionEpochs
from suiro.broker.coordination.groups.consumer_messages import ConsumerGroupLimits


@dataclass(slots=True)
class MemberTimers:
    _sessions: dict[str, int] = field(default_factory=dict)
    _revocations: dict[str, tuple[PartitionEpochs, int]] = field(default_factory=dict)  # what, until when
    _joins: dict[str, int] = field(default_factory=dict)  # these two: members of the classic protocol
    _syncs: dict[str, int] = field(default_factory=dict)

    def start(self, member: ConsumerMember, *, limits: ConsumerGroupLimits, now: int) -> None:
        """A whole session from here; and a new limit for giving back, or none."""
        member_id, classic = member.member_id, member.classic
        self._sessions[member_id] = now + (
            limits.session_timeout_ms if classic is None else classic.session_timeout_ms
        )
        if member.state is not MemberState.UNREVOKED_PARTITIONS or classic is not None:
            self._revocations.pop(member_id, None)
        elif self._revocations.get(member_id, (None, 0))[0] != member.pending_revocation:
            deadline = now + member.rebalance_timeout_ms
            self._revocations[member_id] = (member.pending_revocation, deadline)

    def expect_join(self, member: ConsumerMember, *, now: int) -> None:
        self._joins.setdefault(member.member_id, now + member.rebalance_timeout_ms)

    def joined(self, member: ConsumerMember, *, now: int) -> None:
        self._joins.pop(member.member_id, None)
        self._syncs[member.member_id] = now + member.rebalance_timeout_ms

    def synced(self, member_id: str) -> None:
        self._syncs.pop(member_id, None)

    def stop(self, member_id: str) -> None:
        for deadlines in (self._sessions, self._joins, self._syncs):
            deadlines.pop(member_id, None)
        self._revocations.pop(member_id, None)

    def put_off(self, until: int) -> None:
        """What is due before then is due then: it could not be done."""
        for deadlines in (self._sessions, self._joins, self._syncs):
            for member_id, deadline in deadlines.items():
                deadlines[member_id] = max(deadline, until)
        for member_id, (owned, deadline) in self._revocations.items():
            self._revocations[member_id] = (owned, max(deadline, until))

    def _all(self) -> list[tuple[int, str]]:
        plain = (self._sessions, self._joins, self._syncs)
        found = [(deadline, member_id) for each in plain for member_id, deadline in each.items()]
        return found + [(deadline, member_id) for member_id, (_, deadline) in self._revocations.items()]

    def next_deadline(self) -> int | None:
        return min((deadline for deadline, _ in self._all()), default=None)

    def late(self, now: int) -> tuple[str, ...]:
        """Members that have not been heard of, have not given back, joined again or synced in time."""
        return tuple(sorted({member_id for deadline, member_id in self._all() if deadline <= now}))
