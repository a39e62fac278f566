"""The compiled loops of `columnar`: varints in and out, without a Python object per record.

Always true: no kernel reads or writes outside the arrays it is given, whatever the bytes say. Every
length is compared with the end of what encloses it (record, batch, buffer) before it is followed; compiled
code has no other bounds check. A kernel answers with a status, never with an exception.

Every signature is written out, so there is one compiled form of each kernel, it is loaded from the disk cache
when this module is imported, and nothing compiles in the middle of a query. Inputs are therefore always
read-only arrays. All kernels stay in this one file: numba's cache notices a change in the file a kernel is
in, but not in another file that it calls into.

A bitmap is Arrow's validity bitmap (least significant bit first, 1 = not null).
"""

from __future__ import annotations

import numpy as np

from suiro.protocol.compiling import (
    BOOL,
    BYTES_IN,
    BYTES_OUT,
    COLUMN,
    COLUMN_OUT,
    INT,
    INT32S_IN,
    INT32S_OUT,
    INT64S_IN,
    INT64S_OUT,
    TABLE_IN,
    TABLE_OUT,
    compiled,
    copy_bytes,
    inlined,
)
from suiro.protocol.kernel_numbers import int32_at, int64_at, put_varlong, varlong, varlong_size
from suiro.protocol.record_batch import HEADER_SIZE, MIN_LENGTH, MIN_RECORD_SIZE

# Statuses.
OK, BAD_MAGIC, BAD_LENGTH, COMPRESSED_CONTROL, BAD_RECORD, LEFT_OVER = range(6)

# Columns of the batch table that `scan_batches` fills: one row per batch that holds wanted records.
START, END, BASE_OFFSET, BASE_TIMESTAMP, MAX_TIMESTAMP, ATTRIBUTES, COUNT, BATCH_COLUMNS = range(8)

# Columns of the table that `write_batches` fills: one row per batch written.
OUT_PARTITION, OUT_START, OUT_END, OUT_COUNT, OUT_BASE_TIMESTAMP, OUT_MAX_TIMESTAMP, OUT_COLUMNS = range(7)

MAX_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 5  # everything in a record but key, value and headers
MAX_HEADER_OVERHEAD = 5 + 5


@inlined
def _varint(data, at, end):
    """(value, next place); the place is -1 where the number is torn or longer than 32 bits can be."""
    value = np.int64(0)
    shift = np.int64(0)
    while True:
        if at >= end or shift >= 35:
            return np.int64(0), np.int64(-1)
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), at


@inlined
def _skip_bytes(data, at, end):
    """(start, size, next place) of a length-prefixed field; a size below 0 is null."""
    size, at = _varint(data, at, end)
    if at < 0 or size > end - at:
        return np.int64(0), np.int64(0), np.int64(-1)
    if size < 0:
        return at, np.int64(-1), at
    return at, size, at + size


@inlined
def _skip_headers(data, at, end):
    """(headers, bytes of their names, bytes of their values, next place) of a record's headers."""
    count, at = _varint(data, at, end)
    name_bytes = np.int64(0)
    value_bytes = np.int64(0)
    if at < 0 or count < 0 or count > end - at:
        return np.int64(0), name_bytes, value_bytes, np.int64(-1)
    for _ in range(count):
        _, size, at = _skip_bytes(data, at, end)
        if at < 0 or size < 0:
            return np.int64(0), name_bytes, value_bytes, np.int64(-1)
        name_bytes += size
        _, size, at = _skip_bytes(data, at, end)
        if at < 0:
            return np.int64(0), name_bytes, value_bytes, np.int64(-1)
        value_bytes += max(size, 0)
    return count, name_bytes, value_bytes, at


