"""The status of a running application for its page: graph with rates, micro-batches, lag, stores and their rows.

The driver knows all of it: tasks report how many rows came to each of their units, and Spark keeps its last
micro-batches. Rows of stores come from a copy that follows the changelog topic. A copy that nobody has asked for a
while is closed.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from suiro.clock import Clock, SystemClock
from suiro.errors import SuiroError, TransientError, UsageError
from suiro.spark import query_metrics
from suiro.streams.blocks import block_plan
from suiro.streams.operators.context import TaskSettings
from suiro.streams.queries.store_reader import READABLE, ReadOnlyStore, StoreTooLargeError, changelog_topic
from suiro.streams.records import Windowed
from suiro.streams.topology.nodes import GlobalTableSource, Node, Repartition, Sink, Source, StoreSpec
from suiro.streams.topology.topology import Topology, stores_of
from suiro.streams.vectorised.plan import columnar_form_of
from suiro.streams.vectorised.stateless import Reason
from suiro.streams_spark.condition import CONDITIONS
from suiro.streams_spark.kafka_streams import KafkaStreams
from suiro.streams_spark.reports import TaskReport
from suiro.streams_spark.row_trace import TEXT_CHARS, RowTracer, row_of, text_of

SAMPLE_S = 2.0
RATE_S = 10.0
"""Rates are of so long a time."""
LOOK_S = 2.0
"""Spark is asked no more often for its last micro-batches: each answer is parsed whole."""
STORE_COPIES = 4
STORE_IDLE_S = 120.0
STORE_BYTES_MAX = 64 * 1024 * 1024
"""Of the rows of one copy, as they are held in this process's memory."""
TOO_LARGE_KEPT_S = 60.0
"""A store that turned out too large is read again no sooner."""
ROWS_MAX = 1_000
_NUMBER = re.compile(r"-0+([0-9]+)")  # in the names of operators that nobody named
LOOKED_AT_MAX = 1_000_000
"""Rows of a store that one search passes."""


class UnknownStoreError(UsageError):
    """The topology has no store of that name."""


@dataclass(slots=True, eq=False)
class _Copy:
    store: ReadOnlyStore
    asked_ms: int
    asking: int = 0
    """Requests that use it. It is not closed before they are done."""


