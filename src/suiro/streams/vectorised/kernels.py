"""The compiled loops of the vectorised operators: keys to slots, sums per slot, windows, rows of a table.

What is always true: a kernel writes only into arrays that its caller made large enough, or stops at the row where one
of them is full and says which row that was. Rows whose slot is -1 are left out.

As in `protocol.kernels` every signature is written out, inputs are read-only arrays, and all kernels are in this one
file, so that what is compiled is loaded from the disk cache.
"""

# numba types these functions, by their signatures; NumPy scalars and ints are one to it.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, disable-error-code="assignment"

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from suiro.protocol.compiling import (
    BOOL,
    BYTES_IN,
    BYTES_OUT,
    COLUMN,
    INT,
    INT32S_IN,
    INT32S_OUT,
    INT64S_IN,
    INT64S_OUT,
    OPTIONS,
    compiled,
    copy_bytes,
)

# What an aggregate does with the next number.
COUNT, SUM, MIN, MAX, FIRST, LAST = range(6)

_MOST, _LEAST = np.int64((1 << 63) - 1), np.int64(-(1 << 63))
_AHEAD = 32  # keys whose hashes are made before the first is looked up

_doubles_in = types.Array(types.float64, 1, "C", readonly=True)
_doubles_out = types.Array(types.float64, 1, "C")
_index = (INT64S_OUT, BYTES_OUT, INT64S_OUT, INT64S_OUT)  # table, arena, starts, result


_inlined = numba.njit(inline="always", **OPTIONS)  # becomes part of the kernels that call it


def _load(typing_context: Any, source: Any, start: Any) -> Any:
    """Eight bytes as the number that this machine takes them for; the caller has checked the range."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        origin = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(origin.data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(source, types.int64), generate


def _touch(typing_context: Any, source: Any, at: Any) -> Any:
    """Asks for the cache line of source[at], which need not be inside the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        origin = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        fetch = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), (byte, number, number, number)),
            "llvm.prefetch.p0i8",
        )
        place = builder.bitcast(builder.gep(origin.data, [arguments[1]]), byte)
        builder.call(fetch, (place, number(0), number(3), number(1)))
        return context.get_dummy_value()

    return types.void(source, types.int64), generate


def _fold(typing_context: Any, one: Any, other: Any) -> Any:
    """Both halves of the product of two words, as one word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, wide = ir.IntType(64), ir.IntType(128)
        product = builder.mul(*[builder.zext(each, wide) for each in arguments])
        upper = builder.lshr(product, wide(64))
        return builder.xor(builder.trunc(product, word), builder.trunc(upper, word))

    return types.uint64(types.uint64, types.uint64), generate


_prefetch: Any = intrinsic(_touch)
_word: Any = intrinsic(_load)
_folded: Any = intrinsic(_fold)


@_inlined
def _is_null(bitmap, first_bit, has_nulls, row):
    if not has_nulls:
        return False
    bit = first_bit + row
    return (bitmap[bit >> 3] >> (bit & 7)) & 1 == 0


@_inlined
def _put_int64(out, at, value):
    for place in range(8):
        out[at + place] = np.uint8((value >> (56 - 8 * place)) & 0xFF)


# Keys to slots
#
# The table is open addressing with linear steps. An entry is 0 or (upper half of the hash | slot + 1). The keys lie one
# behind the other in the arena; slot s is arena[starts[s]:starts[s + 1]]. Each table has a secret of its own in
# `result[1]`, so that nobody can write keys that all have one hash.


@_inlined
def _hash(data, start, size, secret):
    h = np.uint64(size) * np.uint64(0x9E3779B97F4A7C15) ^ secret
    if size >= 8:
        at = np.int64(0)
        while at + 8 <= size:
            h = _folded(h ^ _word(data, start + at), secret)
            at += 8
        if at < size:
            h = _folded(h ^ _word(data, start + size - 8), secret)
        return h
    tail = np.uint64(0)
    for at in range(size):
        tail = (tail << np.uint64(8)) | np.uint64(data[start + at])
    return _folded(h ^ tail, secret)


@_inlined
def _equal(one, first, other, second, size):
    if size >= 8:
        at = np.int64(0)
        while at + 8 <= size:
            if _word(one, first + at) != _word(other, second + at):
                return False
            at += 8
        return _word(one, first + size - 8) == _word(other, second + size - 8)
    at = np.int64(0)
    while at < size and one[first + at] == other[second + at]:
        at += 1
    return at == size


@_inlined
def _fetch_ahead(offsets, data, bitmap, first_bit, has_nulls, row, table, arena, starts, secret, hashes):
    """Hashes of the next keys, while what they will be compared with is on its way from memory."""
    mask = np.int64(len(table) - 1)
    rows = min(len(hashes), len(offsets) - 1 - row)
    for ahead in range(rows):
        start = np.int64(offsets[row + ahead])
        size = np.int64(offsets[row + ahead + 1]) - start
        h = _hash(data, start, size, secret)
        hashes[ahead] = h
        _prefetch(table, np.int64(h & np.uint64(0xFFFFFFFF)) & mask)
    for ahead in range(rows):
        entry = table[np.int64(hashes[ahead] & np.uint64(0xFFFFFFFF)) & mask]
        _prefetch(starts, max(np.int64(0), (entry & 0xFFFFFFFF) - 1))
    for ahead in range(rows):
        entry = table[np.int64(hashes[ahead] & np.uint64(0xFFFFFFFF)) & mask]
        _prefetch(arena, starts[max(np.int64(0), (entry & 0xFFFFFFFF) - 1)])


@_inlined
def _find(table, arena, starts, data, start, size, h):
    """The place of the key's entry, or of the empty one where it belongs."""
    mask = np.int64(len(table) - 1)
    tag = np.int64(h >> np.uint64(32)) << 32
    place = np.int64(h & np.uint64(0xFFFFFFFF)) & mask
    while True:
        entry = table[place]
        if entry == 0:
            return place, entry, tag
        if entry & -0x100000000 == tag:
            slot = (entry & 0xFFFFFFFF) - 1
            first = starts[slot]
            if starts[slot + 1] - first == size and _equal(arena, first, data, start, size):
                return place, entry, tag
        place = (place + 1) & mask


