"""Decodes and encodes Avro for all rows in one call, without a Python object per value. Compiled by numba.

A schema is a program: one instruction per field, in the order of the bytes (`avro_columns` compiles it). `cells[leaf,
row]` holds a number, the bits of a float, or the offset of bytes; `lengths[leaf, row]` is their length; `present[place,
row]` is 1 if a nullable value is not null.
"""

from __future__ import annotations

import numpy as np
from numba import types

from suiro.protocol.compiling import BYTES_IN, BYTES_OUT, INT64S_IN, INT64S_OUT, TABLE_IN, TABLE_OUT, compiled, inlined
from suiro.protocol.kernel_numbers import put_varlong

NOTHING, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, FIXED, ENUM, NULLABLE = range(10)

_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
_CUT, _RANGE = -1, -2

BYTE_TABLE_IN = types.Array(types.uint8, 2, "C", readonly=True)
BYTE_TABLE_OUT = types.Array(types.uint8, 2, "C")


@inlined
def _varint(data, at, end):
    """Returns the value and the offset after it. The offset is negative if the bytes are no varint."""
    found = np.uint64(0)
    shift = np.uint64(0)
    while at < end:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return np.int64(0), np.int64(_RANGE)
        found |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            value = np.int64(found >> np.uint64(1)) ^ -np.int64(found & np.uint64(1))
            return value, np.int64(at)
        shift += np.uint64(7)
        if shift > 63:
            return np.int64(0), np.int64(_RANGE)
    return np.int64(0), np.int64(_CUT)


@compiled(BYTES_IN, *[INT64S_IN] * 6, TABLE_OUT, TABLE_OUT, BYTE_TABLE_OUT)
def walk(data, starts, ends, kinds, targets, extras, jumps, cells, lengths, present):
    """Returns -1, or the first row that does not match the schema."""
    steps = len(kinds)
    for row in range(len(starts)):
        at, end = starts[row], ends[row]
        step = 0
        while step < steps:
            kind, target = kinds[step], targets[step]
            if kind in (INT, LONG, ENUM, NULLABLE):
                if at < end and data[at] < 0x80:  # most have one byte
                    small = np.int64(data[at])
                    value, at = (small >> 1) ^ -(small & 1), at + 1
                else:
                    value, at = _varint(data, at, end)
                    if at < 0:
                        return row
                if kind == NULLABLE:
                    if value == extras[step]:
                        step = jumps[step]
                        continue
                    if value != 1 - extras[step]:
                        return row
                    present[target, row] = 1
                else:
                    if kind == INT and (value < _INT_MIN or value > _INT_MAX):
                        return row
                    if kind == ENUM and (value < 0 or value >= extras[step]):
                        return row
                    cells[target, row] = value
            elif kind == BYTES:
                value, at = _varint(data, at, end)
                if at < 0 or value < 0 or value > end - at:
                    return row
                cells[target, row] = at
                lengths[target, row] = value
                at += value
            elif kind == FIXED:
                value = extras[step]
                if value > end - at:
                    return row
                cells[target, row] = at
                lengths[target, row] = value
                at += value
            elif kind in (DOUBLE, FLOAT):
                size = 8 if kind == DOUBLE else 4
                if size > end - at:
                    return row
                bits = np.uint64(0)
                for index in range(size):
                    bits |= np.uint64(data[at + index]) << np.uint64(8 * index)
                cells[target, row] = np.int64(bits)
                at += size
            elif kind == BOOLEAN:
                if at >= end:
                    return row
                cells[target, row] = data[at] != 0
                at += 1
            step += 1
        if at != end:
            return row
    return -1


@compiled(BYTES_IN, BYTES_IN, *[INT64S_IN] * 4, TABLE_IN, TABLE_IN, BYTE_TABLE_IN, INT64S_OUT, BYTES_OUT)
def put(data, front, kinds, targets, extras, jumps, cells, lengths, present, offsets, out):
    """Writes the fields that `walk` found into `out`, with `front` before each row. `offsets` gets the offset of each
    row, and the end."""
    steps = len(kinds)
    at = 0
    for row in range(len(offsets) - 1):
        offsets[row] = at
        for index in range(len(front)):
            out[at + index] = front[index]
        at += len(front)
        step = 0
        while step < steps:
            kind, target = kinds[step], targets[step]
            if kind == NULLABLE:
                if present[target, row] == 0:
                    at = put_varlong(out, at, extras[step])
                    step = jumps[step]
                    continue
                at = put_varlong(out, at, np.int64(1) - extras[step])
            elif kind in (INT, LONG, ENUM):
                at = put_varlong(out, at, cells[target, row])
            elif kind in (BYTES, FIXED):
                size, start = lengths[target, row], cells[target, row]
                if kind == BYTES:
                    at = put_varlong(out, at, size)
                for index in range(size):
                    out[at + index] = data[start + index]
                at += size
            elif kind in (DOUBLE, FLOAT):
                bits = np.uint64(cells[target, row])
                for _ in range(8 if kind == DOUBLE else 4):
                    out[at] = np.uint8(bits & np.uint64(0xFF))
                    bits >>= np.uint64(8)
                    at += 1
            elif kind == BOOLEAN:
                out[at] = np.uint8(cells[target, row])
                at += 1
            step += 1
    offsets[len(offsets) - 1] = at


@compiled(BYTES_IN, INT64S_IN, INT64S_IN, INT64S_IN, BYTES_OUT)
def gather(data, starts, lengths, offsets, out):
    """Concatenates pieces of `data`. `offsets` has the offset of each in `out`."""
    for row in range(len(starts)):
        at, to = starts[row], offsets[row]
        for index in range(lengths[row]):
            out[to + index] = data[at + index]


@compiled(BYTES_IN, INT64S_IN, INT64S_IN, BYTE_TABLE_OUT)
def unscaled(data, starts, lengths, out):
    """Converts big-endian two's complement of up to 16 bytes to little-endian of 16 bytes. Returns False if a number is
    longer."""
    for row in range(len(starts)):
        size, at = lengths[row], starts[row]
        if size > 16:
            return False
        fill = 0xFF if size > 0 and data[at] >= 0x80 else 0
        for index in range(16):
            out[row, index] = data[at + size - 1 - index] if index < size else fill
    return True
