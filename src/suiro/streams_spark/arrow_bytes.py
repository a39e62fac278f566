"""Arrow columns after a header of bytes, the format of `shuffle_message` and `buffered_records`; when Arrow columns are
compressed, also those of `state_log`."""

from __future__ import annotations

import pyarrow as pa

_ALIGNED = 8
"""Arrow's columns begin at a multiple of this, or are copied when they are read."""
COMPRESSED_BYTES_MIN = 16 * 1024
"""Smaller columns are not compressed."""
_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def write_options(size: int) -> pa.ipc.IpcWriteOptions:
    """How columns of so many bytes are written for another process. Java copies each byte a dozen times, which takes
    longer than LZ4."""
    return _PLAIN if size < COMPRESSED_BYTES_MIN else _COMPRESSED


def write_columns(head: bytes, columns: pa.RecordBatch | None, options: pa.ipc.IpcWriteOptions = _PLAIN) -> bytes:
    padded = head + bytes(-len(head) % _ALIGNED)
    if columns is None:
        return padded
    sink = pa.BufferOutputStream()
    sink.write(padded)
    with pa.ipc.new_stream(sink, columns.schema, options=options) as writer:
        writer.write_batch(columns)
    return bytes(sink.getvalue())


def read_columns(data: bytes, head_size: int) -> pa.RecordBatch | None:
    """None where there are none. Raises `ValueError` with what is wrong: columns are looked at to the last row."""
    start = head_size + -head_size % _ALIGNED
    if len(data) < start or any(data[head_size:start]):
        raise ValueError("the head is cut off or not padded with zeros")
    if len(data) == start:
        return None
    try:
        with pa.ipc.open_stream(pa.py_buffer(data).slice(start)) as reader:
            columns: pa.RecordBatch = reader.read_next_batch()
            columns.validate(full=True)
            if next(iter(reader), None) is not None:
                raise ValueError("there is more than one batch of columns")
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise ValueError(f"the columns cannot be read: {error or 'there are none'}") from error
    return columns
