"""What travels between the tasks of a micro-batch: many records in one value, so that Spark moves few, fat rows.

A row is `(sub int, bucket int, cargo binary)`: the sub-topology and partition it is for. Sub `STAGED` is a finished
task's report to the driver. ShuffleMessage is a short pickled header and an Arrow IPC stream:

- raw: columns as they are in the topic: key, value, timestamp, offset, and headers where there are any;
- carried over a repartition: key and value as its serdes give them, timestamp, `time` (the lane's time at that record,
  running maximum over all its records), and headers where there are any;
- combined: what the sub-topology's twin on columns made of raw or carried ones (`suiro.streams.vectorised`);
- a tick: no columns; the lane's time, and whether it is behind.

A lane is what keeps its own order and time: a topic partition, or a task of an earlier level.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from suiro.streams.records import Headers

__all__ = [
    "HEADERS",
    "SPARK_SCHEMA",
    "STAGED",
    "DroppedRecords",
    "Lane",
    "Row",
    "ShuffleMessage",
    "headers_array",
    "headers_list",
    "rows_batch",
]

STAGED = -1
SPARK_SCHEMA = "sub int, bucket int, cargo binary"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ARROW_SCHEMA = pa.schema([("sub", pa.int32()), ("bucket", pa.int32()), ("cargo", pa.binary())])
_LENGTH = struct.Struct(">I")

Row = tuple[int, int, bytes]


@dataclass(frozen=True, slots=True, order=True)
class Lane:
    """`group`: a topic, or "/" and a sub-topology's number; no topic's name has a slash in it."""

    group: str
    partition: int

    @classmethod
    def of_task(cls, sub: int, partition: int) -> Lane:
        return cls(f"/{sub}", partition)

    @property
    def name(self) -> str:
        return f"{self.group}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleMessage:
    """`input`: the node that it goes into; for a tick it is empty where the tick tells of no lane.

    `sequence` orders what one lane sends to one task in a micro-batch, for a shuffle keeps no order.
    `clock`: the wall clock of this micro-batch, as planned; None where nobody needs it. `muted`: the micro-batch only
    rebuilds state. `paused`: the lane stands at the rebuild's boundary and had more records there: the time of the
    one that waited, -1 where it was not read yet; None where it is not so. Records of topics do not wait for such a
    lane, for those that come now were all processed; records that are carried do, as they did then.
    """

    kind: Literal["raw", "carried", "combined", "tick"]
    lane: Lane | None
    input: str = ""
    sequence: int = 0
    behind: bool = False
    time: int = -1
    clock: int | None = None
    muted: bool = False
    paused: int | None = None
    columns: pa.RecordBatch | None = None

    def pack(self) -> bytes:
        lane = None if self.lane is None else (self.lane.group, self.lane.partition)
        fields = (self.kind, lane, self.input, self.sequence, self.behind, self.time, self.clock)
        head = pickle.dumps((*fields, self.muted, self.paused), protocol=5)
        if self.columns is None:
            return _LENGTH.pack(len(head)) + head
        sink = pa.BufferOutputStream()
        sink.write(_LENGTH.pack(len(head)) + head)
        with pa.ipc.new_stream(sink, self.columns.schema) as writer:
            writer.write_batch(self.columns)
        return bytes(sink.getvalue())

    @classmethod
    def unpack(cls, data: bytes) -> ShuffleMessage:
        (length,) = _LENGTH.unpack_from(data)
        fields = pickle.loads(data[4 : 4 + length])
        kind, lane, input_, sequence, behind, time, clock, muted, paused = fields
        columns = None
        if len(data) > 4 + length:
            with pa.ipc.open_stream(pa.py_buffer(data).slice(4 + length)) as reader:
                columns = reader.read_next_batch()
        return cls(
            kind=kind,
            lane=None if lane is None else Lane(*lane),
            input=input_,
            sequence=sequence,
            behind=behind,
            time=time,
            clock=clock,
            muted=muted,
            paused=paused,
            columns=columns,
        )


def rows_batch(rows: list[Row]) -> pa.RecordBatch:
    """As a Spark source gives them."""
    columns = [pa.array([row[index] for row in rows], _ARROW_SCHEMA.field(index).type) for index in range(3)]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def headers_array(headers: list[Headers]) -> pa.Array:
    found = [[{"key": name, "value": value} for name, value in each] for each in headers]
    return pa.array(found, HEADERS)


def headers_list(columns: pa.RecordBatch) -> list[Headers] | None:
    """None where no record has any."""
    if "headers" not in columns.schema.names:
        return None
    found: list[list[dict[str, Any]] | None] = columns.column("headers").to_pylist()
    return [tuple((item["key"], item["value"]) for item in each) if each else () for each in found]


@dataclass(frozen=True, slots=True)
class DroppedRecords:
    """How many records a task left out, by reason, on the way to the driver."""

    counts: Mapping[str, int]
