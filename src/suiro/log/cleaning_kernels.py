"""The compiled loops of `cleaning`: which batches may go, which keys are the latest, the survivors' bytes.

Always true: no kernel reads or writes outside the arrays it is given, whatever the bytes say; a kernel
answers with a status, never with an exception; and no record becomes a Python object. Signatures are written
out and cached as in `protocol.kernels`, which says why.

The offset map is open addressing over three arrays: two halves of a key's 128-bit SipHash-2-4 (with a secret
of this run, so that nobody can make two keys collide) and its latest offset + 1, where 0 is a free slot.
"""

from __future__ import annotations

import numpy as np
from numba import types

from suiro.protocol.compiling import (
    BYTES_IN,
    BYTES_OUT,
    INT,
    INT64S_OUT,
    TABLE_IN,
    TABLE_OUT,
    compiled,
    copy_bytes,
    inlined,
)
from suiro.protocol.kernel_numbers import int32_at, int64_at, put_varlong, varlong, varlong_size
from suiro.protocol.record_batch import (
    COMPRESSION_BITS,
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MIN_LENGTH,
    TRANSACTIONAL_BIT,
)

# Statuses.
OK, BAD_MAGIC, BAD_LENGTH, BAD_RECORD, BAD_CRC, MAP_FULL, GROW = range(7)

# Columns of the batch table that `scan` fills, one row a batch. `payload` is where its records stand: in the
# file's bytes, or, for compressed ones once the caller has unpacked them, in the unpacked bytes.
POSITION, SIZE, BASE_OFFSET, LAST_OFFSET, ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP = range(7)
COUNT, VERDICT, KEEP_EMPTY, EMPTY_TRANSACTION, ABORTED, UNPACKED, PAYLOAD, PAYLOAD_END, BATCH_COLUMNS = range(7, 16)

# Verdicts: look at the records, keep the batch (a marker), or leave out all records.
FILTER, KEEP, DISCARD = range(3)

# Columns of the table that `filter_batches` fills, one row a batch that stays.
(
    OUT_START,
    OUT_END,
    OUT_ROW,
    OUT_COUNT,
    OUT_BASE_TIMESTAMP,
    OUT_MAX_TIMESTAMP,
    OUT_HORIZON,
    OUT_PACK,
    OUT_COLUMNS,
) = range(9)

MAX_RECORD_GROWTH = 9 + 1  # a longer timestamp delta, and the record's length with it
_OF_COMMITTED, OF_ABORTED = 0, 1

_uint64s_out = types.Array(types.uint64, 1, "C")


def _crc_tables() -> np.ndarray:
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        tables[0, byte] = value
    for step in range(1, 8):
        for byte in range(256):
            before = int(tables[step - 1, byte])
            tables[step, byte] = (before >> 8) ^ int(tables[0, before & 0xFF])
    return tables


_CRC = _crc_tables()


# Numbers in and out


@inlined
def _put_int(out, at, value, size):
    for i in range(size):
        out[at + i] = np.uint8((value >> (8 * (size - 1 - i))) & 0xFF)


@inlined
def _crc32c(data, at, end):
    crc = np.uint32(0xFFFFFFFF)
    while end - at >= 8:
        low = crc ^ (
            np.uint32(data[at])
            | (np.uint32(data[at + 1]) << np.uint32(8))
            | (np.uint32(data[at + 2]) << np.uint32(16))
            | (np.uint32(data[at + 3]) << np.uint32(24))
        )
        crc = (
            _CRC[7, low & np.uint32(0xFF)]
            ^ _CRC[6, (low >> np.uint32(8)) & np.uint32(0xFF)]
            ^ _CRC[5, (low >> np.uint32(16)) & np.uint32(0xFF)]
            ^ _CRC[4, low >> np.uint32(24)]
            ^ _CRC[3, data[at + 4]]
            ^ _CRC[2, data[at + 5]]
            ^ _CRC[1, data[at + 6]]
            ^ _CRC[0, data[at + 7]]
        )
        at += 8
    while at < end:
        crc = (crc >> np.uint32(8)) ^ _CRC[0, (crc ^ np.uint32(data[at])) & np.uint32(0xFF)]
        at += 1
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))


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


