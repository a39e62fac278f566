"""The state of a task in Spark's store: a log of segments, one for each micro-batch that changed something.

A state call from Python costs 20 to 60 µs whatever it moves, so a micro-batch makes few of them and writes what
changed, never what is there:

- `directory`, one value: the format's version and the segments in order, the first of which are the base;
- `segments`, a map: number -> Arrow IPC of (map's name, key, value); a null value deletes.

When the deltas outweigh the base, a new base takes the place of all, or they become part of it where most of their rows
are still valid. When there are many small deltas, one takes their place.

A worker process keeps the maps it loaded (`StateCache`). Segment numbers are random, so the list of them says what a
map holds: if the cached list begins the directory's, the rest is applied, else everything is loaded. An entry leaves
the cache before a micro-batch touches it and comes back when the micro-batch's segment is written, so a task that
failed leaves nothing wrong behind; one that succeeded in a micro-batch that failed leaves a list that begins nothing.
"""

from __future__ import annotations

import random
import struct
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from suiro.errors import FatalError
from suiro.foundation.memory import memory_bytes
from suiro.foundation.parts import in_parts
from suiro.streams.stores import OrderedMap
from suiro.streams_spark.arrow_bytes import write_options

if TYPE_CHECKING:
    from suiro.streams.vectorised.aggregate import NumberRows
    from suiro.streams.vectorised.table import TableRows

FORMAT_VERSION = 1
BASE_BYTES_MIN = 64 * 1024
"""No new base for less than this in deltas."""
GARBAGE_RATIO_MAX = 1.5
"""A base is written anew where the segments have so many times the bytes of the rows that are valid."""
DELTAS_MAX = 64
"""Besides those that are as large as a segment may be."""
SEGMENT_BYTES_MAX = 16 * 1024 * 1024
_ROW_BYTES, _INDEX_BYTES = 16, 4
"""What a row takes besides key and value, with offsets and without: of columns they are counted."""
CACHED_BYTES_MIN = 512 * 1024 * 1024
CACHED_SHARE = 8
"""Segments whose maps the worker processes of a machine keep: this part of its memory in all, or the minimum each. Maps
take about twice as much. A task whose map is not kept loads all of its state in every micro-batch."""

_DAMAGED = ". Restore the checkpoint from a copy; or move it away and rebuild (rebuild=True, suiro run --rebuild)"
_HEAD = struct.Struct(">HI")
_ITEM = struct.Struct(">qI")
_SCHEMA = pa.schema([("map", pa.dictionary(pa.int32(), pa.string())), ("key", pa.binary()), ("value", pa.binary())])


ColumnRows: TypeAlias = "NumberRows | TableRows"
"""A map whose rows are columns; a null row deletes."""
ColumnChanges: TypeAlias = tuple[pa.Array | pa.ChunkedArray, pa.Array | pa.ChunkedArray]
"""Keys and rows; both in chunks, where they may be more than an array takes."""
Changes: TypeAlias = Mapping[bytes, bytes | None] | ColumnChanges
"""Of one map, or of one in columns."""


@dataclass(frozen=True, slots=True)
class Segment:
    """`size`: of its columns in memory. What is written is smaller."""

    number: int
    size: int


@dataclass(frozen=True, slots=True)
class Directory:
    """Segments in the order they apply in; the first `base` of them make the base."""

    segments: tuple[Segment, ...] = ()
    base: int = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(segment.number for segment in self.segments)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def deltas(self) -> tuple[Segment, ...]:
        return self.segments[self.base :]

    def pack(self) -> bytes:
        items = b"".join(_ITEM.pack(segment.number, segment.size) for segment in self.segments)
        return _HEAD.pack(FORMAT_VERSION, self.base) + items

    @classmethod
    def unpack(cls, data: bytes | None) -> Directory:
        if data is None:
            return cls()
        try:
            version, base = _HEAD.unpack_from(data)
            if version != FORMAT_VERSION:
                raise FatalError(
                    f"the state was written in format {version}, this version of suiro reads {FORMAT_VERSION}: "
                    "use the version that wrote it, or a new application id"
                )
            return cls(tuple(Segment(*item) for item in _ITEM.iter_unpack(data[_HEAD.size :])), base)
        except struct.error as error:
            raise FatalError(f"the directory of a task's state is damaged: {error}{_DAMAGED}") from error


