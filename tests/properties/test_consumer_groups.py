"""A consumer group under drawn members, topics, losses and starts: nothing is owned twice, and it comes to rest."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.consumer_groups import Consumer, GroupWorld, SlowConsumer
from support.share import examples, share_of

from suiro.broker.coordination.groups.consumer_group import ConsumerGroupState
from suiro.broker.coordination.groups.consumer_member import Heartbeat
from suiro.broker.refusals import RefusedError

NAMES = ("t", "u", "v")
pick = st.integers(0, 10**6)
topics = st.sets(st.sampled_from(NAMES), max_size=3)


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Clients own what they were told until they say otherwise; the invariants look at what they really own."""

    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld()
        self.consumers: list[Consumer] = []
        self.highest_epoch = 0
        self.epochs: dict[str, int] = {}
        self.made = 0

    @initialize(interval=st.sampled_from((0, 1000)))
    def begin(self, interval: int) -> None:
        self.world.limits = replace(self.world.limits, assignment_interval_ms=interval)
        self.world.topics.make("t", 3)

    def one(self, number: int) -> Consumer:
        return self.consumers[number % len(self.consumers)]

    @rule(
        wants=topics,
        regex=st.sampled_from((None, None, "t|v", ".*")),
        assignor=st.sampled_from((None, "range", "uniform")),
        static=st.sampled_from((None, None, "i", "j")),
    )
    def join(self, wants: set[str], regex: str | None, assignor: str | None, static: str | None) -> None:
        consumer = Consumer(self.world, f"m{self.made}", instance_id=static)
        self.made += 1
        try:
            consumer.join(*sorted(wants), regex=regex, assignor=assignor)
        except RefusedError as refusal:
            if refusal.code.name != "unreleased_instance_id":
                raise
            return
        self.consumers.append(consumer)

    @precondition(lambda self: self.consumers)
    @rule(number=pick, reports=st.booleans())
    def beat(self, number: int, reports: bool) -> None:
        self.one(number).beat(reports=reports)

    @precondition(lambda self: self.consumers)
    @rule(number=pick, wants=topics)
    def change_topics(self, number: int, wants: set[str]) -> None:
        self.one(number).beat(topics=tuple(sorted(wants)))

    @precondition(lambda self: self.consumers)
    @rule(number=pick)
    def lose_an_answer(self, number: int) -> None:
        """The group moves on, the client does not know; it goes on with its old epoch."""
        consumer = self.one(number)
        request = Heartbeat(member_id=consumer.member_id, member_epoch=consumer.epoch, owned=consumer.owned)
        self.world.send(replace(request, instance_id=consumer.instance_id))
        try:
            reply = consumer.beat()
        except RefusedError as refusal:
            if refusal.code.name != "fenced_member_epoch":
                raise
            consumer.join(*sorted(self.world.group.members[consumer.member_id].topic_names))
            return
        if reply.assignment is None:  # as real clients do after a loss: say everything again
            everything = replace(
                request,
                member_epoch=consumer.epoch,
                instance_id=consumer.instance_id,
                rebalance_timeout_ms=60_000,
                topic_names=tuple(self.world.group.members[consumer.member_id].topic_names),
                owned=consumer.owned,
            )
            reply = self.world.send(everything)
            consumer.epoch, consumer.owned = reply.member_epoch, dict(reply.assignment or {})

    @precondition(lambda self: self.consumers)
    @rule(number=pick, static=st.booleans())
    def leave(self, number: int, static: bool) -> None:
        consumer = self.one(number)
        consumer.leave(epoch=-2 if static and consumer.instance_id is not None else -1)
        self.consumers.remove(consumer)

    @precondition(lambda self: self.consumers)
    @rule(number=pick)
    def fall_silent(self, number: int) -> None:
        """Its session ends, and those of whoever else has been quiet for as long."""
        silent = self.one(number)
        self.world.now += 44_000
        for consumer in self.consumers:
            if consumer is not silent:
                consumer.beat()
        self.world.now += 2_000
        late = self.world.fence_late()
        assert silent.member_id in late
        self.consumers = [consumer for consumer in self.consumers if consumer.member_id not in late]

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 3))
    def make_or_grow_a_topic(self, name: str, more: int) -> None:
        self.world.topics.make(name, self.world.topics.partitions.get(name, 0) + more)

    @rule(name=st.sampled_from(NAMES))
    def delete_a_topic(self, name: str) -> None:
        self.world.topics.delete(name)

    @rule(passed=st.integers(1, 12_000))
    def let_time_pass(self, passed: int) -> None:
        self.world.now += passed
        late = self.world.fence_late()
        self.consumers = [consumer for consumer in self.consumers if consumer.member_id not in late]

    @rule()
    def start_again(self) -> None:
        again = self.world.replayed()
        assert (again.members, again.target) == (self.world.group.members, self.world.group.target)
        for member in again.members.values():
            again.timers.start(member, limits=self.world.limits, now=self.world.now)
        self.world.group = again

    @invariant()
    def nothing_is_owned_twice(self) -> None:
        owned: list[tuple[UUID, int]] = []
        for consumer in self.consumers:
            owned += consumer.places
        assert len(owned) == len(set(owned))

    @invariant()
    def epochs_do_not_go_back(self) -> None:
        group = self.world.group
        assert group.group_epoch >= self.highest_epoch
        assert group.assignment_epoch <= group.group_epoch
        self.highest_epoch = group.group_epoch
        for member_id, member in group.members.items():
            assert member.member_epoch < 0 or member.member_epoch >= self.epochs.get(member_id, 0)
            self.epochs[member_id] = member.member_epoch

    @invariant()
    def the_group_knows_its_owners(self) -> None:
        for consumer in self.consumers:
            for topic, partition in consumer.places:
                assert self.world.group.is_owned(topic, partition)

    def teardown(self) -> None:
        """Nothing changes any more: everybody gets their target, and every wanted partition is somebody's."""
        for _ in range(4 + 2 * len(self.consumers)):
            self.world.now += 11_000
            for consumer in self.consumers:
                consumer.beat()
        group = self.world.group
        away = [member for member in group.members.values() if member.member_epoch == -2]
        if not self.consumers or away:
            return
        assert group.state is ConsumerGroupState.STABLE
        owned = {place for consumer in self.consumers for place in consumer.places}
        wanted = {
            (found[0], partition)
            for name in self.world.topics.partitions
            if group.is_subscribed_to(name) and (found := self.world.topics.describe(name))
            for partition in range(found[1])
        }
        assert owned == wanted


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def test_members_that_need_time_get_their_target() -> None:
    """They change their topics, report late and lose answers. Then a few heartbeats are enough, and nobody is late."""
    for seed in share_of(4, range(400)):
        world, consumers = disturbed_group(Random(seed))
        for _ in range(2 + 2 * len(consumers)):
            for consumer in consumers:
                consumer.settle()
            world.now += 5000
            assert world.fence_late() == (), seed
        assert world.group.state is ConsumerGroupState.STABLE, seed
        for consumer in consumers:
            assert consumer.owned == world.group.target[consumer.member_id], seed


