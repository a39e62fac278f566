"""Tests a topology without a broker and without Spark, one record at a time. The results are those of Kafka Streams'
test driver without caches.

    with TopologyTestDriver(topology) as driver:
        flights = driver.create_input_topic("flights")
        flights.pipe_input("AA", {"dep_delay": 20}, 0)
        driver.create_output_topic("carrier.daily").read_records_to_list()
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from suiro.errors import UsageError
from suiro.registry import MOCK_SCHEME
from suiro.streams.dsl.checks import check_policies, dead_letter_topics
from suiro.streams.dsl.registries import with_registry, with_registry_of
from suiro.streams.durations import milliseconds
from suiro.streams.interpreter import Emitted, Interpreter
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Headers, Record
from suiro.streams.serdes import Serde
from suiro.streams.topology.nodes import Sink, Source
from suiro.streams.topology.topology import Topology
from suiro.testing.batch_cuts import BatchCuts

if TYPE_CHECKING:
    from suiro.registry import RegistryClient

_drivers = count(1)


class TopologyTestDriver:
    """Every topic has one partition. Only `advance_wall_clock_time` advances the wall-clock time.

    >>> delays.group_by_key().count(materialized=Materialized.as_("counts")).to_stream().to("counts")
    >>> driver = TopologyTestDriver(builder.build())
    >>> source = driver.create_input_topic("delays")
    >>> source.pipe_key_value_list([("UA", 3), ("UA", 4), (None, 5)])
    >>> driver.create_output_topic("counts").read_key_values_to_list()
    [('UA', 1), ('UA', 2)]
    >>> driver.get_key_value_store("counts").get("UA"), driver.dropped_records_total
    (2, 1)
    >>> driver.close()
    """

    __test__ = False  # pytest: not a test

    def __init__(
        self,
        topology: Topology,
        *,
        initial_wall_clock_time_ms: int = 0,
        on_deserialization_error: str = "fail",
        on_processing_error: str = "fail",
        schema_registry_url: str | None = None,
        cuts: int | Sequence[Sequence[int]] | None = None,
        cuts_seed: int = 0,
    ) -> None:
        """`schema_registry_url`: for serdes with a registry; by default, the driver has its own in memory.

        `cuts`: when the driver is closed, functions of `map_batches` are called again with their records, cut into
        batches in so many ways, drawn from the seed, or into batches of these sizes, repeated. They must give the
        results of each record alone (`BatchesDifferError`)."""
        check_policies(
            topology, on_processing_error=on_processing_error, on_deserialization_error=on_deserialization_error
        )
        self._registry_url = schema_registry_url or f"{MOCK_SCHEME}topology-test-driver-{next(_drivers)}"
        topology = with_registry(topology, self._registry_url)
        self._topology = topology
        self._dead_letter_topics = dead_letter_topics(topology, on_processing_error, on_deserialization_error)
        self._wall_clock_ms = initial_wall_clock_time_ms
        self._cuts = None if cuts is None else BatchCuts(cuts, cuts_seed)
        self._interpreter = (Interpreter if self._cuts is None else self._cuts.interpreter)(
            topology,
            settings=TaskSettings(on_processing_error=on_processing_error),
            on_deserialization_error=on_deserialization_error,
            wall_clock_time=initial_wall_clock_time_ms,
        )
        self._read: dict[str, deque[Emitted]] = {}

    def create_input_topic(
        self, topic: str, *, key: Serde | None = None, value: Serde | None = None, start_timestamp_ms: int = 0
    ) -> TestInputTopic:
        """The default serdes are those of the topology's source."""
        sources = [node.operator for node in self._topology.nodes if isinstance(node.operator, Source)]
        source = next((source for source in sources if topic in source.topics), None)
        if source is None:
            raise UsageError(
                f"the topology does not read topic {topic!r}; it reads "
                f"{', '.join(self._topology.source_topics) or 'none'}"
            )
        key, value = self._bound(key, is_key=True), self._bound(value)
        return TestInputTopic(self, topic, key or source.key, value or source.value, start_timestamp_ms)

    def create_output_topic(
        self, topic: str, *, key: Serde | None = None, value: Serde | None = None
    ) -> TestOutputTopic:
        """Reads keys and values with these serdes. Without them, they are those that the topology gave to the sink.
        Raises `UsageError` if the topology does not write the topic."""
        written = (*self._topology.sink_topics, *self._dead_letter_topics)
        chosen = any(isinstance(node.operator, Sink) and callable(node.operator.topic) for node in self._topology.nodes)
        if topic not in written and not chosen:
            raise UsageError(f"the topology does not write topic {topic!r}; it writes {', '.join(written) or 'none'}")
        return TestOutputTopic(self, topic, self._bound(key, is_key=True), self._bound(value))

    @property
    def schema_registry(self) -> RegistryClient:
        """The registry, to register and to inspect schemas."""
        from suiro.registry import registry_client

        return registry_client(self._registry_url)

    def advance_wall_clock_time(self, by: str | int) -> None:
        """Advances by a duration, and runs the wall-clock punctuators that are due."""
        self._wall_clock_ms += milliseconds(by, what="advance_wall_clock_time")
        self._interpreter.advance_wall_clock(self._wall_clock_ms)

    def get_state_store(self, name: str) -> Any:
        """Returns a store of any kind, with the methods that it has for processors: a test may also write to it."""
        return self._interpreter.store(name)

    def get_key_value_store(self, name: str) -> Any:
        """Returns the store of a table, of a global table, or of `add_state_store`."""
        return self._store_of(name, "key-value", "global")

    def get_versioned_key_value_store(self, name: str) -> Any:
        """Returns the store of a versioned table."""
        return self._store_of(name, "versioned")

    def get_window_store(self, name: str) -> Any:
        """Returns the store of an aggregate in time or sliding windows, or of a join of streams."""
        return self._store_of(name, "window")

    def get_session_store(self, name: str) -> Any:
        """Returns the store of an aggregate in sessions."""
        return self._store_of(name, "session")

    @property
    def dropped_records_total(self) -> int:
        """Records dropped so far: late, without a key, unreadable (Kafka Streams' dropped-records-total)."""
        return self._interpreter.dropped_total

    def close(self) -> None:
        """Closes the processors. With `cuts`, checks the functions of `map_batches`."""
        self._interpreter.close()
        cuts, self._cuts = self._cuts, None
        if cuts is not None:
            cuts.check(self._topology)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._cuts = None  # report the first error, not its consequences
        self.close()

    def _bound(self, serde: Serde | None, *, is_key: bool = False) -> Serde | None:
        return None if serde is None else with_registry_of(serde, self._registry_url, is_key=is_key)

    def _store_of(self, name: str, *kinds: str) -> Any:
        store = self._interpreter.store(name)
        if store.spec.kind not in kinds:
            raise UsageError(f"store {name!r} is a {store.spec.kind} store, not a {kinds[0]} store")
        return store

    def _queue(self, topic: str) -> deque[Emitted]:
        outputs = self._interpreter.outputs
        while outputs:
            found = outputs.popleft()
            self._read.setdefault(found.topic, deque()).append(found)
        return self._read.setdefault(topic, deque())


