"""Offsets of the rows and values of a binary COPY: the kernels of `copy_binary` and `slot_peek`."""

from __future__ import annotations

import numpy as np

from suiro.connect.postgres.encoding.kernels.wire import BAD_ROW, OK, uint16_at
from suiro.protocol.compiling import BYTES_IN, INT, INT64S_OUT, compiled
from suiro.protocol.kernel_numbers import int32_at, int64_at


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