@compiled(BYTES_IN, types.uint64, types.uint64, _uint64s_out)
def hash_of(data, k0, k1, halves):
    """The hash of one key, for the test that compares it with SipHash's published vectors."""
    halves[0], halves[1] = _siphash(data, np.int64(0), np.int64(len(data)), k0, k1)


@inlined
def _slot(low, high, lows, highs, offsets):
    """The key's slot, or the free one that it would take. There is always a free one: the map is never full."""
    slots = np.uint64(len(offsets))
    slot = np.int64(low % slots)
    while offsets[slot] != 0 and (lows[slot] != low or highs[slot] != high):
        slot += 1
        if slot == len(offsets):
            slot = np.int64(0)
    return slot


@inlined
def _find(ids, key):
    """The first row whose id is at least `key`."""
    low, high = np.int64(0), np.int64(len(ids))
    while low < high:
        middle = (low + high) >> 1
        if ids[middle, 0] < key:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _aborted_at(aborted, producer_id, offset):
    """The row of the aborted transaction that an offset of a producer belongs to, or -1."""
    found = np.int64(-1)
    low, high = _find(aborted, producer_id), np.int64(len(aborted))
    while low < high:  # the last one of this producer that begins at or before the offset
        middle = (low + high) >> 1
        if aborted[middle, 0] == producer_id and aborted[middle, 1] <= offset:
            found = middle
            low = middle + 1
        else:
            high = middle
    if found >= 0 and aborted[found, 2] >= offset:
        return found
    return np.int64(-1)


@inlined
def _take(seen, count, producer_id, kind):
    """Remove (producer, kind) from those seen; how many are left (one less where it was there)."""
    for i in range(count):
        if seen[i, 0] == producer_id and seen[i, 1] == kind:
            seen[i, 0] = seen[count - 1, 0]
            seen[i, 1] = seen[count - 1, 1]
            return count - 1
    return count