@dataclass(slots=True)
class TaskState:
    """The maps of one task, and the segments that they hold. `stores` are views of maps that were opened before. They
    keep values derived from the rows, so a store is dropped when its map gets rows from elsewhere."""

    maps: dict[str, OrderedMap] = field(default_factory=dict)
    stores: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, ColumnRows] = field(default_factory=dict)
    numbers: tuple[int, ...] = ()
    size: int = 0

    def map(self, name: str) -> OrderedMap:
        found = self.maps.get(name)
        if found is None:
            found = self.maps[name] = OrderedMap()
        return found


class StateCache:
    """Drops the least recently used tasks when it holds too many bytes, before another one is loaded. The last one
    always stays: to drop it would not lower the peak of memory. `workers`: how many processes of a machine have one."""

    def __init__(self, bytes_max: int | None = None, *, workers: int = 1) -> None:
        self._bytes_max = bytes_max or max(CACHED_BYTES_MIN, memory_bytes() // (CACHED_SHARE * workers))
        self._entries: OrderedDict[Hashable, TaskState] = OrderedDict()
        self._bytes = 0

    def take(self, key: Hashable) -> TaskState | None:
        found = self._entries.pop(key, None)
        if found is not None:
            self._bytes -= found.size
        return found

    def put(self, key: Hashable, state: TaskState) -> None:
        self.take(key)
        self.make_room(state.size)
        self._entries[key] = state
        self._bytes += state.size

    def make_room(self, size: int) -> None:
        """For a task of so many bytes."""
        while self._entries and self._bytes + size > self._bytes_max:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.size


class StateLog:
    """One task's state in one micro-batch: `load`, change the maps, `save`."""

    def __init__(self, handle: SparkState, cache: StateCache, key: Hashable) -> None:
        self._handle = handle
        self._cache = cache
        self._key = key
        self._directory = Directory()
        self._state = TaskState()

    def load(self, in_columns: Mapping[str, Callable[[], ColumnRows]] | None = None) -> TaskState:
        """`in_columns`: the maps that are kept in columns, and how to make an empty one; the same ones throughout a
        run."""
        self._directory = directory = Directory.unpack(self._handle.get())
        state = self._cache.take(self._key)
        if state is None or directory.numbers[: len(state.numbers)] != state.numbers:
            state = TaskState()
            self._cache.make_room(directory.size)
        for number in directory.numbers[len(state.numbers) :]:
            for name, keys, rows in self._columns(number):
                if in_columns and name in in_columns:
                    if name not in state.columns:
                        state.columns[name] = in_columns[name]()
                    state.columns[name].load(keys, rows)
                else:
                    state.map(name).restore(zip(keys.to_pylist(), rows.to_pylist(), strict=True))
                    state.stores.pop(name, None)
        for name, make in (in_columns or {}).items():
            if name not in state.columns:
                state.columns[name] = make()
        state.numbers, state.size = directory.numbers, directory.size
        self._state = state
        return state

    def save(self) -> dict[str, Changes]:
        """Writes the changes since `load`, and returns them by map."""
        state = self._state
        changes: dict[str, Changes] = {}
        for name, rows in state.maps.items():
            if changed := rows.take_changes():
                changes[name] = changed
        for name, columns in state.columns.items():
            if (found := columns.take_changes()) is not None:
                changes[name] = found
        if changes:
            self._append(changes)
        state.numbers, state.size = self._directory.numbers, self._directory.size
        self._cache.put(self._key, state)
        return changes

    def rows_of(self, name: str) -> Changes:
        """All rows of one map, as they are after `save`."""
        columns = self._state.columns.get(name)
        return dict(self._state.map(name).range()) if columns is None else columns.rows()

    def _append(self, changes: Mapping[str, Changes]) -> None:
        before = self._directory
        size = before.size + sum(map(_size_of, changes.values()))
        base_size = sum(segment.size for segment in before.segments[: before.base])
        is_outweighed = size - base_size > max(BASE_BYTES_MIN, base_size)
        if is_outweighed:
            everything = self._everything()
            if size > GARBAGE_RATIO_MAX * sum(map(_size_of, everything.values())):
                base = self._write(everything)
                self._replace(before.segments, Directory(base, len(base)))
                return
        segments = (*before.segments, *self._write(changes))
        after = Directory(segments, len(segments) if is_outweighed else before.base)
        deltas_size = sum(segment.size for segment in after.deltas)
        if len(after.deltas) > DELTAS_MAX + 2 * deltas_size // SEGMENT_BYTES_MAX:
            parts: dict[str, list[tuple[pa.Array, pa.Array]]] = {}
            for segment in after.deltas:
                for name, keys, values in self._columns(segment.number):
                    parts.setdefault(name, []).append((keys, values))
            one = self._write({name: _last_of_each(found) for name, found in parts.items()})
            self._replace(after.deltas, Directory((*after.segments[: after.base], *one), after.base))
        else:
            self._directory = after
            self._handle.put(after.pack())

    def _everything(self) -> dict[str, Changes]:
        """All rows of all maps, after their changes were taken."""
        state = self._state
        return {
            **{name: rows.unordered() for name, rows in state.maps.items() if len(rows)},
            **{name: columns.rows() for name, columns in state.columns.items()},
        }

    def _replace(self, old: Sequence[Segment], directory: Directory) -> None:
        for segment in old:
            self._handle.remove_segment(segment.number)
        self._directory = directory
        self._handle.put(directory.pack())

    def _write(self, changes: Mapping[str, Changes]) -> tuple[Segment, ...]:
        written = []
        for data, size in write_segments(changes):
            segment = Segment(random.getrandbits(63), size)
            self._handle.put_segment(segment.number, data)
            written.append(segment)
        return tuple(written)

    def _columns(self, number: int) -> Iterator[tuple[str, pa.Array, pa.Array]]:
        data = self._handle.get_segment(number)
        if data is None:
            raise FatalError(
                f"segment {number} of the state of {self._key} is not there, though the directory names it{_DAMAGED}"
            )
        try:
            yield from read_columns(data)
        except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError, OSError) as error:
            raise FatalError(f"segment {number} of the state of {self._key} is damaged: {error}{_DAMAGED}") from error


