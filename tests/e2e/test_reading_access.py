"""Reading under access rules: what a client may not know of stays hidden, in every answer that names topics.

Which rule allows which request is in the contract tests of security; here is what the answers look like.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from support.admin import ask
from support.batches import batch_of
from support.wire import Wire

TOPIC, READ, WRITE, DESCRIBE = 2, 3, 4, 8
CLUSTER, CREATE, CLUSTER_ACTION = 4, 5, 9
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_admin="secret-admin" user_alice="secret-alice";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    from suiro.node import NodeProcess

    with NodeProcess.start(settings=SETTINGS) as node:
        yield node.bootstrap_servers


@contextmanager
def logged_in(bootstrap_servers: str, user: str) -> Iterator[Wire]:
    with Wire(bootstrap_servers) as wire:
        ask(wire, "sasl_handshake", 1, mechanism="PLAIN")
        token = f"\0{user}\0secret-{user}".encode()
        assert ask(wire, "sasl_authenticate", 2, auth_bytes=token)["error_code"] == "none"
        yield wire


@pytest.fixture
def admin(guarded: str) -> Iterator[Wire]:
    with logged_in(guarded, "admin") as wire:
        yield wire


@pytest.fixture
def alice(guarded: str) -> Iterator[Wire]:
    with logged_in(guarded, "alice") as wire:
        yield wire


def rule(operation: int, name: str, kind: int = TOPIC) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": operation,
        "permission_type": 3,
    }


def allow(admin: Wire, operation: int, name: str, kind: int = TOPIC) -> None:
    answer = ask(admin, "create_acls", 3, creations=[rule(operation, name, kind)])
    assert answer["results"][0]["error_code"] == "none"


def take_back(admin: Wire, operation: int, name: str, kind: int = TOPIC) -> None:
    given = rule(operation, name, kind)
    names = {
        "resource_type": "resource_type_filter",
        "resource_name": "resource_name_filter",
        "resource_pattern_type": "pattern_type_filter",
        "principal": "principal_filter",
        "host": "host_filter",
    }
    filters = [{names.get(field, field): value for field, value in given.items()}]
    assert len(ask(admin, "delete_acls", 3, filters=filters)["filter_results"][0]["matching_acls"]) == 1


def new_topic(admin: Wire) -> tuple[str, Any]:
    name = f"secret-{uuid4().hex[:8]}"
    entry = {"name": name, "num_partitions": 1, "replication_factor": 1}
    answer = ask(admin, "create_topics", 7, topics=[entry], timeout=5000)["topics"][0]
    assert answer["error_code"] == "none"
    return name, answer["topic_id"]


def fetch(wire: Wire, *topics: Any, session: int = 0, epoch: int = 0, replica: int = -1) -> Any:
    """(session, [(topic id, error, bytes)])"""
    part = {"fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1}
    part |= {"last_fetched_epoch": -1, "log_start_offset": -1}
    answer = ask(
        wire,
        "fetch",
        17,
        max_bytes=1000,
        session_id=session,
        session_epoch=epoch,
        replica_state={"replica_id": replica, "replica_epoch": -1},
        topics=[{"topic_id": topic, "partitions": [part]} for topic in topics],
    )
    assert answer["error_code"] == "none"
    return answer["session_id"], [
        (topic["topic_id"], part["error_code"], len(part["records"] or b""))
        for topic in answer["responses"]
        for part in topic["partitions"]
    ]


def test_a_session_hears_when_rules_change(admin: Wire, alice: Wire) -> None:
    (open_, open_id), (closed, closed_id) = new_topic(admin), new_topic(admin)
    allow(admin, READ, open_)
    session, told = fetch(alice, open_id, closed_id)
    assert told == [(open_id, "none", 0), (closed_id, "topic_authorization_failed", 0)]
    denied = [(closed_id, "topic_authorization_failed", 0)]
    assert fetch(alice, session=session, epoch=1) == (session, denied)
    allow(admin, READ, closed)
    assert fetch(alice, session=session, epoch=2) == (session, [(closed_id, "none", 0)])
    assert fetch(alice, session=session, epoch=3) == (session, [])
    take_back(admin, READ, closed)
    assert fetch(alice, session=session, epoch=4) == (session, denied)
    batch = batch_of("a")
    admin.produce(closed, batch)
    admin.produce(open_, batch)
    assert fetch(alice, session=session, epoch=5) == (session, [(open_id, "none", len(batch)), *denied])


def test_only_a_broker_fetches_as_a_replica(admin: Wire, alice: Wire) -> None:
    name, topic_id = new_topic(admin)
    allow(admin, READ, name)
    assert fetch(alice, topic_id, replica=7)[1] == [(topic_id, "topic_authorization_failed", 0)]
    allow(admin, CLUSTER_ACTION, "kafka-cluster", CLUSTER)
    assert fetch(alice, topic_id, replica=7)[1] == [(topic_id, "not_leader_or_follower", 0)]
    take_back(admin, CLUSTER_ACTION, "kafka-cluster", CLUSTER)


def test_metadata_hides_what_is_not_to_be_known(admin: Wire, alice: Wire) -> None:
    (open_, open_id), (closed, closed_id) = new_topic(admin), new_topic(admin)
    allow(admin, DESCRIBE, open_)

    def ask_for(*topics: tuple[str | None, Any], **fields: Any) -> list[tuple[Any, ...]]:
        asked = [{"name": name, "topic_id": id} for name, id in topics] or None
        fields.setdefault("allow_auto_topic_creation", False)
        answer = ask(alice, "metadata", 12, topics=asked, include_topic_authorized_operations=True, **fields)
        return [
            (item["name"], item["topic_id"], item["error_code"], item["topic_authorized_operations"])
            for item in answer["topics"]
        ]

    known = (open_, open_id, "none", 1 << DESCRIBE)
    denied, not_asked = "topic_authorization_failed", -(2**31)
    missing = f"missing-{closed}"
    assert ask_for((closed, None), (open_, None), (missing, None)) == [
        known,
        (closed, None, denied, not_asked),
        (missing, None, denied, not_asked),
    ]
    assert ask_for((None, closed_id), (None, open_id)) == [known, (None, closed_id, denied, not_asked)]
    everything = ask_for()
    assert known in everything
    assert closed not in {item[0] for item in everything}

    allow(admin, DESCRIBE, missing)
    asked = {"allow_auto_topic_creation": True}
    assert ask_for((missing, None), **asked) == [(missing, None, denied, not_asked)]
    allow(admin, CREATE, missing)
    (created,) = ask_for((missing, None), **asked)
    assert created[2:] in (
        ("none", 1 << DESCRIBE | 1 << CREATE),
        ("unknown_topic_or_partition", 1 << DESCRIBE | 1 << CREATE),
    )


def test_offsets_epochs_and_descriptions(admin: Wire, alice: Wire) -> None:
    open_, closed, missing = new_topic(admin)[0], new_topic(admin)[0], f"missing-{uuid4().hex[:8]}"
    allow(admin, DESCRIBE, open_)
    names = (closed, missing, open_)
    denied = "topic_authorization_failed"

    part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    asked: list[dict[str, Any]] = [{"name": name, "partitions": [part]} for name in names]
    listed = ask(alice, "list_offsets", 7, replica_id=-1, topics=asked)["topics"]
    assert {topic["name"]: topic["partitions"][0]["error_code"] for topic in listed} == {
        closed: denied,
        missing: denied,
        open_: "none",
    }

    part = {"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}
    asked = [{"topic": name, "partitions": [part]} for name in names]
    ended = ask(alice, "offset_for_leader_epoch", 4, replica_id=-1, topics=asked)["topics"]
    assert {topic["topic"]: topic["partitions"][0]["error_code"] for topic in ended} == {
        closed: denied,
        missing: denied,
        open_: "none",
    }

    asked = [{"name": name} for name in names]
    described = ask(alice, "describe_topic_partitions", 0, topics=asked, response_partition_limit=10)
    answer = [(item["name"], item["error_code"], item["topic_id"]) for item in described["topics"]]
    assert answer[0][:2] == (open_, "none")
    assert sorted(answer[1:]) == sorted([(closed, denied, None), (missing, denied, None)])
    everything = ask(alice, "describe_topic_partitions", 0, topics=[], response_partition_limit=2000)
    assert closed not in {item["name"] for item in everything["topics"]}


def test_a_fetch_under_a_quota_gives_what_a_window_has_and_then_nothing_for_a_while(guarded: str, admin: Wire) -> None:
    """Else a client whose fetch sizes are larger than its quota would be held back for ever."""
    name, topic_id = new_topic(admin)
    allow(admin, READ, name)
    batch = batch_of("x" * 1000)
    for _ in range(20):
        admin.produce(name, batch)
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    for rate, remove in ((500.0, False), (0.0, True)):
        quota = {"entity": entity, "ops": [{"key": "consumer_byte_rate", "value": rate, "remove": remove}]}
        ask(admin, "alter_client_quotas", 1, entries=[quota])
        with logged_in(guarded, "alice") as alice:  # a new connection, since the old one is held back
            answers = [fetch_all(alice, topic_id) for _ in range(2)]
        if remove:
            assert answers == [(0, 20 * len(batch))] * 2
        else:
            (first_throttle, size), (second_throttle, nothing) = answers
            assert (first_throttle, nothing) == (0, 0)
            assert 0 < size <= 5000  # 500 a second for the ten seconds of a window
            assert second_throttle > 0


def fetch_all(wire: Wire, topic_id: Any) -> tuple[int, int]:
    """(throttle time, bytes)"""
    part = {"fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    part |= {"last_fetched_epoch": -1, "log_start_offset": -1}
    topics = [{"topic_id": topic_id, "partitions": [part]}]
    answer = ask(wire, "fetch", 17, max_bytes=1 << 20, session_epoch=-1, topics=topics)
    sizes = [len(part["records"] or b"") for topic in answer["responses"] for part in topic["partitions"]]
    return answer["throttle_time"], sum(sizes)