class ApplicationStatus:
    """Thread-safe. `start` begins to sample; `stop` closes what was opened."""

    def __init__(self, streams: KafkaStreams, *, clock: Clock | None = None) -> None:
        self._streams = streams
        self._clock = clock or SystemClock()
        self._since = self._clock.wall_ms()
        self._graph = _graph(streams.topology, streams.task_settings)
        self._sources = [one.name for one in streams.topology.nodes if isinstance(one.operator, Source)]
        self._samples: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=int(RATE_S / SAMPLE_S) + 1)
        self._stopping = threading.Event()
        # Nobody waits for the cluster while holding this lock: the application's status needs it, too.
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._copies: dict[str, _Copy] = {}
        self._too_large: dict[str, tuple[str, int]] = {}
        self._looked_ms = 0
        self._progress: dict[str, Any] = {}
        self._tracer: RowTracer | None = None
        self._thread = threading.Thread(target=self._sample, name="application-status", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Safe to call again."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._tracer is not None:
            self._tracer.stop()
        with self._lock:
            copies, self._copies = list(self._copies.values()), {}
        for one in copies:
            one.store.close()

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_S):
            now = self._clock.monotonic_ms()
            self._samples.append((now, self._streams.rows_at_nodes))
            with self._lock:
                idle = [
                    name
                    for name, one in self._copies.items()
                    if not one.asking and now - one.asked_ms > STORE_IDLE_S * 1_000
                ]
                closing = [self._copies.pop(name) for name in idle]
            for one in closing:
                one.store.close()

    def application(self) -> dict[str, Any]:
        streams = self._streams
        progress = self._spark()
        rates = self._rates()
        counts = streams.rows_at_nodes
        nodes = [
            {**node, "records": counts.get(node["id"]), "records_per_s": rates.get(node["id"])}
            for node in self._graph["nodes"]
        ]
        failure = streams.exception
        return {
            "application_id": streams.application_id,
            "state": streams.state,
            "since": self._since,
            "error": None if failure is None else str(failure)[:TEXT_CHARS],
            "graph": {"nodes": nodes, "edges": self._graph["edges"]},
            "stores": self._stores(),
            "dropped": dict(streams.dropped_records),
            "dead_letter_topics": list(streams.dead_letter_topics),
            "held": self._buffered(),
            "processed_per_s": round(sum(rates.get(one, 0.0) for one in self._sources), 1) if rates else None,
            **progress,
        }

    def _rates(self) -> dict[str, float]:
        samples = list(self._samples)
        if len(samples) < 2 or samples[-1][0] == samples[0][0]:
            return {}
        (first_ms, first), (last_ms, last) = samples[0], samples[-1]
        seconds = (last_ms - first_ms) / 1_000
        return {name: round((count - first.get(name, 0)) / seconds, 1) for name, count in last.items()}

    def _spark(self) -> dict[str, Any]:
        """Spark's metrics of the query, at most `LOOK_S` old."""
        now = self._clock.monotonic_ms()
        if not self._streams.was_started:
            return {"lag": None, "batches": [], "partitions": []}
        with self._lock:
            if self._progress and now - self._looked_ms < LOOK_S * 1_000:
                return self._progress
            self._looked_ms = now
        query = self._streams.query
        metrics = query_metrics(query)
        found = {
            "lag": sum(metrics.lag.values()) if metrics.values else None,  # Spark tells it with a micro-batch
            "batches": self._micro_batches(query.recentProgress),
            "partitions": [
                {"topic": topic, "partition": partition, "lag": lag}
                for (topic, partition), lag in sorted(metrics.lag.items())
            ],
            "retries": sum(one.retries for one in metrics.sinks),
            "aborts": sum(one.aborts for one in metrics.sinks),
            "records_written": sum(one.records for one in metrics.sinks),
            "transactions": sum(one.micro_batches for one in metrics.sinks),
            "waiting_seconds": max((one.waiting_seconds for one in metrics.sinks), default=0.0),
        }
        self._progress = found
        return found

    def _micro_batches(self, recent: Sequence[Any]) -> list[dict[str, Any]]:
        """Those that read records. Spark's rows hold many records each, so tasks have counted them."""
        counted, retries = self._streams.rows_of_micro_batches, self._streams.retries_of_micro_batches
        found = []
        for progress in recent:
            rows = counted.get(progress["batchId"], {})
            read = sum(rows.get(name, 0) for name in self._sources)
            if read:
                number = progress["batchId"]
                found.append({**_micro_batch(progress), "rows": read, "retries": retries.get(number, 0)})
        return found

    def _buffered(self) -> list[dict[str, Any]]:
        """Records that tasks buffer, and why."""
        return [
            {
                "sub_topology": report.sub_topology,
                "partition": report.partition,
                "node": node,
                "records": records,
                "condition": report.condition,
                "why": CONDITIONS[report.condition].of,
            }
            for report in self._streams.task_reports
            for node, records in report.buffered.items()
        ]

    def _stores(self) -> list[dict[str, Any]]:
        streams, topology = self._streams, self._streams.topology
        sizes = _sizes(topology, streams.task_reports)
        operators = [node.operator for node in topology.nodes]
        tables = {operator.store for operator in operators if isinstance(operator, GlobalTableSource)}

        def topic(spec: StoreSpec) -> str | None:
            is_readable = spec.kind in READABLE and (spec.logged or spec.name in tables)
            return changelog_topic(topology, streams.application_id, spec.name) if is_readable else None

        return [
            {
                **sizes.get(spec.name, {"rows": None, "bytes": None, "tasks": 0}),
                "name": spec.name,
                "kind": spec.kind,
                "topic": topic(spec),
            }
            for spec in topology.stores
        ]

    def rows(self, name: str, *, first: int = 0, limit: int = 100, contains: str = "") -> dict[str, Any]:
        """Rows of a store from the `first`-th on, in the order of the keys' bytes; those whose key's text has
        `contains` in it. `limit`: 1 or more, and no more than `ROWS_MAX` are given. `next`: the `first` to go on with;
        None at the end. Raises `UsageError`, `UnknownStoreError` and what the cluster says."""
        if limit < 1:
            raise UsageError(f"limit={limit}: expected a number from 1 on")
        self._require(name)
        limit = min(limit, ROWS_MAX)

        def pick(found: Iterator[tuple[Any, Any]]) -> tuple[list[dict[str, Any]], int | None]:
            picked: list[dict[str, Any]] = []
            place = first
            for key, value in islice(found, first, first + LOOKED_AT_MAX):
                if len(picked) == limit:
                    return picked, place
                place += 1
                if contains in text_of(key.key if isinstance(key, Windowed) else key):
                    picked.append(row_of(key, value))
            return picked, place if place - first == LOOKED_AT_MAX else None

        with self._copy(name) as store:
            answer = store.select(pick)
        picked, following = answer.value
        return {
            "rows": picked,
            "next": following,
            "offsets": {str(p): at for p, at in answer.offsets.items()},
        }

    def explain_row(self, name: str, key: str, window: tuple[int, int] | None) -> dict[str, Any]:
        """The input records that a row of a store is made of; `key` and `window` as in `rows`. Raises `UsageError`,
        `UnknownStoreError` and what the cluster says."""
        self._require(name)
        spec = self._streams.topology.store(name)
        if spec.kind not in READABLE:
            raise UsageError(
                f"store {name!r} is a {spec.kind} store; rows that can be explained are those of "
                f"{', '.join(READABLE)} stores"
            )
        with self._lock:
            if self._tracer is None:
                self._tracer = RowTracer(self._streams.traceable)
            tracer = self._tracer
        return tracer.trace(name, key, window)

    def _require(self, name: str) -> None:
        if all(one.name != name for one in self._streams.topology.stores):
            names = ", ".join(sorted(one.name for one in self._streams.topology.stores))
            raise UnknownStoreError(f"the topology has no store {name[:200]!r}; it has {names or 'none'}")

    @contextmanager
    def _copy(self, name: str) -> Iterator[ReadOnlyStore]:
        """A copy that ended with an error is opened again by whoever asks next."""
        copy = self._taken(name)
        if copy is None:
            with self._opening:
                copy = self._taken(name) or self._opened(name)
        try:
            yield copy.store
        except TransientError:
            raise
        except SuiroError as error:
            with self._lock:
                if isinstance(error, StoreTooLargeError):
                    self._too_large[name] = str(error), self._clock.monotonic_ms()
                if self._copies.get(name) is copy:
                    del self._copies[name]
            copy.store.close()
            raise
        finally:
            with self._lock:
                copy.asking -= 1

    def _taken(self, name: str) -> _Copy | None:
        with self._lock:
            found = self._copies.get(name)
            if found is not None:
                found.asked_ms = self._clock.monotonic_ms()
                found.asking += 1
            return found

    def _opened(self, name: str) -> _Copy:
        """Opens a copy. If there are `STORE_COPIES` already, it closes the one that nobody has asked for longest."""
        with self._lock:
            refused, at_ms = self._too_large.get(name, (None, 0))
            if refused is not None and self._clock.monotonic_ms() - at_ms < TOO_LARGE_KEPT_S * 1_000:
                raise StoreTooLargeError(refused)
            left = [one for one, copy in self._copies.items() if not copy.asking]
            is_full = len(self._copies) >= STORE_COPIES
            if is_full and not left:
                raise TransientError(
                    f"rows of {STORE_COPIES} stores are being read ({', '.join(self._copies)}); try again"
                )
            oldest = min(left, key=lambda one: self._copies[one].asked_ms) if is_full else None
            closing = None if oldest is None else self._copies.pop(oldest)
        if closing is not None:
            closing.store.close()
        made = _Copy(self._streams.open_store(name, max_bytes=STORE_BYTES_MAX), self._clock.monotonic_ms(), asking=1)
        with self._lock:
            if not self._stopping.is_set():
                self._copies[name] = made
                return made
        made.store.close()
        raise TransientError("the application is being stopped")


