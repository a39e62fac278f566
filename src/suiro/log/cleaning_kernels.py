"""The compiled loops of `compiled_cleaning` over the records of a batch: which keys are the latest, which records stay.

Always true: no kernel reads or writes outside the arrays it is given, whatever the bytes say; a kernel
answers with a status, never with an exception; and no record becomes a Python object. Signatures are written
out and cached as in `protocol.kernels`, which says why.

The offset map is open addressing over the rows of a table: two halves of a key's 128-bit SipHash-2-4 (with a secret
of this run, so that nobody can make two keys collide) and its latest offset + 1, where 0 is a free row.
"""

from __future__ import annotations

import numpy as np
from numba import types

from suiro.protocol.compiling import (
    BOOL,
    BYTES_IN,
    BYTES_OUT,
    INT,
    INT64S_OUT,
    TABLE_OUT,
    compiled,
    copy_bytes,
    inlined,
)
from suiro.protocol.kernel_numbers import put_varlong, varlong, varlong_size

# Statuses.
OK, BAD_RECORD, MAP_FULL = range(3)

# Columns of the offset map.
_LOW, _HIGH, _NEXT = range(3)

MAX_RECORD_GROWTH = 9 + 1  # a longer timestamp delta, and the record's length with it


@inlined
def _record(data, at, end):
    """(next record or -1, place of the timestamp delta, its value, place behind it, offset delta,
    key, key size, value size) of the record at `at`; a size below 0 is null."""
    bad = (np.int64(-1), at, np.int64(0), at, np.int64(0), at, np.int64(0), np.int64(0))
    size, at = varlong(data, at, end)
    if at < 0 or size < 1 or size > end - at:
        return bad
    after = at + size
    delta_at = at + 1
    timestamp_delta, at = varlong(data, delta_at, after)
    if at < 0:
        return bad
    rest = at
    offset_delta, at = varlong(data, at, after)
    if at < 0:
        return bad
    key_size, key = varlong(data, at, after)
    if key < 0 or key_size > after - key:
        return bad
    value_size, at = varlong(data, key + max(key_size, 0), after)
    if at < 0 or value_size > after - at:
        return bad
    return after, delta_at, timestamp_delta, rest, offset_delta, key, key_size, value_size


@inlined
def _rotl(value, bits):
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inlined
def _round(v0, v1, v2, v3):
    v0 += v1
    v1 = _rotl(v1, 13) ^ v0
    v0 = _rotl(v0, 32)
    v2 += v3
    v3 = _rotl(v3, 16) ^ v2
    v0 += v3
    v3 = _rotl(v3, 21) ^ v0
    v2 += v1
    v1 = _rotl(v1, 17) ^ v2
    v2 = _rotl(v2, 32)
    return v0, v1, v2, v3


@inlined
def _siphash(data, at, size, k0, k1):
    """Both halves of SipHash-2-4-128."""
    v0 = k0 ^ np.uint64(0x736F6D6570736575)
    v1 = k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = k0 ^ np.uint64(0x6C7967656E657261)
    v3 = k1 ^ np.uint64(0x7465646279746573)
    end = at + size
    while end - at >= 8:
        word = np.uint64(0)
        for i in range(8):
            word |= np.uint64(data[at + i]) << np.uint64(8 * i)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
    word = np.uint64(size & 0xFF) << np.uint64(56)
    shift = 0
    while at < end:
        word |= np.uint64(data[at]) << np.uint64(shift)
        shift += 8
        at += 1
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@inlined
def _row(low, high, table):
    """The key's row, or the free one that it would take. There is always a free one: the map is never full."""
    row = np.int64(low % np.uint64(len(table)))
    while table[row, _NEXT] != 0 and (table[row, _LOW] != np.int64(low) or table[row, _HIGH] != np.int64(high)):
        row += 1
        if row == len(table):
            row = np.int64(0)
    return row


