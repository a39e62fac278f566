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
from suiro.protocol.record_batch import BatchHeader
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
    import numpy as np

    from suiro.protocol import kernels

    table, result = np.empty((MOST_NAMED, 4), np.int64), np.zeros(2, np.int64)
    kernels.check_records(
        np.frombuffer(payload, np.uint8),
        header.count,
        keyed,
        header.base_timestamp,
        header.is_log_append_time,
        header.max_timestamp,
        earliest,
        latest,
        table,
        result,
    )
    status, count = result.tolist()
    if header.count < 0 or status != kernels.OK:
        raise CorruptRecordError(
            f"the batch at offset {header.base_offset} claims {header.count} records and does not hold them"
        )
    rows = table[:count].tolist()
    return Findings(count, tuple(RefusedRecord(place, time, bool(a), bool(b)) for place, time, a, b in rows))


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
