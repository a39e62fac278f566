"""What a program costs in Spark's Python tasks: source tasks and stream tasks in this process, without Spark and log.

    python benchmarks/tasks.py [PROGRAM ...] [--events 200000] [--rounds 3] [--profile]

Programs are the queries of Nexmark (`q0`, ...; `q0:expressions`) and `flights`, the pipeline of the demo. All records
come in one micro-batch for each of `--batches`. The figures are µs of processor time for an input record, the best
round: `source` (decoding, operators before the first repartition, what is sent and staged) and `tasks` (all behind it,
with state). They do not depend on the load of other processes as rates do; what Spark and Java need comes on top.
`--profile` prints the functions that take most of it.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import nexmark_events
import nexmark_queries
import pyarrow as pa

from suiro.demo import pipeline
from suiro.demo.dataset import REFERENCES, flights, references
from suiro.demo.names import PREFIX, RAW, WEATHER
from suiro.demo.pipeline import FLIGHT, FLIGHT_KEY
from suiro.protocol.columnar import partitions_of
from suiro.spark import OffsetRange, SinkOptions, SourceOptions
from suiro.streams import StreamsBuilder, serdes
from suiro.streams.dsl.registries import with_registry
from suiro.streams.operators.context import TaskSettings
from suiro.streams.topology.topology import Topology
from suiro.streams_spark.input_reader import InputReader
from suiro.streams_spark.outputs import Topics
from suiro.streams_spark.plan import plan
from suiro.streams_spark.program import Program
from suiro.streams_spark.run_task import run_task
from suiro.streams_spark.shuffle_message import STAGED, InputRange
from suiro.streams_spark.source_task import input_rows
from suiro.streams_spark.state_log import StateCache, StateLog

PARTITIONS = 4
CHUNK = 20_000  # records that a source reads at a time
KAFKA = {"kafka.bootstrap.servers": "nowhere:1"}
REGISTRY = "mock://tasks"
TOP = 45

Raw = tuple[bytes, bytes | None, int]


@dataclass
class Stage:
    """Takes what would be staged for the transaction."""

    records: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.records += batch.num_rows

    def partition_count(self, topic: str) -> int:
        return PARTITIONS

    def finish(self) -> None:
        return None


@dataclass
class Handle:
    """The state of one task, as Spark would keep it."""

    directory: bytes | None = None
    segments: dict[int, bytes] = field(default_factory=dict)

    def get(self) -> bytes | None:
        return self.directory

    def put(self, directory: bytes) -> None:
        self.directory = directory

    def get_segment(self, number: int) -> bytes | None:
        return self.segments.get(number)

    def put_segment(self, number: int, data: bytes) -> None:
        self.segments[number] = data

    def remove_segment(self, number: int) -> None:
        del self.segments[number]


class _Log(InputReader):
    """The records of a micro-batch."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, lambda: True)
        self.chunks: dict[tuple[str, int], list[pa.RecordBatch]] = {}

    def read(self, records: OffsetRange, *, is_replayed: bool) -> Iterator[pa.RecordBatch]:
        return iter(self.chunks[records.place])


