"""Whole rows to keys and values of records."""

from __future__ import annotations

import numpy as np
from numba import types

from suiro.connect.postgres.encoding.kernels.offsets import fill_from_old, find_values
from suiro.connect.postgres.encoding.kernels.values import put_value
from suiro.connect.postgres.encoding.kernels.wire import BAD_ROW, FULL, NULL, OK
from suiro.protocol.compiling import (
    BOOL,
    BYTES_IN,
    BYTES_OUT,
    INT32S_OUT,
    INT64S_IN,
    INT64S_OUT,
    TABLE_OUT,
    compiled,
    copy_bytes,
    inlined,
)

_bools_out = types.Array(types.boolean, 1, "C")


@inlined
def _put_cell(
    out, to, data, at, size, code, first, second, room, limbs,
    patches, offsets, patch_data, cell, hard, result,
):  # fmt: skip
    """Writes a value with the branch of its union. A hard value is listed, and nothing is written for it. Returns the
    place after it, or -1 if there is no room. `room`: how many bytes more than its own the value may take. Cells come
    in rising order, as the patches do."""
    if size == NULL:
        if len(out) <= to:
            return np.int64(-1)
        out[to] = 0
        return to + 1
    while result[4] < len(patches) and patches[result[4]] < cell:
        result[4] += 1
    patch = result[4]
    if patch < len(patches) and patches[patch] == cell:
        length = offsets[patch + 1] - offsets[patch]
        if len(out) - to < length:
            return np.int64(-1)
        copy_bytes(out, to, patch_data, offsets[patch], length)
        return to + length
    if size >= 0:
        if len(out) - to < room + size:
            return np.int64(-1)
        out[to] = 2
        after = put_value(out, to + 1, data, at, size, code, first, second, limbs)
        if after >= 0:
            return after
    if result[3] < hard.shape[1]:
        hard[0, result[3]] = cell
        hard[1, result[3]] = at
        hard[2, result[3]] = size
    result[3] += 1
    return to


@compiled(
    BYTES_IN, INT64S_IN, INT64S_IN, INT64S_IN, BOOL,
    INT64S_IN, INT64S_IN, INT64S_IN, INT64S_IN,
    INT64S_IN, BOOL, BYTES_IN, BYTES_IN,
    INT64S_IN, INT64S_IN, BYTES_IN,
    INT64S_OUT, INT32S_OUT, BYTES_OUT, INT32S_OUT, BYTES_OUT, _bools_out, TABLE_OUT, INT64S_OUT,
)  # fmt: skip
def encode_rows(
    data, old_at, new_at, ends, binary,
    codes, firsts, seconds, rooms,
    key, nullable_key, key_header, value_header,
    patches, patch_offsets, patch_data,
    sources, key_offsets, keys, value_offsets, values, tombstones, hard, result,
):  # fmt: skip
    """Encodes keys and values of every row. Its tuples are at old_at and new_at (-1: none) and end before ends.

    codes, firsts, seconds: how each column is written. rooms: how many bytes more than its own a value may take.
    patches: cells that are given, as (row * 2 + is_new) * columns + column, rising; their bytes are
    patch_data[patch_offsets[i]:patch_offsets[i + 1]], the branch of the union included.
    result = status, the row that is bad, records, hard cells, the next patch. hard: of as many hard cells as it holds,
    their numbers, places and sizes.
    """
    columns = np.int64(len(codes))
    old_places = np.zeros(columns, np.int64)
    old_sizes = np.full(columns, NULL, np.int64)
    places = np.zeros(columns, np.int64)
    sizes = np.empty(columns, np.int64)
    cells = np.empty(columns + 1, np.int64)
    limbs = np.zeros(256, np.uint64)
    records = np.int64(0)
    key_to = np.int64(0)
    to = np.int64(0)
    key_offsets[0] = 0
    value_offsets[0] = 0
    result[3] = 0
    result[4] = 0
    for row in range(len(new_at)):
        result[0] = BAD_ROW
        result[1] = row
        has_old = old_at[row] >= 0
        if has_old and not find_values(data, old_at[row], ends[row], binary, old_places, old_sizes):
            return
        old_key = key_to
        if has_old:
            if len(keys) - key_to < len(key_header):
                result[0] = FULL
                return
            copy_bytes(keys, key_to, key_header, np.int64(0), np.int64(len(key_header)))
            key_to += len(key_header)
            for k in range(len(key)):
                column = key[k]
                size = old_sizes[column]
                cell = row * 2 * columns + column
                if size < 0 and not nullable_key:
                    return
                before = key_to
                key_to = _put_cell(
                    keys, key_to, data, old_places[column], size, codes[column], firsts[column], seconds[column],
                    rooms[column], limbs, patches, patch_offsets, patch_data, cell, hard, result,
                )  # fmt: skip
                if key_to < 0:
                    result[0] = FULL
                    return
                if not nullable_key and key_to > before:
                    for place in range(before, key_to - 1):
                        keys[place] = keys[place + 1]
                    key_to -= 1
        if new_at[row] < 0:
            if not has_old:
                return
            sources[records] = row
            tombstones[records] = True
            records += 1
            key_offsets[records] = key_to
            value_offsets[records] = to
            continue
        if not find_values(data, new_at[row], ends[row], binary, places, sizes):
            return
        if has_old:
            fill_from_old(places, sizes, old_places, old_sizes)
        if len(values) - to < len(value_header):
            result[0] = FULL
            return
        copy_bytes(values, to, value_header, np.int64(0), np.int64(len(value_header)))
        to += len(value_header)
        for column in range(columns):
            cell = (row * 2 + 1) * columns + column
            cells[column] = to
            to = _put_cell(
                values, to, data, places[column], sizes[column], codes[column], firsts[column], seconds[column],
                rooms[column], limbs, patches, patch_offsets, patch_data, cell, hard, result,
            )  # fmt: skip
            if to < 0:
                result[0] = FULL
                return
        cells[columns] = to
        new_key = key_to
        room = np.int64(len(key_header))
        for k in range(len(key)):
            room += cells[key[k] + 1] - cells[key[k]]
        if len(keys) - key_to < room:
            result[0] = FULL
            return
        copy_bytes(keys, key_to, key_header, np.int64(0), np.int64(len(key_header)))
        key_to += len(key_header)
        for k in range(len(key)):
            start = cells[key[k]]
            length = cells[key[k] + 1] - start
            if not nullable_key and length > 0:
                if values[start] == 0:
                    return
                start += 1
                length -= 1
            copy_bytes(keys, key_to, values, start, length)
            key_to += length
        if has_old:
            same = key_to - new_key == new_key - old_key
            if same:
                for place in range(new_key - old_key):
                    if keys[old_key + place] != keys[new_key + place]:
                        same = False
                        break
            if same:
                key_to = new_key
            else:
                sources[records] = row
                tombstones[records] = True
                records += 1
                key_offsets[records] = new_key
                value_offsets[records] = cells[0] - len(value_header)
        sources[records] = row
        tombstones[records] = False
        records += 1
        key_offsets[records] = key_to
        value_offsets[records] = to
    result[0] = OK
    result[2] = records
