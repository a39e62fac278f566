"""Parses pgoutput messages into a table of facts: the kernel of `pgoutput.parse`."""

from __future__ import annotations

import numpy as np

from suiro.connect.postgres.encoding.kernels.wire import EPOCH_MICROS, I64_MAX, uint16_at, uint32_at
from suiro.protocol.compiling import BYTES_IN, INT64S_IN, TABLE_OUT, compiled, inlined
from suiro.protocol.kernel_numbers import int32_at, int64_at

# Rows of the table of facts, in the order of the fields of `pgoutput.Messages`.
KIND, XID, RELATION, LSN, END_LSN, TIME, OLD_AT, NEW_AT, UNCHANGED = range(9)


@inlined
def _skip_value(data, at, end):
    """Returns (next place, the byte of the value's kind). The place is -1 if the value is truncated or of no kind."""
    if at >= end:
        return np.int64(-1), np.uint8(0)
    kind = data[at]
    at += 1
    if kind == 110 or kind == 117:  # n, u
        return at, kind
    if kind != 116 or end - at < 4:  # t
        return np.int64(-1), kind
    size = int32_at(data, at)
    at += 4
    if size < 0 or size > end - at:
        return np.int64(-1), kind
    return at + size, kind


@compiled(BYTES_IN, INT64S_IN, INT64S_IN, TABLE_OUT)
def parse(data, starts, ends, facts):
    """Fills the table of facts, one column for each message. Returns -1, or the first invalid message."""
    given = np.zeros(65536, np.bool_)
    for index in range(len(starts)):
        at = starts[index]
        end = ends[index]
        if at < 0 or end > len(data) or end - at < 1:
            return index
        kind = data[at]
        at += 1
        facts[KIND, index] = kind
        facts[OLD_AT, index] = -1
        facts[NEW_AT, index] = -1
        facts[RELATION, index] = -1
        if kind == 73 or kind == 85 or kind == 68:  # I, U, D
            if end - at < 5:
                return index
            facts[RELATION, index] = uint32_at(data, at)
            mark = data[at + 4]
            at += 5
            old_count = np.int64(0)
            if (mark == 75 or mark == 79) and kind != 73:  # K, O
                facts[OLD_AT, index] = at
                if end - at < 2:
                    return index
                old_count = uint16_at(data, at)
                at += 2
                for column in range(old_count):
                    at, value = _skip_value(data, at, end)
                    if at < 0:
                        return index
                    given[column] = value == 116
                if kind == 68:
                    if at != end:
                        return index
                    continue
                if at >= end:
                    return index
                mark = data[at]
                at += 1
            if mark != 78 or kind == 68 or end - at < 2:  # N
                return index
            facts[NEW_AT, index] = at
            count = uint16_at(data, at)
            at += 2
            if old_count > 0 and old_count != count:
                return index
            unchanged = 0
            for column in range(count):
                at, value = _skip_value(data, at, end)
                if at < 0:
                    return index
                if value == 117 and not (old_count > 0 and given[column]):
                    unchanged += 1
            facts[UNCHANGED, index] = unchanged
            if at != end:
                return index
        elif kind == 82:  # R
            if end - at < 4:
                return index
            facts[RELATION, index] = uint32_at(data, at)
        elif kind == 77:  # M
            if end - at < 9:
                return index
            facts[LSN, index] = int64_at(data, at + 1)
        elif kind == 66:  # B
            if end - at != 20:
                return index
            time = int64_at(data, at + 8)
            if time > I64_MAX - EPOCH_MICROS:
                return index
            facts[LSN, index] = int64_at(data, at)
            facts[TIME, index] = time + EPOCH_MICROS
            facts[XID, index] = uint32_at(data, at + 16)
        elif kind == 67:  # C
            if end - at != 25:
                return index
            time = int64_at(data, at + 17)
            if time > I64_MAX - EPOCH_MICROS:
                return index
            facts[LSN, index] = int64_at(data, at + 1)
            facts[END_LSN, index] = int64_at(data, at + 9)
            facts[TIME, index] = time + EPOCH_MICROS
        elif kind == 79:  # O
            if end - at < 9 or data[end - 1] != 0:
                return index
            facts[LSN, index] = int64_at(data, at)
            for place in range(at + 8, end - 1):
                if data[place] == 0:
                    return index
        elif kind != 89 and kind != 84 and kind != 65:  # Y, T, A
            return index
    return -1
