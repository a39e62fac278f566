"""Where a source goes on: one compacted topic, the position of each source under its name.

Always true: a position is written in the same Kafka transaction as the records that lead up to it, so a reader with
read_committed sees both or neither. A source starts with InitProducerId for `transactional_id(name)`, which ends
its forerunner's open transaction and shuts the forerunner out; only then does it read its position.

A key is the source's name, or `name#part` for state that is too large for one value (`read_parts`). All keys of one
source lie in one partition, that of its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from suiro.client import EARLIEST, LATEST, Client, Fetched, NewTopic
from suiro.errors import DataLossError, OffsetOutOfRangeError, UsageError
from suiro.foundation.types import TopicPartition
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import control_type, decode_batch

__all__ = [
    "POSITIONS_TOPIC",
    "create_positions_topic",
    "part_record",
    "position_partition",
    "position_record",
    "read_parts",
    "read_position",
    "transactional_id",
]

POSITIONS_TOPIC = "_suiro_connect_positions"

PARTITIONS = 8
# Small segments, so that the cleaner, which leaves the active one alone, keeps what a start has to read short.
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.2"}

_FIRST_LOOK = 1_000  # offsets; each look back is twice as long as the one before
_FETCH_BYTES = 8 * 1024 * 1024
_LARGEST_FETCH_BYTES = 1 << 30
# So few are read one by one, in milliseconds; more are worth the half second that kernels take to load.
_FEW_BYTES = 1 << 18

Position = dict[str, Any]
_Pair = tuple[bytes | None, bytes | None]


def transactional_id(name: str) -> str:
    """Of the source of that name."""
    return f"suiro-connect-{name}"


def create_positions_topic(client: Client) -> None:
    """Makes the topic unless it is there; its partitions never change afterwards, or positions would be lost."""
    client.create_topics([NewTopic(POSITIONS_TOPIC, PARTITIONS, configs=CONFIGS)], exist_ok=True)


def position_partition(client: Client, name: str) -> int:
    """Where the records of `position_record` and `part_record` for this name belong."""
    info = client.metadata([POSITIONS_TOPIC]).get(POSITIONS_TOPIC)
    if info is None:
        create_positions_topic(client)
        return position_partition(client, name)
    return partition_for_key(name.encode(), len(info.partitions))


def position_record(name: str, position: Position | None) -> tuple[bytes, bytes | None]:
    """Key and value of the record to write into `position_partition`; None forgets the position (a tombstone)."""
    return _key(name), None if position is None else _value(position)


def part_record(name: str, part: str | int, value: Any) -> tuple[bytes, bytes | None]:
    """One part of a source's larger state: any JSON value, None to forget it."""
    return _key(name) + f"#{part}".encode(), None if value is None else _value(value)


def read_position(client: Client, name: str) -> Position | None:
    """The last committed position of that name, None if there is none. Call it after `TransactionalProducer.init`,
    which waits for the markers of earlier transactions; without, the last one may not be visible yet.

    Looks back from the end of the partition: a source that ran lately is found in one fetch.
    """
    key = _key(name)
    target = (POSITIONS_TOPIC, position_partition(client, name))
    first, end = _bounds(client, target)
    look = _FIRST_LOOK
    while end > first:
        start = max(first, end - look)
        found: bytes | None = None
        seen = False
        for record_key, value in _records(client, target, start, end):
            if record_key == key:
                found, seen = value, True
        if seen:
            return None if found is None else _parsed(name, found)
        end, look = start, look * 2
    return None


def read_parts(client: Client, name: str) -> dict[str, Any]:
    """{part: value} of all that `part_record` wrote and nobody forgot. Reads the whole partition."""
    prefix = _key(name) + b"#"
    target = (POSITIONS_TOPIC, position_partition(client, name))
    first, end = _bounds(client, target)
    found: dict[str, bytes] = {}
    for key, value in _records(client, target, first, end):
        if key is not None and key.startswith(prefix):
            part = key[len(prefix) :].decode()
            if value is None:
                found.pop(part, None)
            else:
                found[part] = value
    return {part: json.loads(value) for part, value in found.items()}


def _key(name: str) -> bytes:
    if not name or "#" in name:
        raise UsageError(f"a source's name has at least one character and no '#', not {name!r}")
    return name.encode()


def _value(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _parsed(name: str, value: bytes) -> Position:
    try:
        position = json.loads(value)
    except ValueError:
        position = None
    if not isinstance(position, dict):
        raise DataLossError(
            f"the last position of {name!r} in {POSITIONS_TOPIC} is not a JSON object: {value[:80]!r}. Something "
            "else wrote there; write the right position, or a tombstone to start from the beginning"
        )
    return position


def _bounds(client: Client, target: TopicPartition) -> tuple[int, int]:
    first = client.list_offsets({target: EARLIEST})[target].offset
    end = client.list_offsets({target: LATEST}, read_committed=True)[target].offset
    return first, end


def _records(
    client: Client, target: TopicPartition, start: int, end: int
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values of the committed records with start <= offset < end, in order."""
    fetch_bytes = _FETCH_BYTES
    while start < end:
        try:
            fetched = client.fetch({target: start}, max_bytes=fetch_bytes, partition_max_bytes=fetch_bytes)
        except OffsetOutOfRangeError as error:
            if error.log_start_offset <= start:
                raise
            start = (
                error.log_start_offset
            )  # what lay before was cleaned away: there is a later record of each key
            continue
        part = fetched[target]
        read = _one_by_one if len(part.data) <= _FEW_BYTES else _as_columns
        found, next_offset = read(part, start, end)
        yield from found
        if next_offset > start:
            start = next_offset
        elif len(part.data) and fetch_bytes < _LARGEST_FETCH_BYTES:
            fetch_bytes *= 2  # a batch larger than what was asked for


def _as_columns(part: Fetched, start: int, end: int) -> tuple[list[_Pair], int]:
    from suiro.protocol import columnar  # compiled kernels: half a second that a start does without if it can

    rows = columnar.decode(part.data, start_offset=start, end_offset=end, aborted=part.aborted)
    keys, values = (rows.batch.column(name).to_pylist() for name in ("key", "value"))
    return list(zip(keys, values, strict=True)), rows.next_offset


def _one_by_one(part: Fetched, start: int, end: int) -> tuple[list[_Pair], int]:
    """The same: what was aborted is left out, from a transaction's first offset to the marker that ends it."""
    found: list[_Pair] = []
    next_offset = start
    waiting = sorted(part.aborted, key=lambda transaction: transaction[1])
    aborting: set[int] = set()
    for place, header in iter_headers(part.data):
        if header.base_offset >= end:
            return found, end
        while waiting and waiting[0][1] <= header.last_offset:
            aborting.add(waiting.pop(0)[0])
        next_offset = max(next_offset, min(header.next_offset, end))
        if header.is_control:
            markers = decode_batch(part.data, place)  # none, where the cleaner left only the batch
            if any(control_type(marker) == "abort" for marker in markers):
                aborting.discard(header.producer_id)
        elif header.next_offset > start and not (header.is_transactional and header.producer_id in aborting):
            records = decode_batch(part.data, place)
            found += [(one.key, one.value) for one in records if start <= one.offset < end]
    return found, next_offset
