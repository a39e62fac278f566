"""A stream joined with a table of the same sub-topology, on columns, in the task.

Records and table rows are taken in the order in which a task takes them: of the input partitions' heads the earliest,
ties in the order of the input partitions. That order is the one of each input partition's latest timestamp so far,
which is what makes it a sort.

Data that columns cannot do raises one of `FALLBACK` before anything has changed; the rules then run the micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.streams.errors import ProcessingError, described
from suiro.streams.expressions.expression import Expression
from suiro.streams.expressions.on_arrow import evaluate, result_type
from suiro.streams.operators.context import TaskSettings
from suiro.streams.serdes import NotColumnarError
from suiro.streams.serdes.block_forms import decode_block
from suiro.streams.stores import OrderedMap
from suiro.streams.times import UNKNOWN, OperatorTime
from suiro.streams.topology.nodes import Node, StoreSpec, StreamTableJoin, TableSource
from suiro.streams.topology.topology import SubTopology, Topology
from suiro.streams.vectorised.by_rules import ColumnContext, Suffix
from suiro.streams.vectorised.columns import Chunk, Column, is_exact, is_usable, type_of
from suiro.streams.vectorised.emission import Emission
from suiro.streams.vectorised.stateless import (
    FALLBACK,
    Chain,
    Reason,
    Types,
    check_input,
    joined,
    read_chunk,
    types_of_input,
)
from suiro.streams.vectorised.table import Met, TableRows

ROWS_AT_ONCE = 32_768
BYTES_AT_ONCE = 64 * 1024 * 1024
"""The most records or pairs, and bytes of the table's rows in them, that are read, joined and written at a time. Their
columns are many times as large."""
TABLE_BYTES_MAX = 1024 * 1024 * 1024
"""The most bytes of rows that one micro-batch puts into a table. An array of Arrow takes 2 GiB."""

_PLAIN = (str, bytes, int, float, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputChunks:
    """The records of one input partition for one input in a micro-batch, in order."""

    input: str
    topic: str
    columns: Sequence[pa.RecordBatch]


def columnar_join(topology: Topology, sub: SubTopology, join: Node, settings: TaskSettings) -> ColumnarJoin:
    """Returns the columnar form. Raises `Reason` if there is none. `join` and the source of its table are the only
    stateful operators of the sub-topology."""
    operator = join.operator
    assert isinstance(operator, StreamTableJoin)
    if operator.versioned or operator.grace_ms is not None:
        raise Reason(f"{join.name} joins a versioned table, or waits for late rows")
    table = topology.node(join.parents[1])
    if not isinstance(table.operator, TableSource) or table.operator.store != operator.table_store:
        raise Reason(f"{join.name} joins {table.name}, which is no source of a table")
    spec = topology.store(operator.table_store)
    if not is_exact(spec.key) or not is_usable(spec.value):
        raise Reason(f"{table.name}: serdes {spec.key.name} and {spec.value.name} are not both for columns")
    if settings.on_processing_error != "fail":
        raise Reason(f"{join.name}: on_processing_error asks for each record")
    inside = {node.name for node in sub.nodes}
    exits = {node.name for node in sub.outputs}
    chains: dict[str, Chain] = {}
    types: dict[str, Types] = {}
    covered = {join.name, table.name}
    for node in sub.inputs:
        check_input(node)
        chain = Chain(topology, node, exits={join.name, table.name}, inside=inside)
        if len(chain.reached) != 1:
            raise Reason(f"{node.name} feeds both sides of {join.name}, or none")
        (end,) = chain.reached
        types[end] = chain.types_at(end, types_of_input(node))
        chains[node.name] = chain
        covered |= {node.name, *(each.name for each in chain.nodes)}
    if [child.name for child, _ in topology.children(table.name)] != [join.name]:
        raise Reason(f"{table.name} is used by others than {join.name}")
    result = _result_type(join, operator, types.get(join.name), spec)
    suffix = Chain(topology, join, exits=exits, inside=inside)
    suffix.check(Types(types[join.name].key, result))
    covered |= {node.name for node in suffix.nodes}
    if covered != inside | {node.name for node in sub.inputs}:
        raise Reason(f"{', '.join(sorted(inside - covered))} is beside the way through {join.name}")
    left = _fields(operator.joiner, "left")
    return ColumnarJoin(
        topology=topology,
        join=join,
        operator=operator,
        table=table,
        spec=spec,
        chains=chains,
        suffix=Suffix(topology, suffix, settings),
        fields={name: chain.fields(lambda end: left if end is join else None) for name, chain in chains.items()},
    )


def _fields(joiner: Any, side: Literal["left", "right"]) -> frozenset[str] | None:
    return joiner.fields(side) if isinstance(joiner, Expression) else None


def _result_type(join: Node, operator: StreamTableJoin, stream: Types | None, spec: StoreSpec) -> pa.DataType | None:
    if stream is None:
        raise Reason(f"nothing comes into {join.name}")
    joiner = operator.joiner
    if not isinstance(joiner, Expression):
        return None
    if joiner.roots() - {"left", "right"}:
        raise Reason(f"{join.name}: the joiner looks at more than both values")
    right = type_of(spec.value)
    if stream.value is None or right is None:
        return None
    found = result_type(joiner, left=stream.value, right=right)
    if found is None:
        raise Reason(f"{join.name}: {joiner.describe()} has no form for columns")
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnarJoin:
    """The columnar form of a join. `fields`: those that are read of an input's values, as `Chain.fields` returns them.
    The table keeps its rows as a whole."""

    kind: Literal["join"] = field(default="join", init=False)
    topology: Topology
    join: Node
    operator: StreamTableJoin
    table: Node
    spec: StoreSpec
    chains: Mapping[str, Chain]
    suffix: Suffix
    fields: Mapping[str, frozenset[str] | None]

    @property
    def store(self) -> str:
        return self.spec.name

    @property
    def topic(self) -> str:
        return f"{self.spec.name}-changelog"

    @property
    def is_left(self) -> bool:
        return self.operator.join == "left"

    def new_rows(self) -> TableRows:
        return TableRows()

    def run(self, arrived: Arrived, rows: TableRows, times: OrderedMap, context: ColumnContext) -> Iterator[Emission]:
        """Puts the new rows into the table, and yields the results piece by piece. To be exhausted before the rows'
        changes are taken."""
        records = arrived.records
        met = arrived.met(rows)
        task_time = OperatorTime()
        task_time.restore(times, "")
        task_time.observe(arrived.seen)
        task_time.keep(times, "")
        context.drop(arrived.dropped)
        if records is None or met is None:
            return
        if not self.is_left:
            records, met = records.filter(met.found), met.take(met.found)
        for piece in met.pieces(ROWS_AT_ONCE, BYTES_AT_ONCE):
            some = records.slice(piece.start, piece.stop - piece.start)
            yield from self._joined(some, rows, met.take(piece), context)

    def _joined(self, records: Chunk, rows: TableRows, met: Met, context: ColumnContext) -> list[Emission]:
        left, right = records.value.read, self._decoded(rows, met)
        joiner: Any = self.operator.joiner
        values: pa.Array | list[Any] | None = None
        if isinstance(joiner, Expression):
            if right is not None:
                columns = {"left": left, "right": right, "timestamp": pa.array(records.timestamps)}
                with suppress(*FALLBACK):
                    values = evaluate(joiner, columns)
            joiner = joiner.as_callable("left_right")
        if values is None:
            others = self._one_by_one(rows.values(met)) if right is None else right.to_pylist()
            values = self._by_rows(joiner, records, left.to_pylist(), others)
        if isinstance(values, list):
            return self.suffix.leave_by_rules(records, values, context)
        chunk = replace(records, value=Column(values=values))
        return self.suffix.leave(chunk, context)

    def _decoded(self, rows: TableRows, met: Met) -> pa.Array | None:
        """Returns the rows as a column; None if they are no column. The table has changed by then, so the micro-batch
        goes on with single rows. A row that many records meet is decoded once."""
        distinct, each = met.distinct()
        try:
            if len(distinct.sizes) > len(met.sizes) // 2:
                return self._column(rows.values(met)).read
            return self._column(rows.values(distinct)).read.take(pa.array(each))
        except FALLBACK:
            return None

    def _one_by_one(self, rows: pa.Array) -> list[Any]:
        return decode_block(self.spec.value, rows.to_pylist(), self.topic)

    def _column(self, rows: pa.Array) -> Column:
        return Column(raw=rows, serde=self.spec.value, topic=self.topic, fields=_fields(self.operator.joiner, "right"))

    def _by_rows(self, joiner: Any, records: Chunk, ones: list[Any], others: list[Any]) -> pa.Array | list[Any]:
        """Returns results as a column, or as a list if they have no common type."""
        found: list[Any] = []
        try:
            found.extend(map(joiner, ones, others))
        except Exception as error:
            row = len(found)
            key = records.key.bytes_for(records.key.serde, "").slice(row, 1).to_pylist()
            raise ProcessingError(
                f"operator {self.join.name} failed on a record with key bytes {key}, timestamp "
                f"{int(records.timestamps[row])}: {described(error)}. Fix the function, or set "
                'on_processing_error to "skip" or "dead-letter:<topic>"'
            ) from error
        kinds = set(map(type, found)) - {type(None)}
        if len(kinds) > 1 or not kinds <= set(_PLAIN):
            return found
        try:
            return pa.array(found)
        except (pa.ArrowException, OverflowError, UnicodeError):
            return found

    def explain(self) -> list[str]:
        is_python = not isinstance(self.operator.joiner, Expression)
        how = "columns; its joiner is Python, called for each pair" if is_python else "columns"
        found = [f"{self.join.name}: {how}", f"{self.table.name}: columns"]
        ends = (self.join, self.table)
        for chain in (*self.chains.values(), self.suffix.chain):
            found += [f"{node.name}: columns" for node in chain.nodes if node not in ends]
        return found


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one side in their order. `reached`: how far their input partition had come at each. `values`: what goes
    into the table; None for records of the stream."""

    keys: pa.Array
    reached: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    values: pa.Array | None


