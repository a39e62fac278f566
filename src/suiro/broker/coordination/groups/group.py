"""One group of the classic protocol as a state machine without I/O: a request and the time go in, effects come out.

    state                  goes to               when
    EMPTY                  PREPARING_REBALANCE   a member joins
    PREPARING_REBALANCE    COMPLETING_REBALANCE  every member has joined again, or the rebalance timeout is over
                           EMPTY                 nobody is left
    COMPLETING_REBALANCE   STABLE                the leader sends the assignment
                           PREPARING_REBALANCE   a member joins, leaves, fails, or does not sync in time
    STABLE                 PREPARING_REBALANCE   a member joins, leaves or fails, or the leader joins again

A request that must wait is kept as a token; the effect that answers it carries the token back. Time is monotonic
milliseconds, given by the caller. What always holds: a generation's members, protocol and leader do not change;
every token is answered once; `Persist` comes before the answers that depend on it.

The rules are Kafka's (GroupCoordinator of 3.x, KIP-345 static members, KIP-394 member ids).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from suiro.broker.coordination.groups.group_member import (
    Effect,
    JoinReply,
    JoinRequest,
    Member,
    MemberIdentity,
    PendingMembers,
    Persist,
    SyncReply,
    SyncRequest,
    Token,
    size_of,
)
from suiro.protocol.fields import FieldReader
from suiro.protocol.messages import ErrorCode

CONSUMER_PROTOCOL = "consumer"
LEAST_WAIT_MS = 1000
"""For static members that are away, whatever rebalance timeout they named: a timeout of 0 kept the node busy."""


class GroupState(Enum):
    """The values are the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    initial_rebalance_delay_ms: int = 0
    max_size: int = 2**31 - 1


