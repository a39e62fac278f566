"""Numbers in and out of bytes, for kernels of all packages. A change here compiles all kernels anew (`compiling`)."""

# numba types these functions, by what they are called with.
# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from suiro.protocol.compiling import inlined


@inlined
def int32_at(data, at):
    return np.int64(
        np.int32(
            (np.uint32(data[at]) << np.uint32(24))
            | (np.uint32(data[at + 1]) << np.uint32(16))
            | (np.uint32(data[at + 2]) << np.uint32(8))
            | np.uint32(data[at + 3])
        )
    )


@inlined
def int64_at(data, at):
    return (int32_at(data, at) << 32) | (int32_at(data, at + 4) & 0xFFFFFFFF)


@inlined
def varlong(data, at, end):
    """(value, next place); the place is -1 where the number is torn or too long."""
    value = np.uint64(0)
    shift = np.int64(0)
    while True:
        if at >= end or shift >= 70:
            return np.int64(0), np.int64(-1)
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        if byte < np.uint64(0x80):
            break
        shift += 7
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at


@inlined
def _zigzag(value):
    number = np.int64(value)
    return np.uint64((number << 1) ^ (number >> 63))


@inlined
def varlong_size(value):
    rest = _zigzag(value)
    size = np.int64(1)
    while rest >= np.uint64(0x80):
        rest >>= np.uint64(7)
        size += 1
    return size


@inlined
def put_varlong(out, at, value):
    """The place behind it."""
    rest = _zigzag(value)
    while rest >= np.uint64(0x80):
        out[at] = np.uint8((rest & np.uint64(0x7F)) | np.uint64(0x80))
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1