@compiled(*COLUMN, INT, *_index, INT32S_OUT)
def add_keys(offsets, data, bitmap, first_bit, has_nulls, first_row, table, arena, starts, result, slots):
    """Slots of the keys from `first_row` on, -1 for null; unknown ones are added.

    `result` holds the number of slots, before and after, and the secret. Returns the row where the table, the arena or
    `starts` is too small for one more key, or the number of rows.
    """
    count = result[0]
    secret = np.uint64(result[1])
    hashes = np.empty(_AHEAD, np.uint64)
    for row in range(first_row, len(slots)):
        turn = (row - first_row) & (_AHEAD - 1)
        if turn == 0:
            _fetch_ahead(offsets, data, bitmap, first_bit, has_nulls, row, table, arena, starts, secret, hashes)
        if _is_null(bitmap, first_bit, has_nulls, row):
            slots[row] = -1
            continue
        start = np.int64(offsets[row])
        size = np.int64(offsets[row + 1]) - start
        place, entry, tag = _find(table, arena, starts, data, start, size, hashes[turn])
        if entry != 0:
            slots[row] = (entry & 0xFFFFFFFF) - 1
            continue
        at = starts[count]
        if 2 * (count + 1) > len(table) or count + 2 > len(starts) or at + size > len(arena):
            result[0] = count
            return row
        copy_bytes(arena, at, data, start, size)
        slots[row] = count
        count += 1
        starts[count] = at + size
        table[place] = tag | count
    result[0] = count
    return len(slots)


@compiled(*COLUMN, *_index, INT32S_OUT)
def find_keys(offsets, data, bitmap, first_bit, has_nulls, table, arena, starts, result, slots):
    """The same without adding: -1 for unknown keys too."""
    secret = np.uint64(result[1])
    hashes = np.empty(_AHEAD, np.uint64)
    for row in range(len(slots)):
        turn = row & (_AHEAD - 1)
        if turn == 0:
            _fetch_ahead(offsets, data, bitmap, first_bit, has_nulls, row, table, arena, starts, secret, hashes)
        slots[row] = -1
        if not _is_null(bitmap, first_bit, has_nulls, row):
            start = np.int64(offsets[row])
            size = np.int64(offsets[row + 1]) - start
            _, entry, _ = _find(table, arena, starts, data, start, size, hashes[turn])
            slots[row] = (entry & 0xFFFFFFFF) - 1
    return result[0]


