"""The report of a stream task to the driver, in the rows of sub-topology `STAGED`; see `suiro.spark.reports`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from suiro.errors import FatalError
from suiro.spark import CommitMessage, PackedReport, commit_of, pack_commit
from suiro.streams_spark.rebuild import HeldFrom

__all__ = ["DroppedRecords", "NodeRows", "Report", "RunCounts", "pack_report", "unpack_reports"]


LAST_MICRO_BATCHES = 200


@dataclass(frozen=True, slots=True)
class DroppedRecords:
    """How many records a task left out, by reason."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeRows:
    """How many rows came to nodes of the topology in a task, by node."""

    counts: Mapping[str, int]


Report = CommitMessage | HeldFrom | DroppedRecords | NodeRows


@dataclass(slots=True)
class RunCounts:
    """Of committed micro-batches since the start: what was left out, by reason, and what came to nodes; the latter also
    of each of the last micro-batches, by its number."""

    dropped: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    last: deque[tuple[int, Counter[str]]] = field(default_factory=lambda: deque(maxlen=LAST_MICRO_BATCHES))

    def add(self, batch_id: int, reports: Iterable[Report]) -> None:
        rows: Counter[str] = Counter()
        for item in reports:
            if isinstance(item, DroppedRecords):
                self.dropped.update(item.counts)
            elif isinstance(item, NodeRows):
                rows.update(item.counts)
        self.rows.update(rows)
        self.last.append((batch_id, rows))


def pack_report(report: Report) -> bytes:
    match report:
        case HeldFrom():
            return PackedReport("held", asdict(report)).pack()
        case DroppedRecords():
            return PackedReport("dropped", dict(report.counts)).pack()
        case NodeRows():
            return PackedReport("rows", dict(report.counts)).pack()
        case CommitMessage():
            return pack_commit(report)


def unpack_reports(told: Iterable[bytes]) -> list[Report]:
    """Raises `FatalError` where one cannot be read."""
    return [_unpack(data) for data in told]


def _unpack(data: bytes) -> Report:
    report = PackedReport.unpack(data)
    if report.kind not in ("held", "dropped", "rows"):
        return commit_of(report)
    try:
        if report.kind == "held":
            return HeldFrom(**report.fields)
        counts = {name: int(count) for name, count in report.fields.items()}
        return DroppedRecords(counts) if report.kind == "dropped" else NodeRows(counts)
    except (TypeError, ValueError) as error:
        raise FatalError(
            f"a task's report of {report.kind} records cannot be read: {error}. Driver and executors must run the same "
            "release of suiro"
        ) from error
