"""A group with members goes from the classic protocol to the new one, and back (KIP-848's online migration).

Up when a member of the new protocol joins a classic group of consumers: its members stay, with their assignment and
their generation as epoch, and go on in the classic protocol until they are replaced. Down when the last member of
the new protocol is gone and those of the classic one are left.

In between, the server assigns the partitions of all members. The generation of a classic one is its member epoch, and
one heartbeat of the new protocol takes three requests: a heartbeat that is answered by REBALANCE_IN_PROGRESS, a
JoinGroup that reports the owned partitions, and a SyncGroup that returns the assignment. The consumer protocol inside
their metadata is translated; the broker does not read it as long as a group is classic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.consumer_member import (
    ClassicMember,
    ConsumerMember,
    MemberState,
    Moment,
    Partitions,
    TopicImage,
    without_epochs,
)
from suiro.broker.coordination.groups.consumer_records import (
    ConsumerRecord,
    GroupEpoch,
    Ownership,
    Subscription,
    Target,
    TargetEpoch,
)
from suiro.broker.coordination.groups.group import CONSUMER_PROTOCOL, Group, GroupLimits, GroupState
from suiro.broker.coordination.groups.group_member import JoinRequest, Member, MemberIdentity, SyncRequest
from suiro.broker.coordination.groups.targets import hash_topics
from suiro.broker.refusals import RefusedError
from suiro.protocol.fields import FieldReader, FieldWriter
from suiro.protocol.messages import ErrorCode

_HIGHEST_SUBSCRIPTION_VERSION = 3
_UP = ("bidirectional", "upgrade")
_DOWN = ("bidirectional", "downgrade")


def check_upgrade(group: Group, *, policy: str, max_size: int) -> None:
    """Raises `RefusedError`."""
    why = None
    if policy not in _UP:
        why = "online upgrade is disabled"
    elif not group.is_of_consumers:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > max_size:
        why = "the group size exceeds the consumer group maximum size"
    if why is not None:
        raise _cannot(group, why)


def upgraded(group: Group, image: TopicImage) -> tuple[ConsumerRecord, ...]:
    """The records of the consumer group that a classic group becomes. Raises `RefusedError`."""
    try:
        members = [_upgraded_member(group, member, image) for member in group.members.values()]
    except ValueError:
        raise _cannot(group, "the embedded consumer protocol is malformed") from None
    topics = {name for member, _ in members for name in member.topic_names}
    records: list[ConsumerRecord] = [Subscription(member.member_id, member) for member, _ in members]
    records.append(GroupEpoch(group.generation, hash_topics(topics, image)))
    records += [Target(member.member_id, target) for member, target in members]
    records.append(TargetEpoch(group.generation, 0))
    records += [Ownership(member.member_id, member) for member, _ in members]
    return tuple(records)


def _upgraded_member(group: Group, member: Member, image: TopicImage) -> tuple[ConsumerMember, Partitions]:
    assigned, foreign = decode_assignment(member.assignment) if member.assignment else ({}, b"")
    if foreign:
        raise _cannot(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade",
        )
    target = by_id(assigned, image)
    wants = decode_subscription(member.metadata(group.protocol))
    return (
        ConsumerMember(
            member_id=member.member_id,
            member_epoch=group.generation,
            previous_member_epoch=group.generation,
            instance_id=member.instance_id,
            rack_id=wants.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(wants.topics),
            assigned={topic: dict.fromkeys(some, group.generation) for topic, some in target.items()},
            classic=ClassicMember(session_timeout_ms=member.session_timeout_ms, protocols=member.protocols),
        ),
        target,
    )


def goes_down(group: ConsumerGroup, leaving: Iterable[str], *, policy: str, max_size: int) -> bool:
    """Whether the group is classic again once these members are gone."""
    gone = set(leaving)
    rest = [member for member_id, member in group.members.items() if member_id not in gone]
    is_classic = bool(rest) and all(member.classic is not None for member in rest)
    return is_classic and policy in _DOWN and len(rest) <= max_size


def downgraded(
    group: ConsumerGroup, leaving: Iterable[str], *, limits: GroupLimits, image: TopicImage, now: int
) -> Group:
    """The classic group that is left: stable until it rebalances."""
    gone = set(leaving)
    members = [
        Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.classic.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocols=member.classic.protocols,
        )
        for member_id, member in group.members.items()
        if member_id not in gone and member.classic is not None
    ]
    classic = Group(
        group_id=group.group_id,
        limits=limits,
        generation=group.group_epoch,
        protocol_type=CONSUMER_PROTOCOL,
        leader=members[0].member_id,
    )
    classic.restore(members, now=now)
    classic.protocol = classic.choose_protocol()
    classic.state = GroupState.STABLE
    for member in members:
        version = decode_subscription(member.metadata(classic.protocol)).version
        member.assignment = encode_assignment(version, by_name(group.target.get(member.member_id, {}), image))
    return classic


def by_id(partitions: Mapping[str, frozenset[int]], image: TopicImage) -> Partitions:
    """Topics that do not exist are left out."""
    found: dict[UUID, frozenset[int]] = {}
    for name, some in partitions.items():
        described = image.describe(name)
        if described is not None:
            found[described[0]] = some
    return found


def by_name(partitions: Partitions, image: TopicImage) -> dict[str, frozenset[int]]:
    named = ((image.name_of(topic_id), some) for topic_id, some in partitions.items())
    return {name: some for name, some in named if name is not None}


def _cannot(group: Group, why: str) -> RefusedError:
    return RefusedError(
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {why}.",
    )


def join_classic(
    group: ConsumerGroup, request: JoinRequest, *, member_id: str, at: Moment
) -> tuple[tuple[ConsumerRecord, ...], ConsumerMember]:
    """The records, and the member as they make it. Raises `RefusedError`."""
    if len(group.members) >= at.limits.max_size and member_id not in group.members:
        raise RefusedError(ErrorCode.group_max_size_reached, f"group {group.group_id} is full")
    names = {name for name, _ in request.protocols}
    of_all = [member.classic for member in group.members.values() if member.classic is not None]
    common = [name for name in names if all(name in dict(classic.protocols) for classic in of_all)]
    if request.protocol_type != CONSUMER_PROTOCOL or not common:
        raise RefusedError(ErrorCode.inconsistent_group_protocol, f"Member {member_id}'s protocols are not supported.")
    try:
        # All are decoded: one of the others is the group's when it becomes classic again.
        wants, *_ = [decode_subscription(metadata) for _, metadata in request.protocols]
    except ValueError as error:
        raise RefusedError(ErrorCode.inconsistent_group_protocol, str(error)) from None
    records: list[ConsumerRecord] = []
    member = _find_or_make(group, request, member_id, records)
    updated = replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=wants.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=frozenset(wants.topics),
        topic_regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMember(session_timeout_ms=request.session_timeout_ms, protocols=request.protocols),
    )
    reconciled, _ = group.advance(member, updated, records, reported=by_id(wants.owned, at.image), at=at)
    return tuple(records), reconciled


def sync_classic(group: ConsumerGroup, request: SyncRequest, *, at: Moment) -> bytes:
    """The assignment. Raises `RefusedError`."""
    member_id = request.member_id
    member, classic = _classic_member(group, request.member)
    name, metadata = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol not in (None, name):
        raise RefusedError(ErrorCode.inconsistent_group_protocol, f"the protocol of {member_id} is {name}")
    if is_behind(group, member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
        raise RefusedError(ErrorCode.rebalance_in_progress, f"member {member_id} should join again")
    version = decode_subscription(metadata).version
    return encode_assignment(version, by_name(without_epochs(member.assigned), at.image))


def heartbeat_classic(group: ConsumerGroup, who: MemberIdentity) -> tuple[ConsumerMember, bool]:
    """The member, and whether it should join again. Raises `RefusedError`."""
    member, _ = _classic_member(group, who)
    is_free = member.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member)
    return member, is_behind(group, member) or member.state is MemberState.UNREVOKED_PARTITIONS or is_free


def is_behind(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return group.assignment_epoch > member.member_epoch


def leaving_classic(group: ConsumerGroup, *, member_id: str, instance_id: str | None) -> str:
    """The id of the member that a LeaveGroup names. Raises `RefusedError`."""
    if instance_id is None:
        return group.member(member_id).member_id
    return group.static_member(instance_id, member_id or group.static_ids.get(instance_id, "")).member_id


def _find_or_make(
    group: ConsumerGroup, request: JoinRequest, member_id: str, records: list[ConsumerRecord]
) -> ConsumerMember:
    if request.instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)
    if request.member_id:
        return group.static_member(request.instance_id, request.member_id)
    old_id = group.static_ids.get(request.instance_id)
    if old_id is None:
        return ConsumerMember(member_id=member_id)
    return group.replace_static(old_id, member_id, records)


def _classic_member(group: ConsumerGroup, who: MemberIdentity) -> tuple[ConsumerMember, ClassicMember]:
    member_id, instance_id, generation = who
    member = group.member(member_id) if instance_id is None else group.static_member(instance_id, member_id)
    if member.classic is None:
        raise RefusedError(ErrorCode.unknown_member_id, f"Member {member_id} does not use the classic protocol.")
    if member.member_epoch != generation:
        raise RefusedError(
            ErrorCode.illegal_generation,
            f"The request generation id {generation} is not equal to the member epoch {member.member_epoch} of "
            f"member {member_id}.",
        )
    return member, member.classic


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether something of its target is still another's."""
    return any(
        partition not in member.assigned.get(topic, {}) and group.is_owned(topic, partition)
        for topic, partitions in group.target.get(member.member_id, {}).items()
        for partition in partitions
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSubscription:
    """The topics that a member wants, and the partitions that it owns by name."""

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None


def decode_subscription(data: bytes) -> EmbeddedSubscription:
    """Raises ValueError."""
    reader = FieldReader(data)
    version = min(reader.int16(), _HIGHEST_SUBSCRIPTION_VERSION)
    topics = tuple(reader.string() for _ in range(reader.int32()))
    reader.octets()
    owned = _read_partitions(reader) if version >= 1 else {}
    if version >= 2:
        reader.int32()  # the generation, which the broker knows better
    rack_id = reader.optional_string() if version >= 3 else None
    return EmbeddedSubscription(version=max(version, 0), topics=topics, owned=owned, rack_id=rack_id)


def encode_assignment(version: int, partitions: Mapping[str, frozenset[int]]) -> bytes:
    writer = FieldWriter().int16(version).int32(len(partitions))
    for topic, some in partitions.items():
        writer.string(topic).int32(len(some))
        for partition in sorted(some):
            writer.int32(partition)
    return writer.int32(-1).done()


def decode_assignment(data: bytes) -> tuple[Mapping[str, frozenset[int]], bytes]:
    """(partitions, data of a custom assignor). Raises ValueError."""
    reader = FieldReader(data)
    reader.int16()
    partitions = _read_partitions(reader)
    return partitions, reader.octets()


def _read_partitions(reader: FieldReader) -> dict[str, frozenset[int]]:
    partitions = {}
    for _ in range(reader.int32()):
        topic = reader.string()
        partitions[topic] = frozenset(reader.int32() for _ in range(reader.int32()))
    return partitions
