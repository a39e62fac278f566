"""From a node to Apache Kafka: who was at work goes on, at the very same offsets, with the same rights."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from support.admin import ask
from support.kafka_cluster import DEADLINE_S, kafka_up
from support.waiting import wait_until
from support.wire import Wire

from suiro.client import EARLIEST, LATEST, Client
from suiro.config import read_properties
from suiro.errors import ConfigError
from suiro.handover import hand_over
from suiro.kafka.process import free_ports
from suiro.node import NodeProcess

pytestmark = pytest.mark.kafka

ALICE_MAY_READ = AclBinding(
    ResourceType.TOPIC,
    "num",
    ResourcePatternType.PREFIXED,
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
PLACES = [("numbers", 0), ("numbers", 1), ("numbers", 2), ("odd", 0)]
ANY_RULE = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "alice"}],
    "ops": [{"key": "consumer_byte_rate", "value": 1e8, "remove": False}],
}


def guarded(port: int, login_port: int) -> dict[str, str]:
    """Who comes in by the first listener may do anything, who logs in by the second what the rules say."""
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},LOGIN://127.0.0.1:{login_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "log.retention.ms": "-1",
        "metrics.listen": "127.0.0.1:0",
    }


def of(bootstrap: str, **settings: Any) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 5000, **named}


def alice(port: int, **settings: Any) -> dict[str, Any]:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    who = {"sasl.username": "alice", "sasl.password": "wonder"}
    return {**of(f"127.0.0.1:{port}", **settings), **login, **who}


@contextmanager
def consumer(config: dict[str, Any], topic: str) -> Iterator[Consumer]:
    made = Consumer({"auto.offset.reset": "earliest", "enable.auto.commit": False, **config})
    made.subscribe([topic])
    try:
        yield made
    finally:
        made.close()


def taken(made: Consumer, count: int) -> list[bytes]:
    found = [message.value() for message in made.consume(count, DEADLINE_S)]
    assert len(found) == count
    return found


def committed(client: Client, group: str) -> dict[tuple[str, int], int]:
    return {place: found.offset for place, found in client.offset_fetch(group).items()}


def facts(bootstrap: str, admin: AdminClient) -> dict[str, Any]:
    """What has to be the same before and after."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, "numbers")
    configs = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    with Client(bootstrap) as client, Wire(bootstrap) as wire:
        found = client.metadata(["numbers", "odd"])
        extents = [
            {place: listed.offset for place, listed in client.list_offsets(dict.fromkeys(PLACES, end)).items()}
            for end in (EARLIEST, LATEST)
        ]
        offsets = committed(client, "readers")
        quotas = ask(wire, "describe_client_quotas", 1, components=[], strict=False)["entries"]
    users = admin.describe_user_scram_credentials(["alice"])["alice"].result(DEADLINE_S)
    return {
        "ids": {name: topic.topic_id for name, topic in found.items()},
        "partitions": {name: len(topic.partitions) for name, topic in found.items()},
        "extents": extents,
        "retention": configs["retention.bytes"].value,
        "rules": [str(rule) for rule in admin.describe_acls(ANY_RULE).result(DEADLINE_S)],
        "quotas": quotas,
        "users": [(one.mechanism, one.iterations) for one in users.scram_credential_infos],
        "committed": offsets,
        "cluster": admin.list_topics(timeout=DEADLINE_S).cluster_id,
    }


