"""A micro-batch whose tasks send their records themselves, in the one transaction that the driver commits.

For output that is too much for one driver. What `committer` does in one process is spread over three parts here:

| who | does |
|---|---|
| task 0 of an attempt | fences, asks for the marker, decides: its `Ticket` |
| every task of that attempt | hears the ticket and sends what it owns, by the ticket's epoch: its `Report` |
| the driver | commits marker and source offsets with the records, if the reports fit together |

The five rules of `committer` hold, and three more carry the proof (each was seen to break without it, in a model):

6. One epoch for each attempt of the stage. Spark repeats a stage as a whole and lets tasks of the failed attempt go
   on; they are fenced by the next one's `init`, before it sends anything. Nothing else tells attempts apart.
7. The driver commits only if every task has reported, and all of them the same epoch. Spark may count a task of an
   older attempt as done; what that one sent was aborted.
8. A partition is written by one task of an attempt, in the order of the sequence numbers.

A transaction is open while tasks send, not while they compute: they begin when everything is encoded and shuffled.
No I/O of its own, as `committer`: the cluster is passed in, and so is what runs the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from suiro.clock import Clock, SystemClock
from suiro.errors import FatalError, FencedError, SuiroError, TransientError, UsageError
from suiro.foundation.types import TopicPartition
from suiro.spark.committer import (
    ATTEMPTS,
    Batch,
    CommitCounts,
    Destination,
    Outcome,
    offsets_with_marker,
    read_marker,
    taken_over,
)
from suiro.spark.decide import Fail, Plan, Produce, Replaced, Restore, Suppress
from suiro.spark.waiting import AWAY, Waiting

if TYPE_CHECKING:
    from suiro.client import Client, TransactionalProducer

Reach = Callable[[str, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Task 0's message to the others. `failure`: the reason why nothing is to be sent."""

    identity: Any = None
    protocol: int = 1
    verdict: Produce | Suppress | Restore | None = None
    failure: SuiroError | None = None

    @property
    def says_send(self) -> bool:
        return self.verdict == Produce()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A task's result. `ticket` is None where no task 0 was among those of its attempt."""

    task: int
    ticket: Ticket | None
    record_count: int = 0
    size_bytes: int = 0
    failure: SuiroError | None = None


def owner_of(topic: str, partition: int, tasks: int) -> int:
    """The task that sends this partition's records. Neighbours have different owners."""
    return (sum(topic.encode()) + partition) % tasks


def open_transaction(cluster: Client, destination: Destination, plan: Plan, *, reach: Reach) -> Ticket:
    """Runs in task 0. It reports Kafka's failures and does not raise them: Spark would begin again without knowing
    why."""
    transactions = _transactions(cluster, destination)
    try:
        reach("before_fence", plan.batch_id)
        identity = transactions.init(None)
        reach("after_fence", plan.batch_id)
        marker = read_marker(cluster, destination, stable=True)
    except SuiroError as error:
        return Ticket(failure=error)
    verdict = destination.decide(marker, plan)
    if isinstance(verdict, Replaced | Fail):
        return Ticket(identity=identity, protocol=transactions.protocol, failure=destination.refusal(verdict))
    return Ticket(identity=identity, protocol=transactions.protocol, verdict=verdict)


def send(
    cluster: Client,
    destination: Destination,
    ticket: Ticket,
    batches: Iterable[Batch],
    *,
    task: int,
    batch_id: int,
    reach: Reach,
) -> Report:
    """Runs in every task, with the record batches of its partitions, one partition after the other."""
    transactions = _transactions(cluster, destination)
    transactions.join(ticket.identity, ticket.protocol)
    sent = _Sent()
    try:
        for place, its in groupby(batches, key=lambda batch: (batch[0], batch[1])):
            transactions.add_partitions([place])
            reach("after_add_partitions", batch_id)
            transactions.produce(sent.counting(its, lambda: reach("after_first_produce", batch_id)))
        reach("after_produce", batch_id)
    except SuiroError as error:
        return Report(task=task, ticket=ticket, failure=error)
    return Report(task=task, ticket=ticket, record_count=sent.records, size_bytes=sent.size)