@inlined
def _is_abort_marker(data, at, end):
    """Whether the control record at `at` says abort: key = version i16, type i16 (0 abort, 1 commit)."""
    size, at = _varint(data, at, end)
    if at < 0 or size < 1 or size > end - at:
        return False
    _, at = varlong(data, at + 1, end)
    if at < 0:
        return False
    _, at = _varint(data, at, end)
    if at < 0:
        return False
    key, key_size, at = _skip_bytes(data, at, end)
    return at >= 0 and key_size >= 4 and data[key + 2] == 0 and data[key + 3] == 0


@compiled(BYTES_IN, INT, INT, INT64S_IN, INT64S_IN, BOOL, TABLE_OUT, INT64S_OUT)
def scan_batches(data, start_offset, end_offset, aborted_ids, aborted_offsets, read_committed, table, result):
    """Find the batches with records in [start_offset, end_offset) that a reader may see.

    `aborted_*` come sorted by offset; they hold for this response only (KIP-98; Kafka's CompletedFetch): a
    producer's transactional batches are left out from its aborted transaction's first offset on until its
    abort marker. Control batches are never listed. result = status, rows in `table`, next offset, place.
    """
    rows = 0
    at = np.int64(0)
    next_offset = start_offset
    active = np.empty(len(aborted_ids), np.int64)
    actives = 0
    pending = 0
    status = OK
    while len(data) - at >= HEADER_SIZE:
        base_offset = int64_at(data, at)
        length = int32_at(data, at + 8)
        if data[at + 16] != 2:
            status = BAD_MAGIC
            break
        if length < MIN_LENGTH:
            status = BAD_LENGTH
            break
        end = at + 12 + length
        if end > len(data):
            break  # a torn tail: brokers cut responses by bytes
        if base_offset >= end_offset:
            next_offset = end_offset
            break
        attributes = (np.int64(data[at + 21]) << 8) | np.int64(data[at + 22])
        last_offset = base_offset + int32_at(data, at + 23)
        if last_offset < base_offset:  # a batch that ends before it begins would be passed over in silence
            status = BAD_RECORD
            break
        producer_id = int64_at(data, at + 43)
        is_control = (attributes & 0x20) != 0
        wanted = not is_control
        if read_committed and producer_id >= 0:
            while pending < len(aborted_ids) and aborted_offsets[pending] <= last_offset:
                active[actives] = aborted_ids[pending]
                actives += 1
                pending += 1
            is_abort = False
            if is_control:
                if (attributes & 7) != 0:
                    status = COMPRESSED_CONTROL
                    break
                is_abort = _is_abort_marker(data, at + HEADER_SIZE, end)
            if is_abort:
                kept = 0
                for i in range(actives):
                    if active[i] != producer_id:
                        active[kept] = active[i]
                        kept += 1
                actives = kept
            elif (attributes & 0x10) != 0:
                for i in range(actives):
                    if active[i] == producer_id:
                        wanted = False
        if wanted and last_offset >= start_offset:
            table[rows, START] = at + HEADER_SIZE
            table[rows, END] = end
            table[rows, BASE_OFFSET] = base_offset
            table[rows, BASE_TIMESTAMP] = int64_at(data, at + 27)
            table[rows, MAX_TIMESTAMP] = int64_at(data, at + 35)
            table[rows, ATTRIBUTES] = attributes
            table[rows, COUNT] = int32_at(data, at + 57)
            rows += 1
        next_offset = max(next_offset, min(last_offset + 1, end_offset))
        at = end
    result[0] = status
    result[1] = rows
    result[2] = next_offset
    result[3] = at


