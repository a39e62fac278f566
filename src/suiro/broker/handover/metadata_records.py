"""Records of Apache Kafka's own metadata (KRaft), the file by which a new quorum begins with them, and a node's state
outside of its partitions as such records: features, settings, users, rules, quotas.

A quorum whose metadata log is empty takes the records of `bootstrap.checkpoint` as its first ones: Kafka's StorageTool
leaves features and SCRAM users in it, a handover everything else too. Each record is a frame version, its key, its
version and a flexible structure; the versions written are those that Kafka 3.9 and later can read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from suiro.broker.coordination.transactions.producer_ids import ProducerIds, highest_in
from suiro.broker.handover import coordinator_topics
from suiro.broker.quotas.store import QuotaStore
from suiro.broker.security.acl import Acl
from suiro.broker.security.authorizer import AclStore
from suiro.broker.security.scram import MECHANISM_NUMBERS, ScramCredential
from suiro.broker.security.scram_store import ScramStore
from suiro.broker.settings.cluster_state import GROUP_CONFIGS, ClusterState
from suiro.broker.settings.dynamic_settings import DynamicSettings
from suiro.broker.settings.features import METADATA_VERSION, SUPPORTED, Features
from suiro.broker.storage.topics import TRANSACTIONS_TOPIC, TopicRegistry
from suiro.config import is_of_kafka
from suiro.protocol.fields import FieldWriter
from suiro.protocol.records import Record, encode_batch

FILE_NAME = "bootstrap.checkpoint"
NO_LEADER = -1
TOPICS, BROKERS, GROUPS = 2, 4, 32
"""Kinds of resources that settings are of."""
_FRAME_VERSION = 1
_RECORDS_A_BATCH = 500
_REGISTER_BROKER, _TOPIC, _PARTITION, _CONFIG = 0, 2, 3, 4
_SCRAM, _FEATURE_LEVEL, _CLIENT_QUOTA, _PRODUCER_IDS, _ACL = 11, 12, 14, 15, 18
_MECHANISMS = {mechanism: number for number, mechanism in MECHANISM_NUMBERS.items()}
_LOG_DIRS_TAG = 0
_OF_THE_QUORUM = "kraft.version"  # the quorum has a record of its own for it
_NEWER_FEATURES = ("share.version", "streams.version")
"""Features of a new Apache Kafka of the node's own level that the node does not have."""
_MIN_INSYNC = "min.insync.replicas"
_ALL_BROKERS = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """A broker that was stopped cleanly: where its data is, by the id of the folder."""

    node_id: int
    epoch: int
    incarnation_id: UUID
    directory_id: UUID


def checkpoint(records: Sequence[bytes], *, timestamp: int) -> bytes:
    """The content of `bootstrap.checkpoint`."""
    batches = []
    for first in range(0, len(records), _RECORDS_A_BATCH):
        values = records[first : first + _RECORDS_A_BATCH]
        entries = [
            Record(offset=first + index, timestamp=timestamp, key=None, value=value)
            for index, value in enumerate(values)
        ]
        batches.append(encode_batch(entries, base_offset=first, leader_epoch=0))
    return b"".join(batches)


def feature_level(name: str, level: int) -> bytes:
    return _frame(_FEATURE_LEVEL, 0).compact_string(name).int16(level).tags().done()


def registered_broker(broker: BrokerIdentity) -> bytes:
    """A broker that is fenced: it registers anew when it starts, and shows that epoch to prove its clean stop."""
    writer = _frame(_REGISTER_BROKER, 3).int32(broker.node_id).int8(0).uuid(broker.incarnation_id)
    writer.int64(broker.epoch).compact_count(0).compact_count(0).compact_string(None).int8(1).int8(0)
    directories = FieldWriter().compact_count(1).uuid(broker.directory_id).done()
    return writer.tags({_LOG_DIRS_TAG: directories}).done()


def topic(name: str, topic_id: UUID) -> bytes:
    return _frame(_TOPIC, 0).compact_string(name).uuid(topic_id).tags().done()


