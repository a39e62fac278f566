"""Decides how to handle a micro-batch from the marker of the last committed transaction. Pure.

The marker travels inside the transaction, as metadata of a committed offset: it is there exactly if the records are.

| marker | micro-batch N of lineage L | verdict |
|---|---|---|
| missing | N = 0 | produce |
| missing | N > 0 | by policy: fail (default), produce, suppress and write the marker anew |
| other lineage | N = 0 | by policy: fail (default), begin: a new checkpoint of the same application |
| the same, of a topology | N = 0 | produce, if it is the marker that the start saw; else fail |
| other lineage | N > 0 | fail: checkpoint and marker do not belong together |
| the same, of a topology | N > 0 | replaced: when it started, the marker was of its lineage |
| batch N - 1 | its end is N's start | produce |
| batch N | same end offsets | suppress: committed before, only Spark does not know |
| anything else | | fail: the checkpoint was rolled back or edited |
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Literal, assert_never

from suiro.errors import FatalError

MARKER_VERSION = 1


class MissingMarker(StrEnum):
    """The policy for a missing marker that should be there (it expires after 7 idle days)."""

    FAIL = "fail"
    PRODUCE = "produce"
    SUPPRESS = "suppress"


class MissingCheckpoint(StrEnum):
    """The policy for a new checkpoint if there is a marker of an earlier one."""

    FAIL = "fail"
    BEGIN = "begin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Says: micro-batch `batch_id` of `lineage` is in Kafka, all of it. Digests are of source offsets."""

    lineage: str
    batch_id: int
    end_digest: str
    start_digest: str
    run_id: str

    @property
    def offset(self) -> int:
        """The committed offset that carries it: how many micro-batches are in Kafka."""
        return self.batch_id + 1

    def to_metadata(self) -> str:
        value = {
            "v": MARKER_VERSION,
            "q": self.lineage,
            "b": self.batch_id,
            "d": self.end_digest,
            "s": self.start_digest,
            "r": self.run_id,
        }
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_metadata(cls, text: str) -> Marker:
        """Raises `FatalError` for text that no version of this module wrote."""
        try:
            value = json.loads(text)
            if value["v"] != MARKER_VERSION:
                raise FatalError(
                    f"the marker has version {value['v']}, this is an older suiro that reads {MARKER_VERSION}: "
                    "upgrade it"
                )
            return cls(
                lineage=str(value["q"]),
                batch_id=int(value["b"]),
                end_digest=str(value["d"]),
                start_digest=str(value["s"]),
                run_id=str(value["r"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise FatalError(
                f"the group's marker is not suiro's ({text[:80]!r}): another program commits offsets with this "
                "application.id; choose another one"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The micro-batch that Spark wants written."""

    batch_id: int
    lineage: str
    run_id: str
    start_digest: str  # "" where there is nothing before it
    end_digest: str

    def marker(self) -> Marker:
        """The marker that its transaction leaves."""
        return Marker(**asdict(self))


@dataclass(frozen=True, slots=True)
class Produce:
    pass


@dataclass(frozen=True, slots=True)
class Suppress:
    pass


@dataclass(frozen=True, slots=True)
class Restore:
    """Its records are there and its marker is not: write that alone, or the next micro-batch has none either."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another start of the application, with another state directory, has taken its place."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class Fail:
    reason: str


Verdict = Produce | Suppress | Restore | Replaced | Fail


def decide(
    marker: Marker | None,
    plan: Plan,
    *,
    missing: MissingMarker = MissingMarker.FAIL,
    missing_checkpoint: MissingCheckpoint = MissingCheckpoint.FAIL,
    begins_after: str | None = None,
) -> Verdict:
    """The table at the top of this module. `begins_after`: the marker that the start of a topology saw, as metadata, ""
    where there was none; None: nobody looked, and the policy decides."""
    number = plan.batch_id
    if marker is None:
        return Produce() if number == 0 else _without_marker(number, missing)
    if marker.lineage != plan.lineage:
        if number == 0 and begins_after is not None:
            return Produce() if marker.to_metadata() == begins_after else _went_on(marker)
        if number == 0:
            return Produce() if missing_checkpoint is MissingCheckpoint.BEGIN else _begins_beside(marker)
        if begins_after is not None:
            return Replaced(marker)
        return Fail(
            f"the checkpoint (query {plan.lineage}, micro-batch {number}) and the marker in Kafka (query "
            f"{marker.lineage}, micro-batch {marker.batch_id}) belong to different lineages: another query uses this "
            "application.id, or the checkpoint is another one's. Give the query its own application.id"
        )
    if number == marker.batch_id + 1 and plan.start_digest in ("", marker.end_digest):
        return Produce()
    if number == marker.batch_id and plan.end_digest == marker.end_digest:
        return Suppress()
    rival = (
        ""
        if marker.run_id == plan.run_id
        else f"another driver of this query (run {marker.run_id}) went on while this one stood still and is the one "
        "to leave running; or "
    )
    return Fail(
        f"Kafka holds micro-batch {marker.batch_id} of this query and the checkpoint is at micro-batch {number}"
        f"{_difference(marker, plan)}: {rival}the checkpoint was rolled back, restored or edited. Then restore the "
        "newest checkpoint. Without it, move the one of a topology away and rebuild (rebuild=True, suiro run "
        "--rebuild); a query of format suiro starts a new one (another checkpointLocation) with checkpoint.missing set "
        "to begin"
    )


def _begins_beside(marker: Marker) -> Fail:
    return Fail(
        f"this checkpoint is new, and Kafka holds micro-batch {marker.batch_id} that was written with this "
        f"application.id from another one (query {marker.lineage}). If that one is still there, start with it; another "
        "query needs an application.id, or a sink.name, of its own. If it is deleted, empty this one again (nothing "
        "was written with it), choose where to begin (startingOffsets: what is read again is written again) and set "
        "checkpoint.missing to begin, for one start"
    )


def _went_on(marker: Marker) -> Fail:
    return Fail(
        f"another start of this application, with another state directory, wrote micro-batch {marker.batch_id} (query "
        f"{marker.lineage}) after this one had looked how far the application was. Nothing was written from here, and "
        "what the other one wrote would be written again. Run one of them: start it with the state directory of the "
        "other one; or stop that, empty this one and rebuild (rebuild=True, suiro run --rebuild)"
    )


def _without_marker(number: int, missing: MissingMarker) -> Verdict:
    match missing:
        case MissingMarker.PRODUCE:
            return Produce()
        case MissingMarker.SUPPRESS:
            return Restore()
        case MissingMarker.FAIL:
            return Fail(
                f"the checkpoint is at micro-batch {number} but Kafka has no marker of this query: it expired, its "
                "group was deleted, or the application.id was changed. Look whether the last micro-batch is in the "
                "topic, then set marker.missing to produce (it is not) or suppress (it is) for one start. A checkpoint "
                "of Spark's own Kafka connector is taken over by `suiro spark adopt`"
            )
        case _:
            assert_never(missing)


def _difference(marker: Marker, plan: Plan) -> Literal["", " with other offsets"]:
    return " with other offsets" if plan.batch_id in (marker.batch_id, marker.batch_id + 1) else ""
