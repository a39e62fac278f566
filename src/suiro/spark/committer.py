"""Writes one micro-batch to Kafka exactly once: one transaction that holds records, marker and source offsets.

Five rules carry the proof (each was seen to break without it, in a bounded exhaustive model):

1. Fence, then ask: the marker is read only after `init` succeeded, so nobody else can still commit.
2. The marker is part of the transaction.
3. One epoch per transaction: a delayed copy of an EndTxn cannot end the next one.
4. Abort by fencing, never by EndTxn: late records of the old epoch are refused.
5. The plan always runs; only the producing is left out when the micro-batch is already in Kafka.

While the cluster is away, a micro-batch waits for it (`waiting`) and begins again with a fence.

No I/O of its own: the client is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from suiro.clock import Clock, SystemClock
from suiro.errors import AbortableError, FatalError, FencedError, ReplacedError, SuiroError, TransientError, UsageError
from suiro.foundation.types import TopicPartition
from suiro.spark.decide import (
    Fail,
    Marker,
    MissingCheckpoint,
    MissingMarker,
    Plan,
    Produce,
    Replaced,
    Restore,
    Suppress,
    Verdict,
    decide,
)
from suiro.spark.waiting import WAITED_FOR, Waiting

if TYPE_CHECKING:
    from suiro.client import Client
    from suiro.spark.options import SinkOptions
    from suiro.spark.staging import StagedWrites

MARKER_TOPIC = "__txn_markers"
ATTEMPTS = 5  # of a transaction that the brokers end although they are there, each after a fence

Batch = tuple[str, int, Any, int]  # topic, partition, record batch, records in it


class TrailingRecord(Protocol):
    """The last record batch of a micro-batch's transaction. It is made when the brokers have all the others, because
    only then their ends are known. It is made anew for each attempt, and not at all if the micro-batch is in Kafka
    already."""

    @property
    def partition(self) -> TopicPartition: ...
    def batch(self, *, is_fresh: bool) -> Batch:
        """`is_fresh`: this attempt began with a look at Kafka, since another process may have written meanwhile."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """`writes`: None for a transaction of marker and source offsets alone. `source_notes`: metadata of the committed
    offsets, where there is any."""

    plan: Plan
    writes: StagedWrites | None
    source_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    source_notes: Mapping[TopicPartition, str] = field(default_factory=dict)
    trailing_record: TrailingRecord | None = None


class Outcome(Enum):
    PRODUCED = auto()
    SUPPRESSED = auto()  # it was in Kafka before


@dataclass(slots=True)
class CommitCounts:
    """`aborts`: transactions given up after they began. `fences`: times that somebody else ended one. `retries`: times
    that a micro-batch was tried again, whatever ended the attempt before."""

    aborts: int = 0
    fences: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Whose transactions these are."""

    application_id: str
    sink_name: str = ""
    missing_marker: MissingMarker = MissingMarker.FAIL
    missing_checkpoint: MissingCheckpoint = MissingCheckpoint.FAIL
    begins_after: str | None = None
    transaction_timeout_ms: int = 60_000

    @classmethod
    def of(cls, options: SinkOptions) -> Destination:
        """Of a stream, which has an application id."""
        assert options.application_id is not None
        return cls(
            application_id=options.application_id,
            sink_name=options.sink_name,
            missing_marker=options.missing_marker,
            missing_checkpoint=options.missing_checkpoint,
            begins_after=options.begins_after,
            transaction_timeout_ms=options.transaction_timeout_ms,
        )

    @property
    def transactional_id(self) -> str:
        return f"{self.application_id}/{self.sink_name or 'sink'}"

    def decide(self, marker: Marker | None, plan: Plan) -> Verdict:
        return decide(
            marker,
            plan,
            missing=self.missing_marker,
            missing_checkpoint=self.missing_checkpoint,
            begins_after=self.begins_after,
        )

    def refusal(self, verdict: Replaced | Fail) -> SuiroError:
        """The error for a micro-batch that must not be written."""
        if isinstance(verdict, Replaced):
            return replaced(self.application_id, verdict.marker)
        return FatalError(f"{self.transactional_id}: {verdict.reason}")

    @property
    def group(self) -> str:
        """A named sink has its own group, so that two queries of an application do not share markers."""
        return f"{self.application_id}/{self.sink_name}" if self.sink_name else self.application_id


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """This process's knowledge after a fence. It holds as long as nobody else fences."""

    identity: Any
    marker: Marker | None
    run_id: str
    fresh: bool  # read from Kafka during this very call


