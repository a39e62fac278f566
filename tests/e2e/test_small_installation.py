"""A node of the base installation: no NumPy, no Numba, no PyArrow, no uvloop, and all that a node does."""

from __future__ import annotations

import random
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.absence import base_installation
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.errors import ConfigError
from suiro.node import NodeProcess

DEADLINE_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in base_installation().items():
            patch.setenv(name, value)
        node = NodeProcess.start(
            data=folder / "data",
            log=folder / "node.log",
            settings={"log.cleaner.backoff.ms": "50"},
            options=["--console", "127.0.0.1:0", "--metrics", "127.0.0.1:0"],
        )
    with node:
        yield node


def produced(bootstrap: str, topic: str, values: list[bytes], *, codec: str, keys: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=b"key-%d" % (number % keys) if keys else None)
    assert producer.flush(DEADLINE_S) == 0


def read(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes]]:
    """All records that are there, which may be fewer than the offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{uuid4()}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, bytes]] = []
    try:
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, "no answer"
            if message.error():
                return found
            found.append((message.key(), message.value()))
    finally:
        consumer.close()


@pytest.mark.parametrize("kept", ["producer", "zstd"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(small: NodeProcess, codec: str, kept: str) -> None:
    """Those of producers, and those that the node compresses anew."""
    topic = f"codec-{codec}-{kept}"
    with Client(small.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic, 1, configs={"compression.type": kept})])
    values = [b"value-%d " % number * 20 for number in range(2000)]
    produced(small.bootstrap_servers, topic, values, codec=codec)
    assert [value for _, value in read(small.bootstrap_servers, topic)] == values


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_compacted_topic_is_cleaned(small: NodeProcess, codec: str) -> None:
    topic = f"compacted-{codec}"
    configs = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    with Client(small.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic, 1, configs=configs)])
    chance = random.Random(7)
    values = [chance.randbytes(60) for _ in range(30_000)]
    produced(small.bootstrap_servers, topic, values, codec=codec, keys=10)

    def is_cleaned() -> bool:
        return len(read(small.bootstrap_servers, topic)) < 20_000

    wait_until(is_cleaned, DEADLINE_S, "a cleaned segment", poll_s=0.2)
    assert dict(read(small.bootstrap_servers, topic)) == {
        b"key-%d" % (number % 10): values[number] for number in range(29_990, 30_000)
    }


def test_groups_subscribe_by_regular_expression(small: NodeProcess) -> None:
    with Client(small.bootstrap_servers) as client:
        client.create_topics([NewTopic("orders-new", 1)])
    produced(small.bootstrap_servers, "orders-new", [b"one"], codec="none")
    consumer = Consumer(
        {
            "bootstrap.servers": small.bootstrap_servers,
            "group.id": "by-pattern",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["^orders-[a-z]+"])
    try:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.value() == b"one"
    finally:
        consumer.close()


def test_the_everyday_commands(small: NodeProcess) -> None:
    produce = ["topic", "produce", "people"]
    for arguments in (
        ["cluster"],
        ["topic", "create", "people", "--partitions", "2"],
        produce,
        ["topic", "list"],
        ["topic", "describe", "people"],
        ["topic", "alter", "people", "--config", "retention.ms=1000000"],
        ["topic", "records", "people", "--value-format", "json"],
        ["topic", "records", "people", "--filter", "value == 1"],
        ["topic", "consume", "people", "--from-beginning", "--group", "readers", "--max-messages", "2"],
        ["group", "list"],
        ["group", "describe", "readers"],
        ["user", "list"],
        ["quota", "list"],
        ["topic", "delete", "people", "--yes"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "suiro", *arguments],
            env={**base_installation(), "SUIRO_BOOTSTRAP_SERVERS": small.bootstrap_servers},
            input="1\n2\n" if arguments is produce else "",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)


def test_the_console_and_the_metrics(small: NodeProcess) -> None:
    assert small.metrics_url is not None
    with urllib.request.urlopen(small.metrics_url, timeout=DEADLINE_S) as answer:
        assert b"kafka_server" in answer.read()

    def answered() -> bytes | None:
        try:
            with urllib.request.urlopen(f"{small.console_url}/", timeout=DEADLINE_S) as answer:
                return bytes(answer.read())
        except OSError:  # it listens before it is there
            return None

    assert b"<html" in wait_until(answered, DEADLINE_S, "the console's page")


@pytest.mark.parametrize(
    ("settings", "options", "needs"),
    [
        (
            {"remote.log.storage.system.enable": "true", "remote.log.storage.uri": "s3://bucket/prefix"},
            [],
            r"delta-rs: pip install 'suiro\[lake\]'",
        ),
        ({}, ["--registry", "127.0.0.1:0"], r"fastavro: pip install 'suiro\[registry\]'"),
    ],
    ids=["s3", "registry"],
)
def test_what_a_node_lacks_is_said_at_its_start(
    settings: dict[str, str],
    options: list[str],
    needs: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in base_installation().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=needs):
        NodeProcess.start(data=tmp_path / "data", settings=settings, options=options)
