"""Creates the demo's topics and produces the data, with an ordinary Kafka client (confluent-kafka)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from suiro.demo.dataset import Records
from suiro.demo.names import PARTITIONS, TOPICS
from suiro.errors import FatalError, UsageError

__all__ = ["create_topics", "produce"]

REQUEST_TIMEOUT_S = 30
FLUSH_TIMEOUT_S = 120
POLL_EVERY_RECORDS = 5_000


def create_topics(bootstrap_servers: str) -> None:
    """All of `TOPICS`, which must not exist yet: the demo counts from offset 0."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = [NewTopic(name, PARTITIONS, config=dict(config)) for name, config in TOPICS.items()]
    for name, future in admin.create_topics(wanted, operation_timeout=REQUEST_TIMEOUT_S).items():
        try:
            future.result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise UsageError(
                    f"topic {name} exists already on {bootstrap_servers}; the demo counts from offset 0, so "
                    "delete its topics first or give it another cluster"
                ) from None
            raise FatalError(f"topic {name} could not be created: {reason.str()}") from None


def produce(
    bootstrap_servers: str, topic: str, records: Records, *, progress: Callable[[int], None] | None = None
) -> None:
    """Produces `records` in order, idempotently, and returns once every one is acknowledged.

    `progress` is told how many are handed over so far.
    """
    failed: list[str] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            failed.append(f"{message.key()!r}: {error.str()}")

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",  # as Java's clients place keys
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
            "on_delivery": delivered,
        }
    )
    stamps = records.timestamps_ms or [0] * len(records)  # 0: librdkafka takes the present time
    for count, (key, value, at) in enumerate(zip(records.keys, records.values, stamps, strict=True), start=1):
        producer.produce(topic, value, key, timestamp=at)
        if count % POLL_EVERY_RECORDS == 0:
            producer.poll(0)
            if progress is not None:
                progress(count)
    left = producer.flush(FLUSH_TIMEOUT_S)
    if left or failed:
        raise FatalError(
            f"{left + len(failed)} of {len(records)} records for {topic} were not acknowledged by "
            f"{bootstrap_servers}: {'; '.join(failed[:3]) or 'no answer in time'}"
        )
    if progress is not None:
        progress(len(records))
