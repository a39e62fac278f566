"""One group of the new consumer protocol (KIP-848) as a state machine without I/O: the server assigns.

A request goes in and records come out; `apply` makes them true, live as in a replay at the start. So what is on
disk and what is in memory cannot differ: nothing here changes by a request alone, only timers do.

Three epochs drive it. The *group epoch* rises when members, their topics or the topics themselves change. A
heartbeat that sees the *assignment epoch* behind it computes a new target. Each member walks to the target on its
own (`reconciliation`), and its *member epoch* says how far it is.

What always holds: a partition is owned by one member at most; epochs do not go back, except that a member that
joins anew begins at 0. The rules are Kafka's (GroupMetadataManager of 4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from uuid import UUID

from suiro.broker.coordination.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroupLimits,
    ConsumerMember,
    Heartbeat,
    HeartbeatReply,
    MemberState,
    Moment,
    Partitions,
    ResolvedRegex,
    TopicImage,
    has_all,
    without_epochs,
)
from suiro.broker.coordination.groups.consumer_records import (
    ConsumerRecord,
    GroupEpoch,
    Ownership,
    Regex,
    Subscription,
    Target,
    TargetEpoch,
    TopicMetadata,
)
from suiro.broker.coordination.groups.group_member import MemberIdentity
from suiro.broker.coordination.groups.group_memory import consumer_size
from suiro.broker.coordination.groups.member_timers import MemberTimers
from suiro.broker.coordination.groups.reconciliation import reconcile
from suiro.broker.coordination.groups.regexes import add_to, change_regex, regexes_to_resolve
from suiro.broker.coordination.groups.targets import hash_topics, new_target, preferred_assignor, topic_ids
from suiro.broker.refusals import RefusedError
from suiro.protocol.messages import ErrorCode

NO_EPOCH = -1


class ConsumerGroupState(Enum):
    """The values are the names that ListGroups and ConsumerGroupDescribe show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Write `records`, `apply` them, answer. `resolve`: regular expressions whose topics are to be found."""

    records: tuple[ConsumerRecord, ...]
    reply: HeartbeatReply
    resolve: frozenset[str] = frozenset()


@dataclass(slots=True, kw_only=True)
class ConsumerGroup:
    group_id: str
    group_epoch: int = 1  # ahead of the first assignment, so that the first heartbeat makes one
    metadata_hash: int = 0
    assignment_epoch: int = 0
    assignment_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    timers: MemberTimers = field(default_factory=MemberTimers)
    held_bytes: int = 0
    """Memory of its members."""
    is_resolving: bool = False
    _owners: dict[tuple[UUID, int], str] = field(default_factory=dict)
    _name_counts: Counter[str] = field(default_factory=Counter)
    _regex_counts: Counter[str] = field(default_factory=Counter)
    _has_topic_metadata: bool = False
    _seen: Mapping[str, tuple[UUID, int] | None] | None = None  # the group's topics when it last looked

    # Look-ups

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def assignor(self) -> str | None:
        """The assignor that most members ask for."""
        return preferred_assignor(self.members.values())

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._name_counts or any(topic in resolved.topics for resolved in self.regexes.values())

    def is_owned(self, topic_id: UUID, partition: int) -> bool:
        return (topic_id, partition) in self._owners

    def check_commit(
        self, who: MemberIdentity, *, transactional: bool, version: int, places: Iterable[tuple[UUID, int]]
    ) -> None:
        """Whether this consumer may commit for these partitions. Raises `RefusedError`."""
        member_id, instance_id, epoch = who
        if epoch < 0 and not self.members:
            return
        if transactional and epoch == NO_EPOCH and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if not transactional and member.classic is None and version < 9:
            raise RefusedError(
                ErrorCode.unsupported_version,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if epoch > member.member_epoch:
            raise self.stale(member, f"member epoch {epoch} is newer than {member.member_epoch}")
        for topic_id, partition in places if epoch < member.member_epoch else ():
            since = member.assigned_at(topic_id, partition)
            if since is None or epoch < since:
                raise self.stale(member, "a partition is another's at its epoch")

    def check_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        """Raises `RefusedError`."""
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.member_epoch:
            raise self.stale(member, f"member epoch {member_epoch} is not {member.member_epoch}")

    def stale(self, member: ConsumerMember, why: str) -> RefusedError:
        is_classic = member.classic is not None
        code = ErrorCode.illegal_generation if is_classic else ErrorCode.stale_member_epoch
        return RefusedError(code, f"member {member.member_id} of group {self.group_id}: {why}")

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise RefusedError(
                ErrorCode.unknown_member_id,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def held_for(self, member_id: str, instance_id: str | None) -> int:
        """Bytes that the member of a request holds already."""
        if member_id not in self.members and instance_id is not None:
            member_id = self.static_ids.get(instance_id, member_id)
        return consumer_size(self.members[member_id]) if member_id in self.members else 0

    # Requests

    def heartbeat(self, request: Heartbeat, *, at: Moment) -> Outcome:
        """Join (epoch 0), or go on. Raises `RefusedError`."""
        if len(self.members) >= at.limits.max_size and request.member_id not in self.members:
            raise RefusedError(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {at.limits.max_size} members.",
            )
        records: list[ConsumerRecord] = []
        member = self._find_or_make(request, records)
        updated = _updated(member, request)
        reconciled, resolve = self.advance(member, updated, records, reported=request.owned, at=at)
        is_sent = (
            request.member_epoch == JOINING_EPOCH
            or request.is_full
            or without_epochs(reconciled.assigned) != without_epochs(member.assigned)
        )
        reply = HeartbeatReply(
            member_id=reconciled.member_id,
            member_epoch=reconciled.member_epoch,
            assignment=without_epochs(reconciled.assigned) if is_sent else None,
        )
        return Outcome(records=tuple(records), reply=reply, resolve=resolve)

    def advance(
        self,
        member: ConsumerMember,
        updated: ConsumerMember,
        records: list[ConsumerRecord],
        *,
        reported: Partitions | None,
        at: Moment,
    ) -> tuple[ConsumerMember, frozenset[str]]:
        """Advance the group's epoch, its target and the member after a request as far as possible.

        Returns the new state of the member, and the regular expressions whose topics are to be found.
        """
        names_changed = updated.topic_names != member.topic_names
        if updated != member:
            records.append(Subscription(updated.member_id, updated))
        regex_changed, regex_known = change_regex(
            member, updated, counts=self._regex_counts, resolved=self.regexes, records=records
        )
        resolve: frozenset[str] = frozenset()
        if not self.is_resolving:
            resolve = regexes_to_resolve(member, updated, counts=self._regex_counts, resolved=self.regexes, at=at)

        group_epoch = self.group_epoch
        if names_changed or regex_known or self._seen != self._see(at.image):
            metadata_hash = self._hash_topics(member, updated, at.image)
            if names_changed or regex_known or metadata_hash != self.metadata_hash:
                group_epoch += 1
                records.append(GroupEpoch(group_epoch, metadata_hash))
            if self._has_topic_metadata:
                records.append(TopicMetadata(False))

        target_epoch, target = self.assignment_epoch, self._target_of(updated)
        if self.assignment_epoch < group_epoch and self._may_assign(at.limits, at.now_ms):
            assignment, changes = self._assign(updated, group_epoch, at)
            records += changes
            target_epoch, target = group_epoch, assignment.get(updated.member_id, {})

        reconciled = updated
        if names_changed or regex_changed or not updated.is_reconciled_to(target_epoch):
            reconciled = reconcile(
                updated,
                target_epoch=target_epoch,
                target=target,
                subscribed=frozenset(topic_ids(updated, self.regexes, at.image).values()),
                subscription_changed=names_changed or regex_changed,
                is_owned=self.is_owned,
                reported=reported,
            )
        if reconciled != updated:
            records.append(Ownership(reconciled.member_id, reconciled))
        return reconciled, resolve

    def leaving(self, request: Heartbeat) -> tuple[HeartbeatReply, str]:
        """The answer to a member that leaves, and its id. Raises `RefusedError`."""
        if request.instance_id is None:
            member = self.member(request.member_id)
        else:
            member = self.static_member(request.instance_id, request.member_id)
        reply = HeartbeatReply(member_id=request.member_id, member_epoch=request.member_epoch)
        return reply, member.member_id

    def away(self, member_id: str) -> tuple[ConsumerRecord, ...]:
        """A static member leaves and will be back (epoch -2): it keeps what it has."""
        member = self.members[member_id]
        away = replace(
            member,
            member_epoch=STATIC_LEAVING_EPOCH,
            pending_revocation={},
            assigned={topic: dict.fromkeys(epochs, 0) for topic, epochs in member.assigned.items()},
        )
        return (Ownership(member_id, away),)

    def fence(self, member_ids: Iterable[str], *, image: TopicImage) -> tuple[ConsumerRecord, ...]:
        """Remove these members of the group, with a new epoch."""
        gone = [self.members[member_id] for member_id in member_ids]
        records: list[ConsumerRecord] = []
        for member in gone:
            records += _removal(member.member_id)
        counts = Counter(member.topic_regex for member in gone if member.topic_regex)
        dropped = {regex for regex, count in counts.items() if self._regex_counts[regex] == count}
        records += [Regex(regex, None) for regex in sorted(dropped)]
        names = Counter(self._name_counts)
        for member in gone:
            names.subtract(member.topic_names)
        topics = {name for name, count in names.items() if count > 0}
        for regex, resolved in self.regexes.items():
            if regex not in dropped:
                topics |= resolved.topics
        records.append(GroupEpoch(self.group_epoch + 1, hash_topics(topics, image)))
        return tuple(records)

    def regexes_resolved(self, found: Mapping[str, ResolvedRegex], *, image: TopicImage) -> tuple[ConsumerRecord, ...]:
        """The topics of these regular expressions were found."""
        records: list[ConsumerRecord] = []
        changed = False
        known = dict(self.regexes)
        for regex, resolved in found.items():
            if not self._regex_counts[regex]:
                continue  # nobody wants it any more
            before = self.regexes[regex].topics if regex in self.regexes else frozenset()
            changed = changed or before != resolved.topics
            known[regex] = resolved
            records.append(Regex(regex, resolved))
        metadata_hash = hash_topics(self._topics(known), image)
        if changed or metadata_hash != self.metadata_hash:
            records.append(GroupEpoch(self.group_epoch + 1, metadata_hash))
        return tuple(records)

    def tombstones(self) -> tuple[ConsumerRecord, ...]:
        """The end of the group."""
        members = list(self.members)
        records: list[ConsumerRecord] = [Ownership(member_id, None) for member_id in members]
        records += [Target(member_id, None) for member_id in members]
        records.append(TargetEpoch(None))
        records += [Subscription(member_id, None) for member_id in members]
        records += [Regex(regex, None) for regex in self.regexes]
        records += [TopicMetadata(False), GroupEpoch(None)]
        return tuple(records)

    def snapshot(self) -> tuple[ConsumerRecord, ...]:
        """Records that make this group again."""
        records: list[ConsumerRecord] = [Subscription(m.member_id, m) for m in self.members.values()]
        records.append(GroupEpoch(self.group_epoch, self.metadata_hash))
        records += [Regex(regex, resolved) for regex, resolved in self.regexes.items()]
        records += [Target(member_id, partitions) for member_id, partitions in self.target.items()]
        records.append(TargetEpoch(self.assignment_epoch, self.assignment_ms))
        records += [Ownership(m.member_id, m) for m in self.members.values()]
        return tuple(records)

    # Time

    def keep_alive(self, member_id: str, *, at: Moment, now: int) -> None:
        """After a heartbeat was answered. `now` is monotonic."""
        self._seen = self._see(at.image)
        if member_id in self.members:
            self.timers.start(self.members[member_id], limits=at.limits, now=now)

    def next_deadline(self) -> int | None:
        return self.timers.next_deadline()

    # Records

    def apply(self, record: ConsumerRecord) -> None:
        """Apply a record that is written."""
        match record:
            case GroupEpoch(epoch, metadata_hash):
                self.group_epoch, self.metadata_hash = epoch or 0, metadata_hash
            case TopicMetadata(present):
                self._has_topic_metadata = present
            case Subscription(member_id, None):
                self._remove(member_id)
            case Subscription(member_id, ConsumerMember() as wants):
                old = self.members.get(member_id) or ConsumerMember(member_id=member_id)
                self._put(wants.with_ownership_of(old))
            case TargetEpoch(epoch, timestamp_ms):
                self.assignment_epoch = NO_EPOCH if epoch is None else epoch
                self.assignment_ms = timestamp_ms
            case Target(member_id, None):
                self.target.pop(member_id, None)
            case Target(member_id, partitions) if partitions is not None:
                self.target[member_id] = partitions
            case Ownership(member_id, None):
                if member_id in self.members:
                    self._put(
                        replace(
                            self.members[member_id],
                            member_epoch=LEAVING_EPOCH,
                            previous_member_epoch=LEAVING_EPOCH,
                            assigned={},
                            pending_revocation={},
                        )
                    )
            case Ownership(member_id, ConsumerMember() as has):
                old = self.members.get(member_id) or ConsumerMember(member_id=member_id)
                self._put(old.with_ownership_of(has))
            case Regex(regex, None):
                self.regexes.pop(regex, None)
            case Regex(regex, ResolvedRegex() as resolved):
                self.regexes[regex] = resolved

    def _put(self, member: ConsumerMember) -> None:
        self._count(self.members.get(member.member_id), -1)
        self.members[member.member_id] = member
        self._count(member, +1)

    def _remove(self, member_id: str) -> None:
        self._count(self.members.pop(member_id, None), -1)
        self.timers.stop(member_id)

    def _count(self, member: ConsumerMember | None, by: int) -> None:
        if member is None:
            return
        if member.instance_id is not None:
            if by > 0:
                self.static_ids[member.instance_id] = member.member_id
            elif self.static_ids.get(member.instance_id) == member.member_id:
                del self.static_ids[member.instance_id]
        self.held_bytes += by * consumer_size(member)
        for name in member.topic_names:
            add_to(self._name_counts, name, by)
        if member.topic_regex:
            add_to(self._regex_counts, member.topic_regex, by)
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, epochs in owned.items():
                for partition in epochs:
                    place = (topic_id, partition)
                    if by > 0:
                        self._owners[place] = member.member_id
                    elif self._owners.get(place) == member.member_id:
                        del self._owners[place]

    # Members

    def _find_or_make(self, request: Heartbeat, records: list[ConsumerRecord]) -> ConsumerMember:
        joins = request.member_epoch == JOINING_EPOCH
        if request.instance_id is None:
            if joins and request.member_id not in self.members:
                return ConsumerMember(member_id=request.member_id)
            member = self.member(request.member_id)
            self._check_epoch(member, request)
            return member
        if not joins:
            member = self.static_member(request.instance_id, request.member_id)
            self._check_epoch(member, request)
            return member
        old_id = self.static_ids.get(request.instance_id)
        if old_id is None:
            return self.members.get(request.member_id) or ConsumerMember(member_id=request.member_id)
        old = self.members[old_id]
        if old.classic is None and old.member_epoch != STATIC_LEAVING_EPOCH:
            raise RefusedError(
                ErrorCode.unreleased_instance_id,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot join the "
                f"group because the instance id is owned by {old_id} member.",
            )
        return self.replace_static(old_id, request.member_id, records)

    def replace_static(self, old_id: str, member_id: str, records: list[ConsumerRecord]) -> ConsumerMember:
        """A static member is back under another member id: it keeps its partitions and its target."""
        returned = replace(self.members[old_id], member_id=member_id, member_epoch=0, previous_member_epoch=0)
        records += _removal(old_id)
        records.append(Subscription(returned.member_id, returned))
        records.append(Target(returned.member_id, self.target.get(old_id, {})))
        records.append(Ownership(returned.member_id, returned))
        return returned

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        known = self.static_ids.get(instance_id)
        if known is None:
            raise RefusedError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
        if known != member_id:
            raise RefusedError(
                ErrorCode.fenced_instance_id,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {known}.",
            )
        return self.members[known]

    def _check_epoch(self, member: ConsumerMember, request: Heartbeat) -> None:
        if request.member_epoch == JOINING_EPOCH:
            return
        known = member.member_epoch
        if request.member_epoch == known:
            if member.state is MemberState.UNKNOWN and (request.owned is None or request.owned):
                raise RefusedError(
                    ErrorCode.fenced_member_epoch,
                    "The consumer group member is in a unknown state. The member must abandon all its "
                    "partitions and rejoin.",
                )
            return
        if request.member_epoch == member.previous_member_epoch < known and has_all(member, request.owned):
            return  # the answer with the new epoch was lost
        size = "greater" if request.member_epoch > known else "smaller"
        raise RefusedError(
            ErrorCode.fenced_member_epoch,
            f"The consumer group member has a {size} member epoch ({request.member_epoch}) than the one known by "
            f"the group coordinator ({known}). The member must abandon all its partitions and rejoin.",
        )

    # Targets

    def _see(self, image: TopicImage) -> Mapping[str, tuple[UUID, int] | None]:
        return {name: image.describe(name) for name in self._topics(self.regexes)}

    def _topics(self, regexes: Mapping[str, ResolvedRegex]) -> set[str]:
        return set(self._name_counts).union(*(resolved.topics for resolved in regexes.values()))

    def _hash_topics(self, member: ConsumerMember, updated: ConsumerMember, image: TopicImage) -> int:
        topics = set(self._name_counts)
        if member.topic_names != updated.topic_names:
            topics -= {name for name in member.topic_names if self._name_counts[name] == 1}
            topics |= updated.topic_names
        alone = member.topic_regex if member.topic_regex != updated.topic_regex else None
        for regex, resolved in self.regexes.items():
            if not (regex == alone and self._regex_counts[regex] == 1):
                topics |= resolved.topics
        return hash_topics(topics, image)

    def _may_assign(self, limits: ConsumerGroupLimits, now_ms: int) -> bool:
        # A time that is still to come was noted before the clock was set back: it must not stop the group until then.
        waited_ms = now_ms - self.assignment_ms
        return self.assignment_ms == 0 or not 0 <= waited_ms < limits.assignment_interval_ms

    def _target_of(self, member: ConsumerMember) -> Partitions:
        member_id = member.member_id
        if member.instance_id is not None:
            member_id = self.static_ids.get(member.instance_id, "")
        return self.target.get(member_id, {})

    def _assign(
        self, updated: ConsumerMember, group_epoch: int, at: Moment
    ) -> tuple[Mapping[str, Partitions], list[ConsumerRecord]]:
        """The new target of everybody, and the records of what is new in it."""
        members = {**self.members, updated.member_id: updated}
        replaced = self.static_ids.get(updated.instance_id) if updated.instance_id is not None else None
        if replaced is not None and replaced != updated.member_id:
            members.pop(replaced, None)
        target = new_target(
            members,
            before={**self.target, updated.member_id: self._target_of(updated)},
            regexes=self.regexes,
            image=at.image,
            default_assignor=at.limits.assignors[0],
        )
        changes: list[ConsumerRecord] = [
            Target(member_id, target.get(member_id, {}))
            for member_id in members
            if target.get(member_id, {}) != self.target.get(member_id)
        ]
        changes.append(TargetEpoch(group_epoch, at.now_ms))
        return target, changes


def _removal(member_id: str) -> list[ConsumerRecord]:
    return [Ownership(member_id, None), Target(member_id, None), Subscription(member_id, None)]


def _updated(member: ConsumerMember, request: Heartbeat) -> ConsumerMember:
    """The member with the fields that the request sets."""
    names = request.topic_names
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if request.topic_regex is None else request.topic_regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )
