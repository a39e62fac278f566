"""A consumer group without a broker: its rules, a made-up list of topics, and members as a client plays them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.consumer_member import (
    STATIC_LEAVING_EPOCH,
    ConsumerGroupLimits,
    Heartbeat,
    HeartbeatReply,
    Moment,
    Partitions,
    ResolvedRegex,
)
from suiro.broker.coordination.groups.consumer_records import ConsumerRecord, decode, encode
from suiro.broker.coordination.groups.regexes import matching_topics
from suiro.broker.refusals import RefusedError


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
        late = tuple(self.group.timers.late(self.now))
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


@dataclass
class SlowConsumer(Consumer):
    """A member that needs time for what it is told, and says what it owns only when that changed.

    The rules are those of Kafka's Java client. It carries out one assignment after the other, and reports each, also
    one that is what it has already: another may have been given and taken back meanwhile. One heartbeat is in flight.
    After a lost answer the next heartbeat repeats everything.
    """

    STEPS: ClassVar = ("send", "receive", "begin_work", "end_work")

    topics: tuple[str, ...] = ()
    told: Partitions = field(default_factory=dict)
    told_number: int = 0  # of assignments that it was told
    owned_number: int = 0  # the one that it has carried out
    reported_number: int = 0
    work: tuple[int, Partitions] | None = None  # the one that it carries out
    in_flight: tuple[HeartbeatReply, int | None] | None = None  # the answer on its way, and what the request reported
    says_topics: bool = False
    says_all: bool = False

    def join(self, *topics: str, regex: str | None = None, assignor: str | None = None) -> HeartbeatReply:
        self.topics, self.told, self.work, self.in_flight = topics, {}, None, None
        self.told_number = self.owned_number = self.reported_number = 0
        self.says_topics = self.says_all = False
        reply = super().join(*topics, regex=regex, assignor=assignor)
        self.owned = {}
        self._heed(reply)
        return reply

    def change_topics(self, *topics: str) -> None:
        self.topics, self.says_topics = topics, True

    def send(self) -> None:
        if self.in_flight is not None or (self.says_all and self.work is not None):
            return
        reports = self.says_all or self.owned_number != self.reported_number
        request = Heartbeat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if self.says_all else -1,
            topic_names=self.topics if self.says_all or self.says_topics else None,
            owned=self.owned if reports else None,
        )
        try:
            reply = self.world.send(request)
        except RefusedError as refusal:
            if refusal.code.name != "fenced_member_epoch":
                raise
            self.join(*self.topics)
            return
        self.says_topics = False
        self.in_flight = (reply, self.owned_number if reports else None)

    def receive(self) -> None:
        if self.in_flight is None:
            return
        (reply, reported), self.in_flight = self.in_flight, None
        self.says_all = False
        self.reported_number = self.reported_number if reported is None else reported
        self._heed(reply)

    def lose(self) -> None:
        self.in_flight, self.says_all = None, True

    def begin_work(self) -> None:
        """It does not begin while a report is not answered: what it was told may be another's since that report."""
        reports = self.says_all or (self.in_flight is not None and self.in_flight[1] is not None)
        if self.work is None and not reports and self.owned_number == self.reported_number != self.told_number:
            self.work = (self.told_number, self.told)

    def end_work(self) -> None:
        if self.work is not None:
            (self.owned_number, partitions), self.work = self.work, None
            self.owned = dict(partitions)

    def settle(self) -> None:
        """As much as a member that is not disturbed does between two heartbeats."""
        self.receive()
        self.end_work()
        for _ in range(2):
            self.send()
            self.receive()
            self.begin_work()
            self.end_work()

    def _heed(self, reply: HeartbeatReply) -> None:
        self.epoch = reply.member_epoch
        if reply.assignment is not None and reply.assignment != self.told:
            self.told, self.told_number = reply.assignment, self.told_number + 1