@compiled(BYTES_IN, TABLE_IN, INT, INT, INT64S_OUT, INT64S_OUT, *COLUMN_OUT, *COLUMN_OUT, INT64S_OUT, INT64S_OUT)
def read_records(
    data, table, start_offset, end_offset, offsets, timestamps, key_offsets, key_data, key_bitmap,
    value_offsets, value_data, value_bitmap, header_places, result,
):  # fmt: skip
    """Copy every record of the batches in `table` with start_offset <= offset < end_offset into columns.

    `key_data` and `value_data` have room for all payload bytes, the other columns for all records that the
    batches claim; `data[START:END]` of a row is the batch's payload, decompressed. Bitmaps come filled with
    ones. header_places[i] is where record i's header count stands.
    result = status, row of the table (on error), records, null keys, null values, headers, bytes of their
    names, bytes of their values.
    """
    rows = np.int64(0)
    key_at = np.int64(0)
    value_at = np.int64(0)
    null_keys = 0
    null_values = 0
    headers = np.int64(0)
    header_name_bytes = np.int64(0)
    header_value_bytes = np.int64(0)
    key_offsets[0] = 0
    value_offsets[0] = 0
    result[0] = BAD_RECORD  # unless the loop ends
    for batch in range(len(table)):
        at = table[batch, START]
        batch_end = table[batch, END]
        base_offset = table[batch, BASE_OFFSET]
        base_timestamp = table[batch, BASE_TIMESTAMP]
        max_timestamp = table[batch, MAX_TIMESTAMP]
        log_append_time = (table[batch, ATTRIBUTES] & 8) != 0
        result[1] = batch
        for _ in range(table[batch, COUNT]):
            size, at = _varint(data, at, batch_end)
            if at < 0 or size < 1 or size > batch_end - at:
                return
            end = at + size
            timestamp_delta, at = varlong(data, at + 1, end)
            if at < 0:
                return
            offset_delta, at = _varint(data, at, end)
            if at < 0:
                return
            key, key_size, at = _skip_bytes(data, at, end)
            if at < 0:
                return
            value, value_size, at = _skip_bytes(data, at, end)
            if at < 0:
                return
            header_place = at
            record_headers, name_bytes, header_bytes, at = _skip_headers(data, at, end)
            if at != end:
                return
            offset = base_offset + offset_delta
            if offset < start_offset or offset >= end_offset:
                continue
            offsets[rows] = offset
            timestamps[rows] = max_timestamp if log_append_time else base_timestamp + timestamp_delta
            if key_size < 0:
                key_bitmap[rows >> 3] &= ~(1 << (rows & 7))
                null_keys += 1
            else:
                copy_bytes(key_data, key_at, data, key, key_size)
                key_at += key_size
            if value_size < 0:
                value_bitmap[rows >> 3] &= ~(1 << (rows & 7))
                null_values += 1
            else:
                copy_bytes(value_data, value_at, data, value, value_size)
                value_at += value_size
            header_places[rows] = header_place
            headers += record_headers
            header_name_bytes += name_bytes
            header_value_bytes += header_bytes
            rows += 1
            key_offsets[rows] = key_at
            value_offsets[rows] = value_at
        if at != batch_end:
            result[0] = LEFT_OVER
            return
    result[0] = OK
    result[2] = rows
    result[3] = null_keys
    result[4] = null_values
    result[5] = headers
    result[6] = header_name_bytes
    result[7] = header_value_bytes


@compiled(BYTES_IN, INT64S_IN, INT32S_OUT, INT32S_OUT, BYTES_OUT, *COLUMN_OUT, INT64S_OUT)
def read_headers(data, places, list_offsets, name_offsets, names, value_offsets, values, value_bitmap, result):
    """Copy the headers of records that `read_records` has checked. result = null values, names all ASCII."""
    rows = np.int64(0)
    name_at = np.int64(0)
    value_at = np.int64(0)
    nulls = 0
    high_bits = np.uint8(0)
    list_offsets[0] = 0
    name_offsets[0] = 0
    value_offsets[0] = 0
    end = np.int64(len(data))
    for record in range(len(places)):
        count, at = _varint(data, places[record], end)
        for _ in range(count):
            name, size, at = _skip_bytes(data, at, end)
            for i in range(size):
                byte = data[name + i]
                names[name_at + i] = byte
                high_bits |= byte
            name_at += size
            value, size, at = _skip_bytes(data, at, end)
            if size < 0:
                value_bitmap[rows >> 3] &= ~(1 << (rows & 7))
                nulls += 1
            else:
                copy_bytes(values, value_at, data, value, size)
                value_at += size
            rows += 1
            name_offsets[rows] = name_at
            value_offsets[rows] = value_at
        list_offsets[record + 1] = rows
    result[0] = nulls
    result[1] = 1 if high_bits < 0x80 else 0


