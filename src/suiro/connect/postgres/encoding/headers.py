"""The headers of captured records, as columns: where in Postgres's log, which transaction, when, what, how.

| header | is |
|---|---|
| `lsn` | the change's place in the log, `0000000A/016B3748` (as text it sorts as the log does); of a row read by a snapshot, the place the snapshot sees |
| `xid` | the transaction's number; empty for a row read by a snapshot |
| `commit_time` | `2026-11-21T22:54:19.753692Z`; of a row read by a snapshot, when it was read |
| `op` | `insert`, `update`, `delete`, `truncate`, `read` (by a snapshot), `gone` (a snapshot no longer sees the key) |
| `origin` | `live` or `snapshot` |
"""  # noqa: E501

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.blocks import Bytes, Int64s

OPERATIONS = ("insert", "update", "delete", "truncate")

# As `suiro.protocol.columnar` takes them, which is not imported here: it loads compiled kernels.
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_NAMES = (b"lsn", b"xid", b"commit_time", b"op", b"origin")
_LIVE = b"live"
_ORIGIN = np.frombuffer(_LIVE, np.uint8)
_OPERATION_NAMES = np.frombuffer("".join(OPERATIONS).encode(), np.uint8)
_OPERATION_PLACES = np.cumsum([0, *map(len, OPERATIONS)], dtype=np.int64)
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_LSN_SIZE, _XID_SIZE, _TIME_SIZE, _OP_SIZE = 17, 10, 27, 8
_SIZE = _LSN_SIZE + _XID_SIZE + _TIME_SIZE + _OP_SIZE + len(_LIVE)

_known_names: pa.Array | None = None


def live_headers(
    lsns: Int64s, transactions: Int64s, operations: Int64s, xids: Int64s, commit_us: Int64s
) -> pa.Array:
    """Of each record: its LSN, the index of its transaction in `xids` and `commit_us`, its place in OPERATIONS."""
    rows = len(lsns)
    compiled = engine.kernels()
    if compiled is not None:
        places = np.empty(rows * len(_NAMES) + 1, np.int32)
        out = np.empty(rows * _SIZE, np.uint8)
        size = compiled.live_header_values(
            lsns,
            transactions,
            operations,
            xids,
            commit_us,
            _OPERATION_NAMES,
            _OPERATION_PLACES,
            _ORIGIN,
            places,
            out,
        )
        if size >= 0:  # else a time of no year that anybody lives in
            return _lists(rows, places, out[:size])
    text = np.empty((rows, _SIZE), np.uint8)
    sizes = np.empty((rows, len(_NAMES)), np.int32)
    at = 0
    text[:, at : at + _LSN_SIZE] = lsn_digits(lsns)
    sizes[:, 0] = _LSN_SIZE
    at += _LSN_SIZE
    digits, counts = _decimals(xids)
    text[:, at : at + _XID_SIZE] = digits[transactions]
    sizes[:, 1] = counts[transactions]
    at += _XID_SIZE
    text[:, at : at + _TIME_SIZE] = _times(commit_us)[transactions]
    sizes[:, 2] = _TIME_SIZE
    at += _TIME_SIZE
    names, lengths = _padded([name.encode() for name in OPERATIONS], _OP_SIZE)
    text[:, at : at + _OP_SIZE] = names[operations]
    sizes[:, 3] = lengths[operations]
    at += _OP_SIZE
    text[:, at:] = np.frombuffer(_LIVE, np.uint8)
    sizes[:, 4] = len(_LIVE)
    widths = np.array((_LSN_SIZE, _XID_SIZE, _TIME_SIZE, _OP_SIZE, len(_LIVE)))
    place = np.arange(_SIZE) - np.repeat(np.cumsum(widths) - widths, widths)
    used = place < np.repeat(sizes, widths, axis=1)
    return _array(rows, sizes.ravel(), text[used])


