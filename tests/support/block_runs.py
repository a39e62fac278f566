"""A sub-topology run twice over the same records: by `Task`, one by one, and by `BlockTask`, in blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from suiro.streams.blocks import BlockTask, Taken, block_plan
from suiro.streams.blocks.block import Block
from suiro.streams.blocks.outputs import Parcel
from suiro.streams.call_loop import Calls
from suiro.streams.operators.context import TaskSettings
from suiro.streams.operators.functions import topic_of
from suiro.streams.records import Change, Origin, Record, Windowed
from suiro.streams.serdes import natural
from suiro.streams.serdes.block_forms import encode_rows
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.task import TIMES, Task
from suiro.streams.topology.nodes import GlobalTableSource, Node, Repartition, Sink
from suiro.streams.topology.topology import SubTopology, Topology


@dataclass(frozen=True)
class Fed:
    """A record for an input; `carried` as `Task.process` takes it."""

    input: str
    record: Record
    carried: int = -1


Left = tuple[str, Any, Any, int, Any]
"""What left: topic or repartition, key, value, timestamp, headers."""


class _Collected:
    def __init__(self) -> None:
        self.left: dict[str, list[Left]] = {}

    def add(self, to: str, key: Any, value: Any, timestamp: int, headers: Any) -> None:
        self.left.setdefault(to, []).append((to, key, value, timestamp, headers))


class ByRecord(_Collected):
    """`task.Outputs`."""

    def emit(self, node: Node, record: Record) -> None:
        key, value = record.key, record.value
        operator = node.operator
        if isinstance(operator, Repartition):
            # The values themselves: they come out on the other side.
            self.add(f"/{node.name}", key, value, record.timestamp, record.headers)
            return
        assert isinstance(operator, Sink)
        topic = topic_of(operator, record)
        raw = None if key is None else (operator.key or natural).serialize(topic, key)
        data = None if value is None else (operator.value or natural).serialize(topic, value)
        self.add(topic, raw, data, record.timestamp, record.headers)

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None:
        self.add(topic, *_letter(topic, record, origin, error))


class ByBlock(_Collected):
    """`blocks.BlockOutputs`."""

    def sink(self, node: Node, block: Block, failed: Callable[[int, Exception], None]) -> list[Parcel]:
        operator = node.operator
        assert isinstance(operator, Sink)
        found: dict[str, Parcel] = {}
        for row, (key, value) in enumerate(zip(block.keys, block.values, strict=True)):
            try:
                topic = topic_of(operator, block.record(row))
                raw = None if key is None else (operator.key or natural).serialize(topic, key)
                data, errors = encode_rows(operator.value or natural, [value], topic)
                for error in errors.values():
                    raise error
            except Exception as error:
                failed(row, error)
                continue
            parcel = found.setdefault(
                topic, Parcel(topic=topic, keys=[], values=[], timestamps=[], headers=[], rows=[])
            )
            parcel.keys.append(raw)  # type: ignore[attr-defined]
            parcel.values.append(data[0])  # type: ignore[attr-defined]
            parcel.timestamps.append(block.timestamps[row])  # type: ignore[attr-defined]
            parcel.headers.append(() if block.headers is None else block.headers[row])  # type: ignore[union-attr]
            parcel.rows.append(row)  # type: ignore[union-attr]
        return list(found.values())

    def repartition(self, node: Node, block: Block, failed: Callable[[int, Exception], None]) -> None:
        for row in range(len(block)):
            record = block.record(row)
            self.add(f"/{node.name}", record.key, record.value, record.timestamp, record.headers)

    def letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> Parcel:
        key, value, timestamp, headers = _letter(topic, record, origin, error)
        return Parcel(topic=topic, keys=[key], values=[value], timestamps=[timestamp], headers=[headers])

    def send(self, parcel: Parcel) -> None:
        for row, (key, value, timestamp) in enumerate(zip(parcel.keys, parcel.values, parcel.timestamps, strict=True)):
            self.add(parcel.topic, key, value, timestamp, () if parcel.headers is None else parcel.headers[row])


def _letter(topic: str, record: Record, origin: Origin | None, error: Exception) -> tuple[Any, Any, int, Any]:
    value = record.value.new if isinstance(record.value, Change) else record.value
    key = record.key.key if isinstance(record.key, Windowed) else record.key
    where = None if origin is None else (origin.partition, origin.offset)
    return repr(key), repr(value), record.timestamp, (repr(where), repr(error))


@dataclass
class Ran:
    left: dict[str, list[Left]]
    dropped: dict[str, int]
    kept: dict[str, dict[bytes, bytes | None]]


def run_both(
    topology: Topology,
    sub: SubTopology,
    batches: Sequence[Sequence[Sequence[Fed]]],
    settings: TaskSettings,
    tables: Sequence[tuple[str, Any, Any]] = (),
    only: bool | None = None,
) -> list[Ran]:
    """`batches`: micro-batches of blocks of records. `tables`: rows of global tables: store, key, value. `only`: in
    blocks (True) or by record (False); else by record, then in blocks."""
    ways = (False, True) if only is None else (only,)
    return [_run(topology, sub, batches, settings, tables, in_blocks) for in_blocks in ways]


def _run(
    topology: Topology,
    sub: SubTopology,
    batches: Sequence[Sequence[Sequence[Fed]]],
    settings: TaskSettings,
    tables: Sequence[tuple[str, Any, Any]],
    in_blocks: bool,
) -> Ran:
    names = (TIMES, *(spec.name for spec in sub.stores))
    maps = {name: OrderedMap() for name in names}
    global_stores = {
        node.operator.store: open_store(topology.store(node.operator.store), OrderedMap())
        for node in topology.nodes
        if isinstance(node.operator, GlobalTableSource)
    }
    for store, key, value in tables:
        global_stores[store].put(key, value, 0)
    by_record, by_block = ByRecord(), ByBlock()
    dropped: dict[str, int] = {}
    offset = 0
    opened: dict[str, Any] = {spec.name: open_store(spec, maps[spec.name], keeps=in_blocks) for spec in sub.stores}
    for number, blocks in enumerate(batches):
        common: dict[str, Any] = {
            "partition": 0,
            "maps": maps,
            "settings": settings,
            "global_stores": global_stores,
            "opened_stores": opened,
            "wall_clock_time": number * 50,
            "caller": Calls(),
        }
        task: Task
        if in_blocks:
            task = BlockTask(topology, sub, block_plan(topology, sub), outputs=by_block, **common)
        else:
            task = Task(topology, sub, outputs=by_record, **common)
        for fed in blocks:
            origins = [Origin("from", 0, offset + row, each.record.timestamp) for row, each in enumerate(fed)]
            offset += len(fed)
            if isinstance(task, BlockTask):
                inputs = [each.input for each in fed]
                headers = [each.record.headers for each in fed]
                carried = [each.carried for each in fed]
                task.process_block(
                    Taken(
                        inputs=inputs[0] if len(set(inputs)) == 1 else inputs,
                        keys=[each.record.key for each in fed],
                        values=[each.record.value for each in fed],
                        timestamps=[each.record.timestamp for each in fed],
                        origin=origins.__getitem__,
                        headers=headers if any(headers) else None,
                        carried=carried if max(carried, default=-1) >= 0 else None,
                    )
                )
            else:
                for each, origin in zip(fed, origins, strict=True):
                    task.process(each.input, each.record, origin, each.carried)
        task.advance_wall_clock(number * 50)
        task.end_of_batch()
        task.close()
        for reason, count in task.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    kept = {name: dict(maps[name].take_changes()) for name in names}
    found = by_block if in_blocks else by_record
    return Ran(found.left, dropped, kept)