@dataclass(slots=True, kw_only=True)
class Group:
    group_id: str
    limits: GroupLimits
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending: PendingMembers = field(default_factory=PendingMembers)
    rebalance_deadline: int = 0
    sync_deadline: int = 0
    changed_ms: int = -1  # wall clock, of the last state that was written down; -1: never
    initial_delay_left: int | None = None  # a new group's wait for more members, while it lasts
    _joined_meanwhile: bool = False

    # Look-ups

    @property
    def held_bytes(self) -> int:
        """Memory of its members in bytes."""
        if not self.members and not self.pending:
            return 0
        of_members = sum(member.size + len(member.assignment) for member in self.members.values())
        return len(self.group_id) + of_members + self.pending.size

    def held_for(self, request: JoinRequest) -> int:
        """Bytes that the member of this request holds already."""
        known = request.member_id or self.static_ids.get(request.instance_id or "", "")
        member = self.members.get(known)
        if member is not None:
            return member.size
        return size_of(known) if known in self.pending else 0

    def growth_by(self, request: SyncRequest) -> int:
        """By how many bytes its members would grow with the assignment in this request."""
        if self.state is not GroupState.COMPLETING_REBALANCE or request.member_id != self.leader:
            return 0
        return sum(
            len(request.assignments.get(member.member_id, b"")) - len(member.assignment)
            for member in self.members.values()
        )

    @property
    def is_simple(self) -> bool:
        """Whether it only has the offsets of consumers that manage their partitions themselves."""
        is_unused = self.protocol_type is None and not self.pending
        return is_unused and self.state is GroupState.EMPTY

    @property
    def is_of_consumers(self) -> bool:
        """Whether members are consumers (not, say, Connect workers), so that their metadata can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members; None if they are not known."""
        if not self.is_of_consumers or (self.members and self.protocol is None):
            return None
        try:
            return frozenset().union(*(topics_of(member.metadata(self.protocol)) for member in self.members.values()))
        except ValueError:
            return None

    def is_subscribed_to(self, topic: str) -> bool:
        topics = self.subscribed_topics()
        return self.is_of_consumers if topics is None else topic in topics

    # Requests

    def join(self, request: JoinRequest, token: Token, *, now: int, new_member_id: Callable[[], str]) -> list[Effect]:
        """JoinGroup. The answer may be among the effects, or come with a later call."""
        code = self._check_join(request)
        if code is not ErrorCode.none:
            return [JoinReply(token=token, code=code, member_id=request.member_id)]
        if request.member_id:
            return self._join_known(request, token, now)
        member_id = new_member_id()
        if request.instance_id is not None:
            if request.instance_id in self.static_ids:
                return self._replace_static(request, token, now, member_id)
            return self._add(request, token, now, member_id)
        if request.needs_known_member_id:
            self.pending.add(member_id, now + request.session_timeout_ms)
            return [JoinReply(token=token, code=ErrorCode.member_id_required, member_id=member_id)]
        return self._add(request, token, now, member_id)

    def sync(self, request: SyncRequest, token: Token, *, now: int) -> list[Effect]:
        """SyncGroup: the leader brings the assignment, everybody gets their part of it."""
        code = self._check_member(request.member)
        if code is ErrorCode.none and (
            request.protocol_type not in (None, self.protocol_type) or request.protocol not in (None, self.protocol)
        ):
            code = ErrorCode.inconsistent_group_protocol
        if code is ErrorCode.none and self.state is GroupState.PREPARING_REBALANCE:
            code = ErrorCode.rebalance_in_progress
        if code is not ErrorCode.none:
            return [SyncReply(token=token, code=code)]
        member = self.members[request.member_id]
        self._keep_alive(member, now)
        if self.state is GroupState.STABLE:
            return [self._synced(token, member)]
        effects: list[Effect] = []
        if member.sync_token is not None:
            effects.append(SyncReply(token=member.sync_token, code=ErrorCode.rebalance_in_progress))
        member.sync_token = token
        if request.member_id == self.leader:
            for each in self.members.values():
                each.assignment = request.assignments.get(each.member_id, b"")
            self.state = GroupState.STABLE
            effects.append(Persist())
            for each in self.members.values():
                if each.sync_token is not None:
                    effects.append(self._synced(each.sync_token, each))
                    each.sync_token = None
                    self._keep_alive(each, now)
        return effects

    def heartbeat(self, member: MemberIdentity, *, now: int) -> ErrorCode:
        code = self._check_member(member)
        if code is not ErrorCode.none:
            return code
        self._keep_alive(self.members[member.member_id], now)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def leave(self, *, member_id: str, instance_id: str | None, now: int) -> tuple[ErrorCode, list[Effect]]:
        """LeaveGroup of one member, by its id or by its instance id alone."""
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is None:
                return ErrorCode.unknown_member_id, []
            if member_id and member_id != known:
                return ErrorCode.fenced_instance_id, []
            member_id = known
        if self.pending.remove(member_id):
            return ErrorCode.none, self._complete_join_if_all_joined(now)
        if member_id not in self.members:
            return ErrorCode.unknown_member_id, []
        return ErrorCode.none, self._remove(member_id, now)

    def check_commit(self, member: MemberIdentity, *, transactional: bool, now: int) -> ErrorCode:
        """Whether this consumer may commit offsets. Generation -1 is one that manages its partitions itself."""
        member_id, instance_id, generation = member
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.none
        if generation < 0 and not member_id and instance_id is None:
            # A transaction may commit for a group whose members it does not name (clients before KIP-447).
            return ErrorCode.none if transactional else ErrorCode.unknown_member_id
        code = self._check_member(member)
        if code is not ErrorCode.none:
            return code
        self._keep_alive(self.members[member_id], now)
        if self.state is GroupState.COMPLETING_REBALANCE and not transactional:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    # Time

    def next_deadline(self) -> int | None:
        """When `tick` has something to do."""
        deadlines = [m.session_deadline for m in self.members.values() if not self._is_waiting(m)]
        if self.pending.deadline is not None:
            deadlines.append(self.pending.deadline)
        if self.state is GroupState.PREPARING_REBALANCE:
            deadlines.append(self.rebalance_deadline)
        elif self.state is GroupState.COMPLETING_REBALANCE:
            deadlines.append(self.sync_deadline)
        return min(deadlines, default=None)

    def tick(self, now: int) -> list[Effect]:
        """Do everything that is due."""
        effects: list[Effect] = []
        if self.pending.expire(now):
            effects += self._complete_join_if_all_joined(now)
        for member in list(self.members.values()):
            if member.session_deadline <= now and not self._is_waiting(member):
                effects += self._remove(member.member_id, now)
        if self.state is GroupState.PREPARING_REBALANCE and self.rebalance_deadline <= now:
            if self.initial_delay_left and self._joined_meanwhile:
                self._extend_initial_delay(now)
            else:
                effects += self._complete_join(now)
        elif self.state is GroupState.COMPLETING_REBALANCE and self.sync_deadline <= now:
            late = [m.member_id for m in self.members.values() if m.sync_token is None]
            for member_id in late:
                self._drop(member_id)
            effects += self.rebalance(now)
        return effects

    def dismissed(self) -> list[Effect]:
        """The group changes its protocol: members that wait join again, in the new one."""
        code = ErrorCode.rebalance_in_progress
        return [effect for member in self.members.values() for effect in _refuse_waiting(member, code)]

    def assignment_lost(self, now: int) -> list[Effect]:
        """The assignment could not be written: no member has one, and all start over."""
        for member in self.members.values():
            member.assignment = b""
        if self.state is not GroupState.STABLE:
            return []
        return self.rebalance(now)

    def restore(self, members: Iterable[Member], *, now: int) -> None:
        """Restore the stored members, with a whole session to come back."""
        self.members = {member.member_id: member for member in members}
        self.static_ids = {m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None}
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        for member in self.members.values():
            self._keep_alive(member, now)

    # Joining

    def _check_join(self, request: JoinRequest) -> ErrorCode:
        if not request.protocol_type or not request.protocols:
            return ErrorCode.inconsistent_group_protocol
        if self.members:  # a member that joins again among them, with what it had
            common = self._common_protocols(self.members.values())
            if request.protocol_type != self.protocol_type or not common & {n for n, _ in request.protocols}:
                return ErrorCode.inconsistent_group_protocol
        is_known = request.member_id in self.members or request.instance_id in self.static_ids
        is_full = len(self.members) + len(self.pending) >= self.limits.max_size
        if is_full and not is_known and request.member_id not in self.pending:
            return ErrorCode.group_max_size_reached
        return ErrorCode.none

    def _join_known(self, request: JoinRequest, token: Token, now: int) -> list[Effect]:
        member_id = request.member_id
        if request.instance_id is not None:
            known = self.static_ids.get(request.instance_id)
            if known != member_id:
                code = ErrorCode.unknown_member_id if known is None else ErrorCode.fenced_instance_id
                return [JoinReply(token=token, code=code, member_id=member_id)]
        if self.pending.remove(member_id):
            return self._add(request, token, now, member_id)
        member = self.members.get(member_id)
        if member is None:
            return [JoinReply(token=token, code=ErrorCode.unknown_member_id, member_id=member_id)]
        is_follower = self.state is GroupState.STABLE and member_id != self.leader
        if member.protocols == request.protocols and (is_follower or self.state is GroupState.COMPLETING_REBALANCE):
            # Its first answer was lost: it gets the same answer again.
            self._keep_alive(member, now)
            return [self._joined(member, token)]
        effects = self._update(member, request, token)
        if self.state is not GroupState.PREPARING_REBALANCE:
            effects += self.rebalance(now)
        return effects + self._complete_join_if_all_joined(now)

    def _add(self, request: JoinRequest, token: Token, now: int, member_id: str) -> list[Effect]:
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            join_token=token,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        if request.instance_id is not None:
            self.static_ids[request.instance_id] = member_id
        self._keep_alive(member, now)
        if self.leader is None:
            self.leader = member_id
        self._joined_meanwhile = True
        if self.state is GroupState.PREPARING_REBALANCE:
            return self._complete_join_if_all_joined(now)
        return self.rebalance(now)

    def _update(self, member: Member, request: JoinRequest, token: Token) -> list[Effect]:
        effects: list[Effect] = []
        if member.join_token is not None:
            effects.append(
                JoinReply(token=member.join_token, code=ErrorCode.rebalance_in_progress, member_id=member.member_id)
            )
        member.protocols = request.protocols
        member.client_id, member.client_host = request.client_id, request.client_host
        member.measure()
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.join_token = token
        return effects

    def _replace_static(self, request: JoinRequest, token: Token, now: int, member_id: str) -> list[Effect]:
        """A static member came back under a new member id; the old id is fenced from here on."""
        assert request.instance_id is not None
        old_id = self.static_ids[request.instance_id]
        member = self.members.pop(old_id)
        effects = _refuse_waiting(member, ErrorCode.fenced_instance_id)
        old_leader = self.leader
        member.member_id = member_id
        self.members[member_id] = member
        self.static_ids[request.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        effects += self._update(member, request, token)
        self._keep_alive(member, now)
        if self.state is GroupState.STABLE and self.choose_protocol() == self.protocol:
            member.join_token = None
            is_leader = self.leader == member_id
            skip = is_leader and request.may_skip_assignment
            # An older client that is the leader is told of the leader that it was, so that it acts as a follower
            # and takes the assignment that exists.
            reply = self._joined(member, token, with_members=skip)
            leader = self.leader if skip else old_leader
            return [*effects, Persist(), replace(reply, leader=leader or "", skip_assignment=skip)]
        if self.state is not GroupState.PREPARING_REBALANCE:
            return effects + self.rebalance(now)
        return effects + self._complete_join_if_all_joined(now)

    def rebalance(self, now: int) -> list[Effect]:
        """Everybody joins again."""
        effects: list[Effect] = []
        for member in self.members.values():
            if member.sync_token is not None:
                effects.append(SyncReply(token=member.sync_token, code=ErrorCode.rebalance_in_progress))
                member.sync_token = None
                self._keep_alive(member, now)
        was_empty = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING_REBALANCE
        longest = self._longest_rebalance_timeout()
        delay = self.limits.initial_rebalance_delay_ms
        if was_empty and delay <= 0:
            # The first rebalance waits for that time alone, not for those who have asked for a member id.
            return effects + self._complete_join(now)
        if was_empty:
            self.initial_delay_left = max(0, longest - delay)
            self.rebalance_deadline = now + delay
            self._joined_meanwhile = False
        else:
            self.initial_delay_left = None
            self.rebalance_deadline = now + longest
        return effects + self._complete_join_if_all_joined(now)

    def _extend_initial_delay(self, now: int) -> None:
        assert self.initial_delay_left is not None
        delay = min(self.limits.initial_rebalance_delay_ms, self.initial_delay_left)
        self.initial_delay_left -= delay
        self.rebalance_deadline = now + delay
        self._joined_meanwhile = False

    def _complete_join_if_all_joined(self, now: int) -> list[Effect]:
        if self.state is not GroupState.PREPARING_REBALANCE or self.pending:
            return []
        if self.initial_delay_left is not None and self.members:
            return []
        if any(member.join_token is None for member in self.members.values()):
            return []
        return self._complete_join(now)

    def _complete_join(self, now: int) -> list[Effect]:
        self.initial_delay_left = None
        for member in list(self.members.values()):
            if member.join_token is None and member.instance_id is None:
                self._drop(member.member_id)
        if not self.members:
            self.generation += 1
            self.state, self.protocol, self.leader = GroupState.EMPTY, None, None
            return [Persist()]
        joined = [m for m in self.members.values() if m.join_token is not None]
        if not joined:  # only static members that are away: wait for one, or for their sessions to end
            self.rebalance_deadline = now + max(self._longest_rebalance_timeout(), LEAST_WAIT_MS)
            return []
        if self.leader not in {m.member_id for m in joined}:
            self.leader = joined[0].member_id
        self.generation += 1
        self.protocol = self.choose_protocol()
        self.state = GroupState.COMPLETING_REBALANCE
        self.sync_deadline = now + self._longest_rebalance_timeout()
        effects: list[Effect] = []
        for member in self.members.values():
            member.assignment = b""
            self._keep_alive(member, now)
        for member in joined:
            effects.append(self._joined(member, member.join_token))
            member.join_token = None
        return effects

    def _joined(self, member: Member, token: Token, *, with_members: bool | None = None) -> JoinReply:
        if with_members is None:
            with_members = member.member_id == self.leader and self.state is not GroupState.STABLE
        return JoinReply(
            token=token,
            code=ErrorCode.none,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader or "",
            members=tuple((m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values())
            if with_members
            else (),
        )

    def _synced(self, token: Token, member: Member) -> SyncReply:
        return SyncReply(
            token=token,
            code=ErrorCode.none,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            assignment=member.assignment,
        )

    # Leaving

    def _remove(self, member_id: str, now: int) -> list[Effect]:
        effects = _refuse_waiting(self._drop(member_id), ErrorCode.unknown_member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            return effects + self._complete_join_if_all_joined(now)
        return effects + self.rebalance(now)

    def _drop(self, member_id: str) -> Member:
        member = self.members.pop(member_id)
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    # Look-ups

    def _check_member(self, member: MemberIdentity) -> ErrorCode:
        member_id, instance_id, generation = member
        known = member_id if instance_id is None else self.static_ids.get(instance_id)
        if known is None:
            return ErrorCode.unknown_member_id
        if known != member_id:
            return ErrorCode.fenced_instance_id
        if member_id not in self.members:
            return ErrorCode.unknown_member_id
        if generation != self.generation:
            return ErrorCode.illegal_generation
        return ErrorCode.none

    def _keep_alive(self, member: Member, now: int) -> None:
        member.session_deadline = now + member.session_timeout_ms

    def _is_waiting(self, member: Member) -> bool:
        return member.join_token is not None or member.sync_token is not None

    def _longest_rebalance_timeout(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def _common_protocols(self, members: Iterable[Member]) -> set[str]:
        return set.intersection(*({name for name, _ in m.protocols} for m in members))

    def choose_protocol(self) -> str:
        """Each member votes for the first of its protocols that all have; ties go to the one voted for first."""
        common = self._common_protocols(self.members.values())
        votes = Counter(next(n for n, _ in m.protocols if n in common) for m in self.members.values())
        return votes.most_common(1)[0][0]


def _refuse_waiting(member: Member, code: ErrorCode) -> list[Effect]:
    """The answers to the requests of this member that wait."""
    effects: list[Effect] = []
    if member.join_token is not None:
        effects.append(JoinReply(token=member.join_token, code=code, member_id=member.member_id))
    if member.sync_token is not None:
        effects.append(SyncReply(token=member.sync_token, code=code))
    member.join_token = member.sync_token = None
    return effects


def topics_of(subscription: bytes) -> frozenset[str]:
    """The topics in a consumer's metadata: every version of it begins like the first. Raises ValueError."""
    reader = FieldReader(subscription)
    reader.int16()
    return frozenset(reader.string() for _ in range(reader.int32()))
