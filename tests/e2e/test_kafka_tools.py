"""Kafka's own command-line tools do on the node what they do on Apache Kafka: the same steps against both."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
from conftest import LogUnderTest
from support.kafka_tools import KafkaTools
from support.share import one_of
from support.waiting import wait_until

from suiro.kafka import kafka_tool


@pytest.fixture
def at(log_under_test: LogUnderTest) -> tuple[str, str]:
    return "--bootstrap-server", log_under_test.bootstrap_servers


@pytest.fixture
def topic(tools: KafkaTools, at: tuple[str, str]) -> str:
    """A topic of two partitions."""
    name = f"tools-{uuid4().hex[:8]}"
    tools("kafka-topics", *at, "--create", "--topic", name, "--partitions", "2")
    wait_until(lambda: f"{name}:1:0" in tools.run("kafka-get-offsets", *at, "--topic", name)[1])
    return name


def produce(tools: KafkaTools, at: tuple[str, str], topic: str, *values: str) -> None:
    # Else each record waits a second for more of its batch.
    at_once = ("--sync", "--timeout", "0")
    tools("kafka-console-producer", *at, "--topic", topic, *at_once, stdin="\n".join(values).encode() + b"\n")


def consume(tools: KafkaTools, at: tuple[str, str], topic: str, count: int, *options: str) -> list[str]:
    """The values, in the order of their partitions."""
    printed = tools(
        "kafka-console-consumer", *at, "--topic", topic, "--from-beginning", "--timeout-ms", "20000",
        "--max-messages", str(count), *options,
    )  # fmt: skip
    return [line for line in printed.splitlines() if not line.startswith(("Processed", "The consumer rebalance"))]


def offsets(tools: KafkaTools, at: tuple[str, str], topic: str, *options: str) -> list[str]:
    return sorted(tools("kafka-get-offsets", *at, "--topic", topic, *options).split())


def test_topics(tools: KafkaTools, at: tuple[str, str], topic: str) -> None:
    described = tools("kafka-topics", *at, "--describe", "--topic", topic)
    assert "PartitionCount: 2\tReplicationFactor: 1" in described
    assert len(re.findall(r"Leader: 1\tReplicas: 1\tIsr: 1", described)) == 2
    code, printed = tools.run("kafka-topics", *at, "--create", "--topic", topic)
    assert (code, f"Topic '{topic}' already exists" in printed) == (1, True), printed
    tools("kafka-topics", *at, "--alter", "--topic", topic, "--partitions", "3")
    wait_until(lambda: "PartitionCount: 3" in tools("kafka-topics", *at, "--describe", "--topic", topic))
    code, printed = tools.run("kafka-topics", *at, "--alter", "--topic", topic, "--partitions", "1")
    assert (code, "would not be an increase" in printed) == (1, True), printed
    assert topic in tools("kafka-topics", *at, "--list").split()
    tools("kafka-topics", *at, "--delete", "--topic", topic)
    wait_until(lambda: topic not in tools("kafka-topics", *at, "--list").split())


def test_records_and_offsets(tools: KafkaTools, at: tuple[str, str], topic: str, tmp_path: Path) -> None:
    produce(tools, at, topic, "a", "b", "c")
    assert sorted(consume(tools, at, topic, 3)) == ["a", "b", "c"]
    ends = offsets(tools, at, topic)
    assert sum(int(line.rpartition(":")[2]) for line in ends) == 3
    place = next(line.rpartition(":")[0] for line in ends if not line.endswith(":0"))
    partition = int(place.rpartition(":")[2])
    wanted = tmp_path / "delete.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": partition, "offset": 1}]}))
    assert "low_watermark: 1" in tools("kafka-delete-records", *at, "--offset-json-file", str(wanted))
    assert f"{place}:1" in offsets(tools, at, topic, "--time", "earliest")
    assert offsets(tools, at, topic, "--time", "latest") == ends


def test_configs(tools: KafkaTools, at: tuple[str, str], topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools(
        "kafka-configs",
        *at,
        *entity,
        "--alter",
        "--add-config",
        "retention.ms=86400001,cleanup.policy=compact",
    )
    wait_until(lambda: "retention.ms=86400001" in tools("kafka-configs", *at, *entity, "--describe"))
    assert "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact" in tools("kafka-configs", *at, *entity, "--describe")
    tools("kafka-configs", *at, *entity, "--alter", "--delete-config", "cleanup.policy")
    wait_until(lambda: "cleanup.policy" not in tools("kafka-configs", *at, *entity, "--describe"))
    everything = tools("kafka-configs", *at, *entity, "--describe", "--all")
    assert "cleanup.policy=delete" in everything
    code, printed = tools.run("kafka-configs", *at, *entity, "--alter", "--add-config", "retention.ms=soon")
    assert (code, "InvalidConfigurationException" in printed) == (1, True)
    quota = ("--entity-type", "clients", "--entity-name", topic)
    tools("kafka-configs", *at, *quota, "--alter", "--add-config", "producer_byte_rate=1048576")
    wait_until(lambda: "producer_byte_rate=1048576" in tools("kafka-configs", *at, *quota, "--describe"))
    user = ("--entity-type", "users", "--entity-name", topic)
    tools("kafka-configs", *at, *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=p]")
    wait_until(lambda: "SCRAM-SHA-256=iterations=4096" in tools("kafka-configs", *at, *user, "--describe"))


@pytest.mark.parametrize("protocol", one_of(2, ["consumer", "classic"]))
def test_consumer_groups(tools: KafkaTools, at: tuple[str, str], topic: str, protocol: str) -> None:
    produce(tools, at, topic, *(str(number) for number in range(10)))
    group = f"{topic}-{protocol}"
    options = ("--group", group, "--command-property", f"group.protocol={protocol}")
    assert len(consume(tools, at, topic, 10, *options)) == 10
    described = tools("kafka-consumer-groups", *at, "--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members" in described
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sum(int(row[3]) for row in rows) == 10
    assert {row[5] for row in rows} == {"0"}
    assert re.search(rf"{group} +Empty", tools("kafka-consumer-groups", *at, "--list", "--state"))
    kind = {"classic": "Classic", "consumer": "Consumer"}[protocol]
    assert re.search(rf"{group} +{kind}", tools("kafka-groups", *at, "--list"))
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "0", "--execute")
    tools("kafka-consumer-groups", *at, *reset)
    described = tools("kafka-consumer-groups", *at, "--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert {row[3] for row in rows} == {"0"}
    tools("kafka-consumer-groups", *at, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    tools("kafka-consumer-groups", *at, "--delete", "--group", group)
    assert group not in tools("kafka-consumer-groups", *at, "--list").split()


def test_verifiable_clients(tools: KafkaTools, at: tuple[str, str], topic: str) -> None:
    # In a JVM of its own: it writes most of its report when that ends.
    command = kafka_tool("org.apache.kafka.tools.VerifiableProducer", [*at, "--topic", topic, "--max-messages", "50"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    printed = done.stdout
    sent = [json.loads(line) for line in printed.splitlines() if "producer_send_success" in line]
    assert sorted(int(entry["value"]) for entry in sent) == list(range(50)), printed
    printed = tools(
        "kafka-verifiable-consumer", *at, "--topic", topic, "--group-id", f"{topic}-v", "--max-messages", "50",
        "--reset-policy", "earliest",
    )  # fmt: skip
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") >= 50
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")


def test_transactions(tools: KafkaTools, at: tuple[str, str], topic: str) -> None:
    printed = tools(
        "kafka-producer-perf-test", "--topic", topic, "--num-records", "500", "--record-size", "50",
        "--throughput", "-1", "--transactional-id", topic, "--bootstrap-server", at[1],
    )  # fmt: skip
    assert "500 records sent" in printed
    done = rf"{topic}\s+1\s+\d+\s+CompleteCommit"  # Apache Kafka answers before its markers are written
    wait_until(lambda: re.search(done, tools("kafka-transactions", *at, "list")))
    described = tools("kafka-transactions", *at, "describe", "--transactional-id", topic)
    assert "CompleteCommit" in described
    producers = tools("kafka-transactions", *at, "describe-producers", "--topic", topic, "--partition", "0")
    assert producers.startswith("ProducerId")
    hanging = tools("kafka-transactions", *at, "find-hanging", "--broker-id", "1")
    assert topic not in hanging
    assert len(consume(tools, at, topic, 500, "--isolation-level", "read_committed")) == 500


def test_what_tells_of_the_cluster(tools: KafkaTools, at: tuple[str, str], topic: str) -> None:
    produce(tools, at, topic, "a")
    told = tools("kafka-log-dirs", *at, "--describe", "--topic-list", topic).splitlines()[-1]
    (broker,) = json.loads(told)["brokers"]
    (folder,) = broker["logDirs"]
    assert {entry["partition"] for entry in folder["partitions"]} == {f"{topic}-0", f"{topic}-1"}
    assert sum(entry["size"] for entry in folder["partitions"]) > 0
    features = tools("kafka-features", *at, "describe")
    assert re.search(r"transaction.version .*FinalizedVersionLevel: 2", features)
    assert re.search(r"metadata.version .*FinalizedVersionLevel: 4.3", features)
    assert "LeaderId:               1" in tools("kafka-metadata-quorum", *at, "describe", "--status")
    assert "Produce(0): 0 to 13 [usable: 13]" in tools("kafka-broker-api-versions", *at)
    assert "Cluster ID: " in tools("kafka-cluster", "cluster-id", *at)