@compiled(BYTES_IN, TABLE_IN, TABLE_IN, INT, INT, TABLE_OUT, TABLE_OUT, INT64S_OUT)
def scan(data, aborted, last_of_producer, round_end, now_ms, seen, table, result):
    """Judge the whole batches in `data` by their headers (Kafka's CleanedTransactionMetadata and batch retention).

    `aborted` rows are (producer id, first offset, last offset), sorted; `last_of_producer` rows are (producer id,
    offset of its last data or -1, producer epoch), sorted by id. `seen` holds the (producer, kind) pairs of which
    a batch was met since the last marker; result[3] is how many, kept from call to call. result = status, rows,
    bytes looked at, seen.
    """
    rows = 0
    at = np.int64(0)
    seens = result[3]
    status = OK
    while len(data) - at >= HEADER_SIZE and rows < len(table):
        length = int32_at(data, at + 8)
        if data[at + 16] != 2:
            status = BAD_MAGIC
            break
        if length < MIN_LENGTH:
            status = BAD_LENGTH
            break
        if at + 12 + length > len(data):
            break
        if seens == len(seen):
            status = GROW
            break
        base_offset = int64_at(data, at)
        attributes = (np.int64(data[at + 21]) << 8) | np.int64(data[at + 22])
        last_offset = base_offset + int32_at(data, at + 23)
        base_timestamp = int64_at(data, at + 27)
        producer_id = int64_at(data, at + 43)
        producer_epoch = np.int64(np.int16((np.int64(data[at + 51]) << 8) | np.int64(data[at + 52])))
        count = int32_at(data, at + 57)
        is_control = (attributes & CONTROL_BIT) != 0
        discard = False
        aborted_row = np.int64(-1)
        if is_control:
            discard = True  # An empty control batch was cleaned before.
            if count > 0:
                if (attributes & COMPRESSION_BITS) != 0:
                    status = BAD_RECORD
                    break
                after, _, _, _, _, key, key_size, _ = _record(data, at + HEADER_SIZE, at + 12 + length)
                if after < 0 or key_size < 4:
                    status = BAD_RECORD
                    break
                kind = (np.int64(data[key + 2]) << 8) | np.int64(data[key + 3])
                if kind == 0:
                    left = _take(seen, seens, producer_id, OF_ABORTED)
                    if left < seens:
                        aborted_row = _aborted_at(aborted, producer_id, last_offset)
                        discard = False
                    seens = left
                elif kind == 1:
                    left = _take(seen, seens, producer_id, _OF_COMMITTED)
                    discard = left == seens
                    seens = left
                else:
                    discard = False
        elif (attributes & TRANSACTIONAL_BIT) != 0:
            discard = _aborted_at(aborted, producer_id, last_offset) >= 0
            of = OF_ABORTED if discard else _OF_COMMITTED
            known = False
            for i in range(seens):
                if seen[i, 0] == producer_id and seen[i, 1] == of:
                    known = True
                    break
            if not known:
                seen[seens, 0] = producer_id
                seen[seens, 1] = of
                seens += 1
        verdict = FILTER
        if is_control:
            expired = (attributes & DELETE_HORIZON_BIT) != 0 and base_timestamp <= now_ms
            verdict = DISCARD if discard and expired else KEEP
        elif discard:
            verdict = DISCARD
        keep_empty = last_offset + 1 == round_end
        if producer_id >= 0 and len(last_of_producer) > 0:
            row = _find(last_of_producer, producer_id)
            if row < len(last_of_producer) and last_of_producer[row, 0] == producer_id:
                if last_of_producer[row, 1] >= 0:
                    keep_empty |= last_of_producer[row, 1] == last_offset
                else:
                    keep_empty |= is_control and last_of_producer[row, 2] == producer_epoch
        table[rows, POSITION] = at
        table[rows, SIZE] = 12 + length
        table[rows, BASE_OFFSET] = base_offset
        table[rows, LAST_OFFSET] = last_offset
        table[rows, ATTRIBUTES] = attributes
        table[rows, BASE_TIMESTAMP] = base_timestamp
        table[rows, MAX_TIMESTAMP] = int64_at(data, at + 35)
        table[rows, COUNT] = count
        table[rows, VERDICT] = verdict
        table[rows, KEEP_EMPTY] = keep_empty
        table[rows, EMPTY_TRANSACTION] = discard and is_control
        table[rows, ABORTED] = aborted_row
        table[rows, UNPACKED] = 0
        table[rows, PAYLOAD] = at + HEADER_SIZE
        table[rows, PAYLOAD_END] = at + 12 + length
        rows += 1
        at += 12 + length
    result[0] = status
    result[1] = rows
    result[2] = at
    result[3] = seens


@compiled(
    BYTES_IN, BYTES_IN, TABLE_IN, INT, INT, types.uint64, types.uint64,
    _uint64s_out, _uint64s_out, INT64S_OUT, INT64S_OUT,
)  # fmt: skip
def index_keys(data, unpacked, table, start_offset, most, k0, k1, lows, highs, offsets, result):
    """Put the keys of records from `start_offset` on into the offset map, which takes `most` keys.

    result = status, row, keys in the map, latest offset; the last two are kept from call to call.
    """
    size = result[2]
    latest = result[3]
    result[0] = OK
    for row in range(len(table)):
        result[1] = row
        if table[row, VERDICT] == FILTER:
            source = unpacked if table[row, UNPACKED] else data
            at = table[row, PAYLOAD]
            end = table[row, PAYLOAD_END]
            for _ in range(table[row, COUNT]):
                at, _, _, _, offset_delta, key, key_size, _ = _record(source, at, end)
                if at < 0:
                    result[0] = BAD_RECORD
                    return
                offset = table[row, BASE_OFFSET] + offset_delta
                if key_size < 0 or offset < start_offset:
                    continue
                if size >= most:
                    result[0] = MAP_FULL
                    result[2] = size
                    result[3] = latest
                    return
                low, high = _siphash(source, key, key_size, k0, k1)
                slot = _slot(low, high, lows, highs, offsets)
                if offsets[slot] == 0:
                    size += 1
                    lows[slot] = low
                    highs[slot] = high
                offsets[slot] = offset + 1
                latest = offset
        if table[row, LAST_OFFSET] >= start_offset:
            latest = max(latest, table[row, LAST_OFFSET])
    result[2] = size
    result[3] = latest


