"""Reads a named store while its pipeline runs: a local copy that follows the store's changelog topic.

Only committed records are seen, and every answer tells the changelog offsets it reflects. The copy needs no pipeline
in this process: any program with the topology, the application id and the log can hold one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Self, TypeVar

from suiro.client import LATEST, Client, Fetched
from suiro.clock import Clock
from suiro.errors import DeadlineExceededError, SuiroError, UsageError
from suiro.foundation.threads import InThreads
from suiro.protocol import columnar
from suiro.streams.records import Headers
from suiro.streams.sources import SourceReader
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.stores.ordered import Row
from suiro.streams.topology.nodes import GlobalTableSource, Node, Source, StoreSpec
from suiro.streams.topology.topology import Topology
from suiro.topic_table import TopicTable

ROW_BYTES = 200
"""The approximate memory of a row beside the bytes of its key and its value."""
READABLE = ("key-value", "global", "window", "session", "versioned")

T = TypeVar("T")
_TIMESTAMP = struct.Struct(">q")


class StoreTooLargeError(UsageError):
    """A copy would hold more bytes than its reader allowed."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """`offsets`: for each partition of the changelog topic, the offset after the last record that the answer
    includes."""

    value: T
    offsets: Mapping[int, int]


def changelog_topic(topology: Topology, application_id: str, store: str) -> str:
    """Where a store's rows can be read: its changelog topic, or the topic a global table is made from."""
    source = _global_source(topology, store)
    if source is None:
        return f"{application_id}-{store}-changelog"
    assert isinstance(source.operator, Source)
    return source.operator.topics[0]


def _global_source(topology: Topology, store: str) -> Node | None:
    for node in topology.nodes:
        if isinstance(node.operator, GlobalTableSource) and node.operator.store == store:
            return topology.node(node.parents[0])
    return None


class ReadOnlyStore:
    """Queries are those of Kafka Streams' read-only stores. Each waits until the copy has reached the end that the
    changelog had when the copy was opened; afterwards they answer at once. Thread-safe.

    `max_bytes` limits the memory of the rows, with `ROW_BYTES` for each. Above it, all queries raise
    `StoreTooLargeError`, and the copy drops its rows. None: no limit."""

    def __init__(
        self,
        topology: Topology,
        name: str,
        *,
        application_id: str,
        bootstrap_servers: str,
        settings: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        timeout_ms: int = 30_000,
        max_bytes: int | None = None,
    ) -> None:
        specs = {spec.name: spec for spec in topology.stores}
        if name not in specs:
            raise UsageError(f"the topology has no store {name!r}; it has {', '.join(sorted(specs)) or 'none'}")
        self._spec = spec = specs[name]
        if spec.kind not in READABLE:
            raise UsageError(f"store {name!r} is a {spec.kind} store; those that can be read are {', '.join(READABLE)}")
        source = _global_source(topology, name)
        if not spec.logged and source is None:
            raise UsageError(f"store {name!r} has no changelog topic, so it cannot be read from outside its task")
        self._topic = changelog_topic(topology, application_id, name)
        self._client = partial(Client, bootstrap_servers, settings=dict(settings or {}), clock=clock)
        self._timeout_ms = timeout_ms
        self._needs_headers = source is not None
        self._table = TopicTable(
            self._topic,
            new_client=self._client,
            new_state=lambda: _copy(source, spec, _Held(name, max_bytes)),
            decode=self._decode,
            apply=lambda copy, partition, batch: copy.apply(partition, batch),
            name=f"suiro-store-{name}",
            drop_on_reload=True,  # two copies would be more than `max_bytes`
            retry_errors=False,
            takes_new_partitions=True,  # the topic of a global table may get some
        )
        self._table.start()

    # Questions

    def get(self, key: Any) -> Answer[Any]:
        """The row of a key, None if there is none; in a versioned store, the latest."""
        return self._ask(lambda store: store.get(key), "key-value", "global", "versioned")

    def get_as_of(self, key: Any, timestamp: int) -> Answer[tuple[Any, int] | None]:
        """For a versioned store: the value that was valid then, and since when; within its history."""
        return self._ask(lambda store: store.get_as_of(key, timestamp), "versioned")

    def range(self, first: Any = None, last: Any = None) -> Answer[list[tuple[Any, Any]]]:
        """Rows with first <= key <= last in the order of the keys' bytes."""
        return self._ask(lambda store: list(store.range(first, last)), "key-value", "global")

    def prefix_scan(self, prefix: bytes) -> Answer[list[tuple[Any, Any]]]:
        """Rows whose keys' bytes start with `prefix`."""
        return self._ask(lambda store: list(store.prefix_scan(prefix)), "key-value", "global")

    def all(self) -> Answer[list[tuple[Any, Any]]]:
        """All rows, in the order of the keys' bytes."""
        return self._ask(lambda store: list(store.all()), *READABLE)

    def select(self, pick: Callable[[Iterator[tuple[Any, Any]]], T]) -> Answer[T]:
        """Returns what `pick` makes of all rows. The copy does not change meanwhile."""
        return self._ask(lambda store: pick(iter(store.all())), *READABLE)

    def fetch(self, key: Any, *bounds: int) -> Answer[Any]:
        """For a window store, (key, start) or (key, from, to), by the starts of the windows; for a session store,
        (key)."""

        def question(store: Any) -> Any:
            found = store.fetch(key, *bounds)
            return list(found) if isinstance(found, Iterator) else found

        return self._ask(question, "window", "session")

    def fetch_all(self, first_ms: int, last_ms: int) -> Answer[list[Any]]:
        """The windows of all keys that start in between."""
        return self._ask(lambda store: list(store.fetch_all(first_ms, last_ms)), "window")

    @property
    def offsets(self) -> Mapping[int, int]:
        with self._table.changed:
            return dict(self._table.positions)

    def wait_for(self, offsets: Mapping[int, int], *, timeout_ms: int | None = None) -> None:
        """Waits until the copy reflects these changelog offsets."""
        if not offsets.keys() <= self.offsets.keys():  # some are of new partitions
            self._table.look_soon()
        self._wait(lambda: self._table.has_read(offsets), timeout_ms)

    def catch_up(self, *, timeout_ms: int | None = None) -> None:
        """Waits until the copy reflects everything that is committed now."""
        with self._client() as client:
            self.wait_for(_ends(client, self._topic), timeout_ms=timeout_ms)

    def close(self) -> None:
        """Closes the copy. Calls that wait for an answer raise UsageError."""
        self._table.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _ask(self, question: Callable[[Any], T], *kinds: str) -> Answer[T]:
        if self._spec.kind not in kinds:
            raise UsageError(
                f"store {self._spec.name!r} is a {self._spec.kind} store; this question is for "
                f"{', '.join(kinds)} stores"
            )
        with self._table.changed:
            self._wait(lambda: self._table.is_current, None)
            return Answer(question(self._table.state.store), dict(self._table.positions))

    def _wait(self, reached: Callable[[], bool], timeout_ms: int | None) -> None:
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if self._table.wait(reached, limit_ms):
            return
        failure = self._table.failure
        if failure is not None:
            is_told = isinstance(failure, SuiroError)
            raise failure if is_told else UsageError(f"the copy of a store stopped: {failure!r}")
        if self._table.is_stopping:
            raise UsageError(f"the copy of store {self._spec.name!r} was closed before it could answer")
        raise DeadlineExceededError(
            f"the copy of store {self._spec.name!r} did not reach its changelog's end within {limit_ms} ms; "
            f"it is at {self._table.positions or 'no partition'} of topic {self._topic!r}. Is the pipeline running?"
        )

    def _decode(self, found: Fetched, position: int) -> tuple[Any, int]:
        decoded = columnar.decode(
            found.data,
            start_offset=position,
            end_offset=found.last_stable_offset,
            aborted=found.aborted,
            read_committed=True,
            headers=self._needs_headers,
        )
        return decoded.batch, decoded.next_offset


