"""What Kafka's own producer and its operators' tool make of the node's transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.batches import owned_batch, read_all
from support.kafka_tools import KafkaTools
from support.transactional import Transactional
from support.wire import Wire

from suiro.client import Client, NewTopic
from suiro.node import NodeProcess


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """It takes transactional writes outside of a transaction from older clients, which is how one may hang."""
    process = NodeProcess.start(
        data=tmp_path_factory.mktemp("node"),
        listen="127.0.0.1:0",
        settings={"transaction.partition.verification.enable": "false"},
    )
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def at(node: NodeProcess) -> tuple[str, str]:
    return "--bootstrap-server", node.bootstrap_servers


def table(printed: str) -> list[dict[str, str]]:
    """The rows of a tool's table by their column."""
    head, *rows = [[cell.strip() for cell in line.split("\t")] for line in printed.splitlines() if "\t" in line]
    return [dict(zip(head, row, strict=False)) for row in rows]


def test_kafkas_producer_ends_each_transaction_with_the_next_epoch(
    tools: KafkaTools, node: NodeProcess, at: tuple[str, str], tmp_path: Path
) -> None:
    settings = tmp_path / "producer.properties"
    settings.write_text("acks=all\n")
    with Client(node.bootstrap_servers) as client:
        client.create_topics([NewTopic("perf", 2)])
    tools(
        "kafka-producer-perf-test", "--topic", "perf", "--num-records", "3000", "--record-size", "10",
        "--throughput", "10000", "--transactional-id", "perf", "--transaction-duration-ms", "50",
        "--command-property", f"bootstrap.servers={node.bootstrap_servers}", "--command-config", str(settings),
    )  # fmt: skip
    (described,) = table(tools("kafka-transactions", *at, "describe", "--transactional-id", "perf"))
    assert described["TransactionState"] == "CompleteCommit"
    assert int(described["ProducerEpoch"]) >= 2, "transactions V2"
    with Client(node.bootstrap_servers) as client:
        assert sum(len(read_all(client, "perf", partition)) for partition in range(2)) == 3000


def test_a_transaction_that_hangs_is_found_and_aborted(
    tools: KafkaTools, node: NodeProcess, at: tuple[str, str], unique: str
) -> None:
    topic = f"topic-{unique}"
    with Client(node.bootstrap_servers) as client, Wire(node.bootstrap_servers) as wire:
        client.create_topics([NewTopic(topic, 1)])
        known = Transactional(wire, f"{unique}-known", topic)
        known.produce(0, "kept")
        producer_id, epoch = wire.new_producer(unique)
        batch = owned_batch("lost", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
        assert wire.produce(topic, batch, transactional_id=unique) == ("none", 1)
        wire.init_producer_id(unique)
        known.finish()
        of = ("--topic", topic, "--partition", "0")
        find = ("find-hanging", "--broker-id", "1", "--topic", topic, "--max-transaction-timeout", "0")
        (hanging,) = table(tools("kafka-transactions", *at, *find))
        assert (hanging["ProducerId"], hanging["StartOffset"]) == (str(producer_id), "1")
        assert read_all(client, topic) == ["kept"], "up to where it hangs"
        open_here = {
            row["ProducerId"]: row["CurrentTransactionStartOffset"]
            for row in table(tools("kafka-transactions", *at, "describe-producers", *of))
        }
        assert open_here == {str(known.id): "None", str(producer_id): "1"}
        tools("kafka-transactions", *at, "abort", *of, "--start-offset", "1")
        assert table(tools("kafka-transactions", *at, *find)) == []
        known.produce(0, "after")
        known.finish()
        assert read_all(client, topic) == ["kept", "after"]


def test_a_transaction_is_ended_by_its_id(
    tools: KafkaTools, node: NodeProcess, at: tuple[str, str], unique: str
) -> None:
    topic = f"topic-{unique}"
    with Client(node.bootstrap_servers) as client, Wire(node.bootstrap_servers) as wire:
        client.create_topics([NewTopic(topic, 1)])
        producer = Transactional(wire, unique, topic)
        producer.produce(0, "lost")
        (listed,) = table(tools("kafka-transactions", *at, "list", "--transactional-id-pattern", f"{unique}.*"))
        assert (listed["TransactionalId"], listed["TransactionState"]) == (unique, "Ongoing")
        tools("kafka-transactions", *at, "forceTerminateTransaction", "--transactionalId", unique)
        assert producer.produce(1)[0] == "invalid_producer_epoch"
        assert read_all(client, topic, committed=False) == ["lost"]
        assert read_all(client, topic) == []
