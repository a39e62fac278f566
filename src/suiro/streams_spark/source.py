"""The source of a topology in Spark: reads ranges of topic partitions and produces rows with messages.

Planning is that of format "suiro", and a few things more: which partitions are behind, and the wall clock, stand in
the offsets that Spark writes down before a micro-batch runs. A task reads one or more ranges (`input_partitions`).

Spark starts several processes that only plan, so nothing that tasks work with is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from suiro.clock import SystemClock
from suiro.foundation.types import TopicPartition
from suiro.spark import Idling, OffsetRange, PlanningReader, Positions, SourceOptions, newest_in
from suiro.streams.errors import CheckpointError
from suiro.streams_spark.plan import may_punctuate
from suiro.streams_spark.program import Program, load
from suiro.streams_spark.rebuild import Boundary, committed_boundary
from suiro.streams_spark.shuffle_message import SPARK_SCHEMA, InputRange, Work

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "suiro-topology"
WAITS = "waits"
"""An option: a check for new records may wait for some. It is not set where a trigger says when to check."""
FOLLOW_MS = 200
"""The pause between requests for the committed offsets of an application that is followed."""
COMMIT_AGAIN_MS = 24 * 3_600_000
"""A micro-batch without records follows the last one after this time. Brokers forget what it commits, the marker and
the offsets, some days after the commit (offsets.retention.minutes), also of an application that only has no input."""
LOOK_AT_COMMITS_MS = 3_600_000
RECORDS_PER_TASK_MIN = 20_000
"""One task reads fewer records than this: a second task would cost more than it saves."""


class TopologySource(DataSource):
    """`option("program", ...)` is all it takes."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SPARK_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TopologyReader(self.options["program"], waits=self.options.get(WAITS) == "true")


class WorkPartition(InputPartition):
    value: Work