@compiled(BYTES_IN, INT, INT, INT, INT, types.uint64, types.uint64, TABLE_OUT, INT64S_OUT)
def index_keys(records, count, base_offset, start_offset, most, k0, k1, table, state):
    """Put the keys of records from `start_offset` on into the offset map, which takes `most` keys.

    state = status, keys in the map, latest offset; the last two are kept from call to call.
    """
    at = np.int64(0)
    end = np.int64(len(records))
    state[0] = OK
    for _ in range(count):
        at, _, _, _, offset_delta, key, key_size, _ = _record(records, at, end)
        if at < 0:
            state[0] = BAD_RECORD
            return
        offset = base_offset + offset_delta
        if key_size < 0 or offset < start_offset:
            continue
        if state[1] >= most:
            state[0] = MAP_FULL
            return
        low, high = _siphash(records, key, key_size, k0, k1)
        row = _row(low, high, table)
        if table[row, _NEXT] == 0:
            state[1] += 1
            table[row, _LOW] = np.int64(low)
            table[row, _HIGH] = np.int64(high)
        table[row, _NEXT] = offset + 1
        state[2] = offset


@compiled(
    BYTES_IN, INT, INT, INT, INT, BOOL, BOOL, BOOL, BOOL, INT, INT, INT,
    types.uint64, types.uint64, TABLE_OUT, BYTES_OUT, BYTES_OUT, INT64S_OUT,
)  # fmt: skip
def filter_records(
    records, count, base_offset, base_timestamp, max_timestamp, log_append_time, has_horizon, inspected,
    empty_transaction, latest_offset, now_ms, horizon_ms, k0, k1, table, keep, out, result,
):  # fmt: skip
    """Write the records that stay to `out` (Kafka's shouldRetainRecord and filterTo), unless all stay as they are.

    `keep` has room for all records. result = status, records that stay, bytes written or -1, base timestamp, largest
    timestamp, whether the batch gets a delete horizon.
    """
    end = np.int64(len(records))
    at = np.int64(0)
    retained = 0
    tombstones = False
    first_timestamp = np.int64(-1)
    largest_timestamp = np.int64(-1)
    result[0] = BAD_RECORD  # unless the loop ends
    for number in range(count):
        at, _, timestamp_delta, _, offset_delta, key, key_size, value_size = _record(records, at, end)
        if at < 0:
            return
        stays = True
        offset = base_offset + offset_delta
        if inspected and offset <= latest_offset:
            if key_size < 0:
                stays = False
            else:
                low, high = _siphash(records, key, key_size, k0, k1)
                row = _row(low, high, table)
                newest = table[row, _NEXT] == 0 or offset >= table[row, _NEXT] - 1
                stays = newest and (value_size >= 0 or not has_horizon or now_ms < base_timestamp)
        keep[number] = stays
        if stays:
            timestamp = max_timestamp if log_append_time else base_timestamp + timestamp_delta
            if retained == 0:
                first_timestamp = timestamp
            largest_timestamp = max(largest_timestamp, timestamp)
            tombstones |= value_size < 0
            retained += 1
    if at != end:
        return
    new_horizon = (tombstones or empty_transaction) and not has_horizon
    result[0] = OK
    result[1] = retained
    result[2] = -1
    if retained == 0 or (retained == count and not new_horizon):
        return
    new_base = first_timestamp
    if has_horizon:
        new_base = base_timestamp
    elif new_horizon:
        new_base = horizon_ms
    at = np.int64(0)
    out_at = np.int64(0)
    for number in range(count):
        start = at
        at, delta_at, timestamp_delta, rest, _, _, _, _ = _record(records, at, end)
        if not keep[number]:
            continue
        if new_base == base_timestamp or log_append_time:
            copy_bytes(out, out_at, records, start, at - start)
            out_at += at - start
            continue
        delta = base_timestamp + timestamp_delta - new_base
        out_at = put_varlong(out, out_at, 1 + varlong_size(delta) + at - rest)
        out[out_at] = records[delta_at - 1]
        out_at = put_varlong(out, out_at + 1, delta)
        copy_bytes(out, out_at, records, rest, at - rest)
        out_at += at - rest
    result[2] = out_at
    result[3] = new_base
    result[4] = max_timestamp if log_append_time else largest_timestamp
    result[5] = new_horizon