class TestInputTopic:
    """Made by `TopologyTestDriver.create_input_topic`. A record without a timestamp gets that of the record before it,
    or `start_timestamp_ms`; `advance_time` moves it."""

    __test__ = False

    def __init__(
        self, driver: TopologyTestDriver, topic: str, key: Serde, value: Serde, start_timestamp_ms: int
    ) -> None:
        self._driver = driver
        self._topic = topic
        self._key, self._value = key, value
        self._timestamp_ms = start_timestamp_ms

    def pipe_input(self, key: Any, value: Any, timestamp_ms: int | None = None, headers: Headers = ()) -> None:
        """Pipes a record, and runs everything that follows from it. `headers`: pairs of a name and bytes."""
        self.pipe_raw(
            None if key is None else self._key.serialize(self._topic, key),
            None if value is None else self._value.serialize(self._topic, value),
            timestamp_ms,
            headers,
        )

    def pipe_key_value_list(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Pipes records with the same timestamp."""
        for key, value in pairs:
            self.pipe_input(key, value)

    def pipe_raw(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int | None = None, headers: Headers = ()
    ) -> None:
        """Pipes the bytes of a record, which the source's serdes may be unable to read."""
        if timestamp_ms is not None:
            self._timestamp_ms = timestamp_ms
        interpreter = self._driver._interpreter
        interpreter.pipe(self._topic, self._timestamp_ms, key, value, tuple(headers))

    def advance_time(self, by: str | int) -> None:
        """Moves the timestamp of the next records by a duration."""
        self._timestamp_ms += milliseconds(by, what="advance_time")


class TestOutputTopic:
    """Made by `TopologyTestDriver.create_output_topic`. Each record is read once."""

    __test__ = False

    def __init__(self, driver: TopologyTestDriver, topic: str, key: Serde | None, value: Serde | None) -> None:
        self._driver = driver
        self._topic = topic
        self._key, self._value = key, value

    def read_record(self) -> Record:
        """Returns the next record. Raises `UsageError` if there is none."""
        queue = self._driver._queue(self._topic)
        if not queue:
            raise UsageError(f"topic {self._topic!r} has no record that was not read yet")
        return self._decoded(queue.popleft())

    def read_key_value(self) -> tuple[Any, Any]:
        """As `read_record`, without timestamp and headers."""
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> Any:
        """As `read_record`; only the value."""
        return self.read_record().value

    def read_records_to_list(self) -> list[Record]:
        """Returns all records that were not read yet."""
        queue = self._driver._queue(self._topic)
        found = [self._decoded(item) for item in queue]
        queue.clear()
        return found

    def read_key_values_to_list(self) -> list[tuple[Any, Any]]:
        """As `read_records_to_list`, without timestamps and headers."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_values_to_list(self) -> list[Any]:
        """As `read_records_to_list`; only the values."""
        return [record.value for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[Any, Any]:
        """Returns the last value of each key."""
        return dict(self.read_key_values_to_list())

    @property
    def is_empty(self) -> bool:
        """Whether every record was read."""
        return not self._driver._queue(self._topic)

    @property
    def queue_size(self) -> int:
        """How many records were not read yet."""
        return len(self._driver._queue(self._topic))

    def _decoded(self, found: Emitted) -> Record:
        record = found.record
        key, value = record.key, record.value
        if self._key is not None and found.key is not None:
            key = self._key.deserialize(self._topic, found.key)
        if self._value is not None and found.value is not None:
            value = self._value.deserialize(self._topic, found.value)
        return Record(key, value, record.timestamp, record.headers)
