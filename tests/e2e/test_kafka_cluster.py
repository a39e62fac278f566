"""`suiro kafka up` as users run it: a real Apache Kafka, one broker or three, in a folder that is kept."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.kafka_cluster import DEADLINE_S, kafka_up
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.soak]  # CI starts one in test_handover.py


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": str(uuid4()), "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [message.value().decode() for message in consumer.consume(count, DEADLINE_S)]
    consumer.close()
    return found


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_broker_keeps_what_it_has(tmp_path: Path) -> None:
    with kafka_up(tmp_path, "--listen", "127.0.0.1:0") as first:
        produce(first["bootstrap"], "numbers", ["1", "2"])
    assert not any(is_running(broker["pid"]) for broker in first["brokers"].values())
    with kafka_up(tmp_path) as second:
        assert second["bootstrap"] == first["bootstrap"]
        produce(second["bootstrap"], "numbers", ["3"])
        assert consume(second["bootstrap"], "numbers", 3) == ["1", "2", "3"]


def test_three_brokers_and_one_is_killed(tmp_path: Path) -> None:
    with kafka_up(tmp_path, "--brokers", "3", "--listen", "127.0.0.1:0") as ready:
        bootstrap = ready["bootstrap"]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("numbers", 1, replication_factor=-1)])["numbers"].result(DEADLINE_S)
        partitions = wait_until(lambda: admin.list_topics("numbers").topics["numbers"].partitions)
        leader = partitions[0]
        assert len(leader.replicas) == 3
        produce(bootstrap, "numbers", ["1"])
        os.kill(ready["brokers"][str(leader.leader)]["pid"], signal.SIGKILL)
        produce(bootstrap, "numbers", ["2"])
        assert consume(bootstrap, "numbers", 2) == ["1", "2"]
    with kafka_up(tmp_path) as again:
        assert len(again["brokers"]) == 3
        assert consume(again["bootstrap"], "numbers", 2) == ["1", "2"]
