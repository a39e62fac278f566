"""Sending one segment to the remote store, and removing one. Blocking: both run in a thread.

Each object is sent with a running checksum, and the store is then asked for its size. An upload with another size has
failed. The metadata has the sizes and checksums, with which later reads are verified.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from suiro.log.checkpoints import checkpoint_bytes
from suiro.log.files import FileHandle
from suiro.log.tier.segment_metadata import OBJECT_KINDS, RemoteSegment, StoredObject
from suiro.log.tier.store import RemoteStore, RemoteStoreError
from suiro.protocol.crc32c import crc32c

_CHUNK_BYTES = 1 << 20
_DOWNLOAD_BYTES = 8 << 20

Proceed = Callable[[int], None]
"""Called with a number of bytes before they are sent or requested. Waits as long as a rate limit requires, and raises
to end the work when the node stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The content of one object: the first bytes of an open file, or given bytes."""

    kind: str
    size: int
    handle: FileHandle | None = None
    content: bytes = b""

    def chunks(self) -> Iterator[bytes]:
        if self.handle is None:
            yield self.content
            return
        position = 0
        while position < self.size:
            chunk = os.pread(self.handle, min(_CHUNK_BYTES, self.size - position), position)
            if not chunk:
                raise RemoteStoreError(f"the {self.kind} file ended at {position}, expected {self.size} bytes")
            position += len(chunk)
            yield chunk

    def checksum(self) -> StoredObject:
        checksum = 0
        for chunk in self.chunks():
            checksum = crc32c(chunk, checksum)
        return StoredObject(self.size, checksum)


def leader_epochs_source(epochs: Sequence[tuple[int, int]]) -> Source:
    """The leader epochs up to the segment's end, in the format of `leader-epoch-checkpoint`."""
    content = checkpoint_bytes([f"{epoch} {start}" for epoch, start in epochs])
    return Source(kind="leader-epoch-checkpoint", size=len(content), content=content)


def upload(
    store: RemoteStore, segment: RemoteSegment, sources: Sequence[Source], *, proceed: Proceed
) -> tuple[tuple[str, StoredObject], ...]:
    """Store a segment's objects. Returns their sizes and checksums. Raises RemoteStoreError."""
    stored = []
    for source in sources:
        name = segment.object_name(source.kind)
        checksum = 0

        def checked(source: Source = source) -> Iterator[bytes]:
            nonlocal checksum
            for chunk in source.chunks():
                proceed(len(chunk))
                checksum = crc32c(chunk, checksum)
                yield chunk

        store.put(name, checked())
        found = store.size(name)
        if found != source.size:
            raise RemoteStoreError(f"{name}: the store has {found} bytes of {source.size}")
        stored.append((source.kind, StoredObject(source.size, checksum)))
    return tuple(stored)


def remove(store: RemoteStore, segment: RemoteSegment, *, proceed: Proceed) -> None:
    """Remove a segment's objects, whichever of them exist. Raises RemoteStoreError."""
    for kind in OBJECT_KINDS:
        proceed(0)
        store.delete(segment.object_name(kind))


def download(store: RemoteStore, segment: RemoteSegment, kind: str, path: Path, *, proceed: Proceed) -> None:
    """Write an object into a file. Raises RemoteStoreError if it is not what was sent."""
    stored = segment.stored(kind)
    assert stored is not None
    checksum = 0
    with open(path, "wb") as file:
        for position in range(0, stored.size, _DOWNLOAD_BYTES):
            length = min(_DOWNLOAD_BYTES, stored.size - position)
            chunk = part_of_object(store, segment, kind, position, length, proceed=proceed)
            file.write(chunk)
            checksum = crc32c(chunk, checksum)
    if checksum != stored.crc:
        raise RemoteStoreError(f"{segment.object_name(kind)} is not what was sent: its checksum is another")


def part_of_object(
    store: RemoteStore, segment: RemoteSegment, kind: str, position: int, length: int, *, proceed: Proceed
) -> bytes:
    """Returns a part of an object. Raises RemoteStoreError if it is shorter."""
    proceed(length)
    name = segment.object_name(kind)
    data = store.get(name, position, length)
    if len(data) != length:
        raise RemoteStoreError(f"{name}: {len(data)} bytes came of {length} at position {position}")
    return data


def checked_object(store: RemoteStore, segment: RemoteSegment, kind: str, *, proceed: Proceed) -> bytes:
    """Returns a whole small object (an index). Raises RemoteStoreError if it is not what was sent."""
    stored = segment.stored(kind)
    if stored is None or stored.size == 0:
        return b""
    proceed(stored.size)
    name = segment.object_name(kind)
    data = store.get(name, 0, stored.size)
    if len(data) != stored.size or crc32c(data) != stored.crc:
        raise RemoteStoreError(f"{name} is not what was sent: {len(data)} bytes of {stored.size}")
    return data
