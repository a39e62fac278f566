"""What classic groups refuse, request by request: unknown members, old generations, fenced instances. The node and
Apache Kafka alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.admin import ask
from support.waiting import wait_until
from support.wire import Wire

RANGE = [{"name": "range", "metadata": b"m"}]
NewTopic = Callable[..., str]


@pytest.fixture
def group(wire: Wire, unique: str) -> str:
    """Its coordinator has been asked for, which makes it in Apache Kafka."""
    asked: dict[str, Any] = {"key_type": 0, "coordinator_keys": [unique]}
    wait_until(
        lambda: ask(wire, "find_coordinator", 4, **asked)["coordinators"][0]["error_code"] == "none",
        what="a coordinator",
    )
    wait_until(lambda: heartbeat(wire, unique) == "unknown_member_id", what="a loaded coordinator")
    return unique


def join(wire: Wire, group: str, version: int = 9, **fields: Any) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": RANGE,
    }
    return ask(wire, "join_group", version, **wanted | fields)


def member(wire: Wire, group: str, **fields: Any) -> tuple[str, int]:
    """(member id, generation) of the only member, which has its assignment."""
    told = join(wire, group, **fields)
    if told["error_code"] == "member_id_required":
        told = join(wire, group, **fields | {"member_id": told["member_id"]})
    assert told["error_code"] == "none"
    identity = told["member_id"], told["generation_id"]
    assert sync(wire, group, *identity) == "none"
    return identity


def sync(wire: Wire, group: str, member_id: str, generation: int, **fields: Any) -> str:
    wanted: dict[str, Any] = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member_id, "assignment": b"a"}],
    }
    return str(ask(wire, "sync_group", 5, **wanted | fields)["error_code"])


def heartbeat(
    wire: Wire, group: str, member_id: str = "nobody", generation: int = 1, instance: str | None = None
) -> str:
    fields = {"generation_id": generation, "member_id": member_id, "group_instance_id": instance}
    return str(ask(wire, "heartbeat", 4, group_id=group, **fields)["error_code"])


def commit(
    wire: Wire,
    group: str,
    topic: str,
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str = "",
) -> str:
    part = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": metadata}
    answer = ask(
        wire,
        "offset_commit",
        9,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[{"name": topic, "partitions": [part]}],
    )
    return str(answer["topics"][0]["partitions"][0]["error_code"])


def leave(wire: Wire, group: str, *members: tuple[str, str | None]) -> tuple[str, list[str]]:
    fields = [{"member_id": each, "group_instance_id": instance, "reason": None} for each, instance in members]
    answer = ask(wire, "leave_group", 5, group_id=group, members=fields)
    return str(answer["error_code"]), [str(each["error_code"]) for each in answer["members"]]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, "invalid_group_id"),
        ({"session_timeout": 100}, "invalid_session_timeout"),
        ({"session_timeout": 1_800_001}, "invalid_session_timeout"),
        ({"member_id": "nobody"}, "unknown_member_id"),
        ({"member_id": "nobody", "group_instance_id": "i"}, "unknown_member_id"),
        ({"protocols": []}, "inconsistent_group_protocol"),
        ({"protocol_type": ""}, "inconsistent_group_protocol"),
        ({}, "member_id_required"),
    ],
)
def test_joins_refused(wire: Wire, group: str, fields: dict[str, Any], code: str) -> None:
    told = join(wire, group, **fields)
    assert (told["error_code"], told["generation_id"]) == (code, -1)
    assert bool(told["member_id"]) == ("member_id" in fields or code == "member_id_required")


def test_the_first_rebalance_does_not_wait_for_those_who_have_asked_for_an_id(wire: Wire, group: str) -> None:
    """Clients that ended before they joined with it kept the others waiting for a whole session."""
    assert join(wire, group, session_timeout=60_000)["error_code"] == "member_id_required"
    told = join(wire, group, group_instance_id="i", session_timeout=60_000, rebalance_timeout=60_000)
    assert (told["error_code"], told["generation_id"]) == ("none", 1)


def test_what_a_group_of_others_refuses(wire: Wire, group: str, new_topic: NewTopic) -> None:
    member_id, generation = member(wire, group)
    topic = new_topic()
    other = {"name": "roundrobin", "metadata": b""}
    assert join(wire, group, protocol_type="connect")["error_code"] == "inconsistent_group_protocol"
    assert join(wire, group, protocols=[other])["error_code"] == "inconsistent_group_protocol"
    # Also of the member itself, which has joined with other protocols.
    assert join(wire, group, member_id=member_id, protocols=[other])["error_code"] == "inconsistent_group_protocol"
    assert join(wire, group, member_id="nobody")["error_code"] == "unknown_member_id"
    assert heartbeat(wire, group) == "unknown_member_id"
    assert heartbeat(wire, group, member_id, generation + 1) == "illegal_generation"
    assert heartbeat(wire, group, member_id, generation) == "none"
    assert heartbeat(wire, "", member_id, generation) == "invalid_group_id"
    assert sync(wire, group, "nobody", generation) == "unknown_member_id"
    assert sync(wire, group, member_id, generation - 1) == "illegal_generation"
    assert sync(wire, group, member_id, generation, protocol_name="x") == "inconsistent_group_protocol"
    assert sync(wire, group, member_id, generation, protocol_type="x") == "inconsistent_group_protocol"
    assert commit(wire, group, topic) == "unknown_member_id"  # nobody's, and the group has members
    assert commit(wire, group, topic, "nobody", generation) == "unknown_member_id"
    assert commit(wire, group, topic, member_id, generation + 1) == "illegal_generation"
    assert commit(wire, group, topic, member_id, generation, metadata="x" * 4097) == "offset_metadata_too_large"
    assert commit(wire, group, topic, member_id, generation) == "none"
    assert leave(wire, group, ("nobody", None), (member_id, None)) == ("none", ["unknown_member_id", "none"])
    assert heartbeat(wire, group, member_id, generation) == "unknown_member_id"


def test_an_instance_that_was_replaced_is_fenced(wire: Wire, group: str, new_topic: NewTopic) -> None:
    old, _ = member(wire, group, group_instance_id="i")
    new, generation = member(wire, group, group_instance_id="i")
    assert old != new
    topic = new_topic()
    assert join(wire, group, member_id=old, group_instance_id="i")["error_code"] == "fenced_instance_id"
    assert heartbeat(wire, group, old, generation, "i") == "fenced_instance_id"
    assert heartbeat(wire, group, old, generation) == "unknown_member_id"
    assert heartbeat(wire, group, new, generation, "j") == "unknown_member_id"
    assert sync(wire, group, old, generation, group_instance_id="i") == "fenced_instance_id"
    assert commit(wire, group, topic, old, generation, "i") == "fenced_instance_id"
    assert commit(wire, group, topic, new, generation, "i") == "none"
    assert leave(wire, group, (old, "i")) == ("none", ["fenced_instance_id"])
    assert leave(wire, group, ("", "j")) == ("none", ["unknown_member_id"])
    assert leave(wire, group, ("", "i")) == ("none", ["none"])


def test_what_is_said_of_groups_that_are_not(wire: Wire, group: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert commit(wire, group, topic, "somebody", 3) == "group_id_not_found"
    assert leave(wire, group, ("nobody", None)) == ("none", ["unknown_member_id"])
    assert sync(wire, group, "nobody", 1) == "unknown_member_id"
    deleted = ask(wire, "delete_groups", 2, groups_names=[group])["results"]
    assert [each["error_code"] for each in deleted] == ["group_id_not_found"]
    topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    assert ask(wire, "offset_delete", 0, group_id=group, topics=topics)["error_code"] == "group_id_not_found"
    (described,) = ask(wire, "describe_groups", 6, groups=[group])["groups"]
    assert (described["error_code"], described["group_state"]) == ("group_id_not_found", "Dead")
    assert commit(wire, group, "no-such-topic") == "unknown_topic_or_partition"


def test_a_group_with_members_stays(wire: Wire, group: str) -> None:
    member(wire, group)
    deleted = ask(wire, "delete_groups", 2, groups_names=[group, ""])["results"]
    codes = {each["group_id"]: each["error_code"] for each in deleted}
    assert codes == {group: "non_empty_group", "": "group_id_not_found"}
