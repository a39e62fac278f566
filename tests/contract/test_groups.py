"""Groups of the new consumer protocol (KIP-848) and the offsets of groups, request by request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest
from conftest import LogUnderTest
from support.group_wire import (
    ASSIGN_AT_ONCE,
    BEAT_OFTEN,
    Member,
    commit,
    delete_group,
    delete_offsets,
    describe,
    fetch,
    list_groups,
    set_of_group,
)
from support.transactional import Transactional
from support.waiting import wait_until
from support.wire import Wire

from suiro.broker.storage.system_log import partition_for
from suiro.client import LATEST, Client, NewTopic
from suiro.protocol.messages import API_KEYS, nested, request_class

NewTopicFixture = Callable[..., str]
_OFFSETS_PARTITIONS = 4  # of both


@pytest.fixture
def wire(log_under_test: LogUnderTest, unique: str) -> Iterator[Wire]:
    with Wire(log_under_test.bootstrap_servers) as made:
        message = request_class(API_KEYS["find_coordinator"], 3)
        find = message(key=unique, key_type=0)
        wait_until(lambda: made.call(find).error_code.name == "none", what="the group coordinator")
        set_of_group(made, unique, ASSIGN_AT_ONCE)
        yield made


@pytest.fixture
def new_topic(new_topic: NewTopicFixture, wire: Wire, unique: str) -> NewTopicFixture:
    """A topic that the group's own coordinator knows: Kafka's hear of a new one a moment after the broker."""

    def partition_of(group: str) -> int:
        return partition_for(group, _OFFSETS_PARTITIONS)

    def make(partitions: int = 1) -> str:
        topic = new_topic(partitions)
        names = (f"{topic}-probe{number}" for number in count())
        probe = Member(wire, next(name for name in names if partition_of(name) == partition_of(unique)))
        probe.join(topic)
        wait_until(lambda: probe.beat() and probe.partitions, what="a coordinator that knows the topic")
        probe.leave()
        return topic

    return make


def settle(*members: Member) -> None:
    """Heartbeats until every member has all of its target and nobody hears anything new."""

    def is_quiet() -> bool:
        quiet = [member.beat().assignment is None for member in members]
        told = describe(members[0].wire, members[0].group)
        at_target = all(
            sorted((t.topic_id, sorted(t.partitions)) for t in m.assignment.topic_partitions)
            == sorted((t.topic_id, sorted(t.partitions)) for t in m.target_assignment.topic_partitions)
            for m in told.members
        )
        return all(quiet) and at_target and told.group_state == "Stable"

    wait_until(is_quiet, what="an assignment that everybody has")


# -- membership ---------------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    member = Member(wire, unique)
    response = member.join(new_topic(3))
    assert (response.error_code.name, response.member_id) == ("none", member.member_id)
    assert response.heartbeat_interval.total_seconds() == 5
    assert member.partitions == {0, 1, 2}
    assert member.epoch == 2, "the group begins with epoch 1, and this is its first change"
    assert member.beat().assignment is None


def test_partitions_move_only_after_they_were_given_back(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(4)
    first, second = Member(wire, unique), Member(wire, unique)
    first.join(topic)
    second.join(topic)
    assert second.partitions == set()
    wait_until(lambda: second.beat().member_epoch == 3, what="the new target")
    epoch = first.epoch
    response = first.beat()
    kept = first.partitions
    assert len(kept) == 2
    assert response.member_epoch == epoch, "its epoch stays until it has given back"
    assert second.beat().assignment is None
    assert first.beat().member_epoch == 3
    assert second.beat().assignment is not None
    assert second.partitions == {0, 1, 2, 3} - kept
    settle(first, second)


def test_a_member_that_does_not_report_has_not_given_back(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(2)
    first, second = Member(wire, unique), Member(wire, unique)
    first.join(topic)
    second.join(topic)
    wait_until(lambda: second.beat().member_epoch == 3, what="the new target")
    first.beat()
    first.beat(topic_partitions=None)
    assert second.beat().assignment is None
    assert first.beat().member_epoch == 3
    assert len(second.beat().assignment.topic_partitions) == 1


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_partitions_of_three_members(wire: Wire, client: Client, unique: str, assignor: str) -> None:
    """Everybody has a fair share. With `uniform`, nobody loses a partition when another member leaves; with `range`,
    the partitions of a member are neighbours, in the order of member ids."""
    members = [Member(wire, unique, member_id=name) for name in ("member-one", "m2", "third")]
    for member in members:
        member.join(f"late-{unique}", assignor=assignor)
    settle(*members)
    client.create_topics([NewTopic(f"late-{unique}", 7)])
    wait_until(lambda: members[0].beat() and members[0].partitions, what="the first partitions")
    settle(*members)
    three = [member.partitions for member in members]
    assert sorted(map(len, three)) == [2, 2, 3]
    assert set().union(*three) == set(range(7))
    members[0].leave()
    wait_until(lambda: members[1].beat() and len(members[1].partitions) > 2, what="the second target")
    settle(*members[1:])
    two = [member.partitions for member in members[1:]]
    assert set().union(*two) == set(range(7))
    assert sorted(map(len, two)) == [3, 4]
    if assignor == "uniform":
        assert three[1] <= two[0]
        assert three[2] <= two[1]
    else:
        assert three == [{3, 4}, {0, 1, 2}, {5, 6}]
        assert two == [{0, 1, 2, 3}, {4, 5, 6}]


def test_members_with_different_topics(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    one, two = new_topic(4), new_topic(2)
    both, only = Member(wire, unique, member_id="aa"), Member(wire, unique, member_id="b")
    both.join(one, two)
    only.join(one)
    settle(both, only)
    assert len(only.partitions) == 3
    assert sum(len(some) for some in both.owned.values()) == 3


def test_a_member_that_changes_its_topics_drops_the_old(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    one, two = new_topic(1), new_topic(2)
    member = Member(wire, unique)
    member.join(one)
    settle(member)
    member.beat(subscribed_topic_names=(two,))
    settle(member)
    assert [sorted(some) for some in member.owned.values()] == [[0, 1]]


def test_what_is_given_and_taken_back_at_once_comes_again_after_a_report(
    wire: Wire, new_topic: NewTopicFixture, unique: str
) -> None:
    """A client that does not report, because it never had what was taken back, gets nothing more."""
    one, two = new_topic(2), new_topic(1)
    member = Member(wire, unique)
    member.join(one)
    given = dict(member.owned)
    told = member.beat(topic_partitions=None, subscribed_topic_names=(two,))
    assert told.assignment is not None
    assert member.owned == {}
    for fields in ({"subscribed_topic_names": (one,)}, {}, {}):
        response = member.beat(topic_partitions=None, **fields)
        assert (response.assignment, response.member_epoch) == (None, told.member_epoch)
    (described,) = describe(wire, unique).members
    for shown in (described.assignment, described.target_assignment):
        assert [sorted(entry.partitions) for entry in shown.topic_partitions] == [[0, 1]]
    assert member.beat().member_epoch > told.member_epoch
    assert member.owned == given


def test_new_partitions_are_assigned(wire: Wire, client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(1)
    member = Member(wire, unique)
    member.join(topic)
    message = request_class(API_KEYS["create_partitions"], 3)
    wire.call(
        message(
            topics=(nested(message, "CreatePartitionsTopic")(name=topic, count=3, assignments=None),),
            timeout=timedelta(seconds=10),
            validate_only=False,
        )
    )
    wait_until(lambda: member.beat() and member.partitions == {0, 1, 2}, what="the new partitions")


def test_a_topic_that_comes_later_is_assigned(
    wire: Wire, client: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    member = Member(wire, unique)
    late = f"late-{unique}"
    member.join(late)
    assert member.partitions == set()
    client.create_topics([NewTopic(late, 2)])
    wait_until(lambda: member.beat() and member.partitions == {0, 1}, what="the new topic")


def test_epochs_that_do_not_fit_are_fenced(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(1)
    member = Member(wire, unique)
    member.join(topic)
    assert member.send(epoch=member.epoch + 1).error_code.name == "fenced_member_epoch"
    member.beat(subscribed_topic_names=())
    wait_until(lambda: member.beat().member_epoch >= 3, what="another epoch")
    assert member.send(epoch=member.epoch - 1).error_code.name in ("fenced_member_epoch", "none")
    assert Member(wire, unique).send(epoch=1).error_code.name == "unknown_member_id"
    assert Member(wire, unique + "x").send(epoch=1).error_code.name == "group_id_not_found"


def test_an_answer_that_was_lost_is_given_again(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(1)
    member = Member(wire, unique)
    member.join(topic)
    again = Member(wire, unique, member_id=member.member_id)
    response = again.join(topic)
    assert (response.error_code.name, response.member_epoch) == ("none", 2)
    assert again.partitions == {0}


def test_leaving_gives_everything_to_the_rest(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(2)
    first, second = Member(wire, unique), Member(wire, unique)
    first.join(topic)
    second.join(topic)
    settle(first, second)
    response = first.leave()
    assert (response.error_code.name, response.member_epoch) == ("none", -1)
    settle(second)
    assert second.partitions == {0, 1}
    assert first.leave().error_code.name == "unknown_member_id"
    second.leave()
    assert describe(wire, unique).group_state == "Empty"


# -- static members -----------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_what_it_had(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(2)
    static, other = Member(wire, unique, instance_id="here"), Member(wire, unique)
    static.join(topic)
    other.join(topic)
    settle(static, other)
    had = static.partitions
    intruder = Member(wire, unique, instance_id="here")
    assert intruder.join(topic).error_code.name == "unreleased_instance_id"
    assert static.leave(epoch=-2).member_epoch == -2
    assert other.beat().assignment is None
    back = Member(wire, unique, instance_id="here")
    response = back.join(topic)
    assert response.error_code.name == "none"
    assert back.partitions == had
    assert static.beat().error_code.name == "fenced_instance_id"
    epoch = describe(wire, unique).group_epoch
    settle(back, other)
    assert describe(wire, unique).group_epoch == epoch, "nobody had to move"
    assert Member(wire, unique, instance_id="nobody").send(epoch=1).error_code.name == "unknown_member_id"


# -- regular expressions ------------------------------------------------------------------------------------------


def test_topics_by_regular_expression(wire: Wire, client: Client, unique: str) -> None:
    client.create_topics([NewTopic(f"{unique}-a1", 1), NewTopic(f"{unique}-b", 1)])
    client.list_offsets({(f"{unique}-b", 0): LATEST})  # the broker knows them
    member = Member(wire, unique)
    response = member.join(regex=rf"{unique}-a\d+")
    assert response.error_code.name == "none"
    wait_until(lambda: member.beat() and member.partitions == {0}, what="the topic that matches")
    assert len(member.owned) == 1
    told = describe(wire, unique).members[0]
    assert (told.subscribed_topic_names, told.subscribed_topic_regex) == ((), rf"{unique}-a\d+")


@pytest.mark.parametrize("regex", ["(a", "a(?=b)", r"(a)\1", "*"])
def test_a_regular_expression_that_is_none(wire: Wire, unique: str, regex: str) -> None:
    response = Member(wire, unique).join(regex=regex)
    assert response.error_code.name == "invalid_regular_expression"
    assert response.error_message.startswith(f"SubscribedTopicRegex `{regex}` is not a valid")


# -- what a request must be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"rebalance_timeout": None}, "RebalanceTimeoutMs must be provided in first request."),
        ({"subscribed_topic_names": None}, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
                                           "when (re-)joining."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)  # fmt: skip
def test_requests_that_are_not_whole(wire: Wire, unique: str, fields: dict[str, Any], message: str) -> None:
    whole = {
        "group_id": unique,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": timedelta(seconds=1),
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    }
    given = whole | fields
    if given["rebalance_timeout"] is None:
        del given["rebalance_timeout"]
    response = wire.call(request_class(API_KEYS["consumer_group_heartbeat"], 1)(**given))
    assert (response.error_code.name, response.error_message) == ("invalid_request", message)


def test_an_assignor_that_the_broker_does_not_have(wire: Wire, unique: str) -> None:
    response = Member(wire, unique).join("t", assignor="sticky")
    assert response.error_code.name == "unsupported_assignor"
    assert response.error_message == ("ServerAssignor sticky is not supported. Supported assignors: uniform, range.")


# -- describing and listing ---------------------------------------------------------------------------------------


def test_describing_and_listing(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(2)
    member = Member(wire, unique)
    member.join(topic, rack_id="r1")
    told = describe(wire, unique)
    assert (told.group_state, told.group_epoch, told.assignment_epoch) == ("Stable", 2, 2)
    assert told.assignor_name == "uniform"
    (shown,) = told.members
    assert (shown.member_id, shown.rack_id, shown.client_id) == (member.member_id, "r1", "wire")
    assert (shown.member_type, shown.subscribed_topic_names) == (1, (topic,))
    assert [(t.topic_name, sorted(t.partitions)) for t in shown.assignment.topic_partitions] == [(topic, [0, 1])]
    assert list_groups(wire)[unique] == ("consumer", "Stable", "consumer")
    assert unique in list_groups(wire, types=("Consumer",), states=("stable",))
    assert unique not in list_groups(wire, types=("classic",))
    assert unique not in list_groups(wire, states=("Empty",))
    message = request_class(API_KEYS["describe_groups"], 6)
    classic = wire.call(message(groups=(unique, unique + "x"), include_authorized_operations=False)).groups
    told_ids = {g.group_id: (g.error_code.name, g.error_message, g.group_state) for g in classic}
    assert told_ids[unique] == ("group_id_not_found", f"Group {unique} is not a classic group.", "Dead")
    assert told_ids[unique + "x"] == ("group_id_not_found", f"Group {unique}x not found.", "Dead")
    assert describe(wire, unique + "x").error_code.name == "group_id_not_found"


# -- offsets ------------------------------------------------------------------------------------------------------


def test_offsets_of_a_member_go_with_its_epoch(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(1)
    member = Member(wire, unique)
    member.join(topic)
    at = {"member_id": member.member_id, "epoch": member.epoch}
    assert commit(wire, unique, {(topic, 0): 5}, **at) == ["none"]
    assert commit(wire, unique, {(topic, 0): 6}, member_id=member.member_id, epoch=9) == ["stale_member_epoch"]
    assert commit(wire, unique, {(topic, 0): 6}, member_id="x", epoch=1) == ["unknown_member_id"]
    assert commit(wire, unique, {(topic, 0): 6}) == ["unknown_member_id"]
    assert commit(wire, unique, {(topic, 0): 6}, version=8, **at) == ["unsupported_version"]
    assert fetch(wire, {unique: {topic: [0]}}, **at) == [("none", {(topic, 0): ("none", 5)})]
    assert fetch(wire, {unique: {topic: [0]}}, member_id=member.member_id, epoch=7) == [("stale_member_epoch", {})]
    assert fetch(wire, {unique: {topic: [0]}}, member_id="x", epoch=1) == [("unknown_member_id", {})]
    assert fetch(wire, {unique: {topic: [0]}}) == [("none", {(topic, 0): ("none", 5)})]


def test_an_old_epoch_commits_in_a_transaction_only_for_what_the_member_still_has(
    wire: Wire, new_topic: NewTopicFixture, unique: str
) -> None:
    """Else a consumer that comes late would set the progress of the partition's next owner back."""
    topic = new_topic(2)
    first, second = Member(wire, unique), Member(wire, unique)
    first.join(topic)
    old = first.epoch
    second.join(topic)
    wait_until(lambda: second.beat() and first.beat() and second.partitions, what="a partition that moved")
    assert first.epoch > old
    (kept,), (moved,) = first.partitions, second.partitions
    producer = Transactional(wire, unique, topic)
    as_member = {"member_id": first.member_id, "generation": old}
    assert producer.commit_offset(unique, topic, 5, partition=moved, **as_member) == "illegal_generation"
    assert producer.commit_offset(unique, topic, 5, partition=kept, **as_member) == "none"
    producer.finish()
    assert fetch(wire, {unique: {topic: [kept, moved]}}) == [
        ("none", {(topic, kept): ("none", 5), (topic, moved): ("none", -1)})
    ]