class AsyncReadOnlyStore(InThreads):
    """`AsyncReadOnlyStore(ReadOnlyStore(...))`, or of `streams.store(name)`. Closing it also closes the store."""

    def __init__(self, store: ReadOnlyStore) -> None:
        super().__init__("store-questions", store.close)
        self._store = store

    async def get(self, key: Any) -> Answer[Any]:
        """As `ReadOnlyStore.get`. All methods are as those of `ReadOnlyStore`."""
        return await self._call(self._store.get, key)

    async def get_as_of(self, key: Any, timestamp: int) -> Answer[tuple[Any, int] | None]:
        return await self._call(self._store.get_as_of, key, timestamp)

    async def range(self, first: Any = None, last: Any = None) -> Answer[list[tuple[Any, Any]]]:
        return await self._call(self._store.range, first, last)

    async def prefix_scan(self, prefix: bytes) -> Answer[list[tuple[Any, Any]]]:
        return await self._call(self._store.prefix_scan, prefix)

    async def all(self) -> Answer[list[tuple[Any, Any]]]:
        return await self._call(self._store.all)

    async def select(self, pick: Callable[[Iterator[tuple[Any, Any]]], T]) -> Answer[T]:
        """`pick` is called in another thread."""
        return await self._call(self._store.select, pick)

    async def fetch(self, key: Any, *bounds: int) -> Answer[Any]:
        return await self._call(self._store.fetch, key, *bounds)

    async def fetch_all(self, first_ms: int, last_ms: int) -> Answer[list[Any]]:
        return await self._call(self._store.fetch_all, first_ms, last_ms)

    @property
    def offsets(self) -> Mapping[int, int]:
        return self._store.offsets

    async def wait_for(self, offsets: Mapping[int, int], *, timeout_ms: int | None = None) -> None:
        await self._call(self._store.wait_for, offsets, timeout_ms=timeout_ms)

    async def catch_up(self, *, timeout_ms: int | None = None) -> None:
        await self._call(self._store.catch_up, timeout_ms=timeout_ms)


