"""What is known of one segment in the remote tier, and how that is written into `__remote_log_metadata`.

A value is Kafka's RemoteLogSegmentMetadataRecord (API key 0, version 0), read by Kafka's own decoder. Kafka
writes a shorter record where only the state changes; here every record holds everything, so that the last one of
a key is enough and the topic can be compacted. The key is the segment's id; a key without a value is a segment
that is gone.

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

from suiro.log.checkpoints import id_text
from suiro.log.errors import CorruptBatchError
from suiro.protocol.compact import uvarint

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
    """What an object in the store must be, or it is not whole."""

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
    name = segment.topic.encode()
    epochs = b"".join(struct.pack(">iqB", epoch, offset, 0) for epoch, offset in segment.leader_epochs)
    custom = _encode_objects(segment.objects)
    out = bytearray((_FRAME_VERSION, _API_KEY, _VERSION))
    out += uvarint(len(name) + 1) + name + segment.topic_id.bytes
    out += struct.pack(">iB", segment.partition, 0) + segment.segment_id.bytes + b"\0"
    out += struct.pack(
        ">qqiqq",
        segment.start_offset,
        segment.end_offset,
        segment.broker_id,
        segment.max_timestamp,
        segment.event_timestamp,
    )
    out += uvarint(len(segment.leader_epochs) + 1) + epochs
    out += struct.pack(">i", segment.size)
    out += uvarint(len(custom) + 1) + custom if custom else b"\0"
    out.append(segment.state)
    out += bytes((1, _TXN_INDEX_EMPTY_TAG, 1, 1)) if segment.transaction_index_empty else b"\0"
    return bytes(out)


def decode(data: bytes) -> RemoteSegment:
    """Raises CorruptBatchError where it is not such a record."""
    try:
        return _decode(_Reader(data))
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptBatchError(
            f"a record of __remote_log_metadata, {len(data)} bytes, is not readable: {error}"
        ) from error


def _decode(reader: _Reader) -> RemoteSegment:
    found = (reader.uvarint(), reader.uvarint(), reader.uvarint())
    if found != (_FRAME_VERSION, _API_KEY, _VERSION):
        raise ValueError(
            f"frame version, record type and its version are {found}; known are "
            f"{(_FRAME_VERSION, _API_KEY, _VERSION)}"
        )
    topic = reader.take(reader.uvarint() - 1).decode()
    topic_id = UUID(bytes=reader.take(16))
    (partition,) = reader.fields(">i")
    reader.tags()
    segment_id = UUID(bytes=reader.take(16))
    reader.tags()
    start, end, broker_id, max_timestamp, event_timestamp = reader.fields(">qqiqq")
    epochs = []
    for _ in range(reader.uvarint() - 1):
        epochs.append(reader.fields(">iq"))
        reader.tags()
    (size,) = reader.fields(">i")
    custom = reader.take(max(reader.uvarint() - 1, 0))
    (state,) = reader.fields(">b")
    tags = reader.tags()
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
        leader_epochs=tuple((epoch, offset) for epoch, offset in epochs),
        size=size,
        state=SegmentState(state),
        transaction_index_empty=tags.get(_TXN_INDEX_EMPTY_TAG) == b"\1",
        objects=_decode_objects(custom),
    )


# Kafka's "custom metadata" belongs to whoever stores the segments: sizes and checksums of the objects.


def _encode_objects(objects: tuple[tuple[str, StoredObject], ...]) -> bytes:
    if not objects:
        return b""
    known = dict(objects)
    rows = (known.get(kind, StoredObject(_ABSENT, 0)) for kind in OBJECT_KINDS)
    return bytes((_OBJECTS_VERSION,)) + b"".join(_OBJECT.pack(*row) for row in rows)


def _decode_objects(data: bytes) -> tuple[tuple[str, StoredObject], ...]:
    if not data:
        return ()
    if data[0] != _OBJECTS_VERSION:
        raise ValueError(f"custom metadata of version {data[0]}; known is {_OBJECTS_VERSION}")
    rows = zip(OBJECT_KINDS, _OBJECT.iter_unpack(data[1:]), strict=True)
    return tuple((kind, StoredObject(*row)) for kind, row in rows if row[0] != _ABSENT)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._position:
            raise ValueError(f"{length} bytes expected at {self._position}")
        self._position += length
        return self._data[self._position - length : self._position]

    def fields(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def tags(self) -> dict[int, bytes]:
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(self.uvarint())}