class BarrierCommitter:
    """The driver's part. Remembers nothing between micro-batches: each attempt of a stage begins with a fence."""

    def __init__(
        self,
        cluster: Client,
        destination: Destination,
        *,
        tasks: int,
        counts: CommitCounts | None = None,
        reach: Reach = lambda point, batch_id: None,
        waiting: Waiting | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`waiting`: for a cluster that is away, between two attempts; without a limit by default."""
        self._cluster = cluster
        self._destination = destination
        self._tasks = tasks
        self._reach = reach
        self._clock = clock or SystemClock()
        self._waiting = waiting or Waiting(clock=self._clock)
        self.counts = counts or CommitCounts()

    def process(
        self,
        plan: Plan,
        source_offsets: Mapping[TopicPartition, int],
        run_stage: Callable[[], Sequence[Report]],
    ) -> tuple[Outcome, Sequence[Report]]:
        """Returns once the micro-batch is in Kafka, with the reports of those who sent it. `run_stage` raises
        `TransientError` for a stage that came to nothing. Raises as `Committer.process` does."""
        came_to_nothing = 0
        self._waiting.begin()
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                found = self._attempt(plan, source_offsets, run_stage())
                self._waiting.over()
                return found
            except FencedError as error:
                self.counts.fences += 1
                came_to_nothing += 1
                # Else the coordinator's patience has ended, while a broker was away or slow: as in `Committer`.
                timeout_ms = self._destination.transaction_timeout_ms
                may_renew = came_to_nothing < ATTEMPTS
                if self._clock.monotonic_ms() - began_ms < timeout_ms or not may_renew:
                    raise taken_over(self._destination, plan) from error
            # The next attempt fences, and the marker tells it what became of this one.
            except AWAY as error:
                self.counts.aborts += 1
                came_to_nothing = 0
                self._waiting.failed(f"write micro-batch {plan.batch_id}", error)
            except TransientError:
                self.counts.aborts += 1
                came_to_nothing += 1
                if came_to_nothing == ATTEMPTS:
                    raise
            self.counts.retries += 1

    def _attempt(
        self, plan: Plan, source_offsets: Mapping[TopicPartition, int], reports: Sequence[Report]
    ) -> tuple[Outcome, Sequence[Report]]:
        ticket = self._agreed(reports, plan)
        if ticket.verdict == Suppress():
            return Outcome.SUPPRESSED, ()
        self._reach("all_sent", plan.batch_id)
        self._commit(plan, source_offsets, ticket)
        if ticket.verdict == Restore():
            return Outcome.SUPPRESSED, ()
        return Outcome.PRODUCED, reports

    def _agreed(self, reports: Sequence[Report], plan: Plan) -> Ticket:
        """The one ticket by which everything was sent."""
        if not reports:  # Spark makes no tasks at all where it sees that there are no rows
            given = open_transaction(self._cluster, self._destination, plan, reach=self._reach)
            reports = [Report(task=task, ticket=given) for task in range(self._tasks)]
        identities = {None if report.ticket is None else report.ticket.identity for report in reports}
        ticket = reports[0].ticket
        everybody = sorted(report.task for report in reports) == list(range(self._tasks))
        if ticket is None or len(identities) != 1 or not everybody:
            raise TransientError(
                f"{len(reports)} of {self._tasks} tasks reported, of {len(identities)} attempts of their stage: what "
                "they sent is aborted"
            )
        failures = [
            failure for failure in (ticket.failure, *(report.failure for report in reports)) if failure is not None
        ]
        for kind in (FencedError, FatalError, UsageError):
            for failure in failures:
                if isinstance(failure, kind):
                    if ticket.failure is None and kind is not FencedError:
                        self._abort_by_fencing(ticket)
                    raise failure
        if failures:
            raise failures[0]
        return ticket

    def _commit(self, plan: Plan, source_offsets: Mapping[TopicPartition, int], ticket: Ticket) -> None:
        transactions = _transactions(self._cluster, self._destination)
        transactions.join(ticket.identity, ticket.protocol)
        group = self._destination.group
        transactions.add_offsets(group)
        transactions.commit_offsets(group, offsets_with_marker(plan.marker(), source_offsets, {}))
        self._reach("after_commit_offsets", plan.batch_id)
        transactions.end(commit=True)
        self._reach("after_end", plan.batch_id)

    def _abort_by_fencing(self, ticket: Ticket) -> None:
        self.counts.aborts += 1
        try:
            _transactions(self._cluster, self._destination).init(ticket.identity)
        except SuiroError:
            pass  # the next start fences, or the coordinator's timeout aborts


@dataclass(slots=True)
class _Sent:
    records: int = 0
    size: int = 0
    batches: int = 0

    def counting(self, batches: Iterable[Batch], after_first: Callable[[], None]) -> Iterator[Batch]:
        for batch in batches:
            if self.batches == 1:
                after_first()
            self.batches += 1
            self.records += batch[3]
            self.size += len(batch[2])
            yield batch


def _transactions(cluster: Client, destination: Destination) -> TransactionalProducer:
    return cluster.transaction(destination.transactional_id, timeout_ms=destination.transaction_timeout_ms)
