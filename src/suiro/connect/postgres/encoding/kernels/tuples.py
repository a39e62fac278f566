"""Offsets of the values of old and new tuples."""

from __future__ import annotations

import numpy as np

from suiro.connect.postgres.encoding.kernels.wire import NULL, UNCHANGED_TOAST, uint16_at
from suiro.protocol.compiling import BOOL, BYTES_IN, INT, INT64S_IN, TABLE_OUT, compiled, inlined
from suiro.protocol.kernel_numbers import int32_at


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


@compiled(BYTES_IN, INT64S_IN, INT64S_IN, INT64S_IN, BOOL, INT, INT64S_IN, TABLE_OUT, TABLE_OUT)
def find_columns(data, old_at, new_at, ends, binary, columns, wanted, places, sizes):
    """Finds the values of some columns: table rows 2 * k (old tuple) and 2 * k + 1 (new) are of column wanted[k].

    A size below 0: null, unchanged, or no such tuple. Returns -1, or the first row that is truncated.
    """
    old_places = np.empty(columns, np.int64)
    old_sizes = np.empty(columns, np.int64)
    new_places = np.empty(columns, np.int64)
    new_sizes = np.empty(columns, np.int64)
    for row in range(len(new_at)):
        has_old = old_at[row] >= 0
        has_new = new_at[row] >= 0
        if has_old and not find_values(data, old_at[row], ends[row], binary, old_places, old_sizes):
            return row
        if has_new:
            if not find_values(data, new_at[row], ends[row], binary, new_places, new_sizes):
                return row
            if has_old:
                fill_from_old(new_places, new_sizes, old_places, old_sizes)
        for k in range(len(wanted)):
            column = wanted[k]
            places[2 * k, row] = old_places[column] if has_old else 0
            sizes[2 * k, row] = old_sizes[column] if has_old else NULL
            places[2 * k + 1, row] = new_places[column] if has_new else 0
            sizes[2 * k + 1, row] = new_sizes[column] if has_new else NULL
    return -1