def _sizes(topology: Topology, reports: Iterable[TaskReport]) -> dict[str, dict[str, int]]:
    """Of each store in all tasks that have run. Each task has the whole of a global table."""
    is_global = {spec.name for spec in topology.stores if spec.kind == "global"}
    found: dict[str, dict[str, int]] = {}
    for report in reports:
        for name, (rows, size) in report.stores.items():
            of_store = found.setdefault(name, {"rows": 0, "bytes": 0, "tasks": 0})
            join = max if name in is_global else int.__add__
            of_store["rows"], of_store["bytes"] = join(of_store["rows"], rows), join(of_store["bytes"], size)
            of_store["tasks"] += 1
    return found


def _micro_batch(progress: Any) -> dict[str, Any]:
    duration = progress["durationMs"]
    return {
        "batch": progress["batchId"],
        "at": int(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1_000),
        "duration_ms": duration.get("triggerExecution", 0),
        "phases": {name: took for name, took in duration.items() if name != "triggerExecution"},
    }


def _graph(topology: Topology, settings: TaskSettings) -> dict[str, Any]:
    """Nodes by id, and edges. `engine` is how a node's records go through it: "columns", "block" or "record"; `why`:
    why not a faster way."""
    engines = _engines(topology, settings)
    sub_of = {node.name: sub.number for sub in topology.sub_topologies for node in sub.nodes}
    nodes = []
    for node in topology.nodes:
        engine, why = engines.get(node.name, ("", ""))
        topics = _topics_of(node)
        nodes.append(
            {
                "id": node.name,
                "name": topics[0] if topics else _NUMBER.sub(r"-\1", node.name),
                "kind": _kind_of(node),
                "operator": type(node.operator).__name__,
                "sub_topology": sub_of.get(node.name),
                "topics": topics,
                "topic": topics[0] if topics else None,
                "store": next(iter(stores_of(node)), None),
                "stores": list(stores_of(node)),
                "engine": engine,
                "why": why,
            }
        )
    edges = [{"from": parent, "to": node.name} for node in topology.nodes for parent in node.parents]
    return {"nodes": nodes, "edges": edges}


def _kind_of(node: Node) -> str:
    match node.operator:
        case Source():
            return "source"
        case Sink():
            return "sink"
        case Repartition():
            return "repartition"
        case GlobalTableSource():
            return "global"
    return "processor"


def _topics_of(node: Node) -> list[str]:
    match node.operator:
        case Source(topics=topics):
            return list(topics)
        case Sink(topic=str(topic)):
            return [topic]
    return []


def _engines(topology: Topology, settings: TaskSettings) -> dict[str, tuple[str, str]]:
    """As `suiro.streams.explanation` tells it."""
    found: dict[str, tuple[str, str]] = {}
    for sub in topology.sub_topologies:
        columnar = columnar_form_of(topology, sub, settings)
        if not isinstance(columnar, Reason):
            found |= {node.name: ("columns", "") for node in sub.nodes}
            continue
        for unit in block_plan(topology, sub).units:
            kind = "record" if unit.is_island else "block"
            found |= dict.fromkeys(unit.nodes, (kind, unit.why or str(columnar)))
    return found
