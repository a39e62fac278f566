"""From what a member owns towards its target, one step for each heartbeat.

    state                  what the member is told                  goes on when
    STABLE                 all of its target                        the target's epoch changes
    UNREVOKED_PARTITIONS   what it may keep; its epoch stays         it no longer reports what it must give back
    UNRELEASED_PARTITIONS  its target as far as it is free           others have given the rest back

So a partition is given to a member only after its former owner has said that it does not have it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from uuid import UUID

from suiro.broker.coordination.groups.consumer_member import (
    ConsumerMember,
    MemberState,
    PartitionEpochs,
    Partitions,
)


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Partitions,
    subscribed: frozenset[UUID],
    subscription_changed: bool,
    is_owned: Callable[[UUID, int], bool],
    reported: Partitions | None,
) -> ConsumerMember:
    """The next state of a member that has not all of its target, or whose subscription changed; or the same member.
    `reported` is what it says it owns; None if it did not say. `is_owned` tells whether any member owns a partition."""
    match member.state:
        case MemberState.STABLE if member.member_epoch == target_epoch:
            return _drop_unsubscribed(member, subscribed, reported)
        case MemberState.UNREVOKED_PARTITIONS if _still_has(member.pending_revocation, reported):
            return _drop_unsubscribed(member, subscribed, reported) if subscription_changed else member
    return _next(member, target_epoch, target, subscribed, is_owned, reported)


def _still_has(revoked: PartitionEpochs, reported: Partitions | None) -> bool:
    if reported is None:
        return True
    return any(not partitions.isdisjoint(revoked.get(topic, ())) for topic, partitions in reported.items())


def _drop_unsubscribed(
    member: ConsumerMember, subscribed: frozenset[UUID], reported: Partitions | None
) -> ConsumerMember:
    """The member's topics changed and no new target is there yet: what it does not want any more it gives back."""
    dropped = {topic: epochs for topic, epochs in member.assigned.items() if topic not in subscribed}
    if not dropped:
        return member
    assigned = {topic: epochs for topic, epochs in member.assigned.items() if topic in subscribed}
    pending: dict[UUID, Mapping[int, int]] = dict(member.pending_revocation)
    for topic, epochs in dropped.items():
        pending[topic] = {**pending.get(topic, {}), **epochs}
    shrunk = replace(member.at_epoch(member.member_epoch), assigned=assigned)
    if not _still_has(pending, reported):
        return shrunk
    return replace(shrunk, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=pending)


def _next(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    subscribed: frozenset[UUID],
    is_owned: Callable[[UUID, int], bool],
    reported: Partitions | None,
) -> ConsumerMember:
    kept: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    given: dict[UUID, set[int]] = {}
    waits = False
    for topic in target.keys() | member.assigned.keys():
        wanted = target.get(topic, frozenset()) if topic in subscribed else frozenset()
        current = member.assigned.get(topic, {})
        own = member.pending_revocation.get(topic, {})
        if keep := {partition: epoch for partition, epoch in current.items() if partition in wanted}:
            kept[topic] = keep
        if revoke := {partition: epoch for partition, epoch in current.items() if partition not in wanted}:
            revoked[topic] = revoke
        for partition in wanted - current.keys():
            # The member may keep a partition that it was itself about to give back.
            if is_owned(topic, partition) and partition not in own:
                waits = True
            else:
                given.setdefault(topic, set()).add(partition)
    if revoked and _still_has(revoked, reported):
        return replace(
            member.at_epoch(member.member_epoch),
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=revoked,
        )
    for topic, partitions in given.items():
        kept.setdefault(topic, {}).update(dict.fromkeys(partitions, target_epoch))
    return replace(
        member.at_epoch(target_epoch),
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        assigned=kept,
        pending_revocation={},
    )
