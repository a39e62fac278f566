"""Checks that the records of a batch are valid and allowed in their topic, without an object for each record.

A batch may hold hundreds of thousands of records in a few hundred bytes. A compiled loop, which lets other threads run,
checks many records. It takes a second to load, so few records are checked one by one, and all are if it is not
installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from suiro.errors import CorruptRecordError
from suiro.extras import is_installed
from suiro.protocol.record_batch import MIN_RECORD_SIZE, BatchHeader
from suiro.protocol.records import iter_records

FEW_RECORDS = 1000
MOST_NAMED = 1000
"""Records that are named one by one. There may be more of them, which are counted."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class RefusedRecord(NamedTuple):
    """A record that is refused, by its place in the batch."""

    place: int
    timestamp: int
    keyless: bool
    misdated: bool


@dataclass(frozen=True, slots=True)
class Findings:
    count: int
    first: tuple[RefusedRecord, ...]


def check_records(
    payload: bytes, header: BatchHeader, *, keyed: bool = False, between: tuple[int, int] | None = None
) -> Findings:
    """Finds the records without a key, if they must be `keyed`, and those with a timestamp outside of `between`.

    `payload` is the decompressed rest of the batch. Raises `CorruptRecordError` if it is not the records that the
    header claims.
    """
    earliest, latest = (_LEAST, _MOST) if between is None else between
    if 0 <= header.count <= FEW_RECORDS or not is_installed("numpy", "numba"):
        return _checked_one_by_one(payload, header, keyed, earliest, latest)
    if not 0 <= header.count * MIN_RECORD_SIZE <= len(payload):
        raise _corrupt(header)
    import numpy as np

    from suiro.protocol import kernels

    rows, size = header.count, len(payload)
    batch = (0, size, 0, header.base_timestamp, header.max_timestamp, header.attributes, rows)
    table = np.array([batch], np.int64)
    table.flags.writeable = False
    offsets, timestamps, places = np.empty((3, rows), np.int64)
    keys, values = (
        (np.empty(rows + 1, np.int32), np.empty(size, np.uint8), np.full((rows + 7) // 8, 0xFF, np.uint8))
        for _ in range(2)
    )
    result = np.zeros(8, np.int64)
    data = np.frombuffer(payload, np.uint8)
    kernels.read_records(data, table, _LEAST, _MOST, offsets, timestamps, *keys, *values, places, result)
    if result[0] != kernels.OK:
        raise _corrupt(header)
    keyless = (np.unpackbits(keys[2], count=rows, bitorder="little") == 0) & keyed
    misdated = (timestamps >= 0) & ((timestamps < earliest) | (timestamps > latest))
    blamed = np.flatnonzero(keyless | misdated)
    first = blamed[:MOST_NAMED]
    found = zip(
        first.tolist(), timestamps[first].tolist(), keyless[first].tolist(), misdated[first].tolist(), strict=True
    )
    return Findings(len(blamed), tuple(RefusedRecord(*one) for one in found))


def _corrupt(header: BatchHeader) -> CorruptRecordError:
    return CorruptRecordError(
        f"the batch at offset {header.base_offset} claims {header.count} records and does not hold them"
    )


def _checked_one_by_one(payload: bytes, header: BatchHeader, keyed: bool, earliest: int, latest: int) -> Findings:
    count, named = 0, []
    for place, record in enumerate(iter_records(payload, header)):
        keyless = keyed and record.key is None
        misdated = record.timestamp >= 0 and not earliest <= record.timestamp <= latest
        if keyless or misdated:
            count += 1
            if count <= MOST_NAMED:
                named.append(RefusedRecord(place, record.timestamp, keyless, misdated))
    return Findings(count, tuple(named))
