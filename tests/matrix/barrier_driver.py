"""What Spark does around tasks that send: an encoding task for each source partition, then all senders at once.

Each sender is a process of its own with a pipe to the driver, which passes the ticket on as `allGather` does. When one
dies the others are killed and the stage has come to nothing, as a barrier stage does. A sender that a fault has stopped
(SIGSTOP) is taken for dead, too, where the cell says so: then the stage runs again while it sleeps.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from suiro.clock import SystemClock
from suiro.spark import faults
from suiro.spark.barrier import Report, open_transaction, owner_of, send
from suiro.spark.committer import Destination
from suiro.spark.connections import lease, partition_counter
from suiro.spark.decide import Plan
from suiro.spark.encoding import encoded_rows
from suiro.spark.options import SinkOptions
from suiro.spark.reports import MicroBatchIdentity
from suiro.spark.sink import commit_sent
from suiro.spark.waiting import Waiting
from tests.matrix.driver import PARTITIONS, TASK_FAILURES_MAX, Job, Query, Worker, WorkerDied, rows_of_task

SENDERS = 2
LOOK_S = 0.05

Batch = tuple[str, int, bytes, int]


class SendingQuery(Query):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._tasks = Worker(encode)
        self._parsed = SinkOptions.parse(self._options | {"producer.tasks": str(SENDERS)}).for_stream()

    def write(self, number: int) -> None:
        identity = MicroBatchIdentity(query_id=self._checkpoint.query_id, run_id=self._run_id, batch_id=number)
        encoded = [batch for index in range(PARTITIONS) for batch in self._encoded(identity, index)]
        owned: list[list[Batch]] = [[] for _ in range(SENDERS)]
        for batch in sorted(encoded, key=lambda batch: batch[:2]):  # stable: in the order of the tasks
            owned[owner_of(batch[0], batch[1], SENDERS)].append(batch)
        commit_sent(
            self._parsed,
            identity,
            lambda plan, destination: partial(self._stage, plan, destination, owned),
        )

    def _encoded(self, identity: MicroBatchIdentity, index: int) -> list[Batch]:
        rows = self._job.records(identity.batch_id, index)
        for _ in range(TASK_FAILURES_MAX):
            try:
                found: list[Batch] = self._tasks.call(rows, self._parsed, identity, index)
                return found
            except WorkerDied as error:
                died = error
        raise died

    def _stage(self, plan: Plan, destination: Destination, owned: Sequence[list[Batch]]) -> Sequence[Report]:
        senders = [
            Sender(partial(_send, self._parsed, plan, destination, index, batches))
            for index, batches in enumerate(owned)
        ]
        try:
            tickets = [sender.hear(self._job.sleepers_are_lost) for sender in senders]
            for sender in senders:
                sender.pipe.send(tickets[0])
            return [sender.hear(self._job.sleepers_are_lost) for sender in senders]
        except WorkerDied:
            for sender in senders:
                if not sender.sleeps:
                    os.kill(sender.process, signal.SIGKILL)
            raise
        finally:
            for sender in senders:
                sender.reap()


class Sender:
    """A task of the stage. `work` has the other end of the pipe."""

    def __init__(self, work: Callable[[Connection], None]) -> None:
        self.pipe, there = Pipe()
        self.process = os.fork()
        if self.process == 0:
            self.pipe.close()
            try:
                work(there)
            finally:
                os._exit(0)
        there.close()

    def hear(self, sleeping_is_lost: bool) -> Any:
        try:
            while not self.pipe.poll(LOOK_S):
                if sleeping_is_lost and self.sleeps:
                    raise WorkerDied(f"sender {self.process} is not heard of")
            return self.pipe.recv()
        except (EOFError, OSError):
            raise WorkerDied(f"sender {self.process} died") from None

    @property
    def sleeps(self) -> bool:
        try:
            return Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except OSError:
            return False

    def reap(self) -> None:
        self.pipe.close()
        if not self.sleeps:
            os.waitpid(self.process, 0)


def encode(
    rows: list[tuple[str, str, str]], options: SinkOptions, identity: MicroBatchIdentity, index: int
) -> list[Batch]:
    """A task of the stage before."""
    clock = SystemClock()
    faults.reach("task_start", identity.batch_id)
    found = list(
        encoded_rows(
            [rows_of_task(rows, identity)],
            options,
            partition_count=partition_counter(
                options, waiting=Waiting(clock=clock, limit_ms=options.waiting_limit_ms), clock=clock
            ),
            task_index=index,
            clock=clock,
        )
    )
    faults.reach("task_staged", identity.batch_id)
    return [(topic, partition, bytes(data), count) for topic, partition, data, count in found]


def _send(
    options: SinkOptions,
    plan: Plan,
    destination: Destination,
    index: int,
    batches: list[Batch],
    pipe: Connection,
) -> None:
    """As `barrier_stage`'s task."""
    with lease(options.bootstrap_servers, options.client_settings) as client:
        pipe.send(open_transaction(client, destination, plan, reach=faults.reach) if index == 0 else None)
        ticket = pipe.recv()
        faults.reach("after_gather", plan.batch_id)
        report = Report(task=index, ticket=ticket)
        if ticket.says_send:
            report = send(
                client,
                destination,
                ticket,
                batches,
                task=index,
                batch_id=plan.batch_id,
                reach=faults.reach,
            )
    try:
        pipe.send(report)
    except OSError:
        pass  # the stage is over: nobody listens any more
