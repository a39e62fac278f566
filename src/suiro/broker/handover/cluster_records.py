"""A node's state outside of its partitions as Kafka's metadata records: features, settings, users, rules, quotas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from suiro.broker.coordination.transactions.producer_ids import ProducerIds, highest_in
from suiro.broker.handover import coordinator_topics, metadata_records
from suiro.broker.handover.metadata_records import BROKERS, GROUPS, BrokerIdentity
from suiro.broker.quotas.store import QuotaStore
from suiro.broker.security.acl_store import AclStore
from suiro.broker.security.scram_store import ScramStore
from suiro.broker.settings.cluster_state import GROUP_CONFIGS, ClusterState
from suiro.broker.settings.dynamic_settings import DynamicSettings
from suiro.broker.settings.features import METADATA_VERSION, SUPPORTED, Features
from suiro.broker.storage.topics import TRANSACTIONS_TOPIC, TopicRegistry
from suiro.config import is_of_kafka

_OF_THE_QUORUM = "kraft.version"  # the quorum has a record of its own for it
_NEWER_FEATURES = ("share.version", "streams.version")
"""Features of a new Apache Kafka of the node's own level that the node does not have."""
MIN_INSYNC = "min.insync.replicas"
ALL_BROKERS = ""


def cluster_records(
    state: ClusterState,
    settings: DynamicSettings,
    brokers: Sequence[BrokerIdentity],
    *,
    min_insync_replicas: int,
) -> Iterator[bytes]:
    """In an order in which each can be applied: features first."""
    finalized = Features(state).finalized
    # Without a record a feature is off.
    levels = {name: level for name, level in finalized.items() if level and name != _OF_THE_QUORUM}
    metadata_version = levels.pop(METADATA_VERSION)
    yield metadata_records.feature_level(METADATA_VERSION, metadata_version)
    if metadata_version == SUPPORTED[METADATA_VERSION][1]:
        levels |= dict.fromkeys(_NEWER_FEATURES, 1)
    for name, level in sorted(levels.items()):
        yield metadata_records.feature_level(name, level)
    for broker in brokers:
        yield metadata_records.registered_broker(broker)
    defaults = {**settings.layer("default"), MIN_INSYNC: str(min_insync_replicas)}
    layers = {ALL_BROKERS: defaults, **{str(broker.node_id): settings.layer("broker") for broker in brokers}}
    for resource, layer in layers.items():
        for name, value in layer.items():
            if is_of_kafka(name):
                yield metadata_records.config(BROKERS, resource, name, value)
    for group, configs in state.read(GROUP_CONFIGS, {}).items():
        for name, value in configs.items():
            yield metadata_records.config(GROUPS, group, name, value)
    for user, credentials in ScramStore(state).users.items():
        for mechanism, credential in credentials.items():
            yield metadata_records.scram_user(user, mechanism, credential)
    for rule in AclStore(state).all():
        yield metadata_records.acl(rule, uuid4())
    for entity, values in QuotaStore(state).quotas.items():
        yield from metadata_records.client_quotas(entity.parts, values)


def producer_ids_from(data: Path, registry: TopicRegistry) -> int:
    """The first producer id that was never given: above those that the node has reserved, and those in its logs."""
    topic = registry.topic(TRANSACTIONS_TOPIC)
    logs = [partition.log for partition in topic.partitions] if topic else []
    ids = ProducerIds(data)
    return max(
        ids.reserved,
        highest_in(partition.log for partition in registry.partitions()) + 1,
        coordinator_topics.highest_producer_id(logs) + 1,
    )
