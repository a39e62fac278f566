"""`KafkaStreams`: a topology, an application id and a cluster; `start()` runs it on Spark, exactly once.

    streams = KafkaStreams(topology, application_id="orders", bootstrap_servers="127.0.0.1:9092")
    streams.start()
    streams.await_termination()

Where it was, and all its state, is in `state_dir`. Started again with the same application id and directory, it goes
on; killed at any point, no result is lost or written twice. Where the directory is lost, `rebuild=True` makes the state
again out of the source topics, and writes nothing that is written already. `replace=True` does so while the application
runs elsewhere, and takes its place when it has caught up.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from suiro.clock import monotonic_s
from suiro.errors import ConfigError, UsageError
from suiro.foundation.files import home_folder
from suiro.foundation.types import TopicPartition
from suiro.spark import Positions, SinkOptions, SourceOptions
from suiro.streams.dsl.checks import check_policies, dead_letter_topics
from suiro.streams.dsl.loops import without_loops
from suiro.streams.dsl.registries import check_schemas, registry_for_run
from suiro.streams.operators.context import TaskSettings
from suiro.streams.topology.topology import Topology
from suiro.streams_spark.reports import RunCounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from suiro.client import Client
    from suiro.spark import Pace, TrailingRecordOf
    from suiro.streams.queries.store_reader import ReadOnlyStore
    from suiro.streams_spark.plan import Plan
    from suiro.streams_spark.rebuild import Boundary
    from suiro.streams_spark.replacement import Follower, Replacement
    from suiro.streams_spark.reports import TaskReport
    from suiro.streams_spark.row_trace import Traceable
    from suiro.telemetry import Traces

POLL_S = 0.05
_log = logging.getLogger(__name__)
MAX_OFFSETS_PER_TRIGGER = 2_000_000
"""Records in one micro-batch unless said otherwise: a long backlog must not have to fit into memory at once."""
MAX_BYTES_PER_TRIGGER = 128 * 1024 * 1024
"""The same in bytes, of a topology that has stream tasks."""

State = Literal["CREATED", "FOLLOWING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING", "ERROR"]
Emit = Literal["micro-batch", "every"]


class KafkaStreams:
    """`emit="micro-batch"`: a table's last update of each key and micro-batch, `"every"`: all of them.

    `on_processing_error`, `on_deserialization_error`: "fail", "skip" or "dead-letter:<topic>". `trigger`: as Spark's
    `DataStreamWriter.trigger` takes it, `{"processingTime": "1 second"}`; as fast as possible otherwise. `settings`: of
    the Kafka client and the reading, in the names of format "suiro" (`kafka.client.id`, `startingOffsets`, ...).
    `max_offsets_per_trigger`: approximate maximum of records in a micro-batch; None for no limit.
    `schema_registry_url`: the registry of serdes without one of their own; by default `SUIRO_REGISTRY` of
    the environment. `rebuild`: start without a checkpoint, although the application has run before (see
    `streams_spark.rebuild`). `replace`: the same for an application that runs, with another `state_dir`; this start
    takes its place (`replacement`). `create_topics`: create missing source and output topics. `trailing_record`:
    creates the last record of each micro-batch's transaction. `pace`: limits where micro-batches end. `traces`: the
    target of the spans of records (`suiro.telemetry.traces_to`); the caller closes it.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        application_id: str,
        bootstrap_servers: str,
        spark: SparkSession | None = None,
        state_dir: Path | str | None = None,
        emit: Emit = "micro-batch",
        on_processing_error: str = "fail",
        on_deserialization_error: str = "fail",
        max_offsets_per_trigger: int | None = MAX_OFFSETS_PER_TRIGGER,
        trigger: Mapping[str, Any] | None = None,
        settings: Mapping[str, str] | None = None,
        schema_registry_url: str | None = None,
        rebuild: bool = False,
        replace: bool = False,
        create_topics: bool = False,
        trailing_record: TrailingRecordOf | None = None,
        pace: Pace | None = None,
        traces: Traces | None = None,
    ) -> None:
        if emit not in ("micro-batch", "every"):
            raise ConfigError(f'emit={emit!r} is neither "micro-batch" nor "every"')
        if not application_id.strip(".") or {"/", "\0"} & {*application_id} or len(os.fsencode(application_id)) > 255:
            raise ConfigError(
                f"application_id={application_id!r:.300} cannot be the name of a directory; use letters, digits, "
                "'.', '_' and '-', at most 255"
            )
        _check_names(settings or {})
        if replace and trigger and not {"processingTime", "realTime"} & set(trigger):
            raise ConfigError(
                f"trigger={dict(trigger)!r} ends when all is processed; replace=True goes on until it has taken over"
            )
        if "://" in str(state_dir):
            raise ConfigError(
                f"state_dir={str(state_dir)!r} is a URL; it has to be a directory: one that driver and executors see "
                "under the same name, such as a mounted bucket or NFS"
            )
        check_policies(
            topology, on_processing_error=on_processing_error, on_deserialization_error=on_deserialization_error
        )
        self.topology = registry_for_run(without_loops(topology), schema_registry_url)
        self.application_id = application_id
        self.state_dir = Path(state_dir) if state_dir is not None else default_state_dir()
        self._bootstrap_servers = bootstrap_servers
        self._spark = spark
        self._task_settings = TaskSettings(
            on_processing_error=on_processing_error,
            coalesces=emit != "every",
            application_id=application_id,
        )
        self._on_deserialization_error = on_deserialization_error
        self._max_offsets = max_offsets_per_trigger
        self._trigger = trigger
        self._settings = dict(settings or {})
        self._rebuild = rebuild
        self._replace = replace
        self._create_topics = create_topics
        self._trailing_record = trailing_record
        self._pace = pace
        self._traces = traces
        self._stores: dict[str, ReadOnlyStore] = {}
        self._counts = RunCounts()
        self._query: StreamingQuery | None = None
        self._follower: Follower | None = None
        self._state: State = "CREATED"
        self._clock_ms: int | None = None

    @property
    def checkpoint(self) -> Path:
        """The directory of this application in `state_dir`."""
        return self.state_dir / self.application_id

    def check_settings(self) -> None:
        """Raises the `ConfigError` that `start` would; asks registries and no broker, and starts nothing."""
        check_schemas(self.topology)
        self._source_options(self.topology.source_topics)
        self._sink_options()

    def start(self) -> None:
        """Returns when the query runs. Raises `TopologyError` if the topology does not fit the existing topics or
        state, and `CheckpointError` if the application has run before with another state directory."""
        if self._state != "CREATED":
            raise UsageError(f"{self.application_id} is {self._state}; make a new KafkaStreams to start again")
        from suiro.spark import require_classic, spark_session
        from suiro.streams_spark.program import check_picklable
        from suiro.streams_spark.rebuild import Boundary
        from suiro.streams_spark.runner import start_query

        require_classic(
            "KafkaStreams",
            self._spark,
            instead="Start it in a driver of its own: give KafkaStreams a session made with "
            "SparkSession.builder.master(...), or none for this machine; or run `suiro run`",
        )
        check_picklable(self.topology)
        plan, boundary, follows = self._prepared()
        _log.debug("the cluster was asked, and the topology planned")
        if plan.levels == 0:
            # This process works itself on small micro-batches (`driver_task`): with what, is loaded while Java starts.
            import suiro.streams_spark.source_task  # noqa: F401
        spark = self._spark or spark_session(self.application_id, topologies_only=True)

        def start(boundary: Boundary | None, *, follows: bool) -> None:
            self._query = start_query(
                spark,
                self._program(plan, boundary, spark.sparkContext.defaultParallelism, follows=follows),
                checkpoint=self.checkpoint,
                counts=self._counts,
                trigger=self._trigger,
                trailing_record=self._trailing_record,
                traces=self._traces,
            )

        start(boundary, follows=follows)
        _log.debug("the query is started")
        self._state = "RUNNING"
        if follows:
            self._follow(plan, lambda: start(Boundary.load(self.checkpoint), follows=False))

    def process_all_available(self) -> None:
        """Returns when everything that is in the source topics now is processed and committed. With `replace` that is
        after it has taken over."""
        self._wait_for_switch(None)
        query = self._running()
        try:
            if self._clock_ms is None:
                query.processAllAvailable()
            else:
                self._wait_for_ends()
        except Exception:
            self._raise_failure()
            raise

    def await_termination(self, timeout: float | None = None) -> bool:
        """`timeout` is in seconds; returns False if it still runs then. Raises the error that ended it."""
        self._running()
        began = monotonic_s()
        if not self._wait_for_switch(timeout):
            return False
        timeout = None if timeout is None else max(0.001, timeout - (monotonic_s() - began))
        query = self._running()
        try:
            ended = query.awaitTermination() if timeout is None else query.awaitTermination(timeout)  # type: ignore[arg-type]
        except Exception:
            self._raise_failure()
            raise
        return True if timeout is None else bool(ended)

    def close(self) -> None:
        """Stops after the current micro-batch. Safe to call again."""
        if self._follower is not None:
            self._follower.stop()
        if self._query is not None and self._query.isActive:
            self._state = "PENDING_SHUTDOWN"
            self._query.stop()
        for store in self._stores.values():
            store.close()
        if self._state != "ERROR":
            self._state = "NOT_RUNNING"

    def __enter__(self) -> KafkaStreams:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def state(self) -> State:
        """CREATED, RUNNING, PENDING_SHUTDOWN, NOT_RUNNING or ERROR; FOLLOWING until `replace` has taken over."""
        if self._follower is not None and self._state == "RUNNING":
            if self._follower.is_at_it:
                return "FOLLOWING"
            if self._follower.failure is not None:
                return "ERROR"
        if self._state == "RUNNING" and self._query is not None and not self._query.isActive:
            return "ERROR" if self._query.exception() is not None else "NOT_RUNNING"
        return self._state

    @property
    def exception(self) -> BaseException | None:
        """The error that ended it. It is the error of the user's function if Spark's error tells it."""
        if self._follower is not None and self._follower.failure is not None:
            return self._follower.failure
        failure = None if self._query is None else self._query.exception()
        if failure is None:
            return None
        from suiro.streams_spark.runner import cause_of

        return cause_of(failure)

    @property
    def dropped_records(self) -> Mapping[str, int]:
        """How many records were left out since the start, by reason: "late", "null key", "deserialization error"..."""
        return dict(self._counts.dropped)

    @property
    def dropped_records_total(self) -> int:
        return self._counts.dropped.total()

    @property
    def dead_letter_topics(self) -> tuple[str, ...]:
        """Topics that get records which cannot be decoded or processed."""
        return dead_letter_topics(
            self.topology, self._task_settings.on_processing_error, self._on_deserialization_error
        )

    @property
    def rows_at_nodes(self) -> Mapping[str, int]:
        """How many rows reached the nodes of the topology since the start, in committed micro-batches. Consecutive
        nodes that process single records are counted at the first of them."""
        return dict(self._counts.rows)

    @property
    def rows_of_micro_batches(self) -> Mapping[int, Mapping[str, int]]:
        """The same for each of the last micro-batches, by its number."""
        return {number: dict(rows) for number, rows, _ in list(self._counts.last)}

    @property
    def retries_of_micro_batches(self) -> Mapping[int, int]:
        """How often each of the last micro-batches was tried again before it was committed, by its number."""
        return {number: retries for number, _, retries in list(self._counts.last)}

    @property
    def task_reports(self) -> tuple[TaskReport, ...]:
        """The status of each task that has run since the start."""
        return tuple(report for _, report in sorted(self._counts.tasks.copy().items()))

    @property
    def replacement(self) -> Replacement | None:
        """The progress of replacing a running application; None if this start replaces none."""
        return None if self._follower is None else self._follower.status

    @property
    def query(self) -> StreamingQuery:
        """Spark's own view: progress, metrics."""
        return self._running()

    def store(self, name: str) -> ReadOnlyStore:
        """Returns a store that can be queried while the application runs, until `close`. The first call for a name
        opens a copy, which follows the committed rows. Other processes can open one, too (`ReadOnlyStore`)."""
        self._running()
        if self._state == "NOT_RUNNING":
            raise UsageError(
                f"{self.application_id} is closed; open a copy of store {name!r} with "
                "suiro.streams.queries.store_reader.ReadOnlyStore"
            )
        if name not in self._stores:
            self._stores[name] = self.open_store(name)
        return self._stores[name]

    def open_store(self, name: str, *, max_bytes: int | None = None) -> ReadOnlyStore:
        """Opens a separate copy of a store, which the caller closes. `max_bytes` limits its rows."""
        from suiro.streams.queries.store_reader import ReadOnlyStore

        bootstrap_servers, settings = self.cluster
        return ReadOnlyStore(
            self.topology,
            name,
            application_id=self.application_id,
            bootstrap_servers=bootstrap_servers,
            settings=settings,
            max_bytes=max_bytes,
        )

    @property
    def was_started(self) -> bool:
        return self._query is not None

    @property
    def task_settings(self) -> TaskSettings:
        """The settings that decide, with the topology, how records go through it."""
        return self._task_settings

    @property
    def traceable(self) -> Traceable:
        """The values that a process needs to find the input records of rows."""
        from suiro.streams_spark.row_trace import Traceable

        return Traceable(
            topology=self.topology,
            settings=self._task_settings,
            on_deserialization_error=self._on_deserialization_error,
            connection=self.cluster,
        )

    @property
    def cluster(self) -> tuple[str, Mapping[str, str]]:
        """The address of the cluster, and the settings of the client."""
        options = self._source_options(self.topology.source_topics)
        return options.bootstrap_servers, options.client_settings

    def _client(self) -> Client:
        from suiro.client import Client

        bootstrap_servers, settings = self.cluster
        return Client(bootstrap_servers, settings=settings)

    def _running(self) -> StreamingQuery:
        if self._query is None:
            raise UsageError(f"{self.application_id} was not started; call start() first")
        return self._query

    def _follow(self, plan: Plan, go_on: Callable[[], None]) -> None:
        from suiro.streams_spark.replacement import Follower

        query = self._running()
        self._follower = Follower(
            connect=self._client,
            sink=self._sink_options(),
            topics=plan.topics,
            checkpoint=self.checkpoint,
            is_active=lambda: bool(query.isActive),
            stop_query=query.stop,
            go_on=go_on,
        )
        self._follower.start()

    def _wait_for_switch(self, timeout: float | None) -> bool:
        """Whether it has taken over. Raises the error that ended it."""
        if self._follower is None:
            return True
        is_over = self._follower.wait(timeout)
        if self._follower.failure is not None:
            raise self._follower.failure
        return is_over

    def _raise_failure(self) -> None:
        found = self.exception
        if found is not None:
            raise found

    def _wait_for_ends(self) -> None:
        """Waits until the query has reached the ends that the source topics have now. Spark's own wait never ends while
        a wall-clock schedule makes micro-batches."""
        from suiro.client import LATEST

        query = self._running()
        with self._client() as client:
            infos = client.metadata(list(self.topology.source_topics))
            places = [(name, item.partition) for name, info in infos.items() for item in info.partitions]
            listed = client.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)
            ends = {place: item.offset for place, item in listed.items()}
        while not _has_reached(query.lastProgress, ends):
            if query.awaitTermination(POLL_S):  # type: ignore[arg-type]
                return

    def _prepared(self) -> tuple[Plan, Boundary | None, bool]:
        """Checks that the topology fits the cluster and the state directory, and then creates the internal topics. The
        last value tells whether it has to follow a running process."""
        from suiro.streams_spark.description import check_description
        from suiro.streams_spark.key_placement import warn_of_misplaced_keys
        from suiro.streams_spark.plan import plan
        from suiro.streams_spark.rebuild import boundary_of, has_offsets
        from suiro.streams_spark.replacement import begin_to_follow, follows, require_not_replaced
        from suiro.streams_spark.topics import create_internal_topics, require_topics

        self.check_settings()
        with self._client() as client:
            infos = require_topics(
                client,
                read=self.topology.source_topics,
                written=(*self.topology.sink_topics, *self.dead_letter_topics),
                create=self._create_topics,
            )
            counts = {topic: len(info.partitions) for topic, info in infos.items()}
            warn_of_misplaced_keys(client, self.topology, counts)
            made = plan(self.topology, self.application_id, counts)
            sink = self._sink_options()
            if self._replace:
                begin_to_follow(client, sink, made.topics, self.checkpoint)
            is_following, boundary = follows(client, sink, made.topics, self.checkpoint), None
            if not is_following:
                require_not_replaced(client, sink, self.checkpoint)
                boundary = boundary_of(
                    client,
                    sink,
                    made.topics,
                    self.checkpoint,
                    rebuild=self._rebuild,
                    internal_topics=[topic.name for topic in made.internal_topics],
                    output_topics=self.topology.sink_topics,
                )
            has_state = has_offsets(self.checkpoint)
            check_description(made, self.checkpoint, is_planned=has_state)
            create_internal_topics(client, made.internal_topics, has_state=has_state)
        return made, boundary, is_following

    def _program(self, plan: Plan, boundary: Boundary | None, parallelism: int, *, follows: bool) -> Any:
        from suiro.streams_spark.program import Program
        from suiro.streams_spark.wall_clock import clock_interval

        self._clock_ms = clock_interval(self.topology, self._task_settings)
        return Program(
            run=uuid.uuid4().hex,
            plan=plan,
            settings=self._task_settings,
            on_deserialization_error=self._on_deserialization_error,
            source=self._source_options(plan.topics, is_rebuild=follows or boundary is not None),
            sink=replace(self._sink_options(), begins_after="" if boundary is None else boundary.marker),
            parallelism=parallelism,
            clock_ms=self._clock_ms,
            boundary=boundary,
            follows=follows,
            pace=self._pace,
            tracing=None if self._traces is None else self._traces.of(self.application_id),
        )

    def _source_options(self, topics: tuple[str, ...], *, is_rebuild: bool = False) -> SourceOptions:
        given = {
            name: value
            for name, value in self._settings.items()
            if not _is_of_sink(name) and not (is_rebuild and name.lower().startswith("starting"))
        }
        options = {
            "startingOffsets": "earliest",
            "maxBytesPerTrigger": str(MAX_BYTES_PER_TRIGGER),
            **({} if self._max_offsets is None else {"maxOffsetsPerTrigger": str(self._max_offsets)}),
            **given,
            "kafka.bootstrap.servers": self._bootstrap_servers,
            "subscribe": ",".join(topics),
        }
        return SourceOptions.parse(options)

    def _sink_options(self) -> SinkOptions:
        kafka = {
            name: value
            for name, value in self._settings.items()
            if name.lower().startswith("kafka.") or _is_of_sink(name)
        }
        return SinkOptions.parse(
            {
                **kafka,
                "kafka.bootstrap.servers": self._bootstrap_servers,
                "application.id": self.application_id,
                "checkpointLocation": str(self.checkpoint),
                # The committed offsets decide whether it may begin, before anything runs (`rebuild`), and so does the
                # marker, when it begins (`begins_after`).
                "checkpoint.missing": "begin",
            }
        ).for_stream()