class _Held:
    """Counts the bytes that a copy holds in all of its maps."""

    def __init__(self, store: str, max_bytes: int | None) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._bytes = 0

    def add(self, count: int) -> None:
        self._bytes += count
        if self._max_bytes is not None and self._bytes > self._max_bytes:
            raise StoreTooLargeError(
                f"the rows of store {self._store!r} take more than {self._max_bytes:,} bytes of memory, which is what "
                "a copy may hold here; open a ReadOnlyStore in a process of its own"
            )


class _CountedMap(OrderedMap):
    """A map that counts its bytes. It remembers no changes, because nobody takes the changes of a copy."""

    def __init__(self, held: _Held) -> None:
        super().__init__()
        self._bytes_held = held

    def put(self, key: bytes, row: bytes | Row | None) -> None:
        self.restore(((key, row if row is None or isinstance(row, bytes) else row.encoded()),))

    def restore(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        super().restore(self._counted(changes))

    def _counted(self, changes: Iterable[tuple[bytes, bytes | None]]) -> Iterator[tuple[bytes, bytes | None]]:
        for key, value in changes:
            before = self.get(key)
            less = 0 if before is None else len(key) + len(before) + ROW_BYTES
            more = 0 if value is None else len(key) + len(value) + ROW_BYTES
            self._bytes_held.add(more - less)
            yield key, value


class _Copy:
    """Rows as the changelog has them. Windowed stores hold what they derive from the rows, so they are opened again
    when the rows were changed under them."""

    def __init__(self, spec: StoreSpec, held: _Held) -> None:
        self._spec = spec
        self._rows = _CountedMap(held)
        self._store: Any = None

    @property
    def store(self) -> Any:
        if self._store is None:
            self._store = open_store(self._spec, self._rows)
        return self._store

    def apply(self, partition: int, batch: Any) -> None:
        self._rows.restore(self._changes(batch))
        self._store = None

    def _changes(self, batch: Any) -> Iterator[tuple[bytes, bytes | None]]:
        """Key-value and window stores have their rows' timestamps in front, which is the record's in a changelog."""
        is_stamped = self._spec.kind in ("key-value", "window")
        for key, value, timestamp in _columns(batch, "key", "value", "timestamp"):
            if key is not None:
                is_plain = value is None or not is_stamped
                yield key, value if is_plain else _TIMESTAMP.pack(timestamp) + value


class _VersionedCopy:
    """Each partition has a time of its own, which says how far back its history goes."""

    def __init__(self, spec: StoreSpec, held: _Held) -> None:
        self._spec = spec
        self._held = held
        self._partitions: dict[int, _Copy] = {}

    @property
    def store(self) -> _VersionedCopy:
        return self

    def apply(self, partition: int, batch: Any) -> None:
        self._partitions.setdefault(partition, _Copy(self._spec, self._held)).apply(partition, batch)

    def get(self, key: Any) -> Any:
        found = (copy.store.get(key) for copy in self._partitions.values())
        return next((value for value in found if value is not None), None)

    def get_as_of(self, key: Any, timestamp: int) -> tuple[Any, int] | None:
        found = (copy.store.get_as_of(key, timestamp) for copy in self._partitions.values())
        return next((value for value in found if value is not None), None)

    def all(self) -> list[tuple[Any, Any]]:
        rows = [row for copy in self._partitions.values() for row in copy.store.all()]
        return sorted(rows, key=lambda row: self._spec.key.serialize(f"{self._spec.name}-changelog", row[0]))


class _GlobalCopy:
    """Made from the records of its source topic, as the pipeline makes it; those that cannot be read are left out."""

    def __init__(self, spec: StoreSpec, source: Node, held: _Held) -> None:
        self.store = open_store(spec, _CountedMap(held))
        assert isinstance(source.operator, Source)
        self._topic = source.operator.topics[0]
        self._reader = SourceReader(
            source, on_deserialization_error="skip", drop=lambda reason: None, dead_letter=lambda letter: None
        )

    def apply(self, partition: int, batch: Any) -> None:
        read, put = self._reader.read, self.store.put
        columns = _columns(batch, "offset", "timestamp", "key", "value", "headers")
        for offset, timestamp, key, value, headers in columns:
            given: Headers = tuple((item["key"], item["value"]) for item in headers or ())
            record = read(self._topic, partition, offset, timestamp, key, value, given)
            if record is not None and record.key is not None:
                put(record.key, record.value, record.timestamp)


def _copy(source: Node | None, spec: StoreSpec, held: _Held) -> _Copy | _VersionedCopy | _GlobalCopy:
    if source is not None:
        return _GlobalCopy(spec, source, held)
    return _VersionedCopy(spec, held) if spec.kind == "versioned" else _Copy(spec, held)


def _columns(batch: Any, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _ends(client: Client, topic: str) -> dict[int, int]:
    partitions = client.metadata([topic])[topic].partitions
    found = client.list_offsets({(topic, p): LATEST for p in range(len(partitions))}, read_committed=True)
    return {partition: listed.offset for (_, partition), listed in found.items()}
