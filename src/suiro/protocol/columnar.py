"""Converts record batches to Arrow columns and back, compiled. Used by the Spark source and sink.

`decode` turns a fetch response into columns and leaves out what a reader must not see; `encode` turns columns
into batches per partition; `partitions_of` says where keys belong. The work per record is done in `kernels`;
here is only what happens once per call or per batch. `records` does the same slowly, and the tests compare.

Importing this module loads the compiled kernels from numba's disk cache (0.15 s). Where there is none yet they
are compiled (4 s), into `__pycache__` beside `kernels.py` or, if that cannot be written, into the user's cache
folder. `suiro prepare` does that once for all kernels; who starts many processes without it imports this first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.errors import CorruptRecordError, UsageError
from suiro.protocol import kernels
from suiro.protocol.compression import NONE, compress, decompress
from suiro.protocol.crc32c import BytesLike, crc32c
from suiro.protocol.record_batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MIN_RECORD_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    pack_header,
    read_header,
    verify,
)

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

DEFAULT_MAX_BATCH_BYTES = 1_000_000
"""Under Kafka's default `max.message.bytes` (1,048,588), also where compression makes data larger."""

MAX_DECODED_BYTES = 1 << 30
"""One `decode` unpacks no more than this (and at least one batch); its next offset says where to go on."""

_MAX_BATCH_SIZE = (1 << 31) - 1

