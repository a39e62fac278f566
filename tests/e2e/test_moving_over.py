"""A job of Spark's own Kafka connector moves over by one word and its checkpoint, on a guarded broker.

The connector itself runs it first, with the settings of Java's clients: TLS by PEM files, a JAAS line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from support.certificates import Authority

from suiro.client import Client, NewTopic
from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.kafka]

DRIVER = Path(__file__).with_name("moving_over_driver.py")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{MODULE} username="admin" password="change-me" user_admin="change-me" user_app="its password";'
    ),
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
}
OF_KAFKA = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}


@dataclass(frozen=True, kw_only=True)
class Guarded:
    bootstrap_servers: str
    trusted: Path

    @property
    def of_java(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{MODULE} username="app" password="its password";',
            "kafka.ssl.truststore.location": str(self.trusted),
            "kafka.ssl.truststore.type": "PEM",
            "kafka.client.id": "moving",
            "kafka.fetch.max.bytes": "1000000",
        }

    @property
    def of_librdkafka(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trusted),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "app",
            "sasl.password": "its password",
        }


@pytest.fixture(params=["node", "kafka"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guarded]:
    authority = Authority(tmp_path / "authority")
    store = {
        "ssl.keystore.location": str(authority.sign("server", subject="/CN=localhost")),
        "ssl.truststore.location": str(authority.certificate),
    }
    if request.param == "node":
        running: Any = NodeProcess.start(settings=SETTINGS | store)
    else:
        running = KafkaProcess.start(tmp_path / "kafka", settings=SETTINGS | OF_KAFKA | store, heap="512m")
    with running:
        yield Guarded(bootstrap_servers=running.bootstrap_servers, trusted=authority.certificate)


def test_the_connectors_job_goes_on_with_its_checkpoint(broker: Guarded, tmp_path: Path) -> None:
    with Client(broker.bootstrap_servers, settings=broker.of_librdkafka) as client:
        client.create_topics([NewTopic(name, 2) for name in ("in", "out")])
    job = {
        "kafka": broker.of_java,
        "read": {
            "subscribe": "in",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "30",
            "groupIdPrefix": "old",
        },
        "write": {"topic": "out", "checkpointLocation": str(tmp_path / "checkpoint"), "kafka.acks": "all"},
        "application": "moved",
    }

    def run(name: str) -> None:
        subprocess.run([sys.executable, str(DRIVER), name, json.dumps(job)], check=True, timeout=240)

    feed(broker, range(100))
    run("kafka")
    feed(broker, range(50, 150))  # half of them the connector has passed on
    settings = [f"--set={name}={value}" for name, value in broker.of_librdkafka.items()]
    said = subprocess.run(
        [
            sys.executable, "-m", "suiro", "spark", "adopt", job["write"]["checkpointLocation"],
            "--application-id", "moved", "--bootstrap-servers", broker.bootstrap_servers, *settings,
        ],
        check=True, capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip
    assert "is the first of format suiro" in said
    run("suiro")
    assert sorted(map(int, values(broker, "out"))) == list(range(150))
    with Client(broker.bootstrap_servers, settings=broker.of_librdkafka) as client:
        committed = client.offset_fetch("moved", [("in", 0), ("in", 1)])
    assert sum(found.offset for found in committed.values() if found is not None) == 200


def feed(broker: Guarded, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **broker.of_librdkafka})
    for number in numbers:
        producer.produce("in", key=str(number), value=str(number))
    assert producer.flush(60) == 0


def values(broker: Guarded, topic: str) -> list[bytes]:
    """All that is in the two partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **broker.of_librdkafka,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < 2:
        message = consumer.poll(30)
        assert message is not None, f"no end of {topic} in 30 s, after {len(found)} records"
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found.append(message.value())
    consumer.close()
    return found
