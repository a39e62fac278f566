"""The `uniform` assignor for members that do not all have the same topics.

What members have they keep; free partitions go to the least loaded subscriber, topic by topic, from the topic with
the most partitions for each subscriber to the least; then partitions move from the most to the least loaded
subscribers of each topic, until a whole round moves nothing. The moves are Kafka's, step by step, so that the
result is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from suiro.broker.coordination.groups.consumer_member import Partitions
from suiro.broker.coordination.java_hashes import uuid_order

_MOST_ROUNDS = 16
_NOBODY = -1


def assign_uneven(
    members: Sequence[tuple[str, frozenset[UUID], Partitions]], partitions: Mapping[UUID, int]
) -> dict[str, Partitions]:
    """`members` are (member id, topics, target so far). Members are numbered by their place in it."""
    subscribers: dict[UUID, list[int]] = {}
    for number, (_, topics, _) in enumerate(members):
        for topic_id in topics:
            subscribers.setdefault(topic_id, []).append(number)
    if not subscribers:
        return {}
    work = _Work(subscribers, {topic_id: partitions[topic_id] for topic_id in subscribers}, len(members))
    for number, (_, topics, target) in enumerate(members):
        for topic_id in topics & target.keys():
            for partition in target[topic_id]:
                work.give(topic_id, partition, number)
    work.hand_out()
    work.balance()
    result: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id, _, _ in members}
    for topic_id, owners in work.owners.items():
        for partition, number in enumerate(owners):
            result[members[number][0]].setdefault(topic_id, set()).add(partition)
    return {
        member_id: {topic_id: frozenset(some) for topic_id, some in topics.items()}
        for member_id, topics in result.items()
    }


class _Work:
    """The owners of the partitions while the assignment is computed."""

    def __init__(self, subscribers: Mapping[UUID, list[int]], partitions: Mapping[UUID, int], members: int) -> None:
        self.subscribers = subscribers
        self.owners = {topic_id: [_NOBODY] * count for topic_id, count in partitions.items()}
        self.loads = [0] * members

    def give(self, topic_id: UUID, partition: int, number: int) -> None:
        owner = self.owners[topic_id][partition]
        if owner != _NOBODY:
            self.loads[owner] -= 1
        self.owners[topic_id][partition] = number
        self.loads[number] += 1

    def ordered(self, topics: Sequence[UUID]) -> list[UUID]:
        def rank(topic_id: UUID) -> tuple[float, int, tuple[int, int]]:
            count = len(self.subscribers[topic_id])
            return (-len(self.owners[topic_id]) / count, count, uuid_order(topic_id))

        return sorted(topics, key=rank)

    def hand_out(self) -> None:
        free = {
            topic_id: [partition for partition, owner in enumerate(owners) if owner == _NOBODY]
            for topic_id, owners in self.owners.items()
        }
        for topic_id in self.ordered([topic_id for topic_id, some in free.items() if some]):
            scale = _Scale(self.subscribers[topic_id], self.loads)
            for partition in free[topic_id]:
                self.give(topic_id, partition, scale.next_least_loaded())

    def balance(self) -> None:
        topics = self.ordered([t for t, subscribers in self.subscribers.items() if len(subscribers) >= 2])
        last_moved = -1
        for _ in range(_MOST_ROUNDS if topics else 0):
            for position, topic_id in enumerate(topics):
                if position == last_moved:
                    return
                if self._balance_topic(topic_id) or last_moved == -1:
                    last_moved = position

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Whether anything moved."""
        scale = _Scale(self.subscribers[topic_id], self.loads)
        if scale.spread <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        moved = False
        while not scale.is_balanced():
            giver = scale.next_most_loaded()
            while giver != _NOBODY and not owned.get(giver):
                scale.exclude_most_loaded()
                giver = scale.next_most_loaded()
            if giver == _NOBODY:
                break
            partition = owned[giver].pop()
            taker = scale.next_least_loaded()
            if scale.is_balanced():
                break
            self.give(topic_id, partition, taker)
            moved = True
        return moved


class _Scale:
    """Subscribers by load, with a growing range at each end.

    The least loaded range grows to the right: when each in it has been given one, its level rises and those who
    were at that level before join it. The most loaded range grows to the left in the same way. The loads that
    count are those of subscribers outside the ranges, which nobody changes meanwhile.
    """

    def __init__(self, subscribers: Sequence[int], loads: list[int]) -> None:
        self._loads = loads
        self._sorted = sorted(subscribers, key=lambda number: (loads[number], number))
        least, most = loads[self._sorted[0]], loads[self._sorted[-1]]
        self.spread = most - least
        self._least_end, self._least_level, self._next_least = 0, least - 1, 0
        self._most_start = self._most_end = len(self._sorted)
        self._most_level, self._next_most = most + 1, len(self._sorted) - 1

    def is_balanced(self) -> bool:
        return self._most_level - self._least_level <= 1

    def next_least_loaded(self) -> int:
        if self._next_least >= self._least_end:
            self._least_level += 1
            while (
                self._least_end < len(self._sorted) and self._loads[self._sorted[self._least_end]] == self._least_level
            ):
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return self._sorted[self._next_least - 1]

    def next_most_loaded(self) -> int:
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # All in the range were excluded; without this the range would not grow again.
                self._most_level = self._loads[self._sorted[self._most_start - 1]]
            else:
                self._most_level -= 1
            while self._most_start > 0 and self._loads[self._sorted[self._most_start - 1]] == self._most_level:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return _NOBODY
        self._next_most -= 1
        return self._sorted[self._next_most + 1]

    def exclude_most_loaded(self) -> None:
        """The one given last has nothing to give: out of the range."""
        at, end = self._next_most + 1, self._most_end - 1
        self._sorted[at], self._sorted[end] = self._sorted[end], self._sorted[at]
        self._most_end -= 1
