"""The records of a consumer group of the new protocol in `__consumer_offsets`, in Kafka's own format.

    key  record              says
    3    GroupEpoch          the group's epoch, and a hash of the topics that it was made for
    4    TopicMetadata       not written since Kafka 4.1; a tombstone clears what an older version left
    5    Subscription        who a member is and what it wants
    6    TargetEpoch         the group epoch that the target assignment was made for
    7    Target              what a member shall have
    8    Ownership           what a member has, its epochs and its state
    16   Regex               the topics that a regular expression matched

A value of None is a tombstone. `Subscription` and `Ownership` carry a whole member, of which they write their part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from suiro.broker.coordination.groups.consumer_member import (
    ClassicMember,
    ConsumerMember,
    MemberState,
    PartitionEpochs,
    Partitions,
    ResolvedRegex,
)
from suiro.protocol.fields import FieldReader, FieldWriter

_KINDS = (3, 4, 5, 6, 7, 8, 16)
_GROUP_EPOCH, _TOPIC_METADATA, _SUBSCRIPTION, _TARGET_EPOCH, _TARGET, _OWNERSHIP, _REGEX = _KINDS
_VERSION = 0
_NULL, _PRESENT = b"\0", 1  # of a structure in a tagged field


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    present: bool


@dataclass(frozen=True, slots=True)
class Subscription:
    member_id: str
    member: ConsumerMember | None


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    epoch: int | None
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    member_id: str
    partitions: Partitions | None


@dataclass(frozen=True, slots=True)
class Ownership:
    member_id: str
    member: ConsumerMember | None


@dataclass(frozen=True, slots=True)
class Regex:
    regex: str
    resolved: ResolvedRegex | None


ConsumerRecord: TypeAlias = GroupEpoch | TopicMetadata | Subscription | TargetEpoch | Target | Ownership | Regex


def encode(group_id: str, record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """(key, value)."""
    match record:
        case GroupEpoch(epoch, metadata_hash):
            return _key(_GROUP_EPOCH, group_id), _encode_number(epoch, metadata_hash)
        case TopicMetadata():
            return _key(_TOPIC_METADATA, group_id), None
        case Subscription(member_id, member):
            key = _key(_SUBSCRIPTION, group_id, member_id)
            return key, None if member is None else _encode_subscription(member)
        case TargetEpoch(epoch, timestamp_ms):
            return _key(_TARGET_EPOCH, group_id), _encode_number(epoch, timestamp_ms)
        case Target(member_id, partitions):
            key = _key(_TARGET, group_id, member_id)
            return key, None if partitions is None else _encode_target(partitions)
        case Ownership(member_id, member):
            key = _key(_OWNERSHIP, group_id, member_id)
            return key, None if member is None else _encode_ownership(member)
        case Regex(regex, resolved):
            key = _key(_REGEX, group_id, regex)
            return key, None if resolved is None else _encode_regex(resolved)


def decode(key: bytes, value: bytes | None) -> tuple[str, ConsumerRecord] | None:
    """(group id, record); None if the key is of another kind of record."""
    reader = FieldReader(key)
    kind = reader.int16()
    if kind not in _KINDS:
        return None
    group_id = reader.string()
    if kind == _TOPIC_METADATA:
        return group_id, TopicMetadata(value is not None)
    fields = None if value is None else FieldReader(value)
    if fields is not None and (version := fields.int16()) != _VERSION:
        raise ValueError(f"a consumer group record of kind {kind} has version {version}; known is {_VERSION}")
    if kind == _GROUP_EPOCH:
        return group_id, GroupEpoch(None) if fields is None else GroupEpoch(*_number_and_tagged(fields))
    if kind == _TARGET_EPOCH:
        return group_id, TargetEpoch(None) if fields is None else TargetEpoch(*_number_and_tagged(fields))
    name = reader.string()
    if kind == _SUBSCRIPTION:
        return group_id, Subscription(name, None if fields is None else _decode_subscription(name, fields))
    if kind == _TARGET:
        return group_id, Target(name, None if fields is None else _decode_target(fields))
    if kind == _OWNERSHIP:
        return group_id, Ownership(name, None if fields is None else _decode_ownership(name, fields))
    return group_id, Regex(name, None if fields is None else _decode_regex(fields))


def _key(kind: int, *names: str) -> bytes:
    writer = FieldWriter().int16(kind)
    for name in names:
        writer.string(name)
    return writer.done()


def _value() -> FieldWriter:
    return FieldWriter().int16(_VERSION)


def _encode_number(number: int | None, tagged: int) -> bytes | None:
    if number is None:
        return None
    return _value().int32(number).tags({0: FieldWriter().int64(tagged).done()} if tagged else {}).done()


def _number_and_tagged(fields: FieldReader) -> tuple[int, int]:
    number = fields.int32()
    tagged = fields.tags().get(0)
    return number, 0 if tagged is None else FieldReader(tagged).int64()


def _encode_subscription(member: ConsumerMember) -> bytes:
    writer = _value().compact_string(member.instance_id).compact_string(member.rack_id)
    writer.compact_string(member.client_id).compact_string(member.client_host)
    writer.compact_count(len(member.topic_names))
    for name in sorted(member.topic_names):
        writer.compact_string(name)
    writer.compact_string(member.topic_regex).int32(member.rebalance_timeout_ms)
    writer.compact_string(member.server_assignor)
    if member.classic is None:
        return writer.tags({0: _NULL}).done()
    classic = FieldWriter().int8(_PRESENT).int32(member.classic.session_timeout_ms)
    classic.compact_count(len(member.classic.protocols))
    for name, metadata in member.classic.protocols:
        classic.compact_string(name).compact_octets(metadata).tags()
    return writer.tags({0: classic.tags().done()}).done()


def _decode_subscription(member_id: str, fields: FieldReader) -> ConsumerMember:
    instance_id, rack_id = fields.optional_compact_string(), fields.optional_compact_string()
    client_id, client_host = fields.compact_string(), fields.compact_string()
    names = frozenset(fields.compact_string() for _ in range(fields.compact_count()))
    regex, rebalance_timeout_ms = fields.optional_compact_string(), fields.int32()
    assignor = fields.optional_compact_string()
    tagged = fields.tags().get(0)
    return ConsumerMember(
        member_id=member_id,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topic_names=names,
        topic_regex=regex,
        rebalance_timeout_ms=rebalance_timeout_ms,
        server_assignor=assignor,
        classic=None if tagged is None else _decode_classic(FieldReader(tagged)),
    )


def _decode_classic(fields: FieldReader) -> ClassicMember | None:
    if fields.int8() != _PRESENT:
        return None
    timeout, protocols = fields.int32(), []
    for _ in range(fields.compact_count()):
        protocols.append((fields.compact_string(), fields.compact_octets()))
        fields.tags()
    return ClassicMember(session_timeout_ms=timeout, protocols=tuple(protocols))


def _encode_target(partitions: Partitions) -> bytes:
    writer = _value().compact_count(len(partitions))
    for topic_id, some in partitions.items():
        writer.uuid(topic_id).compact_count(len(some))
        for partition in sorted(some):
            writer.int32(partition)
        writer.tags()
    return writer.tags().done()


def _decode_target(fields: FieldReader) -> Partitions:
    target: dict[UUID, frozenset[int]] = {}
    for _ in range(fields.compact_count()):
        topic_id = fields.uuid()
        target[topic_id] = frozenset(fields.int32() for _ in range(fields.compact_count()))
        fields.tags()
    return target


def _encode_ownership(member: ConsumerMember) -> bytes:
    writer = _value().int32(member.member_epoch).int32(member.previous_member_epoch).int8(member.state)
    _write_epochs(writer, member.assigned)
    _write_epochs(writer, member.pending_revocation)
    return writer.tags().done()


def _write_epochs(writer: FieldWriter, owned: PartitionEpochs) -> None:
    writer.compact_count(len(owned))
    for topic_id, epochs in owned.items():
        writer.uuid(topic_id).compact_count(len(epochs))
        tagged = FieldWriter().compact_count(len(epochs))
        for partition in sorted(epochs):
            writer.int32(partition)
            tagged.int32(epochs[partition])
        writer.tags({0: tagged.done()})


def _decode_ownership(member_id: str, fields: FieldReader) -> ConsumerMember:
    epoch, previous, state = fields.int32(), fields.int32(), fields.int8()
    return ConsumerMember(
        member_id=member_id,
        member_epoch=epoch,
        previous_member_epoch=previous,
        state=MemberState(state) if state in (0, 1, 2) else MemberState.UNKNOWN,
        assigned=_read_epochs(fields, epoch),
        pending_revocation=_read_epochs(fields, epoch),
    )


def _read_epochs(fields: FieldReader, member_epoch: int) -> Mapping[UUID, Mapping[int, int]]:
    owned: dict[UUID, dict[int, int]] = {}
    for _ in range(fields.compact_count()):
        topic_id = fields.uuid()
        partitions = [fields.int32() for _ in range(fields.compact_count())]
        tagged = fields.tags().get(0)
        epochs = [max(member_epoch, 0)] * len(partitions)
        if tagged is not None and tagged != _NULL:
            reader = FieldReader(tagged)
            epochs = [reader.int32() for _ in range(reader.compact_count())]
        owned[topic_id] = dict(zip(partitions, epochs, strict=True))
    return owned


def _encode_regex(resolved: ResolvedRegex) -> bytes:
    writer = _value().compact_count(len(resolved.topics))
    for name in sorted(resolved.topics):
        writer.compact_string(name)
    return writer.int64(resolved.version).int64(resolved.timestamp_ms).tags().done()


def _decode_regex(fields: FieldReader) -> ResolvedRegex:
    topics = frozenset(fields.compact_string() for _ in range(fields.compact_count()))
    return ResolvedRegex(topics=topics, version=fields.int64(), timestamp_ms=fields.int64())
