"""The messages between the tasks of a micro-batch: many records in one value, so that Spark moves few large rows.

A row is `(sub int, bucket int, message binary)`: the sub-topology and partition it is for. Sub `STAGED` is a finished
task's report to the driver (`reports`). ShuffleMessage is a head (`_HEAD`, then input partition and input as UTF-8,
then zeros up to a multiple of eight bytes) and columns as an Arrow IPC stream of one batch:

- range: the offsets from `start` to `end` (exclusive) of the topic partition, and its topic id. The task reads their
  records itself: so they pass neither Java nor a shuffle;
- raw: columns as they are in the topic: key, value, timestamp, offset, and headers where there are any. They are sent
  for global tables only, which all tasks have;
- carried over a repartition: key and value as its serdes give them, timestamp, `time` (the input partition's time at
  that record, running maximum over all its records), and headers where there are any;
- combined: what the sub-topology's columnar form made of raw or carried ones (`suiro.streams.vectorised`);
- a tick: no columns; the input partition's time, and whether it is behind.

An input partition has its own order and time. It is a topic partition, or a task of an earlier level.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from suiro.errors import FatalError
from suiro.foundation.parts import in_parts
from suiro.spark import OffsetRange
from suiro.streams_spark.arrow_bytes import read_columns, write_columns, write_options

STAGED = -1
BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Messages in one batch of rows, which a task and Java hold as a whole. A larger message has a batch of its own."""
SPARK_SCHEMA = "sub int, bucket int, message binary"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""`HEADERS_TYPE` of `protocol.columnar`, which loads kernels."""
_ARROW_SCHEMA = pa.schema([("sub", pa.int32()), ("bucket", pa.int32()), ("message", pa.binary())])

FORMAT_VERSION = 1
_HEAD = struct.Struct(">BBBxiqqqqII")
"""Version, kind, flags, the input partition's partition, sequence, time, clock, paused, lengths of the input
partition's group and input."""
_HAS_INPUT_PARTITION, _BEHIND, _REPLAYED, _HAS_CLOCK, _PAUSED, _REWRITES = 1, 2, 4, 8, 16, 32
_FLAGS = _HAS_INPUT_PARTITION | _BEHIND | _REPLAYED | _HAS_CLOCK | _PAUSED | _REWRITES

