"""The positions of sources: one compacted topic, with the position of each source under its name.

A position is always written in the same Kafka transaction as the records before it, so a reader with read_committed
sees both or neither. A source starts with InitProducerId for `transactional_id(name)`, which ends the open transaction
of an earlier process and fences that process. Only then does it read its position.

A key is the source's name, or `name#part` for state that is too large for one value (`read_parts`). All keys of one
source are in one partition, that of its name. The key `#name` has the ids of the topics that a sink reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from suiro.client import Client, NewTopic
from suiro.errors import DataLossError, RefusedError, UsageError
from suiro.protocol.murmur2 import partition_for_key
from suiro.topic_table import committed_range, pairs, require_compacted, slices_from_the_end

POSITIONS_TOPIC = "_suiro_connect_positions"

PARTITIONS = 8
# A start reads a whole partition. The cleaner does not clean the active segment, so segments are small.
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.2"}

_FIRST_LOOK = 1_000  # offsets; each further look back is twice as long

Position = dict[str, Any]


def transactional_id(name: str) -> str:
    """Returns the transactional id of the source with this name."""
    return f"suiro-connect-{name}"


def create_positions_topic(client: Client) -> None:
    """Creates the topic if it does not exist. Its number of partitions must never change, or positions would be lost.
    Raises `ConfigError` for a topic in which positions expire."""
    client.create_topics([NewTopic(POSITIONS_TOPIC, PARTITIONS, configs=CONFIGS)], exist_ok=True)
    try:
        loss = "positions in it would expire, and their sources would start again from the beginning"
        require_compacted(client, POSITIONS_TOPIC, loss)
    except RefusedError:
        pass  # a role that may write to the topic need not be allowed to describe it


def position_partition(client: Client, name: str) -> int:
    """Returns the partition for all records with this name."""
    info = client.metadata([POSITIONS_TOPIC]).get(POSITIONS_TOPIC)
    if info is None:
        create_positions_topic(client)
        return position_partition(client, name)
    return partition_for_key(name.encode(), len(info.partitions))


def position_record(name: str, position: Position | None) -> tuple[bytes, bytes | None]:
    """Returns the key and value of the record to write to `position_partition`. None: a tombstone, which forgets the
    position."""
    return _key(name), None if position is None else _value(position)


def part_record(name: str, part: str | int, value: Any) -> tuple[bytes, bytes | None]:
    """Returns the record for one part of a source's larger state: any JSON value, or None to forget it."""
    return _key(name) + f"#{part}".encode(), None if value is None else _value(value)


def read_position(client: Client, name: str) -> Position | None:
    """Returns the last committed position, or None. Call it after `TransactionalProducer.init`, which waits for the
    markers of earlier transactions; otherwise the last position may not be visible yet.

    Reads backwards from the end of the partition: a source that ran lately is found in one fetch.
    """
    return _last(client, name, _key(name))


def topic_ids_record(name: str, ids: Mapping[str, str]) -> tuple[bytes, bytes | None]:
    """Returns the record for the ids of the topics that the sink with this name reads."""
    return b"#" + _key(name), _value(dict(ids))


def read_topic_ids(client: Client, name: str) -> dict[str, str]:
    return _last(client, name, b"#" + _key(name)) or {}


def _last(client: Client, name: str, key: bytes) -> dict[str, Any] | None:
    target = (POSITIONS_TOPIC, position_partition(client, name))
    for part in slices_from_the_end(client, target, _FIRST_LOOK):
        values = [value for record_key, value in part if record_key == key]
        if values:
            return None if values[-1] is None else _parsed(name, values[-1])
    return None


def read_parts(client: Client, name: str) -> dict[str, Any]:
    """Returns {part: value} of all parts that were written and not forgotten. Reads the whole partition."""
    prefix = _key(name) + b"#"
    target = (POSITIONS_TOPIC, position_partition(client, name))
    found: dict[str, bytes] = {}
    for key, value in pairs(client, target, *committed_range(client, target)):
        if key is not None and key.startswith(prefix):
            part = key[len(prefix) :].decode()
            if value is None:
                found.pop(part, None)
            else:
                found[part] = value
    return {part: json.loads(value) for part, value in found.items()}


def known_fields(kind: Any, value: dict[str, Any]) -> dict[str, Any]:
    """Returns a part of a position, which has fields of this dataclass. Raises `UsageError` for other fields."""
    unknown = value.keys() - {each.name for each in fields(kind)}
    if unknown:
        raise UsageError(
            f"a position in {POSITIONS_TOPIC} has fields that this release of suiro does not know "
            f"({', '.join(sorted(unknown))}): use the release that wrote it"
        )
    return value


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
