"""Records buffered in a task's state until another input catches up: the map `$held`, many records in one row.

Key: the queue (topic or task, partition, input; each ends with a zero byte) and a number of eight bytes, big-endian,
which gives the order. Row, format 1: the format's number in one byte, seven zero bytes, and one batch of columns as
Arrow IPC. Of a topic: `offset`, `timestamp`, `key`, `value`, and where there are any `headers`, and `extracted`, the
time that the timestamp extractor gave for a record that was looked at. Carried over a repartition: `timestamp`,
`time`, `key`, `value`, and `headers` where there are any.

Releases before this format kept a pickled tuple a record. These rows are read: they begin with pickle's own mark.
"""

from __future__ import annotations

import pickletools  # of the release before: it names the operations of a pickle and carries none out
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from suiro.errors import FatalError
from suiro.streams.stores import OrderedMap
from suiro.streams_spark.arrow_bytes import read_columns, write_columns
from suiro.streams_spark.shuffle_message import HEADERS, InputPartition, headers_array

BUFFERED = "$held"
FORMAT_VERSION = 1
ROWS_MAX = 1_024
"""Records in one row: what a micro-batch writes again where it took some of them."""
BYTES_MAX = 1 << 20
"""A row that is larger has half as many records, down to one."""

_NUMBER = struct.Struct(">q")
_PICKLED = 0x80
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
    if data[0] == _PICKLED:
        return _columns_of(_pickled_item(data))
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


# Of the release before


def _columns_of(item: tuple[Any, ...]) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {}
    if len(item) == 6:
        offset, timestamp, key, value, headers, extracted = item
        columns["offset"] = pa.array([offset], pa.int64())
    elif len(item) == 5:
        timestamp, time, key, value, headers = item
        columns["time"], extracted = pa.array([time], pa.int64()), None
    else:
        raise ValueError(f"a pickled record has {len(item)} members")
    try:
        columns["timestamp"] = pa.array([timestamp], pa.int64())
        columns["key"] = pa.array([key], pa.binary())
        columns["value"] = pa.array([value], pa.binary())
        if headers:
            columns["headers"] = headers_array([headers])
        if extracted is not None:
            columns["extracted"] = pa.array([extracted], pa.int64())
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"a pickled record is no record: {error}") from error
    return pa.RecordBatch.from_pydict(columns)


_VALUES = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "SHORT_BINUNICODE"}
    | {"BINUNICODE"}
)
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _pickled_item(data: bytes) -> tuple[Any, ...]:
    """Numbers, bytes, texts and tuples of them: nothing else was written, and nothing else is read."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: list[Any] = []
    try:
        for operation, argument, _ in pickletools.genops(data):
            name = operation.name
            if name in _VALUES:
                stack.append(argument)
            elif name == "NONE":
                stack.append(None)
            elif name in _TUPLES or name == "TUPLE":
                start = marks.pop() if name == "TUPLE" else len(stack) - _TUPLES[name]
                stack[start:] = [tuple(stack[start:])]
            elif name == "MARK":
                marks.append(len(stack))
            elif name == "MEMOIZE":
                memo.append(stack[-1])
            elif name in ("BINGET", "LONG_BINGET"):
                stack.append(memo[int(argument or 0)])
            elif name not in ("PROTO", "FRAME", "STOP"):
                raise ValueError(f"{name} is not of a record")
        (item,) = stack
    except (IndexError, ValueError, TypeError) as error:
        raise ValueError(f"a pickled record is damaged: {error}") from error
    if not isinstance(item, tuple):
        raise ValueError("a pickled record is no tuple")
    return item
