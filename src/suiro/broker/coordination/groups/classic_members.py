"""Members of the classic protocol in a group of the new one, while it migrates: JoinGroup, SyncGroup, Heartbeat.

The server assigns their partitions, as those of all members. Their generation is their member epoch. One heartbeat of
the new protocol takes three requests here: a heartbeat that is answered by REBALANCE_IN_PROGRESS, a JoinGroup that
reports the owned partitions, and a SyncGroup that returns the assignment.
"""

from __future__ import annotations

from dataclasses import replace

from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.consumer_member import (
    ClassicMember,
    ConsumerMember,
    MemberState,
    without_epochs,
)
from suiro.broker.coordination.groups.consumer_messages import Moment
from suiro.broker.coordination.groups.consumer_records import ConsumerRecord
from suiro.broker.coordination.groups.embedded import decode_subscription, encode_assignment
from suiro.broker.coordination.groups.group import CONSUMER_PROTOCOL
from suiro.broker.coordination.groups.group_messages import JoinRequest, SyncRequest
from suiro.broker.coordination.groups.migration import by_id, by_name
from suiro.broker.refusals import RefusedError
from suiro.protocol.messages import ErrorCode


def join(
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


def sync(group: ConsumerGroup, request: SyncRequest, *, at: Moment) -> bytes:
    """The assignment. Raises `RefusedError`."""
    member_id = request.member_id
    member, classic = _classic_member(group, member_id, request.instance_id, request.generation)
    name, metadata = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol not in (None, name):
        raise RefusedError(ErrorCode.inconsistent_group_protocol, f"the protocol of {member_id} is {name}")
    if is_behind(group, member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
        raise RefusedError(ErrorCode.rebalance_in_progress, f"member {member_id} should join again")
    version = decode_subscription(metadata).version
    return encode_assignment(version, by_name(without_epochs(member.assigned), at.image))


def heartbeat(
    group: ConsumerGroup, *, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, bool]:
    """The member, and whether it should join again. Raises `RefusedError`."""
    member, _ = _classic_member(group, member_id, instance_id, generation)
    is_free = member.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member)
    return member, is_behind(group, member) or member.state is MemberState.UNREVOKED_PARTITIONS or is_free


def is_behind(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return group.assignment_epoch > member.member_epoch


def leaving(group: ConsumerGroup, *, member_id: str, instance_id: str | None) -> str:
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


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMember]:
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