def snapshot_headers(rows: int, *, lsn: int, read_us: int, operation: str = "read") -> pa.Array:
    """The same for every record; `read_us` since 1970."""
    values = (
        lsn_digits(np.array([lsn], np.int64)).tobytes(),
        b"",
        _times(np.array([read_us], np.int64)).tobytes(),
        operation.encode(),
        b"snapshot",
    )
    sizes = np.tile(np.array([len(value) for value in values], np.int32), rows)
    return _array(rows, sizes, np.tile(np.frombuffer(b"".join(values), np.uint8), rows))


def with_header(headers: pa.Array, name: str, rows: Int64s, values: list[bytes]) -> pa.Array:
    """One header more, behind the others, in the records `rows` (in order)."""
    flat = headers.values
    added = pa.StructArray.from_arrays(
        [pa.array([name] * len(rows), pa.string()), pa.array(values, pa.binary())],
        fields=list(HEADERS_TYPE.value_type),
    )
    ends = (rows + 1) * len(_NAMES)
    order = np.insert(np.arange(len(flat)), ends, len(flat) + np.arange(len(rows)))
    counts = np.full(len(headers), len(_NAMES), np.int32)
    counts[rows] += 1
    places = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(counts, out=places[1:])
    return pa.ListArray.from_arrays(
        pa.array(places), pa.concat_arrays([flat, added]).take(pa.array(order)), type=HEADERS_TYPE
    )


def lsn_digits(lsns: Int64s) -> Bytes:
    """A row of 17 characters for each."""
    shifts = np.array([*range(60, 31, -4), *range(28, -1, -4)], np.int64)
    digits = _HEX[(lsns[:, None] >> shifts) & 15]
    return np.insert(digits, 8, ord("/"), axis=1)


def _times(us: Int64s) -> Bytes:
    """27 characters for each."""
    text = np.datetime_as_string(us.astype("datetime64[us]")).astype("S26")
    found = np.full((len(us), _TIME_SIZE), ord("Z"), np.uint8)
    found[:, :-1] = text.view(np.uint8).reshape(len(us), _TIME_SIZE - 1)
    return found


def _decimals(numbers: Int64s) -> tuple[Bytes, npt.NDArray[np.int32]]:
    """Numbers of at most ten digits, each from the left of its row, and how many digits it has."""
    text = numbers.astype("S10")
    counts: npt.NDArray[np.int32] = np.char.str_len(text).astype(np.int32)
    return text.view(np.uint8).reshape(len(numbers), _XID_SIZE), counts


def _padded(texts: list[bytes], size: int) -> tuple[Bytes, npt.NDArray[np.int32]]:
    joined = b"".join(text.ljust(size) for text in texts)
    return (
        np.frombuffer(joined, np.uint8).reshape(len(texts), size),
        np.array([len(text) for text in texts], np.int32),
    )


def _array(rows: int, sizes: npt.NDArray[np.int32], data: Bytes) -> pa.Array:
    return _lists(rows, _offsets(sizes), np.ascontiguousarray(data))


def _lists(rows: int, offsets: npt.NDArray[np.int32], data: Bytes) -> pa.Array:
    """`offsets`, `data`: the values of all headers, record by record."""
    count = len(_NAMES)
    values = pa.Array.from_buffers(
        pa.binary(), rows * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    structs = pa.StructArray.from_arrays([_names(rows), values], fields=list(HEADERS_TYPE.value_type))
    places = np.arange(0, rows * count + 1, count, dtype=np.int32)
    # Of buffers: `pa.array` would import pandas, seconds at a capture's start.
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [None, pa.py_buffer(places)], children=[structs])


def _names(rows: int) -> pa.Array:
    """They are the same in every record, so the longest column that was asked for is kept."""
    global _known_names
    known = _known_names
    if known is None or len(known) < rows * len(_NAMES):
        sizes = np.tile(np.array([len(name) for name in _NAMES], np.int32), rows)
        text = np.tile(np.frombuffer(b"".join(_NAMES), np.uint8), rows)
        buffers = [None, pa.py_buffer(_offsets(sizes)), pa.py_buffer(text)]
        known = _known_names = pa.Array.from_buffers(pa.string(), rows * len(_NAMES), buffers)
    return known.slice(0, rows * len(_NAMES))


def _offsets(sizes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
