"""Format "suiro" for PySpark: the entry Spark knows, and its batch and streaming readers.

Everything here runs in Spark's Python workers: planning in a process of the driver, `read` in tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from suiro.clock import SystemClock
from suiro.errors import ConfigError, SuiroError
from suiro.spark.offsets import Positions
from suiro.spark.options import SinkOptions, SourceOptions
from suiro.spark.planning import OffsetRange, Planner
from suiro.spark.waiting import WAITED_FOR, RetryingClient, Waiting

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
_log = logging.getLogger(__name__)
HEADERS = ", headers array<struct<key: string, value: binary>>"


class SuiroDataSource(DataSource):
    """`spark.read.format("suiro")`, `readStream`, `write`, `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "suiro"

    def schema(self) -> str:
        return SCHEMA + (HEADERS if SourceOptions.parse(self.options).include_headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        options = SourceOptions.parse(self.options).for_batch()
        _require_own_schema(schema, options)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = SourceOptions.parse(self.options)
        _require_own_schema(schema, options)
        if any(name.lower().startswith("ending") for name in self.options):
            raise ConfigError("option endingOffsets is for batch reads; a stream has no end")
        if not options.read_committed:
            raise ConfigError(
                "option kafka.isolation.level: a stream reads read_committed only, since a micro-batch that runs "
                "again must find the same records"
            )
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from suiro.spark.sink import BatchWriter

        if overwrite:
            raise ConfigError(
                'format "suiro" cannot overwrite a topic, as Spark\'s Kafka connector cannot; say .mode("append"), and '
                "delete the topic's records before, if they are not wanted any more"
            )
        return BatchWriter(SinkOptions.parse(self.options).for_format(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from suiro.spark.sink import StreamWriter

        return StreamWriter(SinkOptions.parse(self.options).for_format().for_stream(), schema)


class RangePartition(InputPartition):
    """An offset range, on its way to a task."""

    value: OffsetRange


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        from suiro.client import Client

        with Client(self._options.bootstrap_servers, settings=self._options.client_settings) as client:
            ranges = Planner(client, self._options, clock=SystemClock()).batch_ranges()
        return [RangePartition(item) for item in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition.value)


class PlanningReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process of the driver for as long as the query. Copies of it, made from `given`, run the tasks.

    A subclass defines its options, and the records that a micro-batch reads.
    """

    def __init__(self, given: Any) -> None:
        self._given = given
        self._client: Any = None
        self._plan: Planner | None = None
        self._initial: dict[str, Any] | None = None
        self._frozen: Positions | None = None
        self._is_given_up = False

    def __getstate__(self) -> dict[str, Any]:
        return {"given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["given"])  # type: ignore[misc]

    @property
    def _options(self) -> SourceOptions:
        raise NotImplementedError

    def initialOffset(self) -> dict[str, Any]:
        # Asked for twice by Spark at the start of a query; "latest" must be one place.
        if self._initial is None:
            self._initial = self._planner.initial().to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """Offsets and bytes. Spark names one limit, or none where the trigger asks for everything."""
        if isinstance(limit, ReadAllAvailable):
            return None, None
        return self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For `lastProgress`, whose difference to the end offset is the lag. Asks nobody: as known when planning."""
        newest = None if self._plan is None else self._plan.newest
        return None if newest is None else newest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = self._planner.latest(Positions(offsets={}))

    def commit(self, end: dict[str, Any]) -> None:
        """Offsets are committed in the transaction of the micro-batch."""

    def give_up(self) -> None:
        """Makes its waits fail now, and all later ones; called from another thread."""
        self._is_given_up = True
        if self._client is not None:
            self._client.abandon()

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = self._plan = None

    @property
    def _connected(self) -> Any:
        if self._client is None:
            from suiro.client import Client

            self._client = Client(self._options.bootstrap_servers, settings=self._options.client_settings)
        return self._client

    @property
    def _planner(self) -> Planner:
        if self._plan is None:
            clock = SystemClock()
            waiting = Waiting(
                clock=clock,
                limit_ms=self._options.waiting_limit_ms,
                is_wanted=lambda: not self._is_given_up,
            )
            # At the start of a query an error means a wrong address. Later it means that the log is away.
            client = RetryingClient(self._connected, waiting, waits_at_first=False)
            self._plan = Planner(client, self._options, clock=clock)
        return self._plan


class StreamReader(PlanningReader):
    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self._planned_at_ms: int | None = None
        self._told: Positions | None = None
        self._refusal = ""

    @property
    def _options(self) -> SourceOptions:
        options: SourceOptions = self._given
        return options

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        positions = Positions.from_json(start)
        self._tell_progress(positions)
        max_offsets, max_bytes = self._limits(limit)
        end = self._planner.latest(positions, max_offsets=max_offsets, max_bytes=max_bytes, frozen=self._frozen)
        # The very same value tells Spark that there is nothing new.
        if (end.offsets == positions.offsets or self._waits_for_more(positions, end)) and not positions.initial:
            return start
        self._planned_at_ms = SystemClock().monotonic_ms()
        return replace(end, behind=frozenset()).to_json()

    def _waits_for_more(self, start: Positions, end: Positions) -> bool:
        """minOffsetsPerTrigger; a query that has just started does not wait, as with Spark's connector."""
        least, since = self._options.min_offsets_per_trigger, self._planned_at_ms
        if least is None or since is None or self._frozen is not None or end.behind:
            return False
        count = sum(stop - start.offsets.get(place, 0) for place, stop in end.offsets.items())
        return count < least and SystemClock().monotonic_ms() - since < self._options.max_trigger_delay_ms

    def _tell_progress(self, done: Positions) -> None:
        """Commits the progress for tools that show lag. Nothing reads it back, so no error ends the query. If the log
        was away, the next call repeats it. If it refused, that is told once, and the next progress is tried.

        `commit` cannot do it: Spark calls that when it plans another micro-batch, so the last one would be missing.
        """
        group = self._options.group_id
        if group is None or done.initial or done == self._told:
            return
        try:
            self._connected.offset_commit(group, {place: (offset, "") for place, offset in done.offsets.items()})
            self._told = done
        except WAITED_FOR as error:
            _log.warning("progress is not in group %s yet: %s", group, error)
        except SuiroError as error:
            self._told = done
            if self._refusal != str(error):
                self._refusal = str(error)
                _log.warning("progress is not in group %s, and the query goes on: %s", group, error)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._planner.ranges(Positions.from_json(start), Positions.from_json(end))
        return [RangePartition(item) for item in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition.value, waits=True)


def _read(options: SourceOptions, wanted: OffsetRange | None, *, waits: bool = False) -> Iterator[pa.RecordBatch]:
    if wanted is None:  # how Spark says that there is no partition at all
        return
    from suiro.spark.connections import lease
    from suiro.spark.reading import ReadSettings, read_range

    settings = ReadSettings(
        include_headers=options.include_headers,
        read_committed=options.read_committed,
        fail_on_data_loss=options.fail_on_data_loss,
        max_fetch_bytes=options.max_fetch_bytes,
        rows_per_batch=options.rows_per_batch,
    )
    with lease(options.bootstrap_servers, options.client_settings) as client:
        clock = SystemClock()
        waiting = Waiting(clock=clock, limit_ms=options.waiting_limit_ms if waits else 0)
        yield from read_range(RetryingClient(client, waiting), wanted, settings, clock)


def _require_own_schema(schema: StructType, options: SourceOptions) -> None:
    expected = SCHEMA + (HEADERS if options.include_headers else "")
    ours = [part.split()[0] for part in SCHEMA.split(", ")] + (["headers"] if options.include_headers else [])
    if schema.fieldNames() != ours:
        raise ConfigError(f'format "suiro" has the columns {expected}; do not give it another schema')