_Bytes = npt.NDArray[np.uint8]
_Int32s = npt.NDArray[np.int32]
_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DecodedRange:
    """What a reader may see of one fetch response.

    `batch` has the columns key, value (binary), offset, timestamp (int64; milliseconds since the epoch) and,
    when asked for, headers. `next_offset` is where to fetch next; it moves on over offsets without records.
    It equals the start offset only if the response held no whole batch.
    """

    batch: pa.RecordBatch
    next_offset: int


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One batch for one partition, without a producer yet (`record_batch.with_producer` gives it one).

    `crc_tail` is the CRC of `data[61:]`, so that the new header's CRC needs no look at the records.
    """

    partition: int
    data: bytes
    count: int
    max_timestamp: int
    crc_tail: int


def decode(
    buf: BytesLike,
    *,
    start_offset: int,
    end_offset: int,
    aborted: Sequence[tuple[int, int]] = (),
    read_committed: bool = True,
    headers: bool = False,
    check_crc: bool = True,
) -> DecodedRange:
    """The records of a fetch response with start_offset <= offset < end_offset, as Arrow columns.

    `buf` holds whole batches, then perhaps a torn one, which is ignored. `aborted` is the response's list of
    (producer id, first offset) and belongs to this response alone. Control batches never come out; aborted
    batches do only with `read_committed=False`. Raises `CorruptRecordError` for anything that is not batches.
    """
    data = _read_only(np.frombuffer(buf, dtype=np.uint8))
    table, next_offset = _scan(data, start_offset, end_offset, aborted, read_committed)
    if check_crc:
        _check_crcs(buf, data, table)
    data, table, stopped_at = _payloads(data, table)
    if stopped_at is not None:
        next_offset = max(start_offset, stopped_at)
    return DecodedRange(_columns(data, table, start_offset, end_offset, headers), next_offset)


def _scan(
    data: _Bytes, start_offset: int, end_offset: int, aborted: Sequence[tuple[int, int]], read_committed: bool
) -> tuple[_Int64s, int]:
    by_offset = sorted(aborted, key=lambda transaction: transaction[1])
    transactions = np.array(by_offset, dtype=np.int64).reshape(-1, 2).T.copy()
    table = np.empty((len(data) // HEADER_SIZE, kernels.BATCH_COLUMNS), np.int64)
    result = np.zeros(4, np.int64)
    kernels.scan_batches(
        data,
        start_offset,
        end_offset,
        _read_only(transactions[0]),
        _read_only(transactions[1]),
        read_committed,
        table,
        result,
    )
    status, rows, next_offset, place = result.tolist()
    if status in (kernels.BAD_MAGIC, kernels.BAD_LENGTH):
        read_header(data.data, place)  # says what is wrong
    if status == kernels.BAD_RECORD:
        raise CorruptRecordError(f"the batch at byte {place} ends before it begins")
    if status == kernels.COMPRESSED_CONTROL:
        raise CorruptRecordError(f"the control batch at byte {place} is compressed, which no Kafka broker writes")
    return table[:rows], next_offset


def _check_crcs(buf: BytesLike, data: _Bytes, table: _Int64s) -> None:
    """Of batches that stand whole in the buffer. A small batch takes less time than `verify` would need for it."""
    heads = table[:, kernels.START] - HEADER_SIZE
    told = data[heads[:, np.newaxis] + np.arange(CRC_START - 4, CRC_START)].view(">u4").ravel()
    whole = memoryview(buf)
    for head, end, crc in zip(heads.tolist(), table[:, kernels.END].tolist(), told.tolist(), strict=True):
        if crc32c(whole[head + CRC_START : end]) != crc:
            verify(buf, head, read_header(buf, head))


def _payloads(data: _Bytes, table: _Int64s) -> tuple[_Bytes, _Int64s, int | None]:
    """The buffer and table to read records from, and the offset of the first batch left for another call."""
    codecs = table[:, kernels.ATTRIBUTES] & 7
    if not codecs.any():
        sizes = np.cumsum(table[:, kernels.END] - table[:, kernels.START])
        fit = max(1, int(np.searchsorted(sizes, MAX_DECODED_BYTES, side="right")))
    else:
        data, table, fit = _unpacked(data, table, codecs)
    sizes = table[:fit, kernels.END] - table[:fit, kernels.START]
    counts = table[:fit, kernels.COUNT]
    lying = (counts < 0) | (counts * MIN_RECORD_SIZE > sizes)
    if lying.any():
        row = int(np.argmax(lying))
        raise CorruptRecordError(
            f"the batch at offset {table[row, kernels.BASE_OFFSET]} claims {counts[row]} records in {sizes[row]} bytes"
        )
    stopped_at = int(table[fit, kernels.BASE_OFFSET]) if fit < len(table) else None
    return data, table[:fit], stopped_at


def _unpacked(data: _Bytes, table: _Int64s, codecs: _Int64s) -> tuple[_Bytes, _Int64s, int]:
    """All payloads decompressed, one after another in one new buffer."""
    parts: list[BytesLike] = []
    table = table.copy()
    size = 0
    fit = len(table)
    places = table[:, [kernels.START, kernels.END]].tolist()
    for row, (codec, (start, end)) in enumerate(zip(codecs.tolist(), places, strict=True)):
        payload: BytesLike = data[start:end].data
        if codec != NONE:
            payload = decompress(codec, payload)
        if row and size + len(payload) > MAX_DECODED_BYTES:
            fit = row
            break
        table[row, kernels.START] = size
        size += len(payload)
        table[row, kernels.END] = size
        parts.append(payload)
    return _read_only(np.frombuffer(b"".join(parts), dtype=np.uint8)), table, fit


def _columns(data: _Bytes, table: _Int64s, start_offset: int, end_offset: int, headers: bool) -> pa.RecordBatch:
    claimed = int(table[:, kernels.COUNT].sum())
    size = int((table[:, kernels.END] - table[:, kernels.START]).sum())
    offsets = np.empty(claimed, np.int64)
    timestamps = np.empty(claimed, np.int64)
    # Both take the size of all bytes, for any share may be keys; pages never written to cost no memory.
    keys = _BinaryOut(claimed, size)
    values = _BinaryOut(claimed, size)
    places = np.empty(claimed, np.int64)
    result = np.zeros(8, np.int64)
    kernels.read_records(
        data,
        _read_only(table),
        start_offset,
        end_offset,
        offsets,
        timestamps,
        *keys.arguments,
        *values.arguments,
        places,
        result,
    )
    status, row, rows, null_keys, null_values, header_count, name_bytes, header_bytes = result.tolist()
    if status != kernels.OK:
        what = "bytes left over" if status == kernels.LEFT_OVER else "a record whose lengths do not fit"
        raise CorruptRecordError(f"the batch at offset {table[row, kernels.BASE_OFFSET]} is corrupt: it has {what}")
    columns = {
        "key": keys.array(rows, null_keys),
        "value": values.array(rows, null_values),
        "offset": _int64_column(offsets[:rows]),
        "timestamp": _int64_column(timestamps[:rows]),
    }
    if headers:
        columns["headers"] = _headers(data, places[:rows], header_count, name_bytes, header_bytes)
    return pa.RecordBatch.from_pydict(columns)


def _headers(data: _Bytes, places: _Int64s, count: int, name_bytes: int, value_bytes: int) -> pa.Array:
    list_offsets = np.empty(len(places) + 1, np.int32)
    names = _BinaryOut(count, name_bytes)
    values = _BinaryOut(count, value_bytes)
    result = np.zeros(2, np.int64)
    kernels.read_headers(
        data,
        _read_only(places),
        list_offsets,
        names.offsets,
        names.data,
        *values.arguments,
        result,
    )
    null_values, all_ascii = result.tolist()
    name_array = names.array(count, 0)
    if all_ascii:
        name_array = name_array.view(pa.string())
    else:
        try:
            name_array = name_array.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8: read as Java does, see `records`
            decoded = [name.decode(errors="replace") for name in name_array.to_pylist()]
            name_array = pa.array(decoded, pa.string())
    structs = pa.StructArray.from_arrays(
        [name_array, values.array(count, null_values)], fields=list(HEADERS_TYPE.value_type)
    )
    return pa.Array.from_buffers(HEADERS_TYPE, len(places), [None, pa.py_buffer(list_offsets)], children=[structs])


def _int64_column(values: _Int64s) -> pa.Array:
    """As `pa.array(values)`, which imports pandas first: seconds, in a process that has no other use for it."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