@inlined
def _is_null(bitmap, first_bit, has_nulls, row):
    if not has_nulls:
        return False
    bit = first_bit + row
    return (bitmap[bit >> 3] >> (bit & 7)) & 1 == 0


@inlined
def _field_size(size):
    return varlong_size(size) + max(size, 0)


@inlined
def _put_field(out, at, source, start, size):
    at = put_varlong(out, at, size)
    if size > 0:
        copy_bytes(out, at, source, start, size)
        at += size
    return at


@compiled(BYTES_IN, BOOL, INT, INT, INT, INT, INT, INT64S_OUT)
def find_by_time(data, is_last, left, base_offset, base_timestamp, timestamp, from_offset, result):
    """Go over `left` records of a batch, as far as they begin in this part of it, until one is late enough.

    A record that only begins here is passed over by its size; one whose first fields may be cut is left for the next
    part, unless this is the last one. result = status, whether one is found, records left, where the next record
    begins (it may be behind the end), offset, timestamp.
    """
    size_of_part = len(data)
    at = np.int64(0)
    result[0] = BAD_RECORD  # unless the loop ends
    result[1] = 0
    while left > 0 and at < size_of_part:
        if size_of_part - at < MAX_RECORD_OVERHEAD and not is_last:
            break
        size, place = _varint(data, at, size_of_part)
        if place < 0 or size < MIN_RECORD_SIZE - 1:
            return
        end = place + size
        timestamp_delta, place = varlong(data, place + 1, size_of_part)
        if place < 0:
            return
        offset_delta, place = _varint(data, place, size_of_part)
        if place < 0 or place > end:
            return
        left -= 1
        at = end
        if base_timestamp + timestamp_delta >= timestamp and base_offset + offset_delta >= from_offset:
            result[1] = 1
            result[4] = base_offset + offset_delta
            result[5] = base_timestamp + timestamp_delta
            break
    result[0] = OK
    result[2] = left
    result[3] = at


@compiled(BYTES_IN, INT, BOOL, INT, BOOL, INT, INT, INT, TABLE_OUT, INT64S_OUT)
def check_records(data, count, keyed, base_timestamp, log_append_time, max_timestamp, earliest, latest, table, result):
    """Whether `data` is `count` whole records, and which of them have no key (if they must be `keyed`) or a timestamp
    outside of earliest..latest; one below 0 is none, and passes.

    table[row] = place, timestamp, whether the key is missing, whether it is misdated; of the first ones that fit.
    result = status, records to blame.
    """
    # `read_records` would copy all bytes, and takes twice as long with a function for both loops.
    end_of_all = len(data)
    at = np.int64(0)
    blamed = 0
    result[0] = BAD_RECORD
    result[1] = 0
    for number in range(count):
        size, at = _varint(data, at, end_of_all)
        if at < 0 or size < MIN_RECORD_SIZE - 1 or size > end_of_all - at:
            return
        end = at + size
        timestamp_delta, at = varlong(data, at + 1, end)
        if at < 0:
            return
        _, at = _varint(data, at, end)
        if at < 0:
            return
        _, key_size, at = _skip_bytes(data, at, end)
        if at < 0:
            return
        _, _, at = _skip_bytes(data, at, end)
        if at < 0:
            return
        _, _, _, at = _skip_headers(data, at, end)
        if at != end:
            return
        timestamp = max_timestamp if log_append_time else base_timestamp + timestamp_delta
        keyless = keyed and key_size < 0
        misdated = timestamp >= 0 and (timestamp < earliest or timestamp > latest)
        if keyless or misdated:
            if blamed < len(table):
                table[blamed, 0] = number
                table[blamed, 1] = timestamp
                table[blamed, 2] = keyless
                table[blamed, 3] = misdated
            blamed += 1
    result[0] = OK if at == end_of_all else LEFT_OVER
    result[1] = blamed


