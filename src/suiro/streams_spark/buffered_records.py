"""Records buffered in a task's state until another input catches up: the map `$held`, many records in one row.

Key: the queue (topic or task, partition, input; each ends with a zero byte) and a number of eight bytes, big-endian,
which gives the order. Row, format 1: the format's number in one byte, seven zero bytes, and one batch of columns as
Arrow IPC. Of a topic: `offset`, `timestamp`, `key`, `value`, and where there are any `headers`, and `extracted`, the
time that the timestamp extractor gave for a record that was looked at. Carried over a repartition: `timestamp`,
`time`, `key`, `value`, and `headers` where there are any.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from suiro.errors import FatalError
from suiro.streams.stores import OrderedMap
from suiro.streams_spark.arrow_bytes import read_columns, write_columns
from suiro.streams_spark.shuffle_message import HEADERS, InputPartition

BUFFERED = "$held"
FORMAT_VERSION = 1
ROWS_MAX = 1_024
"""Records in one row: what a micro-batch writes again where it took some of them."""
BYTES_MAX = 1 << 20
"""A row that is larger has half as many records, down to one."""

_NUMBER = struct.Struct(">q")
_REQUIRED = {"timestamp": pa.int64(), "key": pa.binary(), "value": pa.binary()}
_OPTIONAL = {"offset": pa.int64(), "time": pa.int64(), "extracted": pa.int64(), "headers": HEADERS}


def buffered_prefix(input_partition: InputPartition, input_: str) -> bytes:
    return f"{input_partition.group}\0{input_partition.partition}\0{input_}\0".encode()


def number_of(key: bytes) -> tuple[bytes, bytes]:
    """A key's prefix and its number."""
    return key[: -_NUMBER.size], key[-_NUMBER.size :]


def packed_number(number: int) -> bytes:
    return _NUMBER.pack(number)


def queue_of_prefix(prefix: bytes) -> tuple[InputPartition, str]:
    group, partition, input_, _ = prefix.decode().split("\0")
    return InputPartition(group, int(partition)), input_


class BufferedRecords:
    """View of a task's map."""

    def __init__(self, rows: OrderedMap) -> None:
        self._rows = rows

    def all(self) -> Iterator[tuple[InputPartition, str, int, pa.RecordBatch]]:
        """Input partition, input, number and records, each queue's in order."""
        for key, data in self._rows.range():
            prefix, number = number_of(key)
            input_partition, input_ = queue_of_prefix(prefix)
            try:
                columns = unpack_buffered(data)
            except ValueError as error:
                raise FatalError(
                    f"records of {input_partition.name} that wait for {input_} cannot be read from the checkpoint: "
                    f"{error}. Use the release that wrote the checkpoint; if it was damaged, move it away and rebuild "
                    "(rebuild=True, suiro run --rebuild)"
                ) from error
            yield input_partition, input_, _NUMBER.unpack(number)[0], columns

    def put(self, input_partition: InputPartition, input_: str, number: int, columns: pa.RecordBatch) -> None:
        self._rows.put(buffered_prefix(input_partition, input_) + _NUMBER.pack(number), pack_buffered(columns))

    def add(self, input_partition: InputPartition, input_: str, number: int, columns: pa.RecordBatch) -> int:
        """From this number on, in as many rows as it takes. The number that follows."""
        for piece in pieces(columns, ROWS_MAX, BYTES_MAX):
            self.put(input_partition, input_, number, piece)
            number += 1
        return number

    def remove(self, input_partition: InputPartition, input_: str, number: int) -> None:
        self._rows.put(buffered_prefix(input_partition, input_) + _NUMBER.pack(number), None)

    def clear(self) -> None:
        for key, _ in list(self._rows.range()):
            self._rows.put(key, None)


def pieces(columns: pa.RecordBatch, rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Halves the rows until each piece is small enough, or a single row."""
    count = columns.num_rows
    if count > rows_max or (count > 1 and columns.nbytes > bytes_max):
        half = count // 2
        yield from pieces(columns.slice(0, half), rows_max, bytes_max)
        yield from pieces(columns.slice(half), rows_max, bytes_max)
    elif count:
        yield columns


def pack_buffered(columns: pa.RecordBatch) -> bytes:
    # Without what the columns' schema says beside names and types, equal records are equal bytes.
    return write_columns(bytes((FORMAT_VERSION,)), columns.replace_schema_metadata(None))


def unpack_buffered(data: bytes) -> pa.RecordBatch:
    """Raises `ValueError` with what is wrong."""
    if not data:
        raise ValueError("the row is empty")
    if data[0] != FORMAT_VERSION:
        raise ValueError(f"the row has format {data[0]}, this release reads {FORMAT_VERSION}")
    columns = read_columns(data, 1)
    if columns is None or not columns.num_rows:
        raise ValueError("the row has no records")
    names = columns.schema.names
    types = dict(zip(names, columns.schema.types, strict=True))
    known = {**_REQUIRED, **{name: kind for name, kind in _OPTIONAL.items() if name in types}}
    if types != known or len(names) != len(types) or ("offset" in types) == ("time" in types):
        raise ValueError(f"the row has the columns {', '.join(names)}")
    if any(columns.column(name).null_count for name in ("offset", "time", "timestamp") if name in types):
        raise ValueError("a record has no place or no time")
    return columns
