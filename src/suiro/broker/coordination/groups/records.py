"""The records of offsets and of classic groups in `__consumer_offsets`, in Kafka's own formats.

Written: OffsetCommitKey 1 with OffsetCommitValue 4 (1 where the client set a retention of its own), GroupMetadataKey
2 with GroupMetadataValue 3. Read: also the others, since a directory may come from Apache Kafka. Those of the new
consumer protocol are in `consumer_records`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from suiro.broker.coordination.groups.group import Group, GroupLimits
from suiro.broker.coordination.groups.group_member import Member
from suiro.foundation.types import TopicPartition
from suiro.protocol.fields import FieldReader, FieldWriter

_OFFSET_KEY = 1
_OFFSET_VALUE = 4
_OFFSET_VALUE_WITH_EXPIRY = 1
_GROUP_KEY = 2
_GROUP_VALUE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetKey:
    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetValue:
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None
    topic_id: UUID | None = None


def encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    return FieldWriter().int16(_OFFSET_KEY).string(group).string(topic).int32(partition).done()


def offset_tombstones(group: str, places: Iterable[TopicPartition]) -> list[tuple[bytes, bytes | None]]:
    """The records that end the offsets of these partitions."""
    return [(encode_offset_key(group, *place), None) for place in sorted(places)]


def encode_offset_value(value: OffsetValue) -> bytes:
    if value.expire_ms is not None:
        writer = FieldWriter().int16(_OFFSET_VALUE_WITH_EXPIRY).int64(value.offset).string(value.metadata)
        return writer.int64(value.commit_ms).int64(value.expire_ms).done()
    tagged = {} if value.topic_id is None else {0: value.topic_id.bytes}
    writer = FieldWriter().int16(_OFFSET_VALUE).int64(value.offset).int32(value.leader_epoch)
    return writer.compact_string(value.metadata).int64(value.commit_ms).tags(tagged).done()


def encode_group_key(group: str) -> bytes:
    return FieldWriter().int16(_GROUP_KEY).string(group).done()


def encode_group_value(group: Group) -> bytes:
    writer = (
        FieldWriter()
        .int16(_GROUP_VALUE)
        .string(group.protocol_type or "")
        .int32(group.generation)
        .string(group.protocol)
        .string(group.leader)
        .int64(group.changed_ms)
        .int32(len(group.members))
    )
    for member in group.members.values():
        writer.string(member.member_id).string(member.instance_id).string(member.client_id)
        writer.string(member.client_host).int32(member.rebalance_timeout_ms).int32(member.session_timeout_ms)
        writer.octets(member.metadata(group.protocol)).octets(member.assignment)
    return writer.done()


def decode_key(key: bytes) -> OffsetKey | str | None:
    """The key of an offset, or the id of a classic group. None: another kind (the new consumer protocol's)."""
    reader = FieldReader(key)
    version = reader.int16()
    if version in (0, _OFFSET_KEY):
        return OffsetKey(group=reader.string(), topic=reader.string(), partition=reader.int32())
    if version == _GROUP_KEY:
        return reader.string()
    return None


def decode_offset_value(value: bytes) -> OffsetValue:
    reader = FieldReader(value)
    version = reader.int16()
    if not 0 <= version <= _OFFSET_VALUE:
        raise ValueError(f"an offset commit of version {version}; known are 0 to {_OFFSET_VALUE}")
    offset, leader_epoch = reader.int64(), reader.int32() if version >= 3 else -1
    metadata = reader.compact_string() if version >= 4 else reader.string()
    commit_ms, expire_ms = reader.int64(), reader.int64() if version == _OFFSET_VALUE_WITH_EXPIRY else -1
    topic_id = reader.tags().get(0) if version >= 4 else None
    return OffsetValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_ms=commit_ms,
        expire_ms=None if expire_ms < 0 else expire_ms,
        topic_id=None if topic_id is None else UUID(bytes=topic_id),
    )


def decode_group(group_id: str, value: bytes, *, limits: GroupLimits, now: int) -> Group:
    """`now` is monotonic: members get a whole session to come back."""
    reader = FieldReader(value)
    version = reader.int16()
    if not 0 <= version <= _GROUP_VALUE:
        raise ValueError(f"group metadata of version {version}; known are 0 to {_GROUP_VALUE}")
    group = Group(
        group_id=group_id,
        limits=limits,
        protocol_type=reader.string() or None,
        generation=reader.int32(),
        protocol=reader.optional_string(),
        leader=reader.optional_string(),
        changed_ms=reader.int64() if version >= 2 else -1,
    )
    members = []
    for _ in range(reader.int32()):
        member_id = reader.string()
        instance_id = reader.optional_string() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance_timeout_ms = reader.int32() if version >= 1 else 0
        session_timeout_ms = reader.int32()
        subscription, assignment = reader.octets(), reader.octets()
        members.append(
            Member(
                member_id=member_id,
                instance_id=instance_id,
                client_id=client_id,
                client_host=client_host,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms or session_timeout_ms,
                protocols=((group.protocol or "", subscription),),
                assignment=assignment,
            )
        )
    group.restore(members, now=now)
    return group
