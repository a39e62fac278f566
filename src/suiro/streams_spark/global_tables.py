"""The global tables of a worker process, decoded once for all of its tasks.

Every task has the whole table in its state. A process reads each record of the table's topic once, and decodes each row
once, however many tasks ask for it. This cache holds no state of a task: it finds a row by its bytes. A task that is a
micro-batch behind or ahead has other bytes, so its row is decoded anew. The cache never changes an answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from suiro.streams.sources import DeadLetter, SourceReader
from suiro.streams.stores import OrderedMap
from suiro.streams.stores.decoded import Cells, Copy, copier_of
from suiro.streams.stores.key_value import KeyValueStore
from suiro.streams.topology.nodes import Node, StoreSpec
from suiro.streams_spark.program import Program
from suiro.streams_spark.record_readers import TopicReader, reads
from suiro.streams_spark.shuffle_message import InputPartition

READ_BYTES_MAX = 64 * 1024 * 1024
"""Size of the records, as they are in the log, whose rows one process keeps for one table."""
DECODED_BYTES_MAX = 64 * 1024 * 1024
"""Size of the encoded rows that one process keeps decoded for one table. Their values take a few times as much."""
KEYS_MAX = 100_000
"""Keys whose bytes one process keeps for one table."""
PROGRAMS_MAX = 4
"""Running topologies whose tables one process keeps."""

_HASHED = frozenset({str, int, bool, bytes, type(None)})


@lru_cache(maxsize=PROGRAMS_MAX)
def global_tables_of(program: Program) -> Mapping[str, GlobalTable]:
    """This process's tables, by store."""
    topology = program.plan.topology
    names = {name for sub in topology.sub_topologies for name in sub.global_tables}
    return {name: GlobalTable(topology.store(name)) for name in names}


@dataclass(slots=True)
class RowsRead:
    """Records of one partition as rows of a table, in order; None deletes. `time`: the partition's after them.
    `dropped`, `dead_letters`: the records that were left out, which one task reports."""

    rows: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    time: int = -1
    dropped: list[str] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)


class GlobalTable:
    def __init__(self, spec: StoreSpec) -> None:
        self._spec = spec
        self._topic = f"{spec.name}-changelog"
        self._cells = Cells(spec, OrderedMap(), stamped=True)
        self._read: OrderedDict[tuple[InputPartition, int, int], tuple[pa.RecordBatch, RowsRead]] = OrderedDict()
        self._read_bytes = 0
        self._decoded: dict[bytes, tuple[bytes, Any, Copy, int]] = {}
        self._decoded_bytes = 0
        self._keys: dict[Any, bytes] = {}

    def store(self, rows: OrderedMap) -> KeyValueStore:
        """A task's rows, to be looked up."""
        return _Store(self._spec, rows, self)

    def read(
        self,
        input_partition: InputPartition,
        columns: pa.RecordBatch,
        time: int,
        node: Node,
        on_deserialization_error: str,
    ) -> RowsRead:
        """`time`: the partition's before these records. `node`: the table's source."""
        if columns.num_rows == 0:
            return RowsRead(time=time)
        place = (input_partition, columns.column("offset")[0].as_py(), time)
        known = self._read.get(place)
        if known is not None and known[0].equals(columns):
            self._read.move_to_end(place)
            return known[1]
        found = RowsRead()
        reader = SourceReader(
            node,
            on_deserialization_error=on_deserialization_error,
            drop=found.dropped.append,
            dead_letter=found.dead_letters.append,
        )
        reader.restore([((input_partition.group, input_partition.partition), time)])
        for read in filter(None, reads(TopicReader(reader, input_partition), columns)):
            of, row = read
            key, value, timestamp = of.keys[row], of.values[row], of.times[row]
            if key is None:
                found.dropped.append("null key")
                continue
            assert timestamp is not None
            data = None if value is None else self._cells.encoded(value, timestamp)
            found.rows.append((self._spec.key.serialize(self._topic, key), data))
        found.time = reader.state()[input_partition.group, input_partition.partition]
        if known is not None:
            self._read_bytes -= self._read.pop(place)[0].nbytes
        self._read[place] = columns, found
        self._read_bytes += columns.nbytes
        while self._read_bytes > READ_BYTES_MAX:
            _, (oldest, _) = self._read.popitem(last=False)
            self._read_bytes -= oldest.nbytes
        return found

    def decoded(self, key: bytes, row: bytes) -> tuple[Any, int]:
        """Value and timestamp; the value is the caller's, who may change it."""
        known = self._decoded.get(key)
        if known is not None and (known[0] is row or known[0] == row):
            _, value, copy, timestamp = known
            return copy(value), timestamp
        value, timestamp = self._cells.decoded(row)
        if (made := copier_of(value)) is not None:
            if known is not None:
                self._forget(key)
            self._decoded[key] = row, made(value), made, timestamp
            self._decoded_bytes += len(key) + len(row)
            while self._decoded_bytes > DECODED_BYTES_MAX:
                self._forget(next(iter(self._decoded)))
        return value, timestamp

    def _forget(self, key: bytes) -> None:
        self._decoded_bytes -= len(key) + len(self._decoded.pop(key)[0])

    def key_bytes(self, key: Any) -> bytes:
        if type(key) is not dict:
            return self._spec.key.serialize(self._topic, key)
        # 1, 1.0 and True are equal, but no equal keys.
        names, values = tuple(key), tuple(key.values())
        kinds = tuple(map(type, names + values))
        if not _HASHED.issuperset(kinds):
            return self._spec.key.serialize(self._topic, key)
        place = (names, values, kinds)
        known = self._keys.get(place)
        if known is None:
            if len(self._keys) >= KEYS_MAX:
                self._keys.clear()
            known = self._keys[place] = self._spec.key.serialize(self._topic, key)
        return known


class _Store(KeyValueStore):
    def __init__(self, spec: StoreSpec, rows: OrderedMap, table: GlobalTable) -> None:
        super().__init__(spec, rows)
        self._key_bytes: Callable[[Any], bytes] = table.key_bytes
        self._row: Callable[[bytes, bytes], tuple[Any, int]] = table.decoded

    def get_with_timestamp(self, key: Any) -> tuple[Any, int] | None:
        raw = self._key_bytes(key)
        row = self._rows.get(raw)
        return None if row is None else self._row(raw, row)