class Committer:
    """Keeps the producer's identity between micro-batches, so that a commit needs no second look at Kafka."""

    def __init__(
        self,
        cluster: Client,
        destination: Destination,
        *,
        reach: Callable[[str, int], None] = lambda point, batch_id: None,
        clock: Clock | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        """`waiting`: for a cluster that is away; without a limit by default."""
        self._cluster = cluster
        self._destination = destination
        self._reach = reach
        self._clock = clock or SystemClock()
        self._waiting = waiting or Waiting(clock=self._clock)
        self._began_ms = 0  # the transaction that is under way
        self._transactions = cluster.transaction(
            destination.transactional_id, timeout_ms=destination.transaction_timeout_ms
        )
        self._held: _Held | None = None
        self.counts = CommitCounts()

    def process(self, micro_batch: MicroBatch) -> Outcome:
        """Returns once the micro-batch is in Kafka. Raises `FencedError` if another driver took over, `FatalError` if
        marker and checkpoint contradict each other, and `UsageError` for an error that a repetition cannot fix."""
        plan = micro_batch.plan
        self._forget_older_run(plan)
        ended = 0
        self._waiting.begin()
        while True:
            try:
                outcome = self._once(micro_batch)
                self._waiting.over()
                return outcome
            except ReplacedError:
                raise
            except FencedError:
                self.counts.fences += 1
                ended += 1
                self._yield_or_renew(plan, may_renew=ended < ATTEMPTS)
            except AbortableError:
                self.counts.aborts += self._held is not None
                self._held = None
                ended += 1
                if ended == ATTEMPTS:
                    raise
            except WAITED_FOR as error:
                self.counts.aborts += self._held is not None
                # Lost, or decided without our knowing: after the next fence the marker tells.
                self._held = None
                self._waiting.failed(f"write micro-batch {plan.batch_id}", error)
            except UsageError:
                self.counts.aborts += self._held is not None
                self._abort_by_fencing()
                raise
            except BaseException:
                self._held = None
                raise
            self.counts.retries += 1

    def _once(self, micro_batch: MicroBatch) -> Outcome:
        match self._verdict(micro_batch.plan):
            case Suppress():
                return Outcome.SUPPRESSED
            case Restore():
                self._transact(replace(micro_batch, writes=None, trailing_record=None))
                return Outcome.SUPPRESSED
            case Produce():
                self._transact(micro_batch)
                return Outcome.PRODUCED

    def _verdict(self, plan: Plan) -> Produce | Suppress | Restore:
        while True:
            held = self._held or self._fence(plan)
            verdict = self._destination.decide(held.marker, plan)
            match verdict:
                case Produce():
                    return verdict
                case _ if not held.fresh:
                    # Another process of this run may have gone on from what we remember: ask before refusing.
                    self._held = None
                case Suppress() | Restore():
                    return verdict
                case Replaced() | Fail():
                    self._held = None
                    raise self._destination.refusal(verdict)
                case _:
                    assert_never(verdict)

    def _fence(self, plan: Plan) -> _Held:
        self._reach("before_fence", plan.batch_id)
        identity = self._transactions.init(None)
        self._reach("after_fence", plan.batch_id)
        marker = read_marker(self._cluster, self._destination, stable=True)
        self._held = _Held(identity=identity, marker=marker, run_id=plan.run_id, fresh=True)
        return self._held

    def _transact(self, micro_batch: MicroBatch) -> None:
        held, plan, transactions = self._held, micro_batch.plan, self._transactions
        assert held is not None
        group = self._destination.group
        number = plan.batch_id
        self._began_ms = self._clock.monotonic_ms()
        writes, trailing_record = micro_batch.writes, micro_batch.trailing_record
        partitions = () if writes is None else writes.partitions
        added = list(partitions) if trailing_record is None else [*partitions, trailing_record.partition]
        if added:
            transactions.add_partitions(added)
        transactions.add_offsets(group)
        self._reach("after_add_partitions", number)
        if writes is not None and partitions:
            transactions.produce(self._watched(writes.batches(), number))
        self._reach("after_produce", number)
        if trailing_record is not None:
            transactions.produce([trailing_record.batch(is_fresh=held.fresh)])
            self._reach("after_trailing_record", number)
        marker = plan.marker()
        offsets = offsets_with_marker(marker, micro_batch.source_offsets, micro_batch.source_notes)
        transactions.commit_offsets(group, offsets)
        self._reach("after_commit_offsets", number)
        transactions.end(commit=True)
        self._reach("after_end", number)
        self._held = None
        try:
            identity = transactions.renew()
        except (FencedError, TransientError):
            return  # this micro-batch is committed; the next one begins with a fence
        self._held = _Held(identity=identity, marker=marker, run_id=plan.run_id, fresh=False)
        self._reach("after_bump", number)

    def _watched(self, batches: Iterator[Batch], number: int) -> Iterator[Batch]:
        for index, batch in enumerate(batches):
            if index == 1:
                self._reach("after_first_produce", number)
            yield batch

    def _forget_older_run(self, plan: Plan) -> None:
        held = self._held
        if held is not None:
            # `fresh` is true only within the call that asked Kafka.
            self._held = replace(held, fresh=False) if held.run_id == plan.run_id else None

    def _yield_or_renew(self, plan: Plan, *, may_renew: bool) -> None:
        """Handles a fence: by another driver, which is the one to go on; by another worker process of this run; or by
        the coordinator after `transaction_timeout_ms`, while a broker was away or slow.

        A driver that has just fenced and is fenced again within that time has a rival. It must not take the id back.
        """
        held, self._held = self._held, None
        open_for_ms = self._clock.monotonic_ms() - self._began_ms
        if held is not None and may_renew and open_for_ms >= self._destination.transaction_timeout_ms:
            return
        if held is not None and not held.fresh:
            # A fence instead of waiting for the answer would take the id from a rival, without knowing.
            marker = self._waiting.run(
                "see who fenced", lambda: read_marker(self._cluster, self._destination, stable=False)
            )
            if marker is not None and marker.run_id == plan.run_id:
                return
            if marker is not None and marker.lineage != plan.lineage:
                raise replaced(self._destination.application_id, marker)
        raise taken_over(self._destination, plan)

    def _abort_by_fencing(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        try:
            self._transactions.init(held.identity)
        except (FencedError, TransientError, UsageError):
            pass  # the next start fences, or the coordinator's timeout aborts


def read_marker(cluster: Client, destination: Destination, *, stable: bool) -> Marker | None:
    """`stable`: wait for a transaction that holds it."""
    place = (MARKER_TOPIC, 0)
    found = cluster.offset_fetch(destination.group, [place], require_stable=stable)
    committed = found.get(place)
    return None if committed is None else Marker.from_metadata(committed.metadata)


def offsets_with_marker(
    marker: Marker, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, str]
) -> dict[TopicPartition, tuple[int, str]]:
    """The offsets that the transaction of a micro-batch commits for its group."""
    found = {place: (offset, notes.get(place, "")) for place, offset in offsets.items()}
    found[MARKER_TOPIC, 0] = (marker.offset, marker.to_metadata())
    return found


def replaced(application_id: str, marker: Marker) -> ReplacedError:
    """`marker`: of the query that is in this one's place."""
    return ReplacedError(
        f"application {application_id!r} was replaced: another start of it, with another state directory, writes its "
        f"results now (query {marker.lineage}). This one wrote nothing after that, and must not run again: start the "
        "application with the state directory of the other one. To come back to this topology, start it with "
        "--replace and an empty state directory",
        "PRODUCER_FENCED",
    )


def taken_over(destination: Destination, plan: Plan) -> FencedError:
    return FencedError(
        f"another driver took over {destination.transactional_id!r} from run {plan.run_id}, or the "
        "transaction was open for longer than kafka.transaction.timeout.ms "
        f"({destination.transaction_timeout_ms:,} ms): this run stops. Two queries with one application.id "
        "each need their own sink.name; micro-batches too large for the timeout need maxOffsetsPerTrigger",
        "PRODUCER_FENCED",
    )