@inlined
def _put_header(out, at, data, origin, size, attributes, base_timestamp, max_timestamp, count):
    """A batch header that keeps the place, epochs and sequence of the batch at `origin`, and has the right CRC."""
    copy_bytes(out, at, data, origin, np.int64(HEADER_SIZE))
    _put_int(out, at + 8, size - 12, 4)
    _put_int(out, at + 21, attributes, 2)
    _put_int(out, at + 27, base_timestamp, 8)
    _put_int(out, at + 35, max_timestamp, 8)
    _put_int(out, at + 57, np.int64(count), 4)
    _put_int(out, at + 17, _crc32c(out, at + CRC_START, at + size), 4)


@compiled(
    BYTES_IN, BYTES_IN, TABLE_IN, INT, INT, INT, types.uint64, types.uint64,
    _uint64s_out, _uint64s_out, INT64S_OUT, BYTES_OUT, BYTES_OUT, TABLE_OUT, INT64S_OUT,
)  # fmt: skip
def filter_batches(
    data, unpacked, table, latest_offset, now_ms, delete_retention_ms, k0, k1, lows, highs, offsets,
    keep, out, kept, result,
):  # fmt: skip
    """Write what stays of the batches in `table` to `out` (Kafka's shouldRetainRecord and filterTo).

    `keep` has room for the records of the largest batch. A row of `kept` with OUT_PACK holds the records alone,
    to be compressed and given a header by the caller. result = status, row, rows in `kept`, records that stay.
    """
    rows = 0
    out_at = np.int64(0)
    retained_in_all = 0
    result[0] = OK
    for row in range(len(table)):
        result[1] = row
        attributes = table[row, ATTRIBUTES]
        position = table[row, POSITION]
        count = table[row, COUNT]
        base_timestamp = table[row, BASE_TIMESTAMP]
        max_timestamp = table[row, MAX_TIMESTAMP]
        log_append_time = (attributes & LOG_APPEND_TIME_BIT) != 0
        has_horizon = (attributes & DELETE_HORIZON_BIT) != 0
        source = unpacked if table[row, UNPACKED] else data
        retained = 0
        tombstones = False
        first_timestamp = np.int64(-1)
        largest_timestamp = np.int64(-1)
        if table[row, VERDICT] != DISCARD:
            at = table[row, PAYLOAD]
            end = table[row, PAYLOAD_END]
            for number in range(count):
                at, _, timestamp_delta, _, offset_delta, key, key_size, value_size = _record(source, at, end)
                if at < 0:
                    result[0] = BAD_RECORD
                    return
                stays = True
                offset = table[row, BASE_OFFSET] + offset_delta
                if table[row, VERDICT] == FILTER and offset <= latest_offset:
                    if key_size < 0:
                        stays = False
                    else:
                        low, high = _siphash(source, key, key_size, k0, k1)
                        slot = _slot(low, high, lows, highs, offsets)
                        newest = offsets[slot] == 0 or offset >= offsets[slot] - 1
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
                result[0] = BAD_RECORD
                return
        if retained == 0:
            if table[row, KEEP_EMPTY]:
                kept[rows, OUT_START] = out_at
                flags = attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
                _put_header(out, out_at, data, position, np.int64(HEADER_SIZE), flags, np.int64(-1), max_timestamp, 0)
                out_at += HEADER_SIZE
                kept[rows, OUT_END] = out_at
                kept[rows, OUT_ROW] = row
                kept[rows, OUT_COUNT] = 0
                kept[rows, OUT_MAX_TIMESTAMP] = max_timestamp
                kept[rows, OUT_PACK] = 0
                rows += 1
            continue
        retained_in_all += retained
        new_horizon = (tombstones or table[row, EMPTY_TRANSACTION] != 0) and not has_horizon
        kept[rows, OUT_START] = out_at
        kept[rows, OUT_ROW] = row
        kept[rows, OUT_COUNT] = retained
        kept[rows, OUT_PACK] = 0
        kept[rows, OUT_MAX_TIMESTAMP] = max_timestamp
        if retained == count and not new_horizon:
            copy_bytes(out, out_at, data, position, table[row, SIZE])
            out_at += table[row, SIZE]
            kept[rows, OUT_END] = out_at
            rows += 1
            continue
        # A batch that gets a new CRC must have had the right one: nothing damaged may pass for whole.
        crc = _crc32c(data, position + CRC_START, position + table[row, SIZE])
        if crc != (int32_at(data, position + 17) & 0xFFFFFFFF):
            result[0] = BAD_CRC
            return
        new_base = first_timestamp
        if has_horizon:
            new_base = base_timestamp
        elif new_horizon:
            new_base = now_ms + delete_retention_ms
        packs = (attributes & COMPRESSION_BITS) != 0
        if not packs:
            out_at += HEADER_SIZE
        at = table[row, PAYLOAD]
        end = table[row, PAYLOAD_END]
        for number in range(count):
            start = at
            at, delta_at, timestamp_delta, rest, _, _, _, _ = _record(source, at, end)
            if not keep[number]:
                continue
            if new_base == base_timestamp or log_append_time:
                copy_bytes(out, out_at, source, start, at - start)
                out_at += at - start
                continue
            delta = base_timestamp + timestamp_delta - new_base
            out_at = put_varlong(out, out_at, 1 + varlong_size(delta) + at - rest)
            out[out_at] = source[delta_at - 1]
            out_at = put_varlong(out, out_at + 1, delta)
            copy_bytes(out, out_at, source, rest, at - rest)
            out_at += at - rest
        kept[rows, OUT_END] = out_at
        kept[rows, OUT_BASE_TIMESTAMP] = new_base
        kept[rows, OUT_MAX_TIMESTAMP] = max_timestamp if log_append_time else largest_timestamp
        kept[rows, OUT_HORIZON] = has_horizon or new_horizon
        kept[rows, OUT_PACK] = packs
        if not packs:
            flags = attributes | (DELETE_HORIZON_BIT if new_horizon else 0)
            start = kept[rows, OUT_START]
            _put_header(
                out, start, data, position, out_at - start, flags, new_base, kept[rows, OUT_MAX_TIMESTAMP], retained
            )  # fmt: skip
        rows += 1
    result[2] = rows
    result[3] = retained_in_all


@compiled(TABLE_IN, INT, INT, TABLE_OUT, TABLE_OUT, INT64S_OUT)
def index_batches(batches, base_offset, interval_bytes, offset_entries, time_entries, state):
    """The index entries of batches written one after another; rows are (size, last offset, largest timestamp).

    state = file position, bytes since the last entry, largest timestamp, its offset, time of the last time entry,
    rows in `offset_entries`, rows in `time_entries`; all but the last two are kept from call to call.
    """
    position = state[0]
    offset_rows = 0
    time_rows = 0
    for row in range(len(batches)):
        size = batches[row, 0]
        if batches[row, 2] > state[2]:
            state[2] = batches[row, 2]
            state[3] = batches[row, 1]
        if state[1] > interval_bytes:
            offset_entries[offset_rows, 0] = batches[row, 1] - base_offset
            offset_entries[offset_rows, 1] = position
            offset_rows += 1
            if state[2] > state[4]:
                time_entries[time_rows, 0] = state[2]
                time_entries[time_rows, 1] = state[3] - base_offset
                time_rows += 1
                state[4] = state[2]
            state[1] = 0
        state[1] += size
        position += size
    state[0] = position
    state[5] = offset_rows
    state[6] = time_rows