class TopologyReader(PlanningReader):
    """Made from a program."""

    def __init__(self, given: Any, *, waits: bool = False) -> None:
        super().__init__(given)
        self._waits = waits
        self._idling = Idling()
        self._followed: Boundary | None = None
        self._looked_at_commits_ms: int | None = None

    @property
    def _options(self) -> SourceOptions:
        options = self._program.source
        # Source tasks never hold a whole micro-batch. Stream tasks do.
        return options if self._program.plan.levels else replace(options, max_bytes_per_trigger=None)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        positions = self._read_here(start)
        end = self._after(positions, limit)
        if end is None and self._can_wait(positions):
            wait_ms, clock_ms = self._idling.found_nothing(), self._until_clock_ms(positions)
            wait_ms = wait_ms if clock_ms is None else min(wait_ms, clock_ms)
            if self._planner.wait_for_more(positions, wait_ms) or clock_ms is not None:
                end = self._after(positions, limit)
        if end is None:
            if self._program.follows:
                SystemClock().sleep_ms(FOLLOW_MS)
            return start  # the same value tells Spark that there is nothing new
        self._idling.found_something()
        return end.to_json()

    def _read_here(self, value: dict[str, Any]) -> Positions:
        """Without the topics that the topology does not read any more: they are not lost."""
        positions, topics = Positions.from_json(value), self._program.plan.topics
        read = {place: offset for place, offset in positions.offsets.items() if place[0] in topics}
        return replace(positions, offsets=read)

    def _after(self, positions: Positions, limit: ReadLimit) -> Positions | None:
        """The end of a micro-batch that begins at `positions`; None if there is nothing for one."""
        boundary = self._boundary()
        max_offsets, max_bytes = self._limits(limit)
        end = self._planner.latest(
            positions,
            max_offsets=max_offsets,
            max_bytes=max_bytes,
            frozen=self._frozen,
            unlimited=self._program.plan.global_inputs,
            evenly=True,
            boundary=None if boundary is None else boundary.offsets,
            follows=self._program.follows,
            pace=self._program.pace,
        )
        self._program.plan.require_known(end.offsets)
        if self._program.follows and boundary is not None:
            end = replace(end, follows=boundary.paused(end))
        clock = self._clock(positions)
        is_new = end.offsets != positions.offsets or positions.initial or self._ends_rebuild(positions, end)
        is_new |= not _waited_for(positions) <= end.offsets.keys()
        if not is_new and (clock is None or clock == positions.clock):
            # The time makes it another offset, for which Spark plans a micro-batch.
            return replace(end, clock=SystemClock().wall_ms()) if self._must_commit_again() else None
        if clock is None and may_punctuate(self._program.plan.topology.sub_topologies):
            clock = SystemClock().wall_ms()  # a processor may ask for it
        return replace(end, clock=clock)

    def _must_commit_again(self) -> bool:
        checkpoint = self._program.sink.checkpoint_location
        now_ms, looked_ms = SystemClock().monotonic_ms(), self._looked_at_commits_ms
        if self._program.follows or checkpoint is None:
            return False
        if looked_ms is not None and now_ms - looked_ms < LOOK_AT_COMMITS_MS:
            return False
        self._looked_at_commits_ms = now_ms
        try:
            last = (Path(checkpoint) / "commits" / str(newest_in(checkpoint, "commits"))).stat()
        except OSError:
            return False  # nothing is committed yet
        return SystemClock().wall_ms() - last.st_mtime * 1000 >= COMMIT_AGAIN_MS

    def _ends_rebuild(self, before: Positions, after: Positions) -> bool:
        """Whether this is the first micro-batch that writes, after those that only rebuilt state or if there was
        nothing to rebuild from. It writes all changelogs, even if it has no record."""
        is_rebuilding = before.replayed or (before.initial and self._program.boundary is not None)
        return is_rebuilding and not after.replayed

    def _boundary(self) -> Boundary | None:
        """The boundary of a rebuild, or the present one of an application that is followed."""
        program = self._program
        if not program.follows:
            return program.boundary
        found = committed_boundary(self._planner.client, program.sink, program.plan.topics, is_stable=False)
        if found is None:
            raise CheckpointError(
                f"the committed offsets of {program.sink.application_id!r} are gone: there is nothing to replace. "
                "Start the application without --replace (in Python: replace=True) and with an empty state directory"
            )
        self._followed = found
        return found

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """A query that follows reports its lag to the offsets that the running application has committed."""
        newest = None if self._plan is None else self._plan.newest
        if newest is None or self._followed is None:
            return super().reportLatestOffset()
        return replace(newest, offsets=self._followed.offsets).to_json()

    def _can_wait(self, positions: Positions) -> bool:
        """Whether a wait can bring records: it cannot bring those that a limit or a pace holds back."""
        newest = self._planner.newest
        return (
            self._waits
            and not self._program.follows
            and self._frozen is None
            and newest is not None
            and newest.offsets == positions.offsets
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = self._read_here(start), self._read_here(end)
        boundary = self._program.boundary
        paused = dict(after.follows or {})
        if boundary is not None and after.follows is None:
            paused = boundary.paused(after)
        told = after.behind | paused.keys() | _waited_for(before)
        if not _waited_for(before) - _waited_for(after) <= after.offsets.keys():
            # Records of any others may have waited for one that is not read any more.
            told = frozenset(after.offsets)
        ranges = self._planner.ranges(before, after)
        # Also where there is nothing to read any more, as retention may have it: tasks wait for what they were told of.
        for topic, partition in sorted((told & after.offsets.keys()) - {item.place for item in ranges}):
            at = after.offsets[topic, partition]
            ranges.append(OffsetRange(topic=topic, partition=partition, start=at, end=at))
        input_partitions = [
            InputRange(
                records=item,
                behind=item.place in after.behind,
                tells=item.place in told,
                paused=paused.get(item.place),
            )
            for item in ranges
        ]
        ticks = self._program.clock_ms is not None and after.clock is not None
        shares = shared_out(input_partitions, after.clock, self._program.parallelism, ticks=ticks)
        if self._ends_rebuild(before, after):
            first, *others = shares or [Work(input_partitions=(), clock=after.clock)]
            shares = [replace(first, rewrites=True), *others]
        return [WorkPartition(replace(share, replayed=after.replayed)) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from suiro.streams_spark.shuffle_message import rows_batches
        from suiro.streams_spark.source_task import work_rows

        work = partition.value
        if work is not None:
            for rows in work_rows(self._program, work):
                yield from rows_batches(rows)

    def _clock(self, before: Positions) -> int | None:
        until_ms = self._until_clock_ms(before)
        if until_ms == 0:
            return SystemClock().wall_ms()
        return None if until_ms is None else before.clock

    def _until_clock_ms(self, before: Positions) -> int | None:
        """Returns in how many ms a micro-batch must bring the wall clock; None if nothing waits for it."""
        every = self._program.clock_ms
        if every is None:
            return None
        if before.clock is None:
            return 0
        until = before.clock + every - SystemClock().wall_ms()
        # After a clock that was far ahead is set back, the schedule follows it. Else nothing would be due for long.
        return 0 if until > 2 * every else max(0, until)

    @property
    def _program(self) -> Program:
        return load(self._given)


def _waited_for(positions: Positions) -> frozenset[TopicPartition]:
    """The partitions for which tasks buffer records after the micro-batch that ends here."""
    return positions.behind.union(positions.follows or ())


def shared_out(
    input_partitions: Sequence[InputRange], clock: int | None, parallelism: int, *, ticks: bool
) -> list[Work]:
    """Distributes ranges over tasks, about the same number of records to each; few records go to one task. `ticks`: one
    task sends the clock, even if there is no record."""
    total = sum(item.records.end - item.records.start for item in input_partitions)
    count = max(1, min(parallelism, len(input_partitions), -(-total // RECORDS_PER_TASK_MIN)))
    shares: list[list[InputRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    for item in sorted(input_partitions, key=lambda item: item.records.start - item.records.end):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(item)
        sizes[smallest] += item.records.end - item.records.start
    return [
        Work(input_partitions=tuple(share), clock=clock, ticks=index == 0 and ticks)
        for index, share in enumerate(shares)
        if share or ticks
    ]