Kind = Literal["raw", "carried", "combined", "tick", "range"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
"""Their places are what is sent: a new one goes to the end."""
_INT64, _BINARY = pa.int64(), pa.binary()
_RECORDS = {"key": _BINARY, "value": _BINARY, "timestamp": _INT64}
_COLUMNS = {
    "raw": {**_RECORDS, "offset": _INT64},
    "carried": {**_RECORDS, "time": _INT64},
    "range": {"start": _INT64, "end": _INT64, "topic_id": pa.string()},
}

Row = tuple[int, int, bytes]


@dataclass(frozen=True, slots=True, order=True)
class InputPartition:
    """`group`: a topic, or "/" and a sub-topology's number; no topic's name has a slash in it."""

    group: str
    partition: int

    @classmethod
    def of_task(cls, sub: int, partition: int) -> InputPartition:
        return cls(f"/{sub}", partition)

    @property
    def name(self) -> str:
        return f"{self.group}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleMessage:
    """`input`: the node that it goes into; for a tick it is empty where the tick tells of no input partition.

    `sequence` orders the messages of one input partition to one task in a micro-batch, because a shuffle keeps no
    order. `clock`: the wall clock of this micro-batch, as planned; None if nobody needs it. `replayed`: the micro-batch
    only rebuilds state. `paused`: set if the input partition stands at the rebuild's boundary and had more records
    there. It is the time of the record that waited, or -1 if that was not read yet. Records of topics do not wait for
    such an input partition, because all that come now were processed then; carried records do, as they did then.
    `rewrites`: the task writes all rows of its stores to their changelogs.
    """

    kind: Kind
    input_partition: InputPartition | None
    input: str = ""
    sequence: int = 0
    behind: bool = False
    time: int = -1
    clock: int | None = None
    replayed: bool = False
    paused: int | None = None
    rewrites: bool = False
    columns: pa.RecordBatch | None = None

    def pack(self) -> bytes:
        input_partition = self.input_partition or InputPartition("", 0)
        group, input_ = input_partition.group.encode(), self.input.encode()
        flags = (
            _HAS_INPUT_PARTITION * (self.input_partition is not None)
            | _BEHIND * self.behind
            | _REPLAYED * self.replayed
            | _HAS_CLOCK * (self.clock is not None)
            | _PAUSED * (self.paused is not None)
            | _REWRITES * self.rewrites
        )
        head = _HEAD.pack(
            FORMAT_VERSION,
            _KINDS.index(self.kind),
            flags,
            input_partition.partition,
            self.sequence,
            self.time,
            self.clock or 0,
            self.paused or 0,
            len(group),
            len(input_),
        )
        columns = self.columns
        options = write_options(columns.nbytes if columns is not None else 0)
        return write_columns(head + group + input_, columns, options)

    @classmethod
    def unpack(cls, data: bytes) -> ShuffleMessage:
        """Raises `FatalError` where it is not what `pack` gives."""
        try:
            return cls._read(data)
        except (ValueError, struct.error) as error:
            raise FatalError(
                f"a message between tasks, {len(data)} bytes, cannot be read: {error}. Driver and executors must run "
                "the same release of suiro; where they do, start the query again"
            ) from error

    @classmethod
    def _read(cls, data: bytes) -> ShuffleMessage:
        if data[:1] != bytes((FORMAT_VERSION,)):
            raise ValueError(f"it has format {data[:1].hex() or 'none'}, this release reads {FORMAT_VERSION:02x}")
        _, kind, flags, partition, sequence, time, clock, paused, *lengths = _HEAD.unpack_from(data)
        if kind >= len(_KINDS) or flags & ~_FLAGS:
            raise ValueError(f"there is no kind {kind} with flags {flags:#x}")
        middle, end = _HEAD.size + lengths[0], _HEAD.size + sum(lengths)
        if end > len(data):
            raise ValueError("it is cut off")
        message = cls(
            kind=_KINDS[kind],
            input_partition=InputPartition(data[_HEAD.size : middle].decode(), partition)
            if flags & _HAS_INPUT_PARTITION
            else None,
            input=data[middle:end].decode(),
            sequence=sequence,
            behind=bool(flags & _BEHIND),
            time=time,
            clock=clock if flags & _HAS_CLOCK else None,
            replayed=bool(flags & _REPLAYED),
            paused=paused if flags & _PAUSED else None,
            rewrites=bool(flags & _REWRITES),
            columns=read_columns(data, end),
        )
        _check_columns(message)
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRange:
    """The range to read of one topic partition. `tells`: the partition is behind now or was before, so its task must
    hear of it. `paused`: see `shuffle_message`; the range of such a partition may be empty."""

    records: OffsetRange
    behind: bool = False
    tells: bool = False
    paused: int | None = None

    @property
    def input_partition(self) -> InputPartition:
        return InputPartition(self.records.topic, self.records.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of one source task. `ticks`: it sends the clock to the tasks that wait for it. `rewrites`: it has all
    tasks write their whole changelogs. `replayed`: the micro-batch only rebuilds state."""

    input_partitions: tuple[InputRange, ...]
    clock: int | None = None
    ticks: bool = False
    replayed: bool = False
    rewrites: bool = False


def _check_columns(message: ShuffleMessage) -> None:
    columns = message.columns
    if (columns is None) != (message.kind == "tick"):
        raise ValueError(f"{message.kind} has {'no ' if columns is None else ''}columns")
    wanted = _COLUMNS.get(message.kind)
    if columns is None or wanted is None:
        return
    names, types = columns.schema.names, columns.schema.types
    if "headers" in names and message.kind != "range":
        wanted = {**wanted, "headers": HEADERS}
    if len(names) != len(wanted) or dict(zip(names, types, strict=True)) != wanted:
        raise ValueError(f"{message.kind} has the columns {', '.join(names)}")
    if message.kind == "range" and (columns.num_rows != 1 or any(column.null_count for column in columns.columns[:2])):
        raise ValueError("range has not one start and one end")


def by_input_partition(messages: Iterable[ShuffleMessage]) -> list[tuple[InputPartition, ShuffleMessage]]:
    """The messages of input partitions, each partition's in the order in which it sent them."""
    found = [(item.input_partition, item) for item in messages if item.input_partition is not None]
    return sorted(found, key=lambda pair: (pair[0], pair[1].sequence))


def rows_batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """As a Spark source gives them."""
    for some in in_batches(rows):
        columns = [pa.array([row[index] for row in some], _ARROW_SCHEMA.field(index).type) for index in range(3)]
        yield pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def in_batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Lists of rows whose messages together are not too large for a batch."""
    return in_parts(rows, lambda row: len(row[2]), max_size=BATCH_BYTES_MAX)