@compiled(*_index)
def rehash(table, arena, starts, result):
    """Fills an empty table with all keys of the arena."""
    mask = np.int64(len(table) - 1)
    secret = np.uint64(result[1])
    for slot in range(result[0]):
        h = _hash(arena, starts[slot], starts[slot + 1] - starts[slot], secret)
        place = np.int64(h & np.uint64(0xFFFFFFFF)) & mask
        while table[place] != 0:
            place = (place + 1) & mask
        table[place] = (np.int64(h >> np.uint64(32)) << 32) | (slot + 1)


@compiled(BYTES_OUT, INT64S_OUT, INT32S_IN, INT64S_IN, INT32S_OUT, BYTES_OUT)
def gather_window_keys(arena, starts, slots, window_starts, offsets, out):
    """Keys followed by the window's start and a sequence number of 0, as a window store has them."""
    for row in range(len(slots)):
        slot = slots[row]
        size = starts[slot + 1] - starts[slot]
        at = np.int64(offsets[row])
        copy_bytes(out, at, arena, starts[slot], size)
        _put_int64(out, at + size, window_starts[row])
        for place in range(4):
            out[at + size + 8 + place] = 0


# Combining in a chunk


@compiled(INT32S_IN, INT64S_IN, INT64S_IN, INT, INT64S_OUT, INT64S_OUT, INT64S_OUT)
def combine(slots, timestamps, values, op, partial, latest, last):
    """Per slot: the numbers put together, the latest timestamp, the last row (-1 before)."""
    for row in range(len(slots)):
        slot = slots[row]
        if slot < 0:
            continue
        is_first = last[slot] < 0
        if op == COUNT:
            partial[slot] += 1
        elif op == SUM:
            partial[slot] += values[row]
        else:
            value = values[row]
            better = value < partial[slot] if op == MIN else value > partial[slot]
            if is_first or op == LAST or (better and op != FIRST):
                partial[slot] = value
        if is_first or timestamps[row] > latest[slot]:
            latest[slot] = timestamps[row]
        last[slot] = row


@compiled(
    *(INT32S_IN, INT64S_IN),  # slots, timestamps
    *(INT, INT, INT),  # size, advance, grace
    *(INT64S_OUT, INT32S_OUT, INT64S_OUT),  # rows, slots, starts of each piece
    INT64S_OUT,  # result: pieces, time, late
)
def spread_windows(slots, timestamps, size, advance, grace, rows, out_slots, starts, result):
    """One piece for each record and window that takes it, in order; there is room for all. Time is the latest timestamp
    of all records that have a slot; `result` has it before and after."""
    pieces = np.int64(0)
    time = result[1]
    late = np.int64(0)
    for row in range(len(slots)):
        if slots[row] < 0:
            continue
        timestamp = timestamps[row]
        if timestamp > time:
            time = timestamp
        start = max(np.int64(0), timestamp - size + advance) // advance * advance
        while start <= timestamp:
            if start <= time - size - grace:
                late += 1
            else:
                rows[pieces] = row
                out_slots[pieces] = slots[row]
                starts[pieces] = start
                pieces += 1
            if start > timestamp - advance:
                break  # the next start may be beyond 64 bits
            start += advance
    result[0] = pieces
    result[1] = time
    result[2] = late


# Rows of an aggregate
#
# Per slot: present, timestamp, number (a double's bits where numbers are doubles).


@_inlined
def _exceeds(one, other):
    """Whether the sum is beyond 64 bits. (Of a sum that is, compiled code may assume anything.)"""
    if other >= 0:
        return one > _MOST - other
    return one < _LEAST - other


def _apply(
    slots,
    values,
    valid,
    timestamps,
    order,
    op,
    initial,
    has_initial,
    reduces,
    is_whole,
    present,
    times,
    numbers,
    changed,
    forwarded,
):
    """Records or parts one after another, nulls included: SUM to LAST. `initial`: what numbers come to; `reduces`: the
    first number does instead. `is_whole`: a sum has 64 bits. `changed` is the order of a slot's last update. A result
    of null deletes the row; `forwarded` is its timestamp.

    Returns the row whose sum exceeds 64 bits, or -1.
    """
    for row in range(len(slots)):
        slot = slots[row]
        if slot < 0:
            continue
        value = values[row]
        is_value = valid[row] != 0
        was_there = present[slot] != 0
        time = timestamps[row]
        if was_there and times[slot] > time:
            time = times[slot]
        known = was_there or has_initial
        before = numbers[slot] if was_there else initial
        if not was_there and reduces:
            result, is_result = value, is_value
        elif op == SUM:
            result, is_result = before + value, known and is_value
            if is_whole and is_result and _exceeds(before, value):
                return row
        elif op in (MIN, MAX):
            result, is_result = before, known
            better = value < before if op == MIN else value > before
            if is_value and (not known or better):
                result, is_result = value, True
        elif op == FIRST:
            result, is_result = before, known
        else:
            result, is_result = value, is_value
        present[slot] = is_result
        numbers[slot] = result
        times[slot] = time
        forwarded[slot] = time
        changed[slot] = order[row]
    return -1


