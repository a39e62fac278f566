"""A sub-topology that aggregates numbers of one input, on columns: prefix, combine, rows of the store, suffix.

The prefix and the combining run in the source task, the rest in the task. The bytes of the store and the operators'
times are those of the rules, so either can go on where the other stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Headers, Origin, Record
from suiro.streams.serdes import TimeWindowedSerde, double
from suiro.streams.stores import OrderedMap
from suiro.streams.times import UNKNOWN, OperatorTime
from suiro.streams.topology.nodes import (
    Node,
    Repartition,
    Sink,
    Source,
    StoreSpec,
    StreamAggregate,
    TimeWindowAggregate,
    ToStream,
)
from suiro.streams.topology.topology import SubTopology, Topology
from suiro.streams.vectorised import kernels
from suiro.streams.vectorised.aggregate import Inputs, NumberRows, Updates, combine, combine_windows, inputs_of
from suiro.streams.vectorised.by_rules import ColumnContext, RulePath, Suffix
from suiro.streams.vectorised.columns import Chunk, Column, headers_array, is_exact
from suiro.streams.vectorised.emission import Emission
from suiro.streams.vectorised.numbers import Numbers, recognised
from suiro.streams.vectorised.stateless import FALLBACK, Chain, Reason, Types, check_input, read_chunk, types_of_input
from suiro.streams.windows import EmitStrategy, TimeWindows

_OPAQUE = pa.dictionary(pa.int8(), pa.null())
"""The type of windowed keys: no expression can look into them."""

Records = Callable[[pa.RecordBatch], Iterable[tuple[Record, Origin]]]


def columnar_aggregate(
    topology: Topology, sub: SubTopology, aggregate: Node, settings: TaskSettings
) -> ColumnarAggregate:
    """Returns the columnar form. Raises `Reason` if there is none. `aggregate` is the only stateful operator of the
    sub-topology."""
    operator = aggregate.operator
    assert isinstance(operator, StreamAggregate | TimeWindowAggregate)
    if len(sub.inputs) != 1:
        raise Reason(f"{aggregate.name} has several inputs")
    source = sub.inputs[0]
    check_input(source)
    spec = topology.store(operator.store)
    if not is_exact(spec.key):
        raise Reason(f"{aggregate.name}: keys by serde {spec.key.name} may be equal and have different bytes")
    inside = {node.name for node in sub.nodes}
    prefix = Chain(topology, source, exits={aggregate.name}, inside=inside)
    unreached = inside - {source.name} - {node.name for node in prefix.nodes}
    if aggregate.name not in prefix.reached:
        raise Reason(f"{aggregate.name} is not fed by {source.name}")
    types = prefix.types_at(aggregate.name, types_of_input(source))
    try:
        numbers = recognised(operator.aggregation, spec, types)
    except Reason as reason:
        raise Reason(f"{aggregate.name}: {reason}") from None
    if numbers.op != kernels.COUNT and settings.on_processing_error != "fail":
        raise Reason(f"{aggregate.name}: on_processing_error asks for each record")
    windows = operator.windows if isinstance(operator, TimeWindowAggregate) else None
    if isinstance(operator, TimeWindowAggregate) and operator.emit is not EmitStrategy.ON_WINDOW_UPDATE:
        raise Reason(f"{aggregate.name} emits when windows close")
    single = isinstance(source.operator, Source) and len(source.operator.topics) == 1
    if not single and (windows is not None or numbers.needs_order):
        raise Reason(f"{aggregate.name} takes records of several input partitions, whose order counts")
    suffixes: list[Suffix] = []
    exits = {node.name for node in sub.outputs}
    key_type = types.key if windows is None else _OPAQUE
    out_types = Types(key_type, pa.float64() if numbers.is_double else pa.int64())
    for child, _ in topology.children(aggregate.name):
        if not isinstance(child.operator, ToStream):
            raise Reason(f"{aggregate.name} is a table that {child.name} goes on with")
        chain = Chain(topology, child, exits=exits, inside=inside)
        chain.check(out_types)
        if windows is not None:
            _check_windowed_sinks(topology, chain, TimeWindowedSerde(spec.key, windows.size_ms))
        suffixes.append(Suffix(topology, chain, settings))
        unreached -= {child.name, *(node.name for node in chain.nodes)}
    if unreached:
        raise Reason(f"{', '.join(sorted(unreached))} is beside the way from {source.name} to {aggregate.name}")
    return ColumnarAggregate(
        topology=topology,
        source=source,
        aggregate=aggregate,
        spec=spec,
        numbers=numbers,
        windows=windows,
        prefix=prefix,
        suffixes=suffixes,
        settings=settings,
    )


def _check_windowed_sinks(topology: Topology, chain: Chain, wanted: TimeWindowedSerde) -> None:
    for name in chain.reached:
        node = topology.node(name)
        assert isinstance(node.operator, Sink | Repartition)
        if node.operator.key != wanted or isinstance(node.operator, Repartition):
            raise Reason(f"{name}: windowed keys leave by another serde than {wanted.name}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnarAggregate:
    """The columnar form of an aggregation. `windows`: None for an aggregate of whole keys."""

    kind: Literal["aggregate"] = field(default="aggregate", init=False)
    topology: Topology
    source: Node
    aggregate: Node
    spec: StoreSpec
    numbers: Numbers
    windows: TimeWindows | None
    prefix: Chain
    suffixes: Sequence[Suffix]
    settings: TaskSettings

    @property
    def store(self) -> str:
        return self.spec.name

    @property
    def _topic(self) -> str:
        return f"{self.spec.name}-changelog"

    # In the source task

    def prepare(
        self,
        columns: pa.RecordBatch,
        topic: str,
        records: Records,
        context: ColumnContext,
    ) -> pa.RecordBatch:
        """Turns a chunk of an input partition into one payload. `columns`: as they are in the topic, or as they were
        carried from another task. `records`: reads them one by one."""
        try:
            chunk = read_chunk(self.source, columns, topic)
            seen = _latest(chunk.timestamps)
            arrived = self.prefix.run(chunk).get(self.aggregate.name) or chunk.take(np.arange(0))
            inputs, left_out = inputs_of(
                arrived,
                self.numbers,
                self.spec.key,
                self._topic,
                drops_null_values=self.windows is None,
            )
        except FALLBACK:
            inputs, seen, left_out = self._by_rules(records(columns), context)
        if "time" in columns.schema.names:
            seen = max(seen, _latest(columns.column("time").to_numpy()))
        context.drop(left_out)
        if self.windows is None:
            return _payload(combine(inputs, self.numbers), seen, _latest(inputs.timestamps))
        found, time, late = combine_windows(inputs, self.numbers, self.windows)
        context.drop({"late": late})
        return _payload(found, seen, time)

    def _by_rules(
        self, records: Iterable[tuple[Record, Origin]], context: ColumnContext
    ) -> tuple[Inputs, int, dict[str, int]]:
        """Does the same record by record, also for the numbers."""
        path = RulePath(self.topology, self.prefix, self.settings, context)
        number_of = _number_function(self.numbers)
        found: list[tuple[bytes, int, int | float | None, Headers]] = []
        dropped: Counter[str] = Counter()
        seen = UNKNOWN

        def noted() -> Iterator[tuple[Record, Origin]]:
            nonlocal seen
            for record, origin in records:
                seen = max(seen, record.timestamp)
                yield record, origin

        def arrive(name: str, record: Record) -> None:
            if record.key is None or (record.value is None and self.windows is None):
                dropped["null key" if record.key is None else "null value"] += 1
                return
            key = self.spec.key.serialize(self._topic, record.key)
            found.append((key, record.timestamp, number_of(record), record.headers))

        path.run(noted(), arrive)
        dropped.update(path.dropped)
        keys, timestamps, numbers, headers = zip(*found, strict=True) if found else ((), (), (), ())
        kind = np.float64 if self.numbers.is_double else np.int64
        valid = np.array([number is not None for number in numbers], np.uint8)
        inputs = Inputs(
            keys=pa.array(keys, pa.binary()),
            timestamps=np.array(timestamps, np.int64),
            numbers=None
            if self.numbers.operand is None
            else np.array([0 if number is None else number for number in numbers], kind),
            valid=None if self.numbers.operand is None or valid.all() else valid,
            headers=headers_array(headers),
        )
        return inputs, seen, dropped

    # In the task

    def new_rows(self) -> NumberRows:
        return NumberRows(self.numbers, is_windowed=self.windows is not None, operator=self.aggregate.name)

    def run(
        self,
        payloads: Sequence[pa.RecordBatch],
        rows: NumberRows,
        times: OrderedMap,
        context: ColumnContext,
    ) -> list[Emission]:
        """Applies the payloads of one micro-batch to the rows, and returns the records that leave. The payloads of each
        input partition are in order."""
        name, windows = self.aggregate.name, self.windows
        task_time, time = OperatorTime(), OperatorTime()
        task_time.restore(times, "")
        time.restore(times, name)
        length = 0 if windows is None else windows.size_ms + windows.grace_ms
        if windows is not None:
            time.closes_after(length)
        for payload in payloads:
            known = payload.schema.metadata
            if windows is None:
                rows.apply(payload)
            else:
                late = rows.apply(payload, max(time.current, time.closed), length)
                context.drop({"late": late})
                time.observe(int(known[b"reached"]))
            task_time.observe(int(known[b"seen"]))
        updates = rows.updates()
        if windows is not None and time.current > time.closed:
            time.closed = time.current
            retention = max(self.spec.retention_ms or 0, windows.retention_ms)
            rows.remove_before(time.closed - retention + 1)
        task_time.keep(times, "")
        time.keep(times, name)
        return self._leave(updates, context)

    def _leave(self, updates: Updates, context: ColumnContext) -> list[Emission]:
        if not self.suffixes or len(updates.keys) == 0:
            return []
        serde: Any = self.spec.key
        keys = updates.keys
        if self.windows is not None:
            serde = TimeWindowedSerde(serde, self.windows.size_ms)
            keys = pc.binary_slice(keys, 0, -4)
        chunk = Chunk(
            key=Column(raw=keys, serde=serde, topic=self._topic),
            value=Column(values=updates.numbers),
            timestamps=updates.timestamps,
            headers=updates.headers,
        )
        return [emission for suffix in self.suffixes for emission in suffix.leave(chunk, context)]

    def explain(self) -> list[str]:
        numbers = self.numbers
        how = "combined in the source task" if numbers.combines else "one after another in the task"
        windows = "" if self.windows is None else " per window"
        found = [f"{self.aggregate.name}: columns, {numbers.name}{windows} {how}"]
        for chain in (self.prefix, *(suffix.chain for suffix in self.suffixes)):
            found += [f"{node.name}: columns" for node in chain.nodes if node is not self.aggregate]
        return found


def _payload(columns: pa.RecordBatch, seen: int, reached: int) -> pa.RecordBatch:
    """Returns the message of a source task for one chunk of an input partition. `seen`: the latest timestamp of all
    records. `reached`: that of the records that came to the aggregate."""
    times = {"seen": str(seen), "reached": str(reached)}
    return columns.replace_schema_metadata({**(columns.schema.metadata or {}), **times})


def _latest(timestamps: Any) -> int:
    return int(timestamps.max()) if len(timestamps) else UNKNOWN


def _number_function(numbers: Numbers) -> Callable[[Record], int | float | None]:
    if numbers.operand is None:
        return lambda record: None
    function = numbers.operand.as_callable("key_value")

    def number_of(record: Record) -> int | float | None:
        found = function(record.key, record.value)
        wanted = (int, float) if numbers.is_double else (int,)
        if found is not None and type(found) not in wanted:
            raise TypeError(f"{found!r} is no {'double' if numbers.is_double else 'long'}")
        if type(found) is int and not numbers.is_double and not -(1 << 63) <= found < 1 << 63:
            raise OverflowError(f"{found} does not fit into 64 bits")
        if numbers.is_double and numbers.op != kernels.SUM and found is not None:
            double.serialize("", found)  # refuses what no double equals, as the store does
        return found  # type: ignore[no-any-return]

    return number_of
