"""The same scenarios through clients of different families, on the node and on Apache Kafka.

librdkafka (confluent-kafka), pure Python (aiokafka; kafka-python brings its own suite), Go (franz-go). The Java family
is Kafka's own tools, in `test_kafka_tools`. What each scenario must come to is said once, in its test.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from conftest import LogUnderTest
from support.franz_client import franz
from support.group_wire import BEAT_OFTEN, set_of_group
from support.waiting import wait_until
from support.wire import Wire

COUNT = 600


@pytest.fixture
def prefix() -> str:
    return f"clients-{uuid4().hex[:8]}-"


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(4)


@pytest.fixture
def at(log_under_test: LogUnderTest) -> str:
    return log_under_test.bootstrap_servers


# -- Go -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["records", "groups", "transactions", "admin"])
def test_go(at: str, prefix: str, scenario: str) -> None:
    done = subprocess.run([str(franz()), at, prefix, scenario], capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


# -- librdkafka -----------------------------------------------------------------------------------------------


def send(at: str, topic: str, count: int = COUNT, **settings: Any) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": at, "enable.idempotence": True} | settings)
    for number in range(count):
        producer.produce(topic, key=str(number), value=str(number), headers={"n": str(number)})
    assert producer.flush(30) == 0


def receive(at: str, topic: str, count: int, **settings: Any) -> list[int]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": at, "group.id": f"g-{uuid4()}", "auto.offset.reset": "earliest"} | settings
    )
    consumer.subscribe([topic])
    found: list[int] = []

    def enough() -> bool:
        for message in consumer.consume(500, timeout=0.05):
            assert message.error() is None, message.error()
            found.append(int(message.value()))
        return len(found) >= count

    try:
        wait_until(enough, 60)
    finally:
        consumer.close()
    return sorted(found)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_records(at: str, topic: str, codec: str) -> None:
    send(at, topic, **{"compression.type": codec})
    assert receive(at, topic, COUNT) == list(range(COUNT))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_groups_grow_and_shrink(at: str, topic: str, prefix: str, protocol: str) -> None:
    from confluent_kafka import Consumer

    class Member:
        def __init__(self) -> None:
            settings = {"bootstrap.servers": at, "group.id": prefix, "auto.offset.reset": "earliest"}
            if protocol == "consumer":
                settings |= {"group.protocol": "consumer"}
                with Wire(at) as wire:
                    set_of_group(wire, prefix, BEAT_OFTEN)
            else:
                settings |= {"partition.assignment.strategy": "cooperative-sticky"}
                settings |= {"heartbeat.interval.ms": 100, "session.timeout.ms": 6000}
            self.consumer = Consumer(settings)
            self.consumer.subscribe([topic])
            self.stop = threading.Event()
            self.seen: list[int] = []
            self.owned: set[int] = set()
            self.thread = threading.Thread(target=self.run)
            self.thread.start()

        def run(self) -> None:
            while not self.stop.is_set():
                for message in self.consumer.consume(100, timeout=0.05):
                    if message.error() is None:
                        self.seen.append(int(message.value()))
                self.owned = {part.partition for part in self.consumer.assignment()}
            self.consumer.close()

        def leave(self) -> None:
            self.stop.set()
            self.thread.join()

    def at_rest(members: list[Member]) -> bool:
        owned = [partition for member in members for partition in member.owned]
        return sorted(owned) == [0, 1, 2, 3] and all(member.owned for member in members)

    members = [Member()]
    try:
        wait_until(lambda: at_rest(members), 60)
        members.append(Member())
        wait_until(lambda: at_rest(members), 60)
        members.pop(0).leave()
        wait_until(lambda: at_rest(members), 60)
        send(at, topic)
        wait_until(lambda: len(set(members[0].seen)) == COUNT, 60)
    finally:
        for member in members:
            member.leave()


def test_librdkafka_transactions(at: str, new_topic: Callable[..., str], prefix: str) -> None:
    """Consume, transform, produce; every other transaction is aborted: each record is there once."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    source, target = new_topic(1), new_topic(2)
    send(at, source)
    producer = Producer({"bootstrap.servers": at, "transactional.id": prefix, "linger.ms": 0})
    producer.init_transactions(30)
    consumer = Consumer(
        {
            "bootstrap.servers": at,
            "group.id": prefix,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    place = TopicPartition(source, 0)
    committed, commit = 0, False
    try:
        while committed < COUNT:
            consumer.assign([TopicPartition(source, 0, committed)])
            producer.begin_transaction()
            messages = consumer.consume(200, timeout=30)
            for message in messages:
                producer.produce(target, key=message.key(), value=message.value())
            place.offset = messages[-1].offset() + 1
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 30)
            if commit:
                producer.commit_transaction(30)
                committed = place.offset
            else:
                producer.abort_transaction(30)
            commit = not commit
        (found,) = consumer.committed([TopicPartition(source, 0)], 30)
        assert found.offset == COUNT
    finally:
        consumer.close()
    assert receive(at, target, COUNT, **{"isolation.level": "read_committed"}) == list(range(COUNT))


# -- aiokafka -------------------------------------------------------------------------------------------------


def test_aiokafka(at: str, new_topic: Callable[..., str], prefix: str) -> None:
    """Records, a group of two that shrinks to one, and a transaction that is aborted beside one that is not."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic = new_topic(4)

    async def run() -> None:
        def member() -> Any:
            return AIOKafkaConsumer(
                topic, bootstrap_servers=at, group_id=prefix, auto_offset_reset="earliest",
                isolation_level="read_committed", heartbeat_interval_ms=100, session_timeout_ms=6000,
            )  # fmt: skip

        async def until(condition: Callable[[], bool]) -> None:
            async with asyncio.timeout(60):
                while not condition():
                    await asyncio.sleep(0.02)

        producer = AIOKafkaProducer(bootstrap_servers=at, transactional_id=prefix)
        first, second = member(), member()
        await first.start()
        await second.start()
        try:
            await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            await second.stop()
            await until(lambda: len(first.assignment()) == 4)
            await producer.start()
            async with producer.transaction():
                for number in range(COUNT):
                    await producer.send(topic, str(number).encode(), key=str(number).encode())
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"-1")
            await producer.abort_transaction()
            found: list[int] = []
            async with asyncio.timeout(60):
                while len(found) < COUNT:
                    for batch in (await first.getmany(timeout_ms=100)).values():
                        found += [int(record.value) for record in batch]
            assert sorted(found) == list(range(COUNT))
            await first.commit()
        finally:
            await producer.stop()
            await first.stop()

    asyncio.run(run())


def test_a_topic_made_by_its_first_record(at: str, prefix: str) -> None:
    send(at, f"{prefix}auto", 10)
    assert receive(at, f"{prefix}auto", 10) == list(range(10))


def test_static_members_come_back_to_what_they_had(at: str, topic: str, prefix: str) -> None:
    from confluent_kafka import Consumer

    def member(number: int) -> Any:
        consumer = Consumer(
            {"bootstrap.servers": at, "group.id": prefix, "group.instance.id": f"m{number}"}
            | {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 100}
        )
        consumer.subscribe([topic])
        return consumer

    members = [member(0), member(1)]

    def owned() -> list[set[int]]:
        for consumer in members:
            consumer.poll(0.02)
        return [{part.partition for part in consumer.assignment()} for consumer in members]

    try:
        wait_until(lambda: sorted(map(len, owned())) == [2, 2], 60)
        before = owned()
        members[0].close()
        members[0] = member(0)
        wait_until(lambda: owned() == before, 60)
    finally:
        for consumer in members:
            consumer.close()
