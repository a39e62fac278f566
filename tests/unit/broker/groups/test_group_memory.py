"""What groups keep for their members is counted for a member, a group and all groups, and given back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.consumer_member import ClassicMember, ConsumerMember
from suiro.broker.coordination.groups.consumer_records import Subscription
from suiro.broker.coordination.groups.group import Group, GroupLimits
from suiro.broker.coordination.groups.group_member import JoinRequest, PendingMembers, SyncRequest, size_of
from suiro.broker.coordination.groups.group_memory import A_MEMBER, A_NAME, GroupMemory
from suiro.config import NodeSettings

SETTINGS = NodeSettings(group_max_member_bytes=10_000, group_max_bytes=25_000, group_max_total_bytes=40_000)


@pytest.fixture
def memory() -> GroupMemory:
    return GroupMemory(lambda: SETTINGS)


def test_the_limit_of_a_member(memory: GroupMemory) -> None:
    assert memory.refusal("g", before=0, after=10_000) is None
    assert "group.max.member.bytes = 10000" in (memory.refusal("g", before=0, after=10_001) or "")


def test_the_limit_of_a_group(memory: GroupMemory) -> None:
    memory.hold("g", 20_000)
    assert memory.refusal("g", before=0, after=5_000) is None
    assert "group.max.bytes = 25000" in (memory.refusal("g", before=0, after=5_001) or "")
    assert memory.refusal("g", before=4_000, after=9_000) is None
    assert memory.refusal("other", before=0, after=10_000) is None


def test_the_limit_of_all_groups(memory: GroupMemory) -> None:
    memory.hold("g", 20_000)
    memory.hold("h", 15_000)
    assert memory.refusal("i", before=0, after=5_000) is None
    assert "group.max.total.bytes = 40000" in (memory.refusal("i", before=0, after=5_001) or "")
    memory.hold("h", 0)
    assert memory.used == 20_000
    assert memory.refusal("i", before=0, after=10_000) is None


def test_who_is_there_may_stay_whatever_the_limits_have_become(memory: GroupMemory) -> None:
    memory.hold("g", 100_000)
    assert memory.refusal("g", before=50_000, after=50_000) is None
    assert memory.refusal("g", before=50_000, after=40_000) is None


def request(metadata: int, **fields: str) -> JoinRequest:
    return JoinRequest(
        **{"member_id": "", "client_id": "c", **fields},  # type: ignore[arg-type]
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", bytes(metadata)),),
    )


def test_what_a_classic_group_holds() -> None:
    group = Group(group_id="g", limits=GroupLimits())
    assert group.held_bytes == 0
    asked = replace(request(5_000), needs_known_member_id=True)
    group.join(asked, "first", now=0, new_member_id=lambda: "m1")
    assert group.held_bytes == 1 + size_of("m1")
    again = request(5_000, member_id="m1")
    assert group.held_for(again) == size_of("m1")
    group.join(again, "second", now=0, new_member_id=lambda: "")
    assert again.size == A_MEMBER + A_NAME + len("m1" + "c" + "range") + 5_000
    assert group.held_bytes == 1 + again.size
    larger = request(7_000, member_id="m1")
    assert group.held_for(larger) == again.size
    group.join(larger, "third", now=0, new_member_id=lambda: "")
    assert group.held_bytes == 1 + larger.size
    assignments = {"m1": bytes(300), "nobody": bytes(10_000)}
    sync = SyncRequest(member_id="m1", generation=group.generation, assignments=assignments)
    group.sync(sync, "sync", now=0)
    assert group.held_bytes == 1 + larger.size + 300
    group.leave(member_id="m1", instance_id=None, now=0)
    assert group.held_bytes == 0


def test_what_members_of_the_new_protocol_hold() -> None:
    group = ConsumerGroup(group_id="g")
    one = ConsumerMember(member_id="a", topic_names=frozenset({"t" * 50, "u" * 50}))
    two = ConsumerMember(
        member_id="b", instance_id="i", classic=ClassicMember(session_timeout_ms=1, protocols=(("p", bytes(200)),))
    )
    of_one = A_MEMBER + len("a") + 2 * (A_NAME + 50)
    of_two = A_MEMBER + len("b") + len("i") + A_NAME + len("p") + 200
    group.apply(Subscription("a", one))
    assert group.held_bytes == of_one
    group.apply(Subscription("b", two))
    assert group.held_bytes == of_one + of_two
    assert (group.held_for("a", None), group.held_for("c", None), group.held_for("", "i")) == (of_one, 0, of_two)
    group.apply(Subscription("a", replace(one, topic_names=frozenset())))
    assert group.held_bytes == A_MEMBER + len("a") + of_two
    for member_id in ("a", "b"):
        group.apply(Subscription(member_id, None))
    assert (group.held_bytes, group.held_for("a", None)) == (0, 0)


def test_members_that_were_only_given_an_id() -> None:
    pending = PendingMembers()
    assert (len(pending), pending.size, pending.deadline) == (0, 0, None)
    pending.add("b", 200)
    pending.add("a", 100)
    assert ("a" in pending, len(pending), pending.deadline) == (True, 2, 100)
    assert pending.size == 2 * size_of("a")
    assert pending.remove("a")
    assert not pending.remove("a")
    assert pending.deadline is not None
    assert pending.deadline <= 200  # too early does no harm
    assert pending.expire(100) == 0
    assert (pending.deadline, len(pending)) == (200, 1)
    assert pending.expire(199) == 0
    assert pending.expire(200) == 1
    assert (len(pending), pending.size, pending.deadline) == (0, 0, None)
