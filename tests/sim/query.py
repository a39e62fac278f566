"""A Spark query in the world: its checkpoint, and drivers that run its micro-batches through the real committer.

As Spark does it: a micro-batch's offsets are written down before it runs, its state version after, and that it is
finished last of all; each entry once, whoever is first. A driver that starts runs the last planned micro-batch again
unless it is finished. The rows are running counts per key, so a state that did not move on shows in the output.

A commit runs in a worker process of the driver, which Spark may keep or replace between two micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from suiro.client import Client
from suiro.protocol.records import Record, encode_batch
from suiro.spark.committer import Committer, Destination, MicroBatch, Outcome
from suiro.spark.decide import Plan
from tests.sim.network import HOST, PORT
from tests.sim.node import AUDIT, OUT, SOURCE, TOPICS
from tests.sim.world import START_MS, World

APPLICATION = "app"
LINEAGE = "query"
KEYS = 4

Place = tuple[str, int]
State = Mapping[str, int]


class ConcurrentUpdate(Exception):
    """Another driver has written this entry of the checkpoint: Spark ends the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One output record: the `count`-th of its key, made from one source record."""

    topic: str
    partition: int
    key: str
    count: int
    batch_id: int
    source: Place
    offset: int

    @property
    def value(self) -> str:
        return f"{self.batch_id}:{self.count}:{self.source[1]}:{self.offset}"


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """What Spark keeps on disk. Dictionary insertions are atomic, as its files are."""

    ends: dict[int, tuple[int, ...]] = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=lambda: {0: {}})
    finished: dict[int, str] = field(default_factory=dict)

    def plan(self, batch_id: int, ends: tuple[int, ...]) -> None:
        if batch_id in self.ends:
            raise ConcurrentUpdate(f"micro-batch {batch_id} was planned by another driver")
        self.ends[batch_id] = ends

    def finish(self, batch_id: int, driver: str, state: State | None) -> None:
        """`state`: the version that the plan's run has made, which counts from now on (as the ids of RocksDB's
        versions, which are in the commit log)."""
        if batch_id in self.finished:
            raise ConcurrentUpdate(f"micro-batch {batch_id} was finished by {self.finished[batch_id]}")
        self.finished[batch_id] = driver
        if state is not None:
            self.states[batch_id + 1] = state

    def start_of(self, batch_id: int) -> tuple[int, ...]:
        return self.ends[batch_id - 1] if batch_id else (0,) * TOPICS[SOURCE]


class Query:
    """What there is to read, and what must come of it."""

    def __init__(self, random: Random) -> None:
        self.keys = [[f"k{random.randrange(KEYS)}" for _ in range(random.randint(2, 9))] for _ in range(TOPICS[SOURCE])]
        self.checkpoint = Checkpoint()

    @property
    def length(self) -> tuple[int, ...]:
        return tuple(len(keys) for keys in self.keys)

    @property
    def is_finished(self) -> bool:
        checkpoint = self.checkpoint
        last = max(checkpoint.finished, default=-1)
        return last >= 0 and checkpoint.ends[last] == self.length

    def execute(self, batch_id: int, state: State) -> tuple[list[Row], State]:
        """Rows and the next state: a function of nothing else."""
        starts, ends = self.checkpoint.start_of(batch_id), self.checkpoint.ends[batch_id]
        counts, rows = dict(state), []
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            for offset in range(start, end):
                key = self.keys[index][offset]
                counts[key] = counts.get(key, 0) + 1
                for topic, partition in ((OUT, int(key[1:]) % TOPICS[OUT]), (AUDIT, 0)):
                    rows.append(
                        Row(
                            topic=topic,
                            partition=partition,
                            key=key,
                            count=counts[key],
                            batch_id=batch_id,
                            source=(SOURCE, index),
                            offset=offset,
                        )
                    )
        return rows, counts


class Writes:
    """A micro-batch's rows as record batches, cut otherwise at every attempt, as tasks do."""

    def __init__(self, rows: Sequence[Row], random: Random, *, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._by_place: dict[Place, list[Row]] = {}
        for row in rows:
            self._by_place.setdefault((row.topic, row.partition), []).append(row)
        self._random = random

    @property
    def partitions(self) -> list[Place]:
        return sorted(self._by_place)

    def batches(self) -> Iterator[tuple[str, int, bytes, int]]:
        for (topic, partition), rows in sorted(self._by_place.items()):
            position = 0
            while position < len(rows):
                size = self._random.choice(self._sizes)
                some = rows[position : position + size]
                position += size
                records = [
                    Record(offset=i, timestamp=START_MS, key=row.key.encode(), value=row.value.encode())
                    for i, row in enumerate(some)
                ]
                yield topic, partition, encode_batch(records), len(some)


class Driver:
    """One run of the query. `run` is the work of a process."""

    batch_sizes: Sequence[int] = (1, 1, 2, 8)

    def __init__(
        self,
        world: World,
        query: Query,
        name: str,
        *,
        settings: Mapping[str, str | int],
        transaction_timeout_ms: int,
        new_worker: float = 0.0,
    ) -> None:
        self.world, self.query, self.name = world, query, name
        self._settings = settings
        self._destination = Destination(application_id=APPLICATION, transaction_timeout_ms=transaction_timeout_ms)
        self._new_worker = new_worker
        self._workers: list[Committer] = []
        self.batch_id = -1
        self.next_state: State | None = None

    @property
    def is_overtaken(self) -> bool:
        """Another driver has gone on in the checkpoint from where this one is."""
        checkpoint = self.query.checkpoint
        return checkpoint.finished.get(self.batch_id, self.name) != self.name

    def run(self) -> None:
        checkpoint, random = self.query.checkpoint, self.world.random
        self.began()
        batch_id = max(checkpoint.ends, default=0)
        if batch_id in checkpoint.finished:
            batch_id += 1
        while True:
            self._pass_time()
            if batch_id not in checkpoint.ends:
                start = checkpoint.start_of(batch_id)
                if start == self.query.length:
                    return
                checkpoint.plan(batch_id, self._ends_after(start, random))
            self._pass_time()
            self.batch_id, self.next_state = batch_id, None
            self.micro_batch(batch_id)
            self._pass_time()
            self.finish(batch_id)
            self.world.tell("{} notes micro-batch {} as finished", self.name, batch_id)
            batch_id += 1

    def began(self) -> None:
        """For those who look on."""

    def finish(self, batch_id: int) -> None:
        self.query.checkpoint.finish(batch_id, self.name, self.next_state)

    def micro_batch(self, batch_id: int) -> Outcome:
        """The plan always runs; the committer decides whether its rows are written."""
        checkpoint = self.query.checkpoint
        rows = self.run_plan(batch_id)
        starts, ends = checkpoint.start_of(batch_id), checkpoint.ends[batch_id]
        self.world.tell("{} has run the plan of micro-batch {}: {} rows", self.name, batch_id, len(rows))
        plan = Plan(
            batch_id=batch_id,
            lineage=LINEAGE,
            run_id=self.name,
            start_digest=str(starts) if batch_id else "",
            end_digest=str(ends),
        )
        outcome = self.commit(plan, rows, {(SOURCE, index): end for index, end in enumerate(ends)})
        self.world.tell("{}: micro-batch {} is {}", self.name, batch_id, outcome.name.lower())
        return outcome

    def commit(self, plan: Plan, rows: Sequence[Row], source_offsets: Mapping[Place, int]) -> Outcome:
        writes = Writes(rows, self.world.random, sizes=self.batch_sizes)
        return self._worker().process(MicroBatch(plan=plan, writes=writes, source_offsets=source_offsets))

    def run_plan(self, batch_id: int) -> list[Row]:
        states = self.query.checkpoint.states
        rows, self.next_state = self.query.execute(batch_id, states[batch_id])
        self._pass_time()
        return rows

    def _worker(self) -> Committer:
        if not self._workers or self.world.chance(self._new_worker):
            client = Client(f"{HOST}:{PORT}", settings=self._settings, clock=self.world)
            self._workers.append(Committer(client, self._destination, clock=self.world))
        return self._workers[-1] if self.world.chance(0.8) else self.world.random.choice(self._workers)

    def _pass_time(self) -> None:
        self.world.sleep_ms(self.world.random.randint(1, 30))

    def _ends_after(self, start: tuple[int, ...], random: Random) -> tuple[int, ...]:
        """At least one record more."""
        while True:
            ends = tuple(
                min(length, begin + random.randint(0, 4))
                for begin, length in zip(start, self.query.length, strict=True)
            )
            if ends != start:
                return ends
