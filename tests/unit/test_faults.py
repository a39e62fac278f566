"""What users' tests can make go wrong in a node: each rule, seen through a real client."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from support.batches import batch_of, read_all
from support.every_request import World, bare, fill
from support.waiting import wait_until
from support.wire import Wire

from suiro.broker.apis import APIS, Api
from suiro.client import LATEST, Client, NewTopic
from suiro.errors import RefusedError, UsageError
from suiro.protocol.messages import API_KEYS, ErrorCode, nested, request_class
from suiro.testing.node_under_test import NodeUnderTest


@pytest.fixture
def wire(node: NodeUnderTest) -> Wire:
    return Wire(node.bootstrap_servers)


@pytest.fixture
def topic(node: NodeUnderTest) -> str:
    with Client(node.bootstrap_servers) as client:
        client.create_topics([NewTopic("orders", 2, configs={"retention.ms": "-1"})])
    return "orders"


def records(node: NodeUnderTest, topic: str, partition: int = 0) -> list[str]:
    with Client(node.bootstrap_servers) as client:
        return read_all(client, topic, partition)


def test_an_error_is_answered_and_nothing_is_done(node: NodeUnderTest, topic: str, wire: Wire) -> None:
    node.faults.error("produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, times=2)
    codes = [wire.produce(topic, batch_of("a"))[0] for _ in range(3)]
    assert codes == ["not_leader_or_follower", "not_leader_or_follower", "none"]
    assert records(node, topic) == ["a"]


def test_an_error_of_one_partition_leaves_the_other(node: NodeUnderTest, topic: str, wire: Wire) -> None:
    node.faults.error("produce", "KAFKA_STORAGE_ERROR", topic=topic, partition=1)
    request_type = request_class(API_KEYS["produce"], 9)
    data = tuple(nested(request_type, "PartitionProduceData")(index=index, records=batch_of("x")) for index in (0, 1))
    answered = wire.call(
        request_type(
            transactional_id=None,
            acks=-1,
            timeout=timedelta(seconds=10),
            topic_data=(nested(request_type, "TopicProduceData")(name=topic, partition_data=data),),
        )
    )
    (entry,) = answered.responses
    assert {part.index: part.error_code for part in entry.partition_responses} == {
        0: ErrorCode.none,
        1: ErrorCode.kafka_storage_error,
    }
    assert (records(node, topic, 0), records(node, topic, 1)) == (["x"], [])


def test_a_client_gets_over_a_leader_that_is_not_available(node: NodeUnderTest, topic: str) -> None:
    node.faults.leader_not_available(topic, times=3)
    producer = Producer({"bootstrap.servers": node.bootstrap_servers, "retry.backoff.ms": 10})
    producer.produce(topic, value="a", partition=0)
    assert producer.flush(30) == 0
    assert records(node, topic) == ["a"]


@pytest.mark.parametrize("version", range(13))
def test_metadata_gives_the_error_of_one_topic(node: NodeUnderTest, topic: str, wire: Wire, version: int) -> None:
    request_type = request_class(API_KEYS["metadata"], version)
    named = nested(request_type, "MetadataRequestTopic")
    fields = {"name": topic, "topic_id": None} if version >= 10 else {"name": topic}
    request = dataclasses.replace(bare(request_type), topics=(named(**fields),))
    node.faults.leader_not_available(topic)
    refused = wire.call(request)
    (entry,) = refused.topics
    assert (entry.name, entry.error_code) == (topic, ErrorCode.leader_not_available)
    assert entry.partitions == ()
    answered = wire.call(request)
    assert answered.brokers == refused.brokers
    assert [len(entry.partitions) for entry in answered.topics] == [2]


@pytest.mark.parametrize("of_topic", [None, "new"])
def test_an_error_in_metadata_creates_no_topic(node: NodeUnderTest, wire: Wire, of_topic: str | None) -> None:
    request_type = request_class(API_KEYS["metadata"], 12)
    named = nested(request_type, "MetadataRequestTopic")(name="new", topic_id=None)
    request = dataclasses.replace(bare(request_type), topics=(named,), allow_auto_topic_creation=True)
    node.faults.error("metadata", "LEADER_NOT_AVAILABLE", topic=of_topic)
    assert [entry.error_code for entry in wire.call(request).topics] == [ErrorCode.leader_not_available]
    (entry,) = wire.call(dataclasses.replace(request, allow_auto_topic_creation=False)).topics
    assert entry.error_code == ErrorCode.unknown_topic_or_partition


def test_errors_without_a_topic(node: NodeUnderTest, wire: Wire) -> None:
    node.faults.error("find_coordinator", "COORDINATOR_LOAD_IN_PROGRESS")
    request = request_class(API_KEYS["find_coordinator"], 2)(key="g", key_type=0)
    assert wire.call(request).error_code == ErrorCode.coordinator_load_in_progress
    assert wire.call(request).error_code == ErrorCode.none


@pytest.mark.parametrize("api", sorted(APIS.values(), key=lambda api: api.name), ids=lambda api: api.name)
def test_an_error_in_every_version_of_an_api(node: NodeUnderTest, topic: str, api: Api) -> None:
    topic_id = UUID(int=0)
    for version in range(api.min_version, api.max_version + 1):
        request = fill(request_class(api.key, version), World(topic=topic, topic_id=topic_id))
        node.faults.error(api.name, "KAFKA_STORAGE_ERROR")
        with Wire(node.bootstrap_servers) as wire:
            assert ErrorCode.kafka_storage_error in codes_of(wire.call(request))


def codes_of(message: Any) -> list[Any]:
    """The error codes of a message and of the structures in it."""
    found = []
    for field in dataclasses.fields(message) if dataclasses.is_dataclass(message) else ():
        value = getattr(message, field.name)
        found += [value] if field.name.endswith("error_code") else []
        found += [code for entry in value for code in codes_of(entry)] if isinstance(value, tuple) else []
    return found


@pytest.mark.parametrize("version", range(4, 19))
def test_an_error_in_every_version_of_fetch(node: NodeUnderTest, topic: str, version: int) -> None:
    with Wire(node.bootstrap_servers) as wire:
        topics = wire.call(bare(request_class(API_KEYS["metadata"], 12))).topics
        node.faults.error("fetch", "UNKNOWN_LEADER_EPOCH", topic=topic)
        request = fill(request_class(1, version), World(topic=topic, topic_id=topics[0].topic_id))
        (entry,) = wire.call(request).responses
        assert [part.error_code for part in entry.partitions] == [ErrorCode.unknown_leader_epoch]


def test_a_delay(node: NodeUnderTest, topic: str, wire: Wire) -> None:
    node.faults.delay("list_offsets", 300)
    done = threading.Event()

    def ask() -> None:
        with Client(node.bootstrap_servers) as client:
            client.list_offsets({(topic, 0): LATEST})
        done.set()

    thread = threading.Thread(target=ask)
    thread.start()
    assert not done.wait(0.1)
    thread.join()
    assert done.is_set()


@pytest.mark.parametrize("handled", [False, True])
def test_a_connection_dropped(node: NodeUnderTest, topic: str, wire: Wire, handled: bool) -> None:
    node.faults.drop("produce", handled=handled)
    with pytest.raises(ConnectionError):
        wire.produce(topic, batch_of("a"))
    assert records(node, topic) == (["a"] if handled else [])


def test_an_idempotent_producer_writes_once_though_its_answers_are_lost(node: NodeUnderTest, topic: str) -> None:
    node.faults.drop("produce", handled=True, times=2)
    producer = Producer(
        {"bootstrap.servers": node.bootstrap_servers, "enable.idempotence": True, "retry.backoff.ms": 10}
    )
    for number in range(5):
        producer.produce(topic, value=str(number), partition=0)
    assert producer.flush(30) == 0
    assert records(node, topic) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("handled", [False, True])
def test_a_crash_and_a_restart(node: NodeUnderTest, topic: str, wire: Wire, handled: bool) -> None:
    wire.produce(topic, batch_of("before"))
    node.faults.crash("produce", handled=handled)
    with pytest.raises(ConnectionError):
        wire.produce(topic, batch_of("a"))
    wait_until(lambda: not node.is_running)
    node.restart()
    assert records(node, topic) == ["before"] + (["a"] if handled else [])


def test_records_expire_when_time_is_skipped(node: NodeUnderTest, wire: Wire) -> None:
    with Client(node.bootstrap_servers) as client:
        client.create_topics([NewTopic("short", 1, configs={"retention.ms": "60000"})])
    producer = Producer({"bootstrap.servers": node.bootstrap_servers})
    producer.produce("short", value="a")
    producer.flush(30)
    node.advance(59_000)
    assert records(node, "short") == ["a"]
    node.advance(10_000)
    with Client(node.bootstrap_servers) as client:
        wait_until(lambda: client.list_offsets({("short", 0): -2}) == client.list_offsets({("short", 0): -1}))


def test_a_transaction_times_out_when_time_is_skipped(node: NodeUnderTest, topic: str) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value="a", partition=0)
    assert producer.flush(30) == 0
    node.advance(120_000)
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)


def test_a_member_that_is_silent_loses_its_place_when_time_is_skipped(node: NodeUnderTest, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": node.bootstrap_servers, "group.id": "g"})
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.05) or consumer.assignment())
    with Client(node.bootstrap_servers):
        node.advance(3_600_000)
    states = [group.state.value for group in node.call(lambda: list(node.broker.groups.groups.values()))]
    assert states == ["Empty"] or states == ["PreparingRebalance"]
    consumer.close()


def test_rules_are_checked_and_cleared(node: NodeUnderTest, topic: str, wire: Wire) -> None:
    wrong: list[Callable[[], None]] = [
        lambda: node.faults.error("prodcue", "NOT_LEADER_OR_FOLLOWER"),
        lambda: node.faults.error("produce", "NO_SUCH_ERROR"),
        lambda: node.faults.error("produce", "NOT_LEADER_OR_FOLLOWER", partition=1),
        lambda: node.faults.drop("produce", times=0),
    ]
    for add in wrong:
        with pytest.raises(UsageError):
            add()
    node.faults.error("produce", "NOT_LEADER_OR_FOLLOWER", times=None)
    assert wire.produce(topic, batch_of("a"))[0] == "not_leader_or_follower"
    node.faults.clear()
    assert wire.produce(topic, batch_of("a"))[0] == "none"


def test_our_own_client_says_what_it_was_refused_with(node: NodeUnderTest, topic: str) -> None:
    node.faults.error("produce", "MESSAGE_TOO_LARGE", topic=topic)
    with Client(node.bootstrap_servers) as client, pytest.raises(RefusedError, match="MESSAGE_TOO_LARGE"):
        client.produce({(topic, 0): batch_of("a")})