def write_segments(changes: Mapping[str, Changes]) -> Iterator[tuple[bytes, int]]:
    """As few as their size allows, each with the size of its columns."""
    for batches in in_parts(_batches(changes), lambda batch: batch.nbytes, max_size=SEGMENT_BYTES_MAX):
        size = sum(batch.nbytes for batch in batches)
        yield _packed(batches, size), size


def _batches(changes: Mapping[str, Changes]) -> Iterator[pa.RecordBatch]:
    names = pa.array(list(changes), pa.string())
    for index, of_map in enumerate(changes.values()):
        for keys, values in pieces_of(of_map):
            column = pa.DictionaryArray.from_arrays(pa.array(np.full(len(keys), index, np.int32)), names)
            yield pa.RecordBatch.from_arrays([column, keys, values], schema=_SCHEMA)


def read_columns(data: bytes) -> Iterator[tuple[str, pa.Array, pa.Array]]:
    """(map's name, keys, rows) one after another; a later row of a key takes the place of an earlier one."""
    with pa.ipc.open_stream(data) as reader:
        for batch in reader:
            batch.validate(full=True)  # damaged offsets would end the process
            if batch.num_rows:
                name = batch.column(0)[0].as_py()  # all rows of a batch are of one map
                yield name, batch.column(1), batch.column(2)


def arrays_of(changes: ColumnChanges) -> Iterator[tuple[pa.Array, pa.Array]]:
    keys, rows = changes
    if isinstance(keys, pa.ChunkedArray):
        yield from zip(keys.chunks, rows.chunks, strict=True)
    else:
        yield keys, rows


