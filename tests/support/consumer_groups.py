"""A consumer group without a broker: its rules, a made-up list of topics, and members as a client plays them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.consumer_member import STATIC_LEAVING_EPOCH
from suiro.broker.coordination.groups.consumer_messages import (
    ConsumerGroupLimits,
    Heartbeat,
    HeartbeatReply,
    Moment,
)
from suiro.broker.coordination.groups.consumer_records import ConsumerRecord, decode, encode
from suiro.broker.coordination.groups.regexes import ResolvedRegex, matching_topics


@dataclass
class Topics:
    """`TopicImage` in memory."""

    partitions: dict[str, int] = field(default_factory=dict)
    version: int = 0
    deleted: Counter[str] = field(default_factory=Counter)

    def make(self, name: str, partitions: int) -> None:
        self.partitions[name] = partitions
        self.version += 1

    def delete(self, name: str) -> None:
        if self.partitions.pop(name, None) is not None:
            self.deleted[name] += 1

    def id_of(self, name: str) -> UUID:
        """A topic that is made again is another one."""
        return UUID(int=int.from_bytes(name.encode(), "big") + (self.deleted[name] << 100))

    def describe(self, name: str) -> tuple[UUID, int] | None:
        return (self.id_of(name), self.partitions[name]) if name in self.partitions else None

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name in self.partitions if self.id_of(name) == topic_id), None)

    def names(self) -> Iterable[str]:
        return self.partitions


@dataclass
class GroupWorld:
    """The group, its log, and the time. Every record goes through its bytes."""

    group: ConsumerGroup = field(default_factory=lambda: ConsumerGroup(group_id="g"))
    topics: Topics = field(default_factory=Topics)
    limits: ConsumerGroupLimits = field(default_factory=lambda: ConsumerGroupLimits(assignment_interval_ms=0))
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    now: int = 1_000_000

    def write(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            key, value = encode("g", record)
            self.log.append((key, value))
            decoded = decode(key, value)
            assert decoded is not None
            self.group.apply(decoded[1])

    def replayed(self) -> ConsumerGroup:
        """The group as a start would find it."""
        group = ConsumerGroup(group_id="g")
        for key, value in self.log:
            decoded = decode(key, value)
            assert decoded is not None
            group.apply(decoded[1])
        return group

    def send(self, request: Heartbeat) -> HeartbeatReply:
        if request.member_epoch < 0:
            reply, member_id = self.group.leaving(request)
            if request.member_epoch == STATIC_LEAVING_EPOCH:
                self.write(self.group.away(member_id))
            else:
                self.write(self.group.fence([member_id], image=self.topics))
            return reply
        at = Moment(image=self.topics, limits=self.limits, now_ms=self.now)
        outcome = self.group.heartbeat(request, at=at)
        self.write(outcome.records)
        self.group.keep_alive(outcome.reply.member_id, at=at, now=self.now)
        if outcome.resolve:
            found = {
                regex: ResolvedRegex(
                    topics=matching_topics(regex, self.topics.names()),
                    version=self.topics.version,
                    timestamp_ms=self.now,
                )
                for regex in outcome.resolve
            }
            self.write(self.group.regexes_resolved(found, image=self.topics))
        return outcome.reply

    def fence_late(self) -> tuple[str, ...]:
        late = self.group.timers.late(self.now)
        for member_id in late:
            self.write(self.group.fence([member_id], image=self.topics))
        return late


@dataclass
class Consumer:
    """A member as a client plays it: it has what it was told, and gives back when it feels like it."""

    world: GroupWorld
    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    owned: dict[UUID, frozenset[int]] = field(default_factory=dict)

    def join(self, *topics: str, regex: str | None = None, assignor: str | None = None) -> HeartbeatReply:
        self.owned = {}
        return self._sent(
            Heartbeat(
                member_id=self.member_id,
                member_epoch=0,
                instance_id=self.instance_id,
                rebalance_timeout_ms=60_000,
                topic_names=None if regex is not None and not topics else topics,
                topic_regex=regex,
                server_assignor=assignor,
                owned={},
            )
        )

    def beat(self, *, topics: tuple[str, ...] | None = None, reports: bool = True) -> HeartbeatReply:
        return self._sent(
            Heartbeat(
                member_id=self.member_id,
                member_epoch=self.epoch,
                instance_id=self.instance_id,
                topic_names=topics,
                owned=self.owned if reports else None,
            )
        )

    def leave(self, *, epoch: int = -1) -> HeartbeatReply:
        request = Heartbeat(member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id)
        return self.world.send(request)

    def _sent(self, request: Heartbeat) -> HeartbeatReply:
        reply = self.world.send(request)
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.owned = dict(reply.assignment)
        return reply

    @property
    def places(self) -> set[tuple[UUID, int]]:
        return {(topic, partition) for topic, some in self.owned.items() for partition in some}