_OF_SINK = {
    "kafka.compression.type",
    "kafka.batch.size",
    "kafka.transaction.timeout.ms",
    "sink.name",
    "staging.dir",
    "marker.missing",
}


def _has_reached(progress: Any, ends: Mapping[TopicPartition, int]) -> bool:
    """`progress`: of Spark's last micro-batch."""
    if progress is None:
        return False
    text = progress["sources"][0]["endOffset"]
    reached = Positions.from_json(text if isinstance(text, dict) else json.loads(text))
    return not reached.behind and all(reached.offsets.get(place, 0) >= end for place, end in ends.items())


def _is_of_sink(name: str) -> bool:
    return name.lower() in _OF_SINK


def default_state_dir() -> Path:
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else home_folder() / ".local" / "share") / "suiro"


def _check_names(settings: Iterable[str]) -> None:
    for name in settings:
        if name.lower() in ("minpartitions", "maxrecordsperpartition"):
            raise ConfigError(
                f"settings[{name!r}] would have records of one partition read by several tasks, and their order lost; "
                "leave it out, and give the topic more partitions where more tasks are wanted"
            )
        if name.lower() in ("minoffsetspertrigger", "maxtriggerdelay", "kafka.group.id"):
            raise ConfigError(
                f"settings[{name!r}] is for format suiro only: give `trigger` where micro-batches should wait; "
                "progress is committed to the group of the application id"
            )
        if name.lower().startswith("ending") or name.lower() == "kafka.isolation.level":
            raise ConfigError(
                f"settings[{name!r}] is for format suiro only: an application has no end, and reads what is committed; "
                "leave it out"
            )