def _size_of(changes: Changes) -> int:
    if isinstance(changes, tuple):
        keys, rows = changes
        return int(keys.nbytes + rows.nbytes) + _INDEX_BYTES * len(keys)
    return sum(map(len, changes)) + sum(map(len, filter(None, changes.values()))) + _ROW_BYTES * len(changes)


def pieces_of(changes: Changes) -> Iterator[tuple[pa.Array, pa.Array]]:
    if isinstance(changes, tuple):
        for keys, rows in arrays_of(changes):
            count = 1 + (keys.nbytes + rows.nbytes) * 2 // SEGMENT_BYTES_MAX
            step = max(1, -(-len(keys) // count))
            for start in range(0, len(keys), step):
                yield keys.slice(start, step), rows.slice(start, step)
        return
    if changes and _size_of(changes) <= SEGMENT_BYTES_MAX // 2:
        yield pa.array(list(changes), pa.binary()), pa.array(list(changes.values()), pa.binary())
        return
    # By hand: a function called for each row takes several times as long.
    some_keys: list[bytes] = []
    values: list[bytes | None] = []
    size = 0
    for key, value in changes.items():
        some_keys.append(key)
        values.append(value)
        size += len(key) + len(value or b"") + _ROW_BYTES
        if size > SEGMENT_BYTES_MAX // 2:
            yield pa.array(some_keys, pa.binary()), pa.array(values, pa.binary())
            some_keys, values, size = [], [], 0
    if some_keys:
        yield pa.array(some_keys, pa.binary()), pa.array(values, pa.binary())


def _last_of_each(parts: Sequence[tuple[pa.Array, pa.Array]]) -> ColumnChanges:
    """The last row of each key."""
    from suiro.streams.vectorised.key_index import KeyIndex

    index = KeyIndex(len(parts[0][0]))
    slots = np.concatenate([index.slots(keys) for keys, _ in parts])
    last = np.zeros(len(index), np.int64)
    last[slots] = np.arange(len(slots))  # of equal indices the last one stays
    is_last = np.zeros(len(slots), np.bool_)
    is_last[last] = True
    found: tuple[list[pa.Array], list[pa.Array]] = [], []
    some: tuple[list[pa.Array], list[pa.Array]] = [], []
    start = 0
    for part in parts:
        wanted = pa.array(is_last[start : start + len(part[0])])
        start += len(wanted)
        for column, waiting in zip(part, some, strict=True):
            waiting.append(column.filter(wanted))
        # All of them may be more than an array takes.
        if start == len(slots) or sum(each.nbytes for waiting in some for each in waiting) > SEGMENT_BYTES_MAX:
            for waiting, arrays in zip(some, found, strict=True):
                arrays.append(pa.concat_arrays(waiting))
                waiting.clear()
    return pa.chunked_array(found[0]), pa.chunked_array(found[1])


def _packed(batches: Sequence[pa.RecordBatch], size: int) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA, options=write_options(size)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


class SparkState:
    """The state that Spark keeps for the task that runs: a value, and a map of numbers to bytes. Made in
    `StatefulProcessor.init`."""

    def __init__(self, handle: Any) -> None:
        from pyspark.sql.types import BinaryType, LongType, StructField, StructType

        # Schemas as objects: as text each costs a call to the JVM.
        value = StructType([StructField("data", BinaryType())])
        number = StructType([StructField("number", LongType())])
        self._directory = handle.getValueState("directory", value)
        self._segments = handle.getMapState("segments", number, value)

    def get(self) -> bytes | None:
        found = self._directory.get()
        return None if found is None else bytes(found[0])

    def put(self, directory: bytes) -> None:
        self._directory.update((directory,))

    def get_segment(self, number: int) -> bytes | None:
        found = self._segments.getValue((number,))
        return None if found is None else bytes(found[0])

    def put_segment(self, number: int, data: bytes) -> None:
        self._segments.updateValue((number,), (data,))

    def remove_segment(self, number: int) -> None:
        self._segments.removeKey((number,))
