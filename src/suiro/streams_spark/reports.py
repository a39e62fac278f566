"""The report of a stream task to the driver, in the rows of sub-topology `STAGED`; see `suiro.spark.reports`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from suiro.errors import FatalError
from suiro.spark import CommitMessage, PackedReport, commit_of, pack_commit
from suiro.streams_spark.condition import Condition
from suiro.streams_spark.rebuild import BufferedFrom

LAST_MICRO_BATCHES = 200


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a task. `kind`: "dropped" for records that it left out, by reason; "rows" for rows that came to nodes
    of the topology, by node."""

    kind: Literal["dropped", "rows"]
    counts: Mapping[str, int]


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a task after a micro-batch. `stores`: rows and approximate bytes, by store. `buffered`: records
    that are buffered, by input; `held` in the format."""

    sub_topology: int
    partition: int
    stores: Mapping[str, tuple[int, int]]
    buffered: Mapping[str, int] = msgspec.field(name="held")
    condition: Condition


RecordSpan = tuple[str, str, str, str, int, int, int]
"""Ids of trace, span and parent; topic, partition and offset; when the record was read, in ns."""


@dataclass(frozen=True, slots=True)
class RecordSpans:
    """Records that a task has traced, and when it was done with them."""

    spans: tuple[RecordSpan, ...]
    processed_ns: int


Report = CommitMessage | BufferedFrom | Counts | TaskReport | RecordSpans


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
            if isinstance(item, Counts):
                (rows if item.kind == "rows" else self.dropped).update(item.counts)
            elif isinstance(item, TaskReport):
                self.tasks[item.sub_topology, item.partition] = item
        self.rows.update(rows)
        self.last.append((batch_id, rows, retries))


_KINDS: Mapping[str, type] = {
    "held": BufferedFrom,
    "dropped": Counts,
    "rows": Counts,
    "task": TaskReport,
    "spans": RecordSpans,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def pack_report(report: Report) -> bytes:
    match report:
        case CommitMessage():
            return pack_commit(report)
        case Counts():
            return PackedReport(report.kind, dict(report.counts)).pack()
    return PackedReport(_NAMES[type(report)], msgspec.to_builtins(report)).pack()


def unpack_reports(told: Iterable[bytes]) -> list[Report]:
    """Raises `FatalError` where one cannot be read."""
    return [_unpack(data) for data in told]


def _unpack(data: bytes) -> Report:
    report = PackedReport.unpack(data)
    kind: Any = _KINDS.get(report.kind)
    if kind is None:
        return commit_of(report)
    fields = {"kind": report.kind, "counts": report.fields} if kind is Counts else report.fields
    try:
        found: Report = msgspec.convert(fields, kind)
        return found
    except msgspec.ValidationError as error:
        raise FatalError(
            f"a task's report of {report.kind} records cannot be read: {error}. Driver and executors must run the same "
            "release of suiro"
        ) from error
