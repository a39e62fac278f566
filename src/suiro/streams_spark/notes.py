"""The times that a task keeps between micro-batches, beside its stores: the map `$notes`.

A key is a kind, a zero byte and names; a value is eight bytes, big-endian. Kinds: `lane` (a repartition's
name: the time this task reached at it), `tick` and `reached` (a queue, see `record_queue`), `partition` (source, topic,
partition: the partition time of its timestamp extractor), and `told` (no names), which `stream_task` writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from suiro.streams.stores import OrderedMap

NOTES = "$notes"
NO_TIME = -1

INPUT_TIME = b"lane\0"
PARTITION_TIME = b"partition\0"
REACHED = b"reached\0"
TICK = b"tick\0"
TOLD = b"told\0"

_INT64 = struct.Struct(">q")


def partition_time_key(source: str, topic: str, partition: int | str) -> bytes:
    return PARTITION_TIME + f"{source}\0{topic}\0{partition}".encode()


def noted(notes: OrderedMap, key: bytes) -> int:
    data = notes.get(key)
    return NO_TIME if data is None else int(_INT64.unpack(data)[0])


def note(notes: OrderedMap, key: bytes, time: int) -> None:
    data = _INT64.pack(time)
    if notes.get(key) != data:
        notes.put(key, data)


def times_of(notes: OrderedMap, prefix: bytes) -> Iterator[tuple[bytes, int]]:
    """The names after `prefix`, and their times."""
    for key, data in notes.prefix(prefix):
        yield key.removeprefix(prefix), int(_INT64.unpack(data)[0])