def test_everybody_goes_on_where_they_were(tmp_path: Path) -> None:
    port, login_port = free_ports(2)
    bootstrap, settings = f"127.0.0.1:{port}", guarded(port, login_port)
    idempotent = Producer(of(bootstrap, enable_idempotence=True))
    transactional = Producer(of(bootstrap, transactional_id="writer", transaction_timeout_ms=600_000))
    admin = AdminClient(of(bootstrap))
    scram = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=wonder]")
    with NodeProcess.start(data=tmp_path / "log", settings=settings, options=scram):
        topics = [NewTopic("numbers", 3, config={"retention.bytes": "123456789"}), NewTopic("odd", 1)]
        for future in admin.create_topics(topics).values():
            future.result(DEADLINE_S)
        admin.create_acls([ALICE_MAY_READ])[ALICE_MAY_READ].result(DEADLINE_S)
        with Wire(bootstrap) as wire:
            done = ask(wire, "alter_client_quotas", 1, validate_only=False, entries=[QUOTA])
            assert done["entries"][0]["error_code"] == "none"
        for n in range(60):
            idempotent.produce("numbers", b"%d" % n, partition=n % 3)
        assert idempotent.flush(DEADLINE_S) == 0
        transactional.init_transactions(DEADLINE_S)
        transactional.begin_transaction()
        transactional.produce("odd", b"never", partition=0)
        transactional.abort_transaction(DEADLINE_S)
        with consumer(of(bootstrap, group_id="readers"), "numbers") as readers:
            first = taken(readers, 40)
            readers.commit(asynchronous=False)
            # A transaction that is open while the log changes hands, with offsets of another group.
            transactional.begin_transaction()
            transactional.produce("odd", b"half", partition=0)
            with consumer(of(bootstrap, group_id="movers"), "numbers") as movers:
                taken(movers, 1)
                transactional.send_offsets_to_transaction(
                    [TopicPartition("numbers", 0, 7)], movers.consumer_group_metadata(), DEADLINE_S
                )
            assert transactional.flush(DEADLINE_S) == 0
        most_read = Counter(int(value) % 3 for value in first).most_common(1)[0][0]
        done_with = TopicPartition("numbers", most_read, 5)
        admin.delete_records([done_with])[done_with].result(DEADLINE_S)
        before = facts(bootstrap, admin)

    handed = hand_over(tmp_path / "log", tmp_path / "kafka", settings=settings)
    assert (handed.topics, handed.open_transactions) == (4, 1)
    with pytest.raises(ConfigError, match="was handed over to Apache Kafka"):
        NodeProcess.start(data=tmp_path / "log")

    with kafka_up(tmp_path / "kafka") as ready:
        assert ready["bootstrap"] == bootstrap
        assert "metrics.listen" not in read_properties(tmp_path / "kafka" / "broker-1" / "server.properties")
        after = facts(bootstrap, admin)
        assert before == after
        # The same producers, which have known nothing but the node: sequence numbers and the open transaction.
        for n in range(60, 90):
            idempotent.produce("numbers", b"%d" % n, partition=n % 3)
        assert idempotent.flush(DEADLINE_S) == 0
        transactional.produce("odd", b"whole", partition=0)
        transactional.commit_transaction(DEADLINE_S)
        with consumer(of(bootstrap, group_id="checker", isolation_level="read_committed"), "odd") as checker:
            assert taken(checker, 2) == [b"half", b"whole"]
        with Client(bootstrap) as client:
            assert committed(client, "movers") == {("numbers", 0): 7}
        with consumer(of(bootstrap, group_id="readers"), "numbers") as readers:
            rest = taken(readers, 50)
        assert sorted(map(int, first + rest)) == list(range(90))
        # A producer id that nobody has had.
        newcomer = Producer(of(bootstrap, transactional_id="newcomer"))
        newcomer.init_transactions(DEADLINE_S)
        with Wire(bootstrap) as wire:
            states = ask(wire, "list_transactions", 1)["transaction_states"]
        transactions = {state["transactional_id"]: state["producer_id"] for state in states}
        assert transactions["newcomer"] >= handed.next_producer_id > transactions["writer"]
        # Rights and passwords are in force, not only shown.
        hers = Consumer(alice(login_port, group_id="alice", enable_auto_commit=False))
        hers.assign([TopicPartition("numbers", most_read, 5)])
        # Kafka may open its port a moment before it has read the last of its rights; the client asks again.
        allowed = wait_until(lambda: [message for message in hers.consume(1, 1) if message.error() is None], DEADLINE_S)
        assert allowed[0].value() == b"%d" % (most_read + 15)
        hers.close()
        refused: list[str] = []
        writing = Producer(alice(login_port))
        writing.produce("numbers", b"no", on_delivery=lambda error, _: refused.append(error.name()))
        assert writing.flush(DEADLINE_S) == 0
        assert refused == ["TOPIC_AUTHORIZATION_FAILED"]


@pytest.mark.soak
def test_a_cluster_of_three_has_three_copies_at_once(tmp_path: Path) -> None:
    """One broker is killed as soon as the cluster answers, before it can have copied anything by itself."""
    with NodeProcess.start(data=tmp_path / "log") as node:
        admin = AdminClient(of(node.bootstrap_servers))
        admin.create_topics([NewTopic("numbers", 6)])["numbers"].result(DEADLINE_S)
        writer = Producer(of(node.bootstrap_servers, transactional_id="writer"))
        writer.init_transactions(DEADLINE_S)
        for first in range(0, 600, 100):
            writer.begin_transaction()
            for n in range(first, first + 100):
                writer.produce("numbers", b"%d" % n, partition=n % 6)
            writer.commit_transaction(DEADLINE_S)
        with consumer(of(node.bootstrap_servers, group_id="readers"), "numbers") as readers:
            first_half = taken(readers, 300)
            readers.commit(asynchronous=False)
    hand_over(tmp_path / "log", tmp_path / "kafka", brokers=3, listen="127.0.0.1:0")
    with kafka_up(tmp_path / "kafka") as ready:
        bootstrap = ready["bootstrap"]
        admin = AdminClient(of(bootstrap))
        partitions = admin.list_topics("numbers", timeout=DEADLINE_S).topics["numbers"].partitions.values()
        assert all(len(partition.replicas) == 3 for partition in partitions)
        os.kill(ready["brokers"]["2"]["pid"], signal.SIGKILL)
        writer = Producer(of(bootstrap, transactional_id="writer"))
        writer.init_transactions(DEADLINE_S)
        writer.begin_transaction()
        for n in range(600, 700):
            writer.produce("numbers", b"%d" % n, partition=n % 6)
        writer.commit_transaction(DEADLINE_S)
        with consumer(of(bootstrap, group_id="readers", isolation_level="read_committed"), "numbers") as readers:
            rest = taken(readers, 400)
        assert sorted(map(int, first_half + rest)) == list(range(700))
