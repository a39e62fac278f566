"""The target assignment of a group, computed by the assignor that most members ask for from the topics that exist.

Assignors are pure: members and the target that they have -> a new target. A member whose entry is missing has nothing.

- `uniform` gives every member as many partitions as any other, give or take one, as far as their topics allow, and
  moves as few as possible. What members have they keep; free partitions go to the least loaded subscribers, topic by
  topic; then partitions move from the most to the least loaded subscribers of each topic, until a round moves nothing.
- `range` gives each member a run of neighbouring partitions of each of its topics, static members first, so that
  topics with as many partitions are assigned alike. It does not look at what members have.

Members and topics are taken in the order of their ids. Apache Kafka takes them in the order of Java's hash tables: it
may give a partition to another member, with the same shares.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain
from typing import TypeAlias
from uuid import UUID

from suiro.broker.coordination.groups.consumer_member import ConsumerMember, Partitions, ResolvedRegex, TopicImage

Assignment: TypeAlias = Mapping[str, Partitions]

_MOST_ROUNDS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AssigningMember:
    """A member as an assignor sees it: the topics it wants that exist, and its target so far."""

    instance_id: str | None
    topics: frozenset[UUID]
    target: Partitions


def new_target(
    members: Mapping[str, ConsumerMember],
    *,
    before: Mapping[str, Partitions],
    regexes: Mapping[str, ResolvedRegex],
    image: TopicImage,
    default_assignor: str,
) -> Assignment:
    """The target of every member. `before` is their target so far."""
    wants = {member_id: topic_ids(member, regexes, image) for member_id, member in members.items()}
    described = (image.describe(name) for name in {name for topics in wants.values() for name in topics})
    assigning = {
        member_id: AssigningMember(
            instance_id=member.instance_id,
            topics=frozenset(wants[member_id].values()),
            target=before.get(member_id, {}),
        )
        for member_id, member in members.items()
    }
    assign = _ASSIGNORS[preferred_assignor(members.values()) or default_assignor]
    return assign(assigning, dict(found for found in described if found is not None))


def topic_ids(member: ConsumerMember, regexes: Mapping[str, ResolvedRegex], image: TopicImage) -> Mapping[str, UUID]:
    """The topics that a member wants and that exist."""
    names = set(member.topic_names)
    if member.topic_regex and member.topic_regex in regexes:
        names |= regexes[member.topic_regex].topics
    described = {name: image.describe(name) for name in names}
    return {name: found[0] for name, found in described.items() if found is not None}


def preferred_assignor(members: Iterable[ConsumerMember]) -> str | None:
    counts = Counter(member.server_assignor for member in members if member.server_assignor is not None)
    return max(sorted(counts), key=lambda name: counts[name], default=None)


def hash_topics(names: Iterable[str], image: TopicImage) -> int:
    """Changes when one of the topics is made, deleted or gets partitions. Signed, 0 for none, as in the record.

    Not Kafka's own hash, so a group that Apache Kafka takes over computes its target once anew.
    """
    digest = hashlib.blake2b(digest_size=8)
    empty = True
    for name in sorted(names):
        described = image.describe(name)
        if described is not None:
            empty = False
            digest.update(described[0].bytes + described[1].to_bytes(4, "big"))
    return 0 if empty else int.from_bytes(digest.digest(), "big", signed=True)


def assign_uniform(members: Mapping[str, AssigningMember], partitions: Mapping[UUID, int]) -> Assignment:
    work = _Uniform(members, partitions)
    work.keep()
    work.hand_out()
    work.balance()
    return {
        member_id: {topic_id: frozenset(some) for topic_id, some in topics.items() if some}
        for member_id, topics in work.owned.items()
    }


class _Uniform:
    """What each member owns while the assignment is computed."""

    def __init__(self, members: Mapping[str, AssigningMember], partitions: Mapping[UUID, int]) -> None:
        self._members = members
        self._partitions = partitions
        self._loads = dict.fromkeys(members, 0)
        # Most members have the same topics: no step is done for each topic of each member.
        alike: dict[frozenset[UUID], list[str]] = {}
        for member_id, member in members.items():
            alike.setdefault(member.topics, []).append(member_id)
        self._subscribers: dict[UUID, list[str]] = {}
        for topics, member_ids in alike.items():
            for topic_id in topics:
                self._subscribers.setdefault(topic_id, []).extend(member_ids)
        # From the topic with the most partitions for each subscriber to the least: the last ones even out the loads.
        self._topics = sorted(self._subscribers, key=self._rank)
        self.owned: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in members}

    def _rank(self, topic_id: UUID) -> tuple[float, int, UUID]:
        subscribers = len(self._subscribers[topic_id])
        return -self._partitions[topic_id] / subscribers, subscribers, topic_id

    def _give(self, topic_id: UUID, partition: int, member_id: str) -> None:
        self.owned[member_id].setdefault(topic_id, set()).add(partition)
        self._loads[member_id] += 1

    def keep(self) -> None:
        self._free = {topic_id: set(range(self._partitions[topic_id])) for topic_id in self._topics}
        for member_id, member in self._members.items():
            for topic_id, partitions in member.target.items():
                if topic_id in member.topics:
                    free = self._free[topic_id]
                    kept = free & partitions
                    free -= kept
                    self.owned[member_id][topic_id] = kept
                    self._loads[member_id] += len(kept)

    def hand_out(self) -> None:
        subscribers: list[str] = []
        takers: list[tuple[int, str]] = []
        for topic_id in filter(self._free.get, self._topics):
            if subscribers != self._subscribers[topic_id]:
                subscribers = self._subscribers[topic_id]
                takers = self._by_load(subscribers)
            for partition in sorted(self._free[topic_id]):
                _, member_id = takers[0]
                self._give(topic_id, partition, member_id)
                heapreplace(takers, (self._loads[member_id], member_id))

    def balance(self) -> None:
        for _ in range(_MOST_ROUNDS):
            if _spread(self._loads.values()) <= 1 or not sum(map(self._balance_topic, self._topics)):
                return

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Whether anything moved."""
        loads, subscribers, moved = self._loads, self._subscribers[topic_id], False
        if _spread([loads[one] for one in subscribers]) <= 1:
            return False
        takers = self._by_load(subscribers)
        givers = [(-loads[one], one) for one in subscribers if self.owned[one].get(topic_id)]
        heapify(givers)
        while givers:
            load, giver = heappop(givers)
            while loads[takers[0][1]] != takers[0][0]:  # it has changed meanwhile
                heappop(takers)
            least, taker = takers[0]
            if -load - least <= 1:
                break
            partition = max(self.owned[giver][topic_id])
            self.owned[giver][topic_id].remove(partition)
            loads[giver] -= 1
            self._give(topic_id, partition, taker)
            moved = True
            for changed in (giver, taker):
                heappush(takers, (loads[changed], changed))
            if self.owned[giver][topic_id]:
                heappush(givers, (-loads[giver], giver))
        return moved

    def _by_load(self, member_ids: Iterable[str]) -> list[tuple[int, str]]:
        """A heap with the least loaded member first."""
        heap = [(self._loads[member_id], member_id) for member_id in member_ids]
        heapify(heap)
        return heap


def _spread(loads: Collection[int]) -> int:
    return max(loads, default=0) - min(loads, default=0)


def assign_range(members: Mapping[str, AssigningMember], partitions: Mapping[UUID, int]) -> Assignment:
    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    waiting: dict[UUID, int] = Counter(chain.from_iterable(member.topics for member in members.values()))
    begun = dict.fromkeys(waiting, 0)
    result: dict[str, Partitions] = {}
    for member_id in sorted(members, key=rank):
        ranges: dict[UUID, frozenset[int]] = {}
        for topic_id in members[member_id].topics:
            first = begun[topic_id]
            end = begun[topic_id] = first - (first - partitions[topic_id]) // waiting[topic_id]  # rounded up
            waiting[topic_id] -= 1
            if first < end:
                ranges[topic_id] = frozenset(range(first, end))
        result[member_id] = ranges
    return result


_ASSIGNORS: Mapping[str, Callable[[Mapping[str, AssigningMember], Mapping[UUID, int]], Assignment]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