def disturbed_group(random: Random) -> tuple[GroupWorld, list[SlowConsumer]]:
    world = GroupWorld()
    world.limits = replace(world.limits, assignment_interval_ms=random.choice((0, 1000)))
    world.topics.make("t", 3)
    world.topics.make("u", 3)
    consumers: list[SlowConsumer] = []
    for _ in range(random.randint(10, 80)):
        wants = random.sample(NAMES, random.randint(1, 2))
        if not consumers or (len(consumers) < 5 and random.random() < 0.1):
            consumers.append(SlowConsumer(world, f"m{len(consumers)}"))
            consumers[-1].join(*wants)
            continue
        consumer = random.choice(consumers)
        match random.choices(("topics", "grow", "time", "lose", *SlowConsumer.STEPS), (2, 1, 1, 1, 4, 4, 3, 2))[0]:
            case "topics":
                consumer.change_topics(*wants)
            case "grow":
                world.topics.make(wants[0], world.topics.partitions.get(wants[0], 0) + 1)
            case "time":
                world.now += random.randint(1, 3000)
            case step:
                getattr(consumer, step)()
        owned = [place for consumer in consumers for place in consumer.places]
        assert len(owned) == len(set(owned)), "nothing is owned twice"
        assert all(world.group.is_owned(*place) for place in owned)
    return world, consumers