def partition(topic_id: UUID, index: int, *, replicas: Sequence[BrokerIdentity], leader_epoch: int) -> bytes:
    """A partition that every one of its replicas has whole, and that waits for one of them to lead it."""
    writer = _frame(_PARTITION, 1).int32(index).uuid(topic_id)
    for _ in ("replicas", "in-sync replicas"):
        writer.compact_count(len(replicas))
        for replica in replicas:
            writer.int32(replica.node_id)
    writer.compact_count(0).compact_count(0)  # none is being removed or added
    writer.int32(NO_LEADER).int32(leader_epoch).int32(0)
    writer.compact_count(len(replicas))
    for replica in replicas:
        writer.uuid(replica.directory_id)
    return writer.tags().done()


def config(kind: int, resource: str, name: str, value: str) -> bytes:
    """`kind` is the resource type's number on the wire; the resource "" of brokers is all of them."""
    writer = _frame(_CONFIG, 0).int8(kind).compact_string(resource).compact_string(name)
    return writer.compact_string(value).tags().done()


def scram_user(name: str, mechanism: str, credential: ScramCredential) -> bytes:
    writer = _frame(_SCRAM, 0).compact_string(name).int8(_MECHANISMS[mechanism])
    for octets in (credential.salt, credential.stored_key, credential.server_key):
        writer.compact_octets(octets)
    return writer.int32(credential.iterations).tags().done()


def acl(rule: Acl, rule_id: UUID) -> bytes:
    writer = _frame(_ACL, 0).uuid(rule_id).int8(rule.kind).compact_string(rule.name).int8(rule.pattern)
    writer.compact_string(rule.principal).compact_string(rule.host)
    return writer.int8(rule.operation).int8(rule.permission).tags().done()


def client_quotas(entity: Iterable[tuple[str, str | None]], values: Mapping[str, float]) -> list[bytes]:
    """One record a value; an entity is (type, name) pairs, and a name of None is its type's default."""
    parts = tuple(entity)
    records = []
    for key, value in values.items():
        writer = _frame(_CLIENT_QUOTA, 0).compact_count(len(parts))
        for kind, name in parts:
            writer.compact_string(kind).compact_string(name).tags()
        # A double has eight bytes, as a long.
        (bits,) = struct.unpack(">q", struct.pack(">d", value))
        records.append(writer.compact_string(key).int64(bits).int8(0).tags().done())
    return records


def next_producer_id(producer_id: int, broker: BrokerIdentity) -> bytes:
    """Ids below are used up."""
    writer = _frame(_PRODUCER_IDS, 0).int32(broker.node_id).int64(broker.epoch)
    return writer.int64(producer_id).tags().done()


def _frame(key: int, version: int) -> FieldWriter:
    return FieldWriter().uvarint(_FRAME_VERSION).uvarint(key).uvarint(version)


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
    yield feature_level(METADATA_VERSION, metadata_version)
    if metadata_version == SUPPORTED[METADATA_VERSION][1]:
        levels |= dict.fromkeys(_NEWER_FEATURES, 1)
    for name, level in sorted(levels.items()):
        yield feature_level(name, level)
    for broker in brokers:
        yield registered_broker(broker)
    defaults = {**settings.layer("default"), _MIN_INSYNC: str(min_insync_replicas)}
    layers = {_ALL_BROKERS: defaults, **{str(broker.node_id): settings.layer("broker") for broker in brokers}}
    for resource, layer in layers.items():
        for name, value in layer.items():
            if is_of_kafka(name):
                yield config(BROKERS, resource, name, value)
    for group, configs in state.read(GROUP_CONFIGS, {}).items():
        for name, value in configs.items():
            yield config(GROUPS, group, name, value)
    for user, credentials in ScramStore(state).users.items():
        for mechanism, credential in credentials.items():
            yield scram_user(user, mechanism, credential)
    for rule in AclStore(state).all():
        yield acl(rule, uuid4())
    for entity, values in QuotaStore(state).quotas.items():
        yield from client_quotas(entity.parts, values)


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
