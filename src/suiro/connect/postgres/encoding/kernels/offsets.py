"""Offsets of pgoutput's messages, of the rows of a binary COPY, and of the values of tuples.

`parse` is the kernel of `pgoutput.parse`, `copy_rows` that of `copy_binary`, `peeked_changes` that of `slot_peek`.
"""

from __future__ import annotations

import numpy as np

from suiro.connect.postgres.encoding.kernels.wire import (
    BAD_ROW,
    EPOCH_MICROS,
    I64_MAX,
    NULL,
    OK,
    UNCHANGED_TOAST,
    uint16_at,
    uint32_at,
)
from suiro.protocol.compiling import BYTES_IN, INT, INT64S_IN, INT64S_OUT, TABLE_OUT, compiled, inlined
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


@compiled(BYTES_IN, INT, INT, INT64S_OUT, INT64S_OUT)
def copy_rows(data, at, columns, starts, result):
    """Finds where the rows of COPY begin, and checks them. result = status, rows, the place after the last complete
    row."""
    rows = np.int64(0)
    size = np.int64(len(data))
    result[0] = BAD_ROW
    result[1] = 0
    while at < size:
        result[2] = at
        if size - at < 2:
            return
        count = uint16_at(data, at)
        if count == 0xFFFF:
            if at + 2 != size:
                return
            break
        if count != columns or rows >= len(starts):
            return
        starts[rows] = at
        at += 2
        for _ in range(columns):
            if size - at < 4:
                return
            length = int32_at(data, at)
            at += 4
            if length < -1 or length > size - at:
                return
            if length > 0:
                at += length
        rows += 1
        result[1] = rows
    result[0] = OK
    result[2] = at


@compiled(BYTES_IN, INT, INT64S_OUT, INT64S_OUT, INT64S_OUT, INT64S_OUT)
def peeked_changes(data, at, starts, ends, lsns, result):
    """Finds the messages and LSNs in rows of an LSN and a message of pgoutput.

    result = status, rows, rows up to the last commit, the place behind them. An incomplete row at the end is left.
    BAD_ROW: not a row of an LSN and a message.
    """
    rows = np.int64(0)
    size = np.int64(len(data))
    result[0] = OK
    result[1] = 0
    result[2] = 0
    result[3] = at
    while size - at >= 18:
        length = int32_at(data, at + 14)
        if uint16_at(data, at) != 2 or int32_at(data, at + 2) != 8 or length < 1:
            result[0] = BAD_ROW
            return
        if length > size - at - 18:
            return
        lsns[rows] = int64_at(data, at + 6)
        at += 18
        starts[rows] = at
        is_commit = data[at] == 67  # C
        at += length
        ends[rows] = at
        rows += 1
        result[1] = rows
        if is_commit:
            result[2] = rows
            result[3] = at


@inlined
def find_values(data, at, end, binary, places, sizes):
    """Finds the values of a tuple. Returns false if it is truncated, or has another number of columns."""
    if at < 0 or end > len(data) or end - at < 2 or uint16_at(data, at) != len(places):
        return False
    at += 2
    for column in range(len(places)):
        if not binary:
            if at >= end:
                return False
            kind = data[at]
            at += 1
            if kind == 110:
                sizes[column] = NULL
                continue
            if kind == 117:
                sizes[column] = UNCHANGED_TOAST
                continue
            if kind != 116:
                return False
        if end - at < 4:
            return False
        size = int32_at(data, at)
        at += 4
        if size < 0:
            if size != -1 or not binary:
                return False
            sizes[column] = NULL
            continue
        if size > end - at:
            return False
        places[column] = at
        sizes[column] = size
        at += size
    return True


@inlined
def fill_from_old(places, sizes, old_places, old_sizes):
    for column in range(len(places)):
        if sizes[column] == UNCHANGED_TOAST and old_sizes[column] >= 0:
            places[column] = old_places[column]
            sizes[column] = old_sizes[column]