class _BinaryOut:
    """A binary column that a kernel fills."""

    __slots__ = ("bitmap", "data", "offsets")

    def __init__(self, rows: int, size: int) -> None:
        self.offsets = np.zeros(1, np.int32) if rows == 0 else np.empty(rows + 1, np.int32)
        self.data = np.empty(size, np.uint8)
        self.bitmap = np.full((rows + 7) // 8, 0xFF, np.uint8)

    @property
    def arguments(self) -> tuple[_Int32s, _Bytes, _Bytes]:
        return self.offsets, self.data, self.bitmap

    def array(self, rows: int, nulls: int) -> pa.Array:
        used = self.data[: int(self.offsets[rows])]
        bitmap = pa.py_buffer(self.bitmap) if nulls else None
        buffers = [bitmap, pa.py_buffer(self.offsets), pa.py_buffer(used)]
        return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count=nulls)


def encode(
    *,
    keys: pa.Array | pa.ChunkedArray | None,
    values: pa.Array | pa.ChunkedArray | None,
    timestamps: pa.Array | pa.ChunkedArray | _Int64s,
    partitions: _Int32s,
    num_partitions: int,
    headers: pa.Array | pa.ChunkedArray | None = None,
    compression: int = NONE,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
) -> list[EncodedBatch]:
    """Batches of all rows, by rising partition; within a partition the rows keep their order.

    keys, values: binary or string, null where the record's is null; None for a column of nulls.
    timestamps: int64 milliseconds since the epoch, none null. partitions: 0 <= p < num_partitions (give rows
    without a key one before). headers: lists of (key string, value binary) structs; a null list is an empty one.
    max_batch_bytes limits a batch before compression; a single larger record gets a batch of its own.
    Raises `UsageError` for columns of other shapes.
    """
    partitions = _read_only(np.ascontiguousarray(partitions, dtype=np.int32))
    rows = len(partitions)
    key_column = _BinaryIn.of(keys, rows, "keys")
    value_column = _BinaryIn.of(values, rows, "values")
    times = _timestamps(timestamps, rows)
    header_columns = _HeadersIn.of(headers, rows)
    counts = np.zeros(num_partitions, np.int64)
    sizes = np.zeros(num_partitions, np.int64)
    if not kernels.measure_partitions(
        partitions,
        key_column.offsets,
        value_column.offsets,
        header_columns.list_offsets,
        header_columns.present,
        header_columns.names.offsets,
        header_columns.values.offsets,
        counts,
        sizes,
    ):
        raise UsageError(f"partitions must lie in 0..{num_partitions - 1}; -1 is a row without a key")
    # A batch ends early only where its records and the next one together pass the limit, so two neighbours
    # hold more than max_batch_bytes - 61 bytes of records; and every batch holds a record.
    batches = np.minimum(counts, 2 * sizes // max(1, max_batch_bytes - HEADER_SIZE) + 1)
    regions = np.concatenate(([0], np.cumsum(sizes + batches * HEADER_SIZE)))
    out = np.empty(int(regions[-1]), np.uint8)
    table = np.empty((int(batches.sum()), kernels.OUT_COLUMNS), np.int64)
    written = kernels.write_batches(
        partitions,
        times,
        *key_column.arguments,
        *value_column.arguments,
        *header_columns.arguments,
        max_batch_bytes,
        _read_only(regions[:-1]),
        out,
        table,
    )
    table = table[np.argsort(table[:written, kernels.OUT_PARTITION], kind="stable")]
    return [_finished(out.data, row, compression) for row in table.tolist()]


def _finished(out: memoryview, row: Sequence[int], compression: int) -> EncodedBatch:
    partition, start, end, count, base_timestamp, max_timestamp = row
    payload: BytesLike = out[start + HEADER_SIZE : end]
    if compression != NONE:
        payload = compress(compression, payload)
    if len(payload) > _MAX_BATCH_SIZE - HEADER_SIZE:
        raise UsageError(f"a record of {len(payload)} bytes is larger than any Kafka batch can be")
    crc_tail = crc32c(payload)
    header = BatchHeader(
        base_offset=0,
        length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=compression,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        count=count,
    )
    packed = pack_header(header, crc_tail=crc_tail)
    if compression == NONE:
        out[start : start + HEADER_SIZE] = packed
        return EncodedBatch(partition, bytes(out[start:end]), count, max_timestamp, crc_tail)
    return EncodedBatch(partition, packed + payload, count, max_timestamp, crc_tail)


def partitions_of(keys: pa.Array | pa.ChunkedArray, num_partitions: int) -> _Int32s:
    """Which partition Kafka's default partitioner gives each key (binary or string); -1 where it is null."""
    if num_partitions < 1:
        raise UsageError(f"a topic has at least one partition, not {num_partitions}")
    column = _BinaryIn.of(keys, len(keys), "keys")
    partitions = np.empty(len(keys), np.int32)
    kernels.hash_keys(*column.arguments, num_partitions, partitions)
    return partitions


def _timestamps(timestamps: pa.Array | pa.ChunkedArray | _Int64s, rows: int) -> _Int64s:
    if isinstance(timestamps, pa.ChunkedArray):
        timestamps = timestamps.combine_chunks()
    if isinstance(timestamps, pa.Array):
        if timestamps.type != pa.int64() or timestamps.null_count:
            raise UsageError(
                f"timestamps must be int64 milliseconds, none of them null;"
                f" got {timestamps.type} with {timestamps.null_count} nulls"
            )
        timestamps = timestamps.to_numpy()
    if timestamps.dtype != np.int64 or timestamps.shape != (rows,):
        raise UsageError(
            f"timestamps must be {rows} int64 milliseconds, one per partition given;"
            f" got {timestamps.shape} of {timestamps.dtype}"
        )
    return _read_only(np.require(timestamps, requirements=["C", "A"]))


@dataclass(frozen=True, slots=True)
class _BinaryIn:
    """A binary column as a kernel takes it: offsets, data, bitmap, the bitmap's first bit, has nulls."""

    offsets: _Int32s
    data: _Bytes
    bitmap: _Bytes
    first_bit: int
    has_nulls: bool

    @classmethod
    def of(cls, array: pa.Array | pa.ChunkedArray | None, rows: int, name: str) -> _BinaryIn:
        if array is None:
            array = pa.nulls(rows, pa.binary())
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if len(array) != rows:
            raise UsageError(f"{name} has {len(array)} rows, partitions has {rows}")
        if array.type not in (pa.binary(), pa.string()):
            try:
                array = array.cast(pa.binary())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise UsageError(f"{name} must be binary or string, 2 GB at most; got {array.type}: {error}") from error
        bitmap, offsets, data = array.buffers()
        has_nulls = array.null_count > 0
        return cls(
            _int32s(offsets, array.offset, rows + 1),
            _EMPTY if data is None else _read_only(np.frombuffer(data, np.uint8)),
            _read_only(np.frombuffer(bitmap, np.uint8)) if has_nulls else _EMPTY,
            array.offset,
            has_nulls,
        )

    @property
    def arguments(self) -> tuple[_Int32s, _Bytes, _Bytes, int, bool]:
        return self.offsets, self.data, self.bitmap, self.first_bit, self.has_nulls


@dataclass(frozen=True, slots=True)
class _HeadersIn:
    """A headers column as a kernel takes it."""

    list_offsets: _Int32s
    present: bool
    names: _BinaryIn
    values: _BinaryIn

    @classmethod
    def of(cls, array: pa.Array | pa.ChunkedArray | None, rows: int) -> _HeadersIn:
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if array is None or pa.types.is_null(array.type):
            nothing = _BinaryIn.of(None, 0, "headers")
            return cls(_ZERO, False, nothing, nothing)
        if len(array) != rows:
            raise UsageError(f"headers has {len(array)} rows, partitions has {rows}")
        element = getattr(array.type, "value_type", None)
        if element is None or not pa.types.is_struct(element) or element.num_fields != 2:
            raise UsageError(f"headers must be lists of (key, value) structs, not {array.type}")
        try:
            array = array.cast(pa.list_(pa.struct(list(zip(_names(element), _HEADER_TYPES, strict=True)))))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UsageError(f"headers must be lists of (key, value) structs: {error}") from error
        if array.null_count:
            # A null list may have elements behind it, which must not be written.
            array = array.fill_null([])
        first = array.offsets[0].as_py()
        last = array.offsets[-1].as_py()
        structs = array.values[first:last]
        if structs.null_count or structs.field(0).null_count:
            raise UsageError("a header or its key is null; only a header's value may be")
        return cls(
            _read_only(
                np.subtract(_int32s(array.buffers()[1], array.offset, rows + 1), np.int32(first), dtype=np.int32)
            ),
            True,
            _BinaryIn.of(structs.field(0), last - first, "header keys"),
            _BinaryIn.of(structs.field(1), last - first, "header values"),
        )

    @property
    def arguments(self) -> tuple[Any, ...]:
        names = self.names
        return self.list_offsets, self.present, names.offsets, names.data, *self.values.arguments


def _names(struct: pa.StructType) -> list[str]:
    return [field.name for field in struct]


def _int32s(buffer: pa.Buffer | None, first: int, count: int) -> _Int32s:
    if buffer is None or buffer.size == 0:  # an empty array may come without offsets
        return _ZERO
    view = np.frombuffer(buffer, np.uint8, count * 4, first * 4).view(np.int32)
    return _read_only(np.require(view, requirements=["A"]))


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The kernels are compiled for read-only inputs alone."""
    view = array.view()
    view.flags.writeable = False
    return view


_HEADER_TYPES = (pa.string(), pa.binary())
_EMPTY: _Bytes = _read_only(np.empty(0, np.uint8))
_ZERO: _Int32s = _read_only(np.zeros(1, np.int32))
