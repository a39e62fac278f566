"""Administration through clients and tools that were written for Apache Kafka: librdkafka's and Kafka's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)
from support.kafka_tools import KafkaTools
from support.waiting import wait_until

NewTopicFixture = Callable[..., str]


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def result(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(timeout=20)


def refusal(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as caught:
        result(futures)
    return int(caught.value.args[0].code())


def test_a_topics_life(admin: AdminClient) -> None:
    name = f"admin-{uuid4().hex[:12]}"
    result(admin.create_topics([NewTopic(name, 2, 1, config={"cleanup.policy": "compact"})]))
    wait_until(lambda: name in admin.list_topics(timeout=10).topics, what="the topic")
    assert refusal(admin.create_topics([NewTopic(name, 2, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refusal(admin.create_topics([NewTopic(f"{name}-b", 1, 3)])) == KafkaError.INVALID_REPLICATION_FACTOR
    result(admin.create_partitions([NewPartitions(name, 3)]))
    assert refusal(admin.create_partitions([NewPartitions(name, 3)])) == KafkaError.INVALID_PARTITIONS

    def partitions() -> int:
        return len(result(admin.describe_topics(TopicCollection([name]))).partitions)

    wait_until(lambda: partitions() == 3, what="the third partition")
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(name, 0)]).result(timeout=20)
    (outcome,) = elected.values()
    assert outcome.code() == KafkaError.ELECTION_NOT_NEEDED
    result(admin.delete_topics([name]))
    wait_until(lambda: name not in admin.list_topics(timeout=10).topics, what="the deletion")
    assert refusal(admin.delete_topics([name])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topics_settings(admin: AdminClient, new_topic: NewTopicFixture) -> None:
    name = new_topic()

    def wanted(**changes: tuple[AlterConfigOpType, str | None]) -> ConfigResource:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=operation)
            for key, (operation, value) in changes.items()
        ]
        return ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)

    def shown() -> Any:
        return result(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name)]))

    change = wanted(retention_ms=(AlterConfigOpType.SET, "60000"), cleanup_policy=(AlterConfigOpType.APPEND, "compact"))
    result(admin.incremental_alter_configs([change]))
    wait_until(lambda: shown()["retention.ms"].value == "60000", what="the new retention")
    assert shown()["cleanup.policy"].value == "delete,compact"
    assert shown()["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    change = wanted(retention_ms=(AlterConfigOpType.DELETE, None))
    result(admin.incremental_alter_configs([change]))
    wait_until(lambda: shown()["retention.ms"].source == ConfigSource.DEFAULT_CONFIG.value, what="the default")
    change = wanted(retention_ms=(AlterConfigOpType.SET, "soon"))
    assert refusal(admin.incremental_alter_configs([change])) == KafkaError.INVALID_CONFIG
    broker = result(admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]))
    assert (broker["broker.id"].value, broker["num.partitions"].is_read_only) == ("1", True)
    assert not broker["message.max.bytes"].is_read_only


@pytest.mark.kafka
def test_kafkas_tools_administer_the_node(suiro_node: Any, tools: KafkaTools, tmp_path: Path) -> None:
    at = ("--bootstrap-server", suiro_node.bootstrap_servers)
    name = f"admin-{uuid4().hex[:12]}"
    tools("kafka-topics", *at, "--create", "--topic", name, "--config", "retention.ms=60000")
    of_topic = ("--entity-type", "topics", "--entity-name", name)
    tools("kafka-configs", *at, "--alter", *of_topic, "--add-config", "cleanup.policy=[compact,delete]")
    said = tools("kafka-configs", *at, "--describe", *of_topic)
    assert "cleanup.policy=compact,delete sensitive=false" in said
    assert "retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000}" in said
    plan = tmp_path / "plan.json"
    move = {"topic": name, "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    execute = ("--reassignment-json-file", str(plan), "--execute", "--throttle", "1000000")
    said = tools("kafka-reassign-partitions", *at, *execute)
    assert f"Successfully started partition reassignment for {name}-0" in said