class Arrived:
    """The records that came to both sides in a micro-batch. `input_partitions` are in the order in which ties are
    settled; none may have to wait for another. Raises one of `FALLBACK`; the rules must then run the micro-batch."""

    def __init__(self, columnar: ColumnarJoin, input_partitions: Sequence[InputChunks]) -> None:
        self._columnar = columnar
        self.dropped: dict[str, int] = {}
        self._stream: list[Chunk] = []
        self._pieces: list[_Piece] = []
        self.seen = UNKNOWN
        for input_partition in input_partitions:
            latest = UNKNOWN
            for columns in _parts(input_partition.columns):
                chunk = read_chunk(
                    columnar.topology.node(input_partition.input),
                    columns,
                    input_partition.topic,
                    fields=columnar.fields[input_partition.input],
                )
                reached = np.maximum(np.maximum.accumulate(chunk.timestamps), latest)
                latest = int(reached[-1])
                self.seen = max(self.seen, latest)
                chunk = replace(chunk, places=np.arange(len(chunk)))
                for end, piece in columnar.chains[input_partition.input].run(chunk).items():
                    self._add(piece, reached, is_stream=end == columnar.join.name)
        if sum(values.nbytes for values in self._values) > TABLE_BYTES_MAX:
            raise NotColumnarError("table", columnar.topic, "its rows of this micro-batch are too large")
        self.records = self._in_order()
        """The stream's records in the order of the join; None if there are none."""

    def _add(self, chunk: Chunk, reached: Any, *, is_stream: bool) -> None:
        columnar = self._columnar
        if is_stream:
            chunk = chunk.present("value", self.dropped)
        if not (is_stream and columnar.is_left):
            chunk = chunk.present("key", self.dropped)
        if len(chunk) == 0:
            return
        keys = chunk.key.bytes_for(columnar.spec.key, columnar.topic)
        values = None if is_stream else chunk.value.bytes_for(columnar.spec.value, columnar.topic)
        self._pieces.append(_Piece(keys, reached[chunk.places], chunk.timestamps, values))
        if is_stream:
            self._stream.append(chunk)

    @property
    def _values(self) -> list[pa.Array]:
        return [piece.values for piece in self._pieces if piece.values is not None]

    @cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        """The rows of all pieces in the order of the join."""
        return np.argsort(np.concatenate([piece.reached for piece in self._pieces]), kind="stable")

    @cached_property
    def _table_rows(self) -> npt.NDArray[np.int64]:
        """By row of all pieces: which of the rows for the table it is; -1: it is a record of the stream."""
        is_table = np.concatenate(
            [np.full(len(piece.keys), piece.values is not None, np.bool_) for piece in self._pieces]
        )
        return np.where(is_table, np.cumsum(is_table) - 1, -1)

    def _in_order(self) -> Chunk | None:
        if not self._stream:
            return None
        read = [chunk.value.read for chunk in self._stream]
        stream = self._stream
        if all(each.type == read[0].type for each in read):
            # What the joiner does not read of them goes no further.
            stream = [replace(chunk, value=Column(values=each)) for chunk, each in zip(stream, read, strict=True)]
        chunk = joined(stream, None) if len(stream) > 1 else stream[0]
        chunk.value.read  # noqa: B018 — is there before anything changes
        if len(self._pieces) > 1:
            is_record = self._table_rows < 0
            places = np.cumsum(is_record) - 1
            taken = places[self._order[is_record[self._order]]]
            if not (taken == np.arange(len(taken))).all():
                chunk = chunk.take(taken)
        return chunk

    def met(self, rows: TableRows) -> Met | None:
        """Puts the new rows into the table, and returns the rows that the records meet, in the order of `records`."""
        if not self._pieces:
            return None
        values = self._values
        if not values and len(self._pieces) == 1:
            return rows.look_up(self._pieces[0].keys)
        keys = pa.concat_arrays([piece.keys for piece in self._pieces])
        if not values:
            found = rows.look_up(keys)
        else:
            found = rows.meet(
                order=self._order,
                table_rows=self._table_rows,
                keys=keys,
                values=pa.concat_arrays(values),
                timestamps=np.concatenate([piece.timestamps for piece in self._pieces]),
            )
        if not self._stream:
            return None
        return found.take(self._order[self._table_rows[self._order] < 0])


def _parts(columns: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for each in columns:
        for start in range(0, each.num_rows, ROWS_AT_ONCE):
            yield each.slice(start, ROWS_AT_ONCE)
