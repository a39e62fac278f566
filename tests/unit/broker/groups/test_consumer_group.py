"""The rules of a consumer group of the new protocol, a request at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.consumer_groups import Consumer, GroupWorld

from suiro.broker.coordination.groups.consumer_group import ConsumerGroupState
from suiro.broker.coordination.groups.consumer_member import Heartbeat, MemberState
from suiro.broker.coordination.groups.group_member import MemberIdentity
from suiro.broker.refusals import RefusedError


@pytest.fixture
def world() -> GroupWorld:
    made = GroupWorld()
    made.topics.make("t", 4)
    return made


def refusal(request: Heartbeat, world: GroupWorld) -> str:
    with pytest.raises(RefusedError) as caught:
        world.send(request)
    return caught.value.code.name


def test_a_partition_moves_in_three_steps(world: GroupWorld) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    assert first.join("t").member_epoch == 2
    second.join("t")
    assert (second.epoch, second.places) == (3, set())
    assert world.group.state is ConsumerGroupState.RECONCILING
    first.beat()
    assert (first.epoch, len(first.places)) == (2, 2)
    assert world.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert world.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    assert second.beat().assignment is None
    first.beat()
    assert first.epoch == 3
    second.beat()
    assert len(first.places | second.places) == 4
    assert world.group.state is ConsumerGroupState.STABLE


def test_commits_are_judged_by_when_a_partition_was_given(world: GroupWorld) -> None:
    """A member behind with its epoch may commit for what it has had since then, and nothing else."""
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join("t")
    (topic,) = first.owned
    second.join("t")
    first.beat()
    first.beat()
    second.beat()

    def commit(epoch: int, *partitions: int) -> None:
        places = [(topic, partition) for partition in partitions]
        world.group.check_commit(MemberIdentity("a", None, epoch), transactional=False, version=9, places=places)

    commit(2, *first.owned[topic])
    for partition in set(range(4)) - first.owned[topic]:
        with pytest.raises(RefusedError) as caught:
            commit(2, partition)
        assert caught.value.code.name == "stale_member_epoch"
    with pytest.raises(RefusedError) as caught:
        commit(4)
    assert caught.value.code.name == "stale_member_epoch"


def test_who_does_not_give_back_in_time_is_out(world: GroupWorld) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join("t")
    second.join("t")
    first.beat()
    for _ in range(2):
        world.now += 40_000
        first.beat(reports=False)
        second.beat()
    assert world.group.timers.late(world.now) == {"a": "did not report that it gave its partitions back"}
    assert world.fence_late() == ("a",)
    second.beat()
    assert len(second.places) == 4


def test_who_is_not_heard_of_is_out(world: GroupWorld) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join("t")
    world.now += 30_000
    second.join("t")
    world.now += 16_000
    assert world.group.timers.late(world.now) == {"a": "sent no heartbeat"}
    assert world.fence_late() == ("a",)
    second.beat()
    assert len(second.places) == 4
    assert refusal(Heartbeat(member_id="a", member_epoch=2), world) == "unknown_member_id"


def test_an_epoch_whose_answer_was_lost(world: GroupWorld) -> None:
    member = Consumer(world, "a")
    member.join("t")
    world.topics.make("t", 5)
    before = replace_epoch = member.epoch
    owned = member.owned
    member.beat()
    assert member.epoch == before + 1
    again = Heartbeat(member_id="a", member_epoch=replace_epoch, owned=owned)
    assert world.send(again).member_epoch == before + 1
    assert refusal(replace(again, owned=None), world) == "fenced_member_epoch"
    assert refusal(replace(again, member_epoch=1), world) == "fenced_member_epoch"
    assert refusal(replace(again, member_epoch=9), world) == "fenced_member_epoch"


def test_a_static_member_is_away_and_comes_back(world: GroupWorld) -> None:
    static, other = Consumer(world, "a", instance_id="i"), Consumer(world, "b")
    static.join("t")
    other.join("t")
    for _ in range(2):
        static.beat()
        other.beat()
    had, epoch = static.places, world.group.group_epoch
    assert static.leave(epoch=-2).member_epoch == -2
    back = Consumer(world, "c", instance_id="i")
    back.join("t")
    assert (back.places, world.group.group_epoch) == (had, epoch)
    assert refusal(Heartbeat(member_id="a", member_epoch=3, instance_id="i"), world) == "fenced_instance_id"
    third = Heartbeat(member_id="d", member_epoch=0, instance_id="i", topic_names=("t",), owned={})
    assert refusal(third, world) == "unreleased_instance_id"
    assert sorted(world.group.members) == ["b", "c"]


def test_a_member_with_another_instance_id_gives_up_the_first_one(world: GroupWorld) -> None:
    """The first one led to a member that was gone, and whoever joined with it lost the connection."""
    member = Consumer(world, "a", instance_id="i")
    member.join("t")
    member.instance_id = "j"
    member.join("t")
    assert world.group.static_ids == world.replayed().static_ids == {"j": "a"}
    member.leave()
    again = Consumer(world, "b", instance_id="i")
    again.join("t")
    assert len(again.places) == 4
    assert world.group.static_ids == {"i": "b"}


def test_assignments_are_not_made_more_often_than_allowed(world: GroupWorld) -> None:
    world.limits = replace(world.limits, assignment_interval_ms=1000)
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join("t")
    world.now += 999
    second.join("t")
    assert (world.group.group_epoch, world.group.assignment_epoch) == (3, 2)
    assert world.group.state is ConsumerGroupState.ASSIGNING
    world.now += 1
    second.beat()
    assert world.group.assignment_epoch == 3


def test_assignments_go_on_when_the_clock_was_set_back(world: GroupWorld) -> None:
    world.limits = replace(world.limits, assignment_interval_ms=1000)
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join("t")
    world.now -= 500_000
    second.join("t")
    assert world.group.assignment_epoch == 3


def test_topics_of_expressions_are_found_when_the_clock_was_set_back(world: GroupWorld) -> None:
    member = Consumer(world, "a")
    member.join(regex="t|u")
    member.beat()
    world.topics.make("u", 1)
    world.now -= 500_000
    member.beat()
    member.beat()
    assert len(member.places) == 5


def test_topics_of_expressions_are_looked_at_again_when_the_clock_was_set_back(world: GroupWorld) -> None:
    """What no new topic tells of, such as a topic that is deleted, is found by looking at them from time to time."""
    world.topics.make("u", 1)
    member = Consumer(world, "a")
    member.join(regex="t|u")
    member.beat()
    world.topics.delete("u")
    world.now -= 500_000
    member.beat()
    assert world.group.regexes["t|u"].topics == {"t"}


def test_a_full_group_takes_nobody(world: GroupWorld) -> None:
    world.limits = replace(world.limits, max_size=1)
    Consumer(world, "a").join("t")
    assert refusal(Heartbeat(member_id="b", member_epoch=0), world) == "group_max_size_reached"


def test_regular_expressions_see_new_topics(world: GroupWorld) -> None:
    member = Consumer(world, "a")
    member.join(regex="t|u")
    member.beat()
    assert len(member.places) == 4
    world.topics.make("u", 1)
    member.beat()
    assert len(member.places) == 4, "not sooner than ten seconds after the last time"
    world.now += 10_001
    member.beat()
    member.beat()
    assert len(member.places) == 5
    assert world.group.is_subscribed_to("u")
    member.leave()
    assert world.group.regexes == {}


def test_a_topic_that_is_deleted_is_taken_back(world: GroupWorld) -> None:
    member = Consumer(world, "a")
    member.join("t", "u")
    del world.topics.partitions["t"]
    member.beat()
    member.beat()
    assert member.places == set()


def test_a_start_finds_the_same_group(world: GroupWorld) -> None:
    first, second = Consumer(world, "a", instance_id="i"), Consumer(world, "b")
    first.join("t")
    second.join(regex="t.*")
    first.beat()
    again = world.replayed()
    for field in ("group_epoch", "metadata_hash", "assignment_epoch", "assignment_ms", "members", "target"):
        assert getattr(again, field) == getattr(world.group, field), field
    assert (again.static_ids, again.regexes) == (world.group.static_ids, world.group.regexes)
    world.write(world.group.tombstones())
    assert (world.group.members, world.group.target, world.group.regexes) == ({}, {}, {})
