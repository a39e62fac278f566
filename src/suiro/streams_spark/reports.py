"""The report of a stream task to the driver, in the rows of sub-topology `STAGED`; see `suiro.spark.reports`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

import msgspec

from suiro.errors import FatalError
from suiro.spark import CommitMessage, PackedReport, commit_of, pack_commit
from suiro.streams_spark.condition import Condition
from suiro.streams_spark.rebuild import BufferedFrom

LAST_MICRO_BATCHES = 200


@dataclass(frozen=True, slots=True)
class DroppedRecords:
    """How many records a task left out, by reason."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeRows:
    """How many rows came to nodes of the topology in a task, by node."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """The status of a task after a micro-batch. `stores`: rows and approximate bytes, by store. `buffered`: records
    that are buffered, by input. `condition`: of `suiro.streams_spark.condition`."""

    sub_topology: int
    partition: int
    stores: Mapping[str, tuple[int, int]]
    buffered: Mapping[str, int]
    condition: str


RecordSpan = tuple[str, str, str, str, int, int, int]
"""Ids of trace, span and parent; topic, partition and offset; when the record was read, in ns."""


@dataclass(frozen=True, slots=True)
class RecordSpans:
    """Records that a task has traced, and when it was done with them."""

    spans: tuple[RecordSpan, ...]
    processed_ns: int


Report = CommitMessage | BufferedFrom | DroppedRecords | NodeRows | TaskReport | RecordSpans


@dataclass(slots=True)
class RunCounts:
    """Counts of committed micro-batches since the start. `dropped`: records left out, by reason. `rows`: rows that came
    to nodes. `last`: number, rows and retries of each of the last micro-batches. `tasks`: the last report of each task
    that has run, by sub-topology and partition."""

    dropped: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    last: deque[tuple[int, Counter[str], int]] = field(default_factory=lambda: deque(maxlen=LAST_MICRO_BATCHES))
    tasks: dict[tuple[int, int], TaskReport] = field(default_factory=dict)

    def add(self, batch_id: int, reports: Iterable[Report], *, retries: int = 0) -> None:
        rows: Counter[str] = Counter()
        for item in reports:
            if isinstance(item, DroppedRecords):
                self.dropped.update(item.counts)
            elif isinstance(item, NodeRows):
                rows.update(item.counts)
            elif isinstance(item, TaskReport):
                self.tasks[item.sub_topology, item.partition] = item
        self.rows.update(rows)
        self.last.append((batch_id, rows, retries))


def pack_report(report: Report) -> bytes:
    match report:
        case BufferedFrom():
            return PackedReport("held", asdict(report)).pack()
        case DroppedRecords():
            return PackedReport("dropped", dict(report.counts)).pack()
        case NodeRows():
            return PackedReport("rows", dict(report.counts)).pack()
        case TaskReport():
            fields = asdict(report)
            fields["held"] = fields.pop("buffered")  # the name in the format
            return PackedReport("task", fields).pack()
        case RecordSpans():
            return PackedReport("spans", {"spans": report.spans, "processed_ns": report.processed_ns}).pack()
        case CommitMessage():
            return pack_commit(report)


def unpack_reports(told: Iterable[bytes]) -> list[Report]:
    """Raises `FatalError` where one cannot be read."""
    return [_unpack(data) for data in told]


def _unpack(data: bytes) -> Report:
    report = PackedReport.unpack(data)
    if report.kind not in ("held", "dropped", "rows", "task", "spans"):
        return commit_of(report)
    fields = report.fields
    try:
        match report.kind:
            case "held":
                return msgspec.convert(fields, BufferedFrom)
            case "dropped":
                return DroppedRecords(msgspec.convert(fields, dict[str, int]))
            case "rows":
                return NodeRows(msgspec.convert(fields, dict[str, int]))
            case "task":
                Condition(fields["condition"])  # raises for one that there is not
                return msgspec.convert({**fields, "buffered": fields["held"]}, TaskReport)
            case _:
                return msgspec.convert(fields, RecordSpans)
    except (msgspec.ValidationError, TypeError, ValueError, KeyError) as error:
        raise FatalError(
            f"a task's report of {report.kind} records cannot be read: {error}. Driver and executors must run the same "
            "release of suiro"
        ) from error