def _applies(numbers_in, number, numbers_out):
    return compiled(
        *(INT32S_IN, numbers_in, BYTES_IN, INT64S_IN, INT64S_IN),  # slots, values, valid, timestamps, order
        *(INT, number, BOOL, BOOL, BOOL),  # op, initial, has an initial, reduces, is whole
        *(BYTES_OUT, INT64S_OUT, numbers_out, INT64S_OUT, INT64S_OUT),  # present, times, numbers, changed, forwarded
    )(_apply)


apply_longs = _applies(INT64S_IN, INT, INT64S_OUT)
apply_doubles = _applies(_doubles_in, types.float64, _doubles_out)


# Rows of a table
#
# Per slot: where its row begins in a buffer of bytes and how long it is, -1 for none.


@compiled(*COLUMN, INT32S_IN, BYTES_OUT, INT64S_OUT, INT64S_OUT, INT)
def put_rows(offsets, data, bitmap, first_bit, has_nulls, slots, buffer, places, sizes, at):
    """The last row of each slot stays. `at`: where to write in the buffer. Returns the buffer's end."""
    for row in range(len(slots)):
        slot = slots[row]
        if slot < 0:
            continue
        if _is_null(bitmap, first_bit, has_nulls, row):
            sizes[slot] = -1
            continue
        start = np.int64(offsets[row])
        size = np.int64(offsets[row + 1]) - start
        places[slot] = at
        sizes[slot] = size
        copy_bytes(buffer, at, data, start, size)
        at += size
    return at


@compiled(
    *(INT64S_IN, INT64S_IN, INT32S_IN),  # order, which row of the table's each is (-1: a record), slots
    *COLUMN,  # the table's values
    *(
        INT64S_IN,
        BYTES_OUT,
        INT64S_OUT,
        INT64S_OUT,
        INT,
    ),  # timestamps, buffer, places, sizes, where to write
    *(INT64S_OUT, INT64S_OUT),  # places and sizes of the rows that records meet, by their row
)
def meet_rows(
    order,
    table_rows,
    slots,
    offsets,
    data,
    bitmap,
    first_bit,
    has_nulls,
    timestamps,
    buffer,
    places,
    sizes,
    at,
    met_places,
    met_sizes,
):
    """Table rows and stream records one after another: a record meets the row of that moment.

    Returns the buffer's end.
    """
    for turn in range(len(order)):
        row = order[turn]
        slot = slots[row]
        met_sizes[row] = -1
        if slot < 0:
            continue
        value = table_rows[row]
        if value < 0:
            met_places[row] = places[slot]
            met_sizes[row] = sizes[slot]
            continue
        if _is_null(bitmap, first_bit, has_nulls, value):
            sizes[slot] = -1
            continue
        start = np.int64(offsets[value])
        size = np.int64(offsets[value + 1]) - start
        places[slot] = at
        sizes[slot] = size + 8
        _put_int64(buffer, at, timestamps[row])
        copy_bytes(buffer, at + 8, data, start, size)
        at += size + 8
    return at


@compiled(BYTES_IN, INT64S_IN, INT64S_IN, INT32S_OUT, BYTES_OUT, BYTES_OUT)
def gather_rows(buffer, places, sizes, offsets, out, bitmap):
    """Rows from the buffer, to `offsets`; null where the size is negative. Returns how many are null."""
    nulls = np.int64(0)
    for row in range(len(places)):
        if sizes[row] < 0:
            nulls += 1
            continue
        bitmap[row >> 3] |= np.uint8(1 << (row & 7))
        copy_bytes(out, offsets[row], buffer, places[row], sizes[row])
    return nulls