@compiled(INT32S_IN, INT32S_IN, INT32S_IN, INT32S_IN, BOOL, INT32S_IN, INT32S_IN, INT64S_OUT, INT64S_OUT)
def measure_partitions(
    partitions, key_offsets, value_offsets, list_offsets, has_headers, name_offsets, header_offsets, counts, sizes
):  # fmt: skip
    """Add up each partition's rows and the most bytes their records can take. False: a partition is none."""
    for row in range(len(partitions)):
        partition = np.int64(partitions[row])
        if partition < 0 or partition >= len(counts):
            return False
        size = np.int64(MAX_RECORD_OVERHEAD)
        size += np.int64(key_offsets[row + 1]) - np.int64(key_offsets[row])
        size += np.int64(value_offsets[row + 1]) - np.int64(value_offsets[row])
        if has_headers:
            first = np.int64(list_offsets[row])
            last = np.int64(list_offsets[row + 1])
            size += (last - first) * MAX_HEADER_OVERHEAD
            size += np.int64(name_offsets[last]) - np.int64(name_offsets[first])
            size += np.int64(header_offsets[last]) - np.int64(header_offsets[first])
        counts[partition] += 1
        sizes[partition] += size
    return True


@compiled(
    INT32S_IN, INT64S_IN, *COLUMN, *COLUMN, INT32S_IN, BOOL, *COLUMN[:2], *COLUMN,
    INT, INT64S_IN, BYTES_OUT, TABLE_OUT,
)  # fmt: skip
def write_batches(
    partitions, timestamps,
    key_offsets, keys, key_bitmap, key_first_bit, key_nulls,
    value_offsets, values, value_bitmap, value_first_bit, value_nulls,
    list_offsets, has_headers, name_offsets, names,
    header_offsets, header_values, header_bitmap, header_first_bit, header_nulls,
    max_batch_bytes, places, out, table,
):  # fmt: skip
    """Write every row as a record into its partition's region of `out`, which starts at places[partition].

    The rows are read in their own order and the regions grow side by side: reading row after row is three
    times as fast as collecting each partition's rows from all over the columns.
    61 bytes are left free before each batch's records for its header. A record larger than max_batch_bytes
    gets a batch of its own. The regions and `table` have room for the largest outcome. Returns the number of
    batches in `table`; one partition's stand in order there, but mixed with the others'.
    """
    batches = np.int64(0)
    # What is open per partition: its batch's row of the table (-1: none) and the place to write at.
    open_batches = np.full(len(places), -1, np.int64)
    ends = places.copy()
    for row in range(len(partitions)):
        partition = np.int64(partitions[row])
        key_start = np.int64(key_offsets[row])
        key_size = np.int64(key_offsets[row + 1]) - key_start
        if _is_null(key_bitmap, key_first_bit, key_nulls, row):
            key_size = np.int64(-1)
        value_start = np.int64(value_offsets[row])
        value_size = np.int64(value_offsets[row + 1]) - value_start
        if _is_null(value_bitmap, value_first_bit, value_nulls, row):
            value_size = np.int64(-1)
        fixed = 1 + _field_size(key_size) + _field_size(value_size)
        first_header = np.int64(0)
        last_header = np.int64(0)
        if has_headers:
            first_header = np.int64(list_offsets[row])
            last_header = np.int64(list_offsets[row + 1])
            for header in range(first_header, last_header):
                fixed += _field_size(np.int64(name_offsets[header + 1]) - np.int64(name_offsets[header]))
                if _is_null(header_bitmap, header_first_bit, header_nulls, header):
                    fixed += 1
                else:
                    fixed += _field_size(np.int64(header_offsets[header + 1]) - np.int64(header_offsets[header]))
        fixed += varlong_size(last_header - first_header)
        timestamp = timestamps[row]
        at = ends[partition]
        batch = open_batches[partition]
        if batch >= 0:
            count = table[batch, OUT_COUNT]
            timestamp_delta = timestamp - table[batch, OUT_BASE_TIMESTAMP]
            size = fixed + varlong_size(timestamp_delta) + varlong_size(count)
            if at - table[batch, OUT_START] + size + varlong_size(size) > max_batch_bytes:
                table[batch, OUT_END] = at
                batch = np.int64(-1)
        if batch < 0:
            batch = batches
            batches += 1
            open_batches[partition] = batch
            count = np.int64(0)
            timestamp_delta = np.int64(0)
            size = fixed + 2
            table[batch, OUT_PARTITION] = partition
            table[batch, OUT_START] = at
            table[batch, OUT_BASE_TIMESTAMP] = timestamp
            table[batch, OUT_MAX_TIMESTAMP] = timestamp
            at += HEADER_SIZE
        at = put_varlong(out, at, size)
        out[at] = 0
        at = put_varlong(out, at + 1, timestamp_delta)
        at = put_varlong(out, at, count)
        at = _put_field(out, at, keys, key_start, key_size)
        at = _put_field(out, at, values, value_start, value_size)
        at = put_varlong(out, at, last_header - first_header)
        for header in range(first_header, last_header):
            start = np.int64(name_offsets[header])
            at = _put_field(out, at, names, start, np.int64(name_offsets[header + 1]) - start)
            start = np.int64(header_offsets[header])
            if _is_null(header_bitmap, header_first_bit, header_nulls, header):
                at = put_varlong(out, at, np.int64(-1))
            else:
                at = _put_field(out, at, header_values, start, np.int64(header_offsets[header + 1]) - start)
        ends[partition] = at
        table[batch, OUT_COUNT] = count + 1
        table[batch, OUT_MAX_TIMESTAMP] = max(table[batch, OUT_MAX_TIMESTAMP], timestamp)
    for partition in range(len(places)):
        if open_batches[partition] >= 0:
            table[open_batches[partition], OUT_END] = ends[partition]
    return batches


