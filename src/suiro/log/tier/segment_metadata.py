"""The metadata of a segment in the remote tier, and its format in `__remote_log_metadata`.

A value is Kafka's RemoteLogSegmentMetadataRecord (API key 0, version 0), which Kafka's own decoder reads. Kafka writes
a shorter record if only the state changes. The node always writes the whole record, so that the last one of a key is
enough and the topic can be compacted. The key is the segment's id. A key without a value means that the segment is
gone.

States, and who moves them:

    (none) -> COPY_STARTED     before the first byte is sent
    COPY_STARTED -> COPY_FINISHED    all objects are in the store, with the right sizes; from now on it is read
    COPY_STARTED, COPY_FINISHED -> DELETE_STARTED    it is not read any more; its objects are being removed
    DELETE_STARTED -> DELETE_FINISHED    and then the record without a value
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from suiro.log.checkpoints import check_version, id_text
from suiro.log.errors import CorruptBatchError
from suiro.protocol.fields import FieldReader, FieldWriter

_FRAME_VERSION = 1
_API_KEY = 0
_VERSION = 0
_TXN_INDEX_EMPTY_TAG = 0
_OBJECTS_VERSION = 1
_OBJECT = struct.Struct(">qI")
_ABSENT = -1


class SegmentState(IntEnum):
    """Kafka's RemoteLogSegmentState."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


OBJECT_KINDS = ("log", "index", "timeindex", "txnindex", "snapshot", "leader-epoch-checkpoint")
"""A segment's objects in the store, by the ending of their names."""


class StoredObject(NamedTuple):
    """The size and checksum that an object in the store must have."""

    size: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """One copied segment: offsets `start_offset` to `end_offset`, the latter included, as Kafka has it."""

    topic: str
    topic_id: UUID
    partition: int
    segment_id: UUID
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp: int
    event_timestamp: int  # when this state was entered, milliseconds
    leader_epochs: tuple[tuple[int, int], ...]  # (epoch, first offset)
    size: int  # bytes of the log object
    state: SegmentState
    transaction_index_empty: bool = False
    objects: tuple[tuple[str, StoredObject], ...] = ()  # by kind; known when the copy is finished

    @property
    def key(self) -> bytes:
        return id_text(self.segment_id).encode()

    @property
    def next_offset(self) -> int:
        return self.end_offset + 1

    def object_name(self, kind: str) -> str:
        """The name in the store: one folder a topic (with its id, so a new topic of the name has its own)."""
        folder = f"{self.topic}-{id_text(self.topic_id)}/{self.partition}"
        return f"{folder}/{self.start_offset:020d}-{id_text(self.segment_id)}.{kind}"

    def stored(self, kind: str) -> StoredObject | None:
        return dict(self.objects).get(kind)


def encode(segment: RemoteSegment) -> bytes:
    out = FieldWriter()
    out.uvarint(_FRAME_VERSION).uvarint(_API_KEY).uvarint(_VERSION)
    out.compact_string(segment.topic).uuid(segment.topic_id).int32(segment.partition).tags()
    out.uuid(segment.segment_id).tags()
    out.int64(segment.start_offset).int64(segment.end_offset).int32(segment.broker_id)
    out.int64(segment.max_timestamp).int64(segment.event_timestamp)
    out.compact_count(len(segment.leader_epochs))
    for epoch, offset in segment.leader_epochs:
        out.int32(epoch).int64(offset).tags()
    out.int32(segment.size).compact_octets(_encode_objects(segment.objects) or None).int8(segment.state)
    out.tags({_TXN_INDEX_EMPTY_TAG: b"\1"} if segment.transaction_index_empty else {})
    return out.done()


def decode(data: bytes) -> RemoteSegment:
    """Raises CorruptBatchError where it is not such a record, and ConfigError for one of a later release: if it were
    passed over, the log would forget what is in the tier."""
    try:
        return _decode(FieldReader(data))
    except (struct.error, ValueError) as error:
        raise CorruptBatchError(
            f"a record of __remote_log_metadata, {len(data)} bytes, is not readable: {error}"
        ) from error


def _decode(reader: FieldReader) -> RemoteSegment:
    found = (reader.uvarint(), reader.uvarint())
    if found != (_FRAME_VERSION, _API_KEY):
        raise ValueError(f"frame version and record type are {found}; known are {(_FRAME_VERSION, _API_KEY)}")
    check_version("a record of __remote_log_metadata", reader.uvarint(), _VERSION)
    topic, topic_id, partition = reader.compact_string(), reader.uuid(), reader.int32()
    reader.tags()
    segment_id = reader.uuid()
    reader.tags()
    start, end, broker_id = reader.int64(), reader.int64(), reader.int32()
    max_timestamp, event_timestamp = reader.int64(), reader.int64()
    epochs = []
    for _ in range(reader.compact_count()):
        epochs.append((reader.int32(), reader.int64()))
        reader.tags()
    size, custom, state, tags = reader.int32(), reader.compact_octets(), reader.int8(), reader.tags()
    return RemoteSegment(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        segment_id=segment_id,
        start_offset=start,
        end_offset=end,
        broker_id=broker_id,
        max_timestamp=max_timestamp,
        event_timestamp=event_timestamp,
        leader_epochs=tuple(epochs),
        size=size,
        state=SegmentState(state),
        transaction_index_empty=tags.get(_TXN_INDEX_EMPTY_TAG) == b"\1",
        objects=_decode_objects(custom),
    )


# Kafka's "custom metadata" is for the store. It holds the sizes and checksums of the objects.


def _encode_objects(objects: tuple[tuple[str, StoredObject], ...]) -> bytes:
    if not objects:
        return b""
    known = dict(objects)
    rows = (known.get(kind, StoredObject(_ABSENT, 0)) for kind in OBJECT_KINDS)
    return bytes((_OBJECTS_VERSION,)) + b"".join(_OBJECT.pack(*row) for row in rows)


def _decode_objects(data: bytes) -> tuple[tuple[str, StoredObject], ...]:
    if not data:
        return ()
    check_version("custom metadata in __remote_log_metadata", data[0], _OBJECTS_VERSION)
    rows = zip(OBJECT_KINDS, _OBJECT.iter_unpack(data[1:]), strict=True)
    return tuple((kind, StoredObject(*row)) for kind, row in rows if row[0] != _ABSENT)
