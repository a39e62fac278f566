"""The headers of captured records, as columns: lsn, xid, commit_time, op and origin. docs/guides/capture.md says what
they are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.pgoutput import Bytes, Int64s
from suiro.telemetry import TRACEPARENT

OPERATIONS = ("insert", "update", "delete", "truncate")

# As `suiro.protocol.columnar` takes them, which is not imported here: it loads compiled kernels.
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_NAMES = (b"lsn", b"xid", b"commit_time", b"op", b"origin")
_LIVE = b"live"
_ORIGIN = np.frombuffer(_LIVE, np.uint8)
_OPERATION_NAMES = np.frombuffer("".join(OPERATIONS).encode(), np.uint8)
_OPERATION_PLACES = np.cumsum([0, *map(len, OPERATIONS)], dtype=np.int64)
_SIZE = 17 + 10 + 27 + 8 + len(_LIVE)
"""The largest size of a record's values: the LSN, the transaction, the time, the operation and the origin."""

_known_names: pa.Array | None = None


def live_headers(lsns: Int64s, transactions: Int64s, operations: Int64s, xids: Int64s, commit_us: Int64s) -> pa.Array:
    """For each record: its LSN, the index of its transaction in `xids` and `commit_us`, its place in OPERATIONS."""
    rows = len(lsns)
    compiled = engine.kernels()
    if compiled is not None:
        places = np.empty(rows * len(_NAMES) + 1, np.int32)
        out = np.empty(rows * _SIZE, np.uint8)
        size = compiled.live_header_values(
            lsns, transactions, operations, xids, commit_us,
            _OPERATION_NAMES, _OPERATION_PLACES, _ORIGIN, places, out,
        )  # fmt: skip
        if size >= 0:  # otherwise a year does not have four digits
            return _lists(rows, places, out[:size])
    names = [name.encode() for name in OPERATIONS]
    numbers, times = [b"%d" % xid for xid in xids.tolist()], _times(commit_us)
    cells: list[bytes] = []
    for lsn, of, operation in zip(lsns.tolist(), transactions.tolist(), operations.tolist(), strict=True):
        cells += (_lsn(lsn), numbers[of], times[of], names[operation], _LIVE)
    return _lists(rows, _offsets([len(cell) for cell in cells]), np.frombuffer(b"".join(cells), np.uint8))


def snapshot_headers(rows: int, *, lsn: int, read_us: int, operation: str = "read") -> pa.Array:
    """Returns the same headers for every record. `read_us`: since 1970."""
    (time,) = _times(np.array([read_us], np.int64))
    values = (_lsn(lsn), b"", time, operation.encode(), b"snapshot")
    offsets = _offsets(np.tile([len(value) for value in values], rows))
    return _lists(rows, offsets, np.tile(np.frombuffer(b"".join(values), np.uint8), rows))


def with_traces(headers: pa.Array, rows: Int64s, values: list[bytes]) -> pa.Array:
    """Adds the header `traceparent` behind the others to the records `rows`, which are in order."""
    flat = headers.values
    added = pa.StructArray.from_arrays(
        [pa.array([TRACEPARENT] * len(rows), pa.string()), pa.array(values, pa.binary())],
        fields=list(HEADERS_TYPE.value_type),
    )
    ends = (rows + 1) * len(_NAMES)
    order = np.insert(np.arange(len(flat)), ends, len(flat) + np.arange(len(rows)))
    counts = np.full(len(headers), len(_NAMES), np.int32)
    counts[rows] += 1
    return pa.ListArray.from_arrays(
        pa.array(_offsets(counts)), pa.concat_arrays([flat, added]).take(pa.array(order)), type=HEADERS_TYPE
    )


def _lsn(lsn: int) -> bytes:
    return b"%08X/%08X" % (lsn >> 32, lsn & 0xFFFFFFFF)


def _times(us: Int64s) -> list[bytes]:
    texts: list[bytes] = np.datetime_as_string(us.astype("datetime64[us]")).astype("S26").tolist()
    return [text + b"Z" for text in texts]


def _lists(rows: int, offsets: npt.NDArray[np.int32], data: Bytes) -> pa.Array:
    """`offsets`, `data`: the values of all headers, record by record."""
    count = len(_NAMES)
    values = pa.Array.from_buffers(pa.binary(), rows * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    structs = pa.StructArray.from_arrays([_names(rows), values], fields=list(HEADERS_TYPE.value_type))
    places = np.arange(0, rows * count + 1, count, dtype=np.int32)
    # Of buffers: `pa.array` would import pandas, seconds at a capture's start.
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [None, pa.py_buffer(places)], children=[structs])


def _names(rows: int) -> pa.Array:
    """Returns the names of the headers. They are the same in every record, so the longest column is cached."""
    global _known_names
    known = _known_names
    if known is None or len(known) < rows * len(_NAMES):
        sizes = np.tile([len(name) for name in _NAMES], rows)
        text = np.tile(np.frombuffer(b"".join(_NAMES), np.uint8), rows)
        buffers = [None, pa.py_buffer(_offsets(sizes)), pa.py_buffer(text)]
        known = _known_names = pa.Array.from_buffers(pa.string(), rows * len(_NAMES), buffers)
    return known.slice(0, rows * len(_NAMES))


def _offsets(sizes: npt.ArrayLike) -> npt.NDArray[np.int32]:
    return np.insert(np.cumsum(sizes, dtype=np.int32), 0, 0)
