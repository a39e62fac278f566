"""The consumer protocol inside the metadata of classic groups: subscription and assignment.

The broker does not read it as long as a group is classic. It is translated when a group changes its protocol (KIP-848).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from suiro.protocol.fields import FieldReader, FieldWriter

_HIGHEST_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics that a member wants, and the partitions that it owns by name."""

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None


def decode_subscription(data: bytes) -> Subscription:
    """Raises ValueError."""
    reader = FieldReader(data)
    version = min(reader.int16(), _HIGHEST_VERSION)
    topics = tuple(reader.string() for _ in range(reader.int32()))
    reader.octets()
    owned = _read_partitions(reader) if version >= 1 else {}
    if version >= 2:
        reader.int32()  # the generation, which the broker knows better
    rack_id = reader.optional_string() if version >= 3 else None
    return Subscription(version=max(version, 0), topics=topics, owned=owned, rack_id=rack_id)


def encode_assignment(version: int, partitions: Mapping[str, frozenset[int]]) -> bytes:
    writer = FieldWriter().int16(version).int32(len(partitions))
    for topic, some in partitions.items():
        writer.string(topic).int32(len(some))
        for partition in sorted(some):
            writer.int32(partition)
    return writer.int32(-1).done()


def decode_assignment(data: bytes) -> tuple[Mapping[str, frozenset[int]], bytes]:
    """(partitions, data of a custom assignor). Raises ValueError."""
    reader = FieldReader(data)
    reader.int16()
    partitions = _read_partitions(reader)
    return partitions, reader.octets()


def _read_partitions(reader: FieldReader) -> dict[str, frozenset[int]]:
    partitions = {}
    for _ in range(reader.int32()):
        topic = reader.string()
        partitions[topic] = frozenset(reader.int32() for _ in range(reader.int32()))
    return partitions
