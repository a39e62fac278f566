"""The `<offset>.snapshot` file: a partition's producers as they stood at that offset.

Kafka's ProducerSnapshot, version 1: version i16, CRC-32C u32 of all that follows, count i32, then per
producer its last batch, coordinator epoch and open transaction. Only the last of the five remembered
batches is kept; a snapshot is a few hundred bytes that save reading the log again.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from suiro.log.errors import CorruptBatchError
from suiro.log.files import read_file, replace_file
from suiro.log.producer_state import AppendedBatch, ProducerEntry
from suiro.protocol.crc32c import crc32c
from suiro.protocol.record_batch import NO_SEQUENCE

SUFFIX = ".snapshot"
VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction
_ENTRY = struct.Struct(">qhiqiqiq")


def encode(entries: Iterable[ProducerEntry]) -> bytes:
    rows = []
    for entry in entries:
        last = entry.batches[-1] if entry.batches else AppendedBatch(NO_SEQUENCE, -1, 0, entry.last_timestamp)
        rows.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        )
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[ProducerEntry]:
    """The producers in a snapshot. Raises CorruptBatchError where it is torn or altered."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptBatchError(f"producer snapshot of {len(data)} bytes is torn")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptBatchError(f"producer snapshot has version {version}, known is {VERSION}")
    body = data[_HEAD.size :]
    (count,) = _COUNT.unpack_from(body)
    if crc32c(body) != crc or len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptBatchError("producer snapshot does not match its CRC")
    return [_entry(row) for row in _ENTRY.iter_unpack(body[_COUNT.size :])]


def _entry(row: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = row
    entry = ProducerEntry(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=timestamp,
        transaction_first_offset=first_offset,
        whole=last_sequence < 0,
    )
    if last_sequence >= 0:
        entry.batches.append(AppendedBatch(last_sequence, last_offset, delta, timestamp))
    return entry


def snapshot_path(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}{SUFFIX}"


def write(directory: Path, offset: int, entries: Iterable[ProducerEntry]) -> None:
    """A crash leaves the whole file or none."""
    replace_file(snapshot_path(directory, offset), encode(entries), sync=False)


def offsets(directory: Path) -> list[int]:
    """Offsets of the snapshots in a partition's directory, ascending."""
    stems = (name.removesuffix(SUFFIX) for name in os.listdir(directory) if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def load_newest(directory: Path, *, at_most: int) -> tuple[int, list[ProducerEntry]]:
    """Returns (offset, producers) of the newest readable snapshot at or before an offset, or (-1, [])."""
    for offset in reversed([o for o in offsets(directory) if o <= at_most]):
        entries = load(directory, offset)
        if entries is not None:
            return offset, entries
    return -1, []


def load(directory: Path, offset: int) -> list[ProducerEntry] | None:
    """Returns the producers at an offset, or None without a snapshot. One that cannot be read is removed."""
    try:
        data = read_file(f"{directory}/{offset:020d}{SUFFIX}")
        return None if data is None else decode(data)
    except (CorruptBatchError, OSError):
        snapshot_path(directory, offset).unlink(missing_ok=True)
        return None


def remove(directory: Path, *, keep: Iterable[int]) -> None:
    kept = set(keep)
    for offset in offsets(directory):
        if offset not in kept:
            snapshot_path(directory, offset).unlink(missing_ok=True)
