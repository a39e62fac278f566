"""A group with members goes from the classic protocol to the new one, and back (KIP-848's online migration).

Up when a member of the new protocol joins a classic group of consumers: its members stay, with their assignment and
their generation as epoch, and go on in the classic protocol until they are replaced. Down when the last member of
the new protocol is gone and those of the classic one are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.consumer_member import (
    ClassicMember,
    ConsumerMember,
    Partitions,
    TopicImage,
)
from suiro.broker.coordination.groups.consumer_records import (
    ConsumerRecord,
    GroupEpoch,
    Ownership,
    Subscription,
    Target,
    TargetEpoch,
)
from suiro.broker.coordination.groups.embedded import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from suiro.broker.coordination.groups.group import CONSUMER_PROTOCOL, Group, GroupLimits, GroupState
from suiro.broker.coordination.groups.group_member import Member
from suiro.broker.coordination.groups.targets import hash_topics
from suiro.broker.refusals import RefusedError
from suiro.protocol.messages import ErrorCode

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
