"""Creates a topic with one compacted partition, or checks that nothing in an existing topic expires."""

from __future__ import annotations

from collections.abc import Mapping

from suiro.client import Client, NewTopic, TopicInfo
from suiro.errors import ConfigError

BROKERS_DEFAULT = -1
"""Replication factor: the default of the brokers."""


def one_compacted_partition(
    client: Client,
    topic: str,
    *,
    why_one: str,
    rows: str,
    configs: Mapping[str, str] | None = None,
    replication_factor: int = BROKERS_DEFAULT,
) -> TopicInfo:
    """Create the topic with `configs` if it does not exist, and return it.

    Raises `ConfigError` if it has more partitions (`why_one` completes the message) or if `rows` would expire.
    """
    found = client.metadata([topic])
    if topic not in found:
        wanted = {"cleanup.policy": "compact", **(configs or {})}
        client.create_topics([NewTopic(topic, 1, replication_factor, wanted)], exist_ok=True)
        found = client.metadata([topic])
    partitions = len(found[topic].partitions)
    if partitions != 1:
        raise ConfigError(f"topic {topic} has {partitions} partitions; {why_one}")
    require_compacted(client, topic, f"{rows} in it would expire")
    return found[topic]


def require_compacted(client: Client, topic: str, loss: str) -> None:
    """Raises `ConfigError` if records of the topic expire. `loss` completes the message."""
    policy = client.describe_configs([topic])[topic].get("cleanup.policy") or ""
    if "delete" in policy:
        raise ConfigError(
            f"topic {topic} has cleanup.policy={policy}: {loss}. Set it to compact: "
            f"kafka-configs --alter --topic {topic} --add-config cleanup.policy=compact"
        )