@compiled(*COLUMN, INT, INT32S_OUT)
def hash_keys(offsets, data, bitmap, first_bit, has_nulls, num_partitions, partitions):
    """Kafka's murmur2 of every key, made positive, modulo the partitions; -1 for null keys."""
    m = np.uint32(0x5BD1E995)
    for row in range(len(partitions)):
        if _is_null(bitmap, first_bit, has_nulls, row):
            partitions[row] = -1
            continue
        at = np.int64(offsets[row])
        end = np.int64(offsets[row + 1])
        h = np.uint32(0x9747B28C) ^ np.uint32(end - at)
        while end - at >= 4:
            k = (
                np.uint32(data[at])
                | (np.uint32(data[at + 1]) << np.uint32(8))
                | (np.uint32(data[at + 2]) << np.uint32(16))
                | (np.uint32(data[at + 3]) << np.uint32(24))
            )
            k = np.uint32(k * m)
            k ^= k >> np.uint32(24)
            h = np.uint32(np.uint32(h * m) ^ np.uint32(k * m))
            at += 4
        if at < end:
            tail = np.uint32(0)
            shift = np.uint32(0)
            while at < end:
                tail |= np.uint32(data[at]) << shift
                shift += np.uint32(8)
                at += 1
            h = np.uint32((h ^ tail) * m)
        h ^= h >> np.uint32(13)
        h = np.uint32(h * m)
        h ^= h >> np.uint32(15)
        partitions[row] = np.int64(h & np.uint32(0x7FFFFFFF)) % num_partitions
