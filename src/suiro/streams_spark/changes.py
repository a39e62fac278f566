"""A table's `Change` as the bytes of a repartition topic, in Kafka Streams' format (`ChangedSerializer`, KIP-904).

Both sides: varint length of new, new, old, 0x02. New alone: new, 0x01. Old alone: old, 0x00.
"""

from __future__ import annotations

from collections.abc import Sequence

from suiro.protocol.fields import read_uvarint, uvarint
from suiro.streams.records import Change
from suiro.streams.serdes import Serde
from suiro.streams.serdes.block_forms import Failed, decode_block, encode_rows

_OLD, _NEW, _BOTH = b"\x00", b"\x01", b"\x02"


def write_changes(serde: Serde, changes: Sequence[Change | None], topic: str) -> tuple[list[bytes | None], Failed]:
    """The bytes; None for each that is None or failed."""
    new, wrong_new = encode_rows(serde, [None if change is None else change.new for change in changes], topic)
    old, wrong = encode_rows(serde, [None if change is None else change.old for change in changes], topic)
    wrong |= wrong_new  # of a change, the new side is written first
    found = list(map(_written, new, old))
    for row in wrong:
        found[row] = None
    return found, wrong


def _written(new: bytes | None, old: bytes | None) -> bytes | None:
    if new is None:
        return None if old is None else old + _OLD
    # The length is a zigzag varint (`ByteUtils.writeVarint`).
    return new + _NEW if old is None else uvarint(len(new) << 1) + new + old + _BOTH


def read_changes(serde: Serde, data: Sequence[bytes | None], topic: str) -> list[Change | None]:
    """Raises the serde's error, or `ValueError` where a change is cut off."""
    sides = [(None, None) if item is None else _sides(item) for item in data]
    new, old = (decode_block(serde, [side[place] for side in sides], topic) for place in (0, 1))
    return [None if item is None else Change(one, other) for item, one, other in zip(data, new, old, strict=True)]


def _sides(data: bytes) -> tuple[bytes | None, bytes | None]:
    kind, body = data[-1:], data[:-1]
    if kind == _NEW:
        return body, None
    if kind == _OLD:
        return None, body
    zigzag, start = read_uvarint(body, 0)
    end = start + (zigzag >> 1)
    return body[start:end], body[end:]
