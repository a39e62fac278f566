"""The metrics of a query: lag and rows from Spark, and transactions from the committer.

Spark commits a Python sink's micro-batches in a process of its own, so the counts of each sink are in a small file in
the driver's temporary directory, which `query_metrics` and `serve_metrics` read in the driver. A file that cannot be
written costs a warning, never a micro-batch. Counts go on over restarts of that process; a new run begins at zero.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from suiro.clock import SystemClock
from suiro.errors import UsageError
from suiro.foundation.files import replace_file
from suiro.foundation.metrics import Kind, family
from suiro.foundation.types import TopicPartition
from suiro.spark.committer import Outcome
from suiro.spark.offsets import Positions
from suiro.spark.staging import private_folder
from suiro.telemetry import MetricsPush
from suiro.telemetry import push_metrics as push

if TYPE_CHECKING:
    from prometheus_client.core import Metric

ABANDONED_AFTER_S = 7 * 24 * 3600
_log = logging.getLogger(__name__)

HELP: Mapping[str, str] = {
    "lag_records": "Offsets between the position of the query and the end of the partition, at its last poll.",
    "follows": "1: it follows a running application, to take its place, and writes nothing; its lag is to what that "
    "one has committed.",
    "input_rows": "Rows that the last micro-batch read.",
    "input_rows_per_second": "Rows that arrive in a second.",
    "processed_rows_per_second": "Rows that are processed in a second.",
    "micro_batch": "The number of the last micro-batch.",
    "micro_batch_seconds": "How long the last micro-batch took, planning and commit included.",
    "committed_micro_batches_total": "Micro-batches committed to Kafka.",
    "suppressed_micro_batches_total": "Micro-batches that were in Kafka already when they ran again.",
    "records_total": "Records written to Kafka.",
    "bytes_total": "Bytes of encoded record batches written to Kafka.",
    "commit_seconds_total": "Time spent on transactions: fencing, producing, committing.",
    "last_commit_seconds": "How long the last transaction took.",
    "last_commit_timestamp_seconds": "When the last transaction was committed (Unix time).",
    "waiting_seconds": "How long a micro-batch has been waiting for an unavailable log; 0 if it does not wait.",
    "last_progress_timestamp_seconds": "When Spark last said how far the query is (Unix time): after a micro-batch, "
    "and every 10 s of idleness.",
    "aborts_total": "Aborted transactions; they were tried again if possible.",
    "fences_total": "Times that another driver, or the transaction timeout, took the transaction away.",
    "retries_total": "Times that a micro-batch was tried again, for whatever reason.",
}
_OF_SINK = {
    "committed_micro_batches_total": "micro_batches",
    "suppressed_micro_batches_total": "suppressed",
    "records_total": "records",
    "bytes_total": "bytes",
    "commit_seconds_total": "commit_seconds",
    "last_commit_seconds": "last_commit_seconds",
    "last_commit_timestamp_seconds": "last_commit_timestamp",
    "waiting_seconds": "waiting_seconds",
    "aborts_total": "aborts",
    "fences_total": "fences",
    "retries_total": "retries",
}


@dataclass(slots=True, kw_only=True)
class SinkCounts:
    """Of one sink in one run of its query. Times in seconds."""

    query_id: str
    run_id: str
    transactional_id: str
    micro_batches: int = 0
    suppressed: int = 0
    records: int = 0
    bytes: int = 0
    commit_seconds: float = 0.0
    last_commit_seconds: float = 0.0
    last_commit_timestamp: float = 0.0
    aborts: int = 0
    fences: int = 0
    retries: int = 0
    waiting_since: float = 0.0  # 0: it does not wait

    @property
    def waiting_seconds(self) -> float:
        return max(0.0, SystemClock().wall_ms() / 1000 - self.waiting_since) if self.waiting_since else 0.0

    @classmethod
    def open(cls, query_id: str, run_id: str, transactional_id: str) -> SinkCounts:
        """Goes on with what an earlier process of this run counted."""
        folder = _directory()
        found = None if folder is None else _load(folder / _name(query_id, transactional_id))
        if found is not None and found.run_id == run_id:
            found.waiting_since = 0.0
            return found
        return cls(query_id=query_id, run_id=run_id, transactional_id=transactional_id)

    def add(self, outcome: Outcome, records: int, size: int) -> None:
        if outcome is Outcome.PRODUCED:
            self.micro_batches += 1
            self.records += records
            self.bytes += size
        else:
            self.suppressed += 1

    def save(self) -> None:
        folder = _directory()
        if folder is None:
            return
        path = folder / _name(self.query_id, self.transactional_id)
        try:
            replace_file(path, json.dumps(asdict(self)), sync=False)
        except OSError as error:
            _log.warning("metrics of %s cannot be written: %s", self.transactional_id, error)

    @staticmethod
    def remove_abandoned(now: float) -> None:
        """Files of queries that have not committed for a week."""
        folder = _directory()
        for path in () if folder is None else folder.glob("*.json"):
            try:
                if path.stat().st_mtime < now - ABANDONED_AFTER_S:
                    path.unlink()
            except OSError:
                continue  # its own query was quicker, or it is not ours to remove


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMetrics:
    """`values`: by the names of `HELP`, without those that nothing is known of. `lag`: by topic partition. `sinks`:
    of the run that is under way."""

    query: str
    values: Mapping[str, float]
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    sinks: tuple[SinkCounts, ...] = ()


def query_metrics(query: Any) -> QueryMetrics:
    """The current metrics of a `StreamingQuery`."""
    query_id, run_id = str(query.id), str(query.runId)
    sinks = tuple(counts for counts in _counts_of(query_id) if counts.run_id == run_id)
    progress = query.lastProgress
    if progress is None:
        return QueryMetrics(query=query.name or query_id, values={}, sinks=sinks)
    values = {
        "micro_batch": float(progress["batchId"]),
        "last_progress_timestamp_seconds": _ended(progress),
        "micro_batch_seconds": progress["durationMs"].get("triggerExecution", 0) / 1000,
        "input_rows": float(progress["numInputRows"]),
        "input_rows_per_second": float(progress["inputRowsPerSecond"] or 0),
        "processed_rows_per_second": float(progress["processedRowsPerSecond"] or 0),
    }
    lag: dict[TopicPartition, int] = {}
    values["follows"] = float(any("@follows" in (source["endOffset"] or "") for source in progress["sources"]))
    for source in progress["sources"]:
        lag |= _lag(source["endOffset"], source["latestOffset"])
    return QueryMetrics(query=query.name or query_id, values=values, lag=lag, sinks=sinks)


def _ended(progress: Any) -> float:
    """Its timestamp is of the trigger's beginning."""
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return began + float(progress["durationMs"].get("triggerExecution", 0)) / 1000