def test_offsets_by_topic_id(wire: Wire, client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(1)
    probe = Member(wire, unique + "-probe")
    probe.join(topic)
    (topic_id,) = probe.owned
    unknown = uuid4()
    assert commit(wire, unique, {(unknown, 0): 1, (topic_id, 0): 3, (topic_id, 9): 3}, version=10) == [
        "unknown_topic_id",
        "unknown_topic_or_partition",
        "none",
    ]
    (answer,) = fetch(wire, {unique: {topic_id: [0, 1], unknown: [0]}}, version=10)
    assert answer == (
        "none",
        {
            (topic_id, 0): ("none", 3),
            (topic_id, 1): ("none", -1),
            (unknown, 0): ("unknown_topic_id", -1),
        },
    )
    assert fetch(wire, {unique: None}, version=10) == [("none", {(topic_id, 0): ("none", 3)})]


def test_offsets_of_several_groups(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(2)
    commit(wire, unique + "1", {(topic, 0): 1})
    commit(wire, unique + "2", {(topic, 1): 2})
    assert fetch(wire, {unique + "1": None, unique + "2": {topic: [0, 1]}, unique + "3": None}) == [
        ("none", {(topic, 0): ("none", 1)}),
        ("none", {(topic, 0): ("none", -1), (topic, 1): ("none", 2)}),
        ("none", {}),
    ]
    assert list_groups(wire)[unique + "1"] == ("", "Empty", "classic")


def test_offsets_of_a_topic_that_is_subscribed_to_stay(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    topic, other = new_topic(2), new_topic(1)
    member = Member(wire, unique)
    member.join(topic)
    at = {"member_id": member.member_id, "epoch": member.epoch}
    commit(wire, unique, {(topic, 0): 1, (other, 0): 1}, **at)
    assert delete_offsets(wire, unique, topic, 0, 7) == (
        "none",
        ["unknown_topic_or_partition", "group_subscribed_to_topic"],
    )
    assert delete_offsets(wire, unique, other, 0) == ("none", ["none"])
    assert fetch(wire, {unique: None}) == [("none", {(topic, 0): ("none", 1)})]
    assert delete_offsets(wire, unique + "x", topic, 0) == ("group_id_not_found", [])
    assert delete_group(wire, unique) == "non_empty_group"
    member.leave()
    assert delete_group(wire, unique) == "none"
    assert fetch(wire, {unique: None}) == [("none", {})]
    assert delete_group(wire, unique) == "group_id_not_found"


def test_an_empty_group_goes_from_one_protocol_to_the_other(
    wire: Wire, new_topic: NewTopicFixture, unique: str
) -> None:
    topic = new_topic(1)
    commit(wire, unique, {(topic, 0): 4})
    member = Member(wire, unique)
    member.join(topic)
    assert list_groups(wire)[unique][2] == "consumer"
    assert fetch(wire, {unique: None}) == [("none", {(topic, 0): ("none", 4)})]
    member.leave()
    message = request_class(API_KEYS["join_group"], 3)
    response = wire.call(
        message(
            group_id=unique,
            session_timeout=timedelta(seconds=10),
            rebalance_timeout=timedelta(seconds=10),
            member_id="",
            protocol_type="consumer",
            protocols=(nested(message, "JoinGroupRequestProtocol")(name="range", metadata=b""),),
        )
    )
    assert (response.error_code.name, response.generation_id) == ("none", 1)
    assert list_groups(wire)[unique][2] == "classic"
    assert fetch(wire, {unique: None}) == [("none", {(topic, 0): ("none", 4)})]


# -- a real client ------------------------------------------------------------------------------------------------


def test_librdkafka_in_a_group_that_grows_and_shrinks(
    bootstrap: str, wire: Wire, new_topic: NewTopicFixture, unique: str
) -> None:
    topic = new_topic(4)
    set_of_group(wire, unique, BEAT_OFTEN)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for partition in range(4):
        producer.produce(topic, str(partition).encode(), partition=partition)
    producer.flush()
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": unique,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    first, second = (confluent_kafka.Consumer(settings) for _ in range(2))

    def owned(consumer: confluent_kafka.Consumer) -> int:
        return len(consumer.assignment())

    read: list[bytes] = []

    def poll(*consumers: confluent_kafka.Consumer) -> bool:
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None and not message.error():
                read.append(message.value())
        return True

    try:
        first.subscribe([topic])
        wait_until(lambda: poll(first) and len(read) == 4, what="four records")
        first.commit(asynchronous=False)
        second.subscribe([topic])
        wait_until(lambda: poll(first, second) and (owned(first), owned(second)) == (2, 2), what="two for each")
        assert len(describe(wire, unique).members) == 2
        first.close()
        wait_until(lambda: poll(second) and owned(second) == 4, what="all for the second")
        assert sorted(read) == [b"0", b"1", b"2", b"3"], "committed offsets went along"
    finally:
        second.close()
    assert describe(wire, unique).group_state == "Empty"
