"""Records of Apache Kafka's own metadata (KRaft), and the file by which a new quorum begins with them. Pure.

A quorum whose metadata log is empty takes the records of `bootstrap.checkpoint` as its first ones: Kafka's StorageTool
leaves features and SCRAM users in it, a handover everything else too. Each record is a frame version, its key, its
version and a flexible structure; the versions written are those that Kafka 3.9 and later can read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from suiro.broker.security.acl import Acl
from suiro.broker.security.scram import ScramCredential
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
_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_LOG_DIRS_TAG = 0


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
