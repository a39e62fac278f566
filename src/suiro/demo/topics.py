"""Creates the demo's topics, with an ordinary Kafka client (confluent-kafka)."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from suiro.demo.names import CAPTURED, PARTITIONS, SCHEMAS, TOPICS, VIEWS
from suiro.errors import FatalError, UsageError

__all__ = ["create_topics"]

REQUEST_TIMEOUT_S = 30


def create_topics(bootstrap_servers: str) -> None:
    """All of `TOPICS`. Neither they nor those that capture makes may exist yet: the demo counts from offset 0."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    there = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics.keys()
    for name in (*CAPTURED, SCHEMAS):
        if name in there:
            raise UsageError(_exists(name, bootstrap_servers))
    if VIEWS in there:
        raise UsageError(
            f"topic {VIEWS} exists already on {bootstrap_servers}: there are views with a host of their own, and the "
            "demo's would take them over; give the demo another cluster"
        )
    wanted = [NewTopic(name, PARTITIONS, config=dict(config)) for name, config in TOPICS.items()]
    for name, future in admin.create_topics(wanted, operation_timeout=REQUEST_TIMEOUT_S).items():
        try:
            future.result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise UsageError(_exists(name, bootstrap_servers)) from None
            raise FatalError(f"topic {name} could not be created: {reason.str()}") from None


def _exists(name: str, bootstrap_servers: str) -> str:
    return (
        f"topic {name} exists already on {bootstrap_servers}; the demo counts from offset 0, so delete its topics "
        "first or give it another cluster"
    )