def serve_metrics(queries: Callable[[], Iterable[Any]], host: str, port: int) -> str:
    """Serves `/metrics` for Prometheus in a thread of this process, the driver; returns its URL.

    `queries` is called at every scrape: `serve_metrics(lambda: spark.streams.active, "127.0.0.1", 9405)`.
    """
    from suiro.foundation.http import serve_metrics_page

    return serve_metrics_page(lambda: _families(queries()), host, port)


def push_metrics(queries: Callable[[], Iterable[Any]], otlp: str | None = None) -> MetricsPush | None:
    """Pushes the same metrics by OTLP until `stop` of the result. `otlp`: the URL of the endpoint; None: as the
    variables of OpenTelemetry say. None where nothing says where to."""
    return push(lambda: _families(queries()), otlp, "suiro")


def _families(queries: Iterable[Any]) -> Iterator[Metric]:
    found = [query_metrics(query) for query in queries]
    for name, text in HELP.items():
        labels = ["query"]
        labels += ["topic", "partition"] if name == "lag_records" else []
        labels += ["transactional_id"] if name in _OF_SINK else []
        metric = family(kind_of(name), f"suiro_query_{name}", text, labels)
        for item in found:
            for values, number in _samples(item, name):
                metric.add_metric([item.query, *values], number)
        yield metric


def kind_of(name: str) -> Kind:
    return "counter" if name.endswith("_total") else "gauge"


def _samples(item: QueryMetrics, name: str) -> Iterator[tuple[list[str], float]]:
    if name == "lag_records":
        for (topic, partition), behind in sorted(item.lag.items()):
            yield [topic, str(partition)], float(behind)
    elif name in _OF_SINK:
        for counts in item.sinks:
            yield [counts.transactional_id], float(getattr(counts, _OF_SINK[name]))
    elif name in item.values:
        yield [], item.values[name]


def _lag(end: Any, latest: Any) -> dict[TopicPartition, int]:
    """Of sources of ours; the offsets of others mean something else."""
    try:
        done, there = (json.loads(value) if isinstance(value, str) else dict(value or {}) for value in (end, latest))
        if "@ids" not in there:
            return {}
        read = Positions.from_json(done).offsets
        return {
            place: max(0, offset - read.get(place, 0)) for place, offset in Positions.from_json(there).offsets.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}


def _directory() -> Path | None:
    """None where there can be none: metrics are not worth stopping a query."""
    try:
        return private_folder("metrics")
    except (UsageError, OSError) as error:
        _log.warning("sinks have no metrics: %s", error)
        return None


def _name(query_id: str, transactional_id: str) -> str:
    return f"{query_id}-{quote(transactional_id, safe='')[:150]}.json"


def _counts_of(query_id: str) -> list[SinkCounts]:
    folder = _directory()
    found = (_load(path) for path in sorted(() if folder is None else folder.glob(f"{query_id}-*.json")))
    return [counts for counts in found if counts is not None]


def _load(path: Path) -> SinkCounts | None:
    try:
        return SinkCounts(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
