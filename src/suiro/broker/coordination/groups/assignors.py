"""The server-side assignors `uniform` and `range`: members and the target that they have -> a new target.

Pure, and the same results as Kafka's own: same quotas, same stickiness, same order of members and topics
(`java_hashes`). A member whose entry is missing from a result has nothing.

- `uniform` gives every member as many partitions as any other, give or take one, and moves as few as possible.
- `range` gives each member a run of neighbouring partitions of each of its topics, static members first, so that
  topics with as many partitions are assigned alike. It does not look at what members have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from suiro.broker.coordination.groups.consumer_member import Partitions
from suiro.broker.coordination.groups.uneven import assign_uneven
from suiro.broker.coordination.java_hashes import copied_hash_order, hash_order, string_hash, uuid_hash

Assignment: TypeAlias = dict[str, Partitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssigningMember:
    """A member as an assignor sees it: the topics it wants that exist, and its target so far."""

    instance_id: str | None
    topics: frozenset[UUID]
    target: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class AssigningGroup:
    """`members` in the order of the group; `assigned` is every partition in the group's target so far."""

    members: Mapping[str, AssigningMember]
    partitions: Mapping[UUID, int]
    assigned: frozenset[tuple[UUID, int]]
    same_topics: bool


def assign_uniform(group: AssigningGroup) -> Assignment:
    order = hash_order(group.members, string_hash)
    if not order:
        return {}
    if group.same_topics:
        return _assign_even(group, order)
    return assign_uneven(
        [(member_id, group.members[member_id].topics, group.members[member_id].target) for member_id in order],
        group.partitions,
    )


def _assign_even(group: AssigningGroup, order: list[str]) -> Assignment:
    """All members have the same topics."""
    topics = group.members[order[0]].topics
    if not topics:
        return {}
    free = [
        (topic_id, partition)
        for topic_id in copied_hash_order(topics, uuid_hash)
        for partition in range(group.partitions[topic_id])
        if (topic_id, partition) not in group.assigned
    ]
    total = sum(group.partitions[topic_id] for topic_id in topics)
    quota, extra = divmod(total, len(order))
    result: dict[str, dict[UUID, set[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    for position, member_id in enumerate(order):
        has_extra = extra > 0
        room = quota + 1 if has_extra else quota
        kept: dict[UUID, set[int]] = {}
        target = group.members[member_id].target
        for topic_id in hash_order(target, uuid_hash):
            if topic_id not in topics:
                continue
            partitions = copied_hash_order(target[topic_id], int)
            if partitions[:room]:
                kept[topic_id] = set(partitions[:room])
            free += [(topic_id, partition) for partition in partitions[room:]]
            room -= min(room, len(partitions))
        result[member_id] = kept
        if room and has_extra and len(order) - position > extra:
            # The extra partitions go to members that have as many already, or else to the last in the order.
            room, has_extra = room - 1, False
        extra -= has_extra
        if room:
            unfilled.append((member_id, room))
    rest = iter(free)
    for member_id, room in unfilled:
        for _, (topic_id, partition) in zip(range(room), rest, strict=False):
            result[member_id].setdefault(topic_id, set()).add(partition)
    return {member_id: frozen(partitions) for member_id, partitions in result.items()}


def assign_range(group: AssigningGroup) -> Assignment:
    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = group.members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    subscribers: dict[UUID, int] = {}
    for member in group.members.values():
        for topic_id in member.topics:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    begun: dict[UUID, int] = {}
    served: dict[UUID, int] = {}
    result: Assignment = {}
    for member_id in sorted(group.members, key=rank):
        ranges: dict[UUID, frozenset[int]] = {}
        for topic_id in group.members[member_id].topics:
            quota, extra = divmod(group.partitions[topic_id], subscribers[topic_id])
            first = begun.get(topic_id, 0)
            turn = served.get(topic_id, 0)
            end = first + quota + (1 if turn < extra else 0)
            begun[topic_id], served[topic_id] = end, turn + 1
            if first < end:
                ranges[topic_id] = frozenset(range(first, end))
        result[member_id] = ranges
    return result


def frozen(partitions: Mapping[UUID, set[int]]) -> Partitions:
    return {topic_id: frozenset(some) for topic_id, some in partitions.items() if some}


ASSIGNORS: Mapping[str, Callable[[AssigningGroup], Assignment]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