class Tasks:
    """All tasks of a topology, one after the other."""

    def __init__(self, topology: Topology, inputs: dict[str, list[Raw]]) -> None:
        self._plan = plan(topology, "app", dict.fromkeys(topology.source_topics, PARTITIONS))
        self._program = Program(
            run=uuid.uuid4().hex,
            plan=self._plan,
            settings=TaskSettings(coalesces=True),
            on_deserialization_error="fail",
            source=SourceOptions.parse({**KAFKA, "subscribe": ",".join(topology.source_topics)}),
            sink=SinkOptions.parse(KAFKA),
            parallelism=1,
        )
        self._handles: dict[tuple[int, int], Handle] = defaultdict(Handle)
        self._cache = StateCache()
        self._inputs = {
            place: rows for topic in topology.source_topics for place, rows in _partitioned(topic, inputs[topic])
        }
        self._log = _Log(self._program)
        self.seconds = {"source": 0.0, "tasks": 0.0}
        self.stage = Stage()

    def run(self, batches: int) -> None:
        for number in range(batches):
            self._micro_batch(number, batches)

    def _micro_batch(self, number: int, batches: int) -> None:
        start = time.process_time()
        topics = Topics(self.stage)  # type: ignore[arg-type]
        rows: list[tuple[int, int, bytes]] = []
        for (topic, partition), columns in sorted(self._inputs.items()):
            first, end = (columns.num_rows * at // batches for at in (number, number + 1))
            item = InputRange(
                records=OffsetRange(topic=topic, partition=partition, start=first, end=end),
                behind=number + 1 < batches,
                tells=True,
            )
            share = columns.slice(first, end - first)
            chunks = [share.slice(at, CHUNK) for at in range(0, share.num_rows, CHUNK)]
            self._log.chunks[topic, partition] = chunks
            for found in input_rows(self._program, item, chunks, topics):
                rows += found
        rows += topics.finish()
        between = time.process_time()
        self.seconds["source"] += between - start
        for level in range(1, self._plan.levels + 1):
            waiting: dict[tuple[int, int], list[bytes]] = defaultdict(list)
            for sub, partition, data in rows:
                if sub != STAGED:
                    waiting[sub, partition].append(data)
            rows = []
            for (sub, partition), messages in sorted(waiting.items()):
                if self._plan.subs[sub].level != level:
                    rows += [(sub, partition, data) for data in messages]
                    continue
                log = StateLog(self._handles[sub, partition], self._cache, (sub, partition))
                rows += run_task(self._program, sub, partition, messages, log, Topics(self.stage), self._log)  # type: ignore[arg-type]
        self.seconds["tasks"] += time.process_time() - between


def _partitioned(topic: str, rows: Sequence[Raw]) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    keys = pa.array([key for key, _, _ in rows], pa.binary())
    partitions = partitions_of(keys, PARTITIONS).tolist()
    own: list[list[Raw]] = [[] for _ in range(PARTITIONS)]
    for row, partition in zip(rows, partitions, strict=True):
        own[partition].append(row)
    for partition, found in enumerate(own):
        columns = [
            pa.array([row[0] for row in found], pa.binary()),
            pa.array([row[1] for row in found], pa.binary()),
            pa.array(range(len(found)), pa.int64()),
            pa.array([row[2] for row in found], pa.int64()),
            pa.array([[]] * len(found), pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
        names = ["key", "value", "offset", "timestamp", "headers"]
        yield (topic, partition), pa.RecordBatch.from_arrays(columns, names)


def nexmark(query: str, form: str, events: int) -> tuple[Callable[[], Topology], dict[str, list[Raw]]]:
    found: dict[str, list[Raw]] = defaultdict(list)
    for event in nexmark_events.events(events):
        value = json.dumps(event.value, separators=(",", ":")).encode()
        found[event.topic].append((event.key.encode(), value, event.timestamp))
    for key, row in nexmark_events.side_rows():
        found[nexmark_events.SIDE].append((key.encode(), json.dumps(row).encode(), nexmark_events.START_MS))

    def build() -> Topology:
        builder = StreamsBuilder()
        nexmark_queries.build(builder, query, form, "out")
        return builder.build()

    return build, found


def demo(events: int) -> tuple[Callable[[], Topology], dict[str, list[Raw]]]:
    """Without the weather: a flight joins it in vain."""
    names = [each["name"] for each in FLIGHT_KEY["fields"]]
    found = {RAW: _avro(RAW, flights(limit=events).to_pylist(), FLIGHT_KEY, FLIGHT, names), WEATHER: []}
    for table in REFERENCES:
        rows = references(table).to_pylist()
        id_ = next(iter(rows[0]))
        found[f"{PREFIX}.public.{table}"] = _avro(
            f"{PREFIX}.public.{table}",
            rows,
            _schema("Key", rows, [id_]),
            _schema("Value", rows, list(rows[0])),
            [id_],
        )

    def build() -> Topology:
        builder = StreamsBuilder()
        pipeline.build(builder)
        return with_registry(builder.build(), REGISTRY)

    return build, found


def _avro(topic: str, rows: list[dict[str, Any]], key: Any, value: Any, names: list[str]) -> list[Raw]:
    of_value = serdes.avro.with_(schema=value, registry=REGISTRY)
    of_key = replace(serdes.avro.with_(schema=key, registry=REGISTRY), is_key=True)
    return [
        (of_key.serialize(topic, {name: row[name] for name in names}), of_value.serialize(topic, row), 0)
        for row in rows
    ]


def _schema(name: str, rows: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    kinds = {str: "string", float: "double", int: "long"}
    found = {column: next((type(row[column]) for row in rows if row[column] is not None), str) for column in names}
    fields = [{"name": column, "type": ["null", kinds[kind]], "default": None} for column, kind in found.items()]
    return {"type": "record", "name": name, "fields": fields}


def measure(program: str, options: argparse.Namespace) -> None:
    name, _, form = program.partition(":")
    made = demo(options.events) if name == "flights" else nexmark(name, form or "functions", options.events)
    build, inputs = made
    profile = cProfile.Profile(time.process_time)
    best: dict[str, float] = {}
    read = 0
    for _ in range(options.rounds):
        topology = build()
        tasks = Tasks(topology, inputs)
        read = sum(len(inputs[topic]) for topic in topology.source_topics)
        if options.profile:
            profile.enable()
        tasks.run(options.batches)
        profile.disable()
        if not best or sum(tasks.seconds.values()) < sum(best.values()):
            best = tasks.seconds
    each = {part: seconds / read * 1e6 for part, seconds in best.items()}
    print(
        f"{program:16} {read:9,} records, source {each['source']:6.2f} us, tasks {each['tasks']:6.2f} us, "
        f"{sum(each.values()):6.2f} in all, {tasks.stage.records // options.batches:9,} staged records a micro-batch",
        flush=True,
    )
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(TOP)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=["flights", *nexmark_queries.FUNCTIONS])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for program in options.programs:
        measure(program, options)


if __name__ == "__main__":
    main()
