"""What a stream task reports to the driver, in the rows of sub `STAGED`: see `suiro.spark.reports` for the bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from suiro.errors import FatalError
from suiro.spark import CommitMessage, PackedReport, commit_of, pack_commit
from suiro.streams_spark.rebuild import HeldFrom

__all__ = ["DroppedRecords", "Report", "pack_report", "unpack_reports"]


@dataclass(frozen=True, slots=True)
class DroppedRecords:
    """How many records a task left out, by reason."""

    counts: Mapping[str, int]


Report = CommitMessage | HeldFrom | DroppedRecords


def pack_report(report: Report) -> bytes:
    match report:
        case HeldFrom():
            return PackedReport("held", asdict(report)).pack()
        case DroppedRecords():
            return PackedReport("dropped", dict(report.counts)).pack()
        case CommitMessage():
            return pack_commit(report)


def unpack_reports(told: Iterable[bytes]) -> list[Report]:
    """Raises `FatalError` where one cannot be read."""
    return [_unpack(data) for data in told]


def _unpack(data: bytes) -> Report:
    report = PackedReport.unpack(data)
    if report.kind not in ("held", "dropped"):
        return commit_of(report)
    try:
        if report.kind == "held":
            return HeldFrom(**report.fields)
        return DroppedRecords({reason: int(count) for reason, count in report.fields.items()})
    except (TypeError, ValueError) as error:
        raise FatalError(
            f"a task's report of {report.kind} records cannot be read: {error}. Driver and executors must run the same "
            "release of suiro"
        ) from error
