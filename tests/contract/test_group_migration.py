"""Groups with members that go from the classic protocol to the new one, and back (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from conftest import LogUnderTest
from support.admin import ask
from support.group_wire import ASSIGN_AT_ONCE, Member, describe, list_groups, set_of_group
from support.waiting import wait_until
from support.wire import Wire

from suiro.protocol.fields import FieldReader, FieldWriter

NewTopicFixture = Callable[..., str]


@dataclass
class ClassicConsumer:
    """A consumer of the classic protocol that shares alone: the leader gives itself everything."""

    wire: Wire
    group: str
    topic: str
    partitions: int
    member_id: str = ""
    generation: int = -1
    owned: set[int] = field(default_factory=set)

    def join(self) -> dict[str, Any]:
        metadata = FieldWriter().int16(1).int32(1).string(self.topic).int32(-1).int32(1).string(self.topic)
        metadata.int32(len(self.owned))
        for partition in sorted(self.owned):
            metadata.int32(partition)
        answer = ask(
            self.wire,
            "join_group",
            5,
            group_id=self.group,
            session_timeout=30_000,
            rebalance_timeout=30_000,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": metadata.done()}],
        )
        self.member_id = answer["member_id"]
        if answer["error_code"] == "member_id_required":
            return self.join()
        if answer["error_code"] == "none":
            self.generation = answer["generation_id"]
        return answer

    def sync(self, *, is_leader: bool) -> str:
        everything = FieldWriter().int16(1).int32(1).string(self.topic).int32(self.partitions)
        for partition in range(self.partitions):
            everything.int32(partition)
        mine = {"member_id": self.member_id, "assignment": everything.int32(-1).done()}
        answer = ask(
            self.wire,
            "sync_group",
            3,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            assignments=[mine] if is_leader else [],
        )
        if answer["error_code"] == "none":
            reader = FieldReader(answer["assignment"])
            assert reader.int16() == 1
            self.owned = set()
            for _ in range(reader.int32()):
                assert reader.string() == self.topic
                self.owned = {reader.int32() for _ in range(reader.int32())}
        return str(answer["error_code"])

    def beat(self) -> str:
        answer = ask(
            self.wire,
            "heartbeat",
            3,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
        )
        return str(answer["error_code"])

    def catch_up(self) -> None:
        """As a consumer does it: join and sync as long as a heartbeat says so."""
        for _ in range(5):
            if self.beat() == "none":
                return
            assert self.join()["error_code"] == "none"
            if (code := self.sync(is_leader=False)) != "none":
                assert code == "rebalance_in_progress"


@pytest.fixture
def wire(log_under_test: LogUnderTest, unique: str) -> Iterator[Wire]:
    with Wire(log_under_test.bootstrap_servers) as made:
        wait_until(lambda: ask(made, "find_coordinator", 3, key=unique)["error_code"] == "none", what="a coordinator")
        set_of_group(made, unique, ASSIGN_AT_ONCE)
        yield made


def test_up_and_down_again(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    old = ClassicConsumer(wire, unique, new_topic(4), 4)
    assert old.join()["error_code"] == "none"
    assert old.sync(is_leader=True) == "none"
    assert (old.owned, old.generation, old.beat()) == ({0, 1, 2, 3}, 1, "none")

    new = Member(wire, unique)
    joined = new.join(old.topic)
    assert (joined.error_code.name, joined.member_epoch) == ("none", 2)
    assert new.partitions == set()
    assert list_groups(wire)[unique] == ("consumer", "Reconciling", "consumer")
    told = {member.member_id: member for member in describe(wire, unique).members}
    assert (told[old.member_id].member_type, told[new.member_id].member_type) == (0, 1)
    assert told[old.member_id].subscribed_topic_names == (old.topic,)

    assert old.beat() == "rebalance_in_progress"
    joined_again = old.join()
    assert (joined_again["error_code"], joined_again["generation_id"]) == ("none", 1)
    assert (joined_again["protocol_name"], joined_again["members"], joined_again["leader"]) == (
        "range",
        [],
        "",
    )
    assert old.sync(is_leader=False) == "none"
    assert len(old.owned) == 2
    assert new.beat().assignment is None, "the old one still has to say that it gave back"
    old.catch_up()
    assert old.generation == 2
    wait_until(lambda: new.beat() and len(new.partitions) == 2, what="the other half")
    assert old.owned | new.partitions == {0, 1, 2, 3}
    assert describe(wire, unique).group_state == "Stable"

    stranger = ClassicConsumer(wire, unique, old.topic, 4, member_id="nobody", generation=2)
    assert (stranger.beat(), stranger.sync(is_leader=False)) == ("unknown_member_id", "unknown_member_id")
    imposter = ClassicConsumer(wire, unique, old.topic, 4, member_id=new.member_id, generation=2)
    assert imposter.beat() == "unknown_member_id"
    assert ClassicConsumer(wire, unique, old.topic, 4, old.member_id, generation=9).beat() == "illegal_generation"

    assert new.leave().error_code.name == "none"
    assert list_groups(wire)[unique] == ("consumer", "PreparingRebalance", "classic")
    assert old.beat() == "rebalance_in_progress"
    assert old.join()["leader"] == old.member_id
    assert old.sync(is_leader=True) == "none"
    assert old.owned == {0, 1, 2, 3}


def test_a_group_that_is_not_of_consumers_stays(wire: Wire, unique: str) -> None:
    answer = ask(
        wire,
        "join_group",
        3,
        group_id=unique,
        session_timeout=30_000,
        rebalance_timeout=30_000,
        member_id="",
        protocol_type="connect",
        protocols=[{"name": "eager", "metadata": b""}],
    )
    assert answer["error_code"] == "none"
    refused = Member(wire, unique).join("t")
    assert (refused.error_code.name, refused.error_message) == (
        "group_id_not_found",
        f"Cannot upgrade classic group {unique} to consumer group because the group does not use the consumer "
        "embedded protocol.",
    )


def test_a_classic_member_joins_a_group_of_the_new_protocol(
    wire: Wire, new_topic: NewTopicFixture, unique: str
) -> None:
    topic = new_topic(2)
    new = Member(wire, unique)
    new.join(topic)
    wait_until(lambda: new.beat() and new.partitions == {0, 1}, what="both partitions")
    old = ClassicConsumer(wire, unique, topic, 2)
    assert old.join()["error_code"] == "none"
    assert old.sync(is_leader=False) == "none"
    assert old.owned == set()
    for _ in range(2):
        new.beat()
    old.catch_up()
    assert len(old.owned) == 1
    leave = ask(wire, "leave_group", 3, group_id=unique, members=[{"member_id": old.member_id}, {"member_id": "x"}])
    assert [entry["error_code"] for entry in leave["members"]] == ["none", "unknown_member_id"]
    wait_until(lambda: new.beat() and new.partitions == {0, 1}, what="both again")
    for session_timeout, code in ((30_000, "inconsistent_group_protocol"), (1, "invalid_session_timeout")):
        other = ask(
            wire,
            "join_group",
            3,
            group_id=unique,
            session_timeout=session_timeout,
            rebalance_timeout=30_000,
            member_id="",
            protocol_type="connect",
            protocols=[{"name": "eager", "metadata": b""}],
        )
        assert other["error_code"] == code
