"""A query whose tasks send the records themselves, in the world: the real tasks' and driver's code of `barrier`.

The stage is as Spark's is at its worst. It fails at any time: because a task died, and then the driver runs it again;
or because a shuffled block was lost, and then Spark repeats it by itself, with those tasks only of which it has no
result. Tasks of a failed attempt are killed, or go on, sleep and wake; what they report in the end is taken where a
result is missing. Tasks outlive their driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from suiro.client import Client
from suiro.errors import TransientError
from suiro.spark import barrier
from suiro.spark.barrier import BarrierCommitter, Report, Ticket, owner_of
from suiro.spark.committer import Outcome
from suiro.spark.decide import Plan
from suiro.spark.waiting import Waiting
from tests.sim.checker import Violation
from tests.sim.network import HOST, PORT
from tests.sim.query import Driver, Place, Row, Writes
from tests.sim.scenario import Life
from tests.sim.world import Killed, Process

TASKS = 2
POLL_MS = 20
RESUBMITTED_MS = 200
LOST_MS = 300_000


class TaskLost(Exception):
    """Another task of its attempt died, so Spark ends this one."""


def _nothing(point: str, batch_id: int) -> None:
    """No faults of the code's own: the world has enough of them."""


class Attempt:
    def __init__(self, number: int, tasks: Sequence[int]) -> None:
        self.number, self.tasks = number, tasks
        self.arrived: set[int] = set()
        self.ticket: Ticket | None = None
        self.is_broken = False


class Stage:
    """Of one micro-batch. `run` is a job."""

    def __init__(self, driver: BarrierDriver, plan: Plan, rows: Sequence[Row]) -> None:
        self._driver, self._world, self._plan = driver, driver.world, plan
        self._by_owner: list[list[Row]] = [[] for _ in range(TASKS)]
        for row in rows:
            self._by_owner[owner_of(row.topic, row.partition, TASKS)].append(row)
        self._job = self._attempts = 0
        self._results: list[Report | None] = []
        self._attempt = Attempt(0, ())

    def run(self) -> Sequence[Report]:
        self._job += 1
        self._results = [None] * TASKS
        self._begin()
        while None in self._results:
            self._world.sleep_ms(POLL_MS)
            if self._attempt.is_broken:
                raise TransientError("a task of the stage died")
            if self._driver.repeats_stage():
                self._results = [None] * TASKS
                self._world.sleep_ms(RESUBMITTED_MS)
                if None in self._results:
                    self._begin()
        return [report for report in self._results if report is not None]

    def _begin(self) -> None:
        self._attempts += 1
        missing = [index for index, report in enumerate(self._results) if report is None]
        attempt = self._attempt = Attempt(self._attempts, missing)
        self._world.tell("{}: attempt {} has the tasks {}", self._driver.name, attempt.number, missing)
        for index in missing:
            name = f"{self._driver.name} task {index}.{attempt.number}"
            work = partial(self._task, attempt, self._job, index)
            self._driver.start_task(Process(self._world, name, work, partial(self._task_ended, attempt)))

    def _task(self, attempt: Attempt, job: int, index: int) -> None:
        world, driver = self._world, self._driver
        with Client(f"{HOST}:{PORT}", settings=driver.client_settings, clock=world) as client:
            if index == 0:
                attempt.ticket = barrier.open_transaction(client, driver.destination, self._plan, reach=_nothing)
            attempt.arrived.add(index)
            began = world.now
            while attempt.arrived != set(attempt.tasks):
                world.sleep_ms(POLL_MS)
                if attempt.is_broken or world.now - began > LOST_MS:
                    raise TaskLost
            ticket = attempt.ticket
            report = Report(task=index, ticket=ticket)
            if ticket is not None and ticket.says_send:
                writes = Writes(self._by_owner[index], world.random, sizes=driver.batch_sizes)
                report = barrier.send(
                    client,
                    driver.destination,
                    ticket,
                    writes.batches(),
                    task=index,
                    batch_id=self._plan.batch_id,
                    reach=_nothing,
                )
        if job == self._job and self._results[index] is None:
            self._results[index] = report

    def _task_ended(self, attempt: Attempt, process: Process, failure: BaseException | None) -> None:
        if failure is not None:
            self._world.tell("{} is lost: {}", process.name, type(failure).__name__)
            attempt.is_broken = True
            if not isinstance(failure, TaskLost):
                self._driver.failed_task(failure)


class BarrierDriver(Driver):
    def __init__(self, life: BarrierLife, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._life = life
        self.client_settings, self.destination = self._settings, self._destination
        self.start_task = life.tasks.append

    def commit(self, plan: Plan, rows: Sequence[Row], source_offsets: Mapping[Place, int]) -> Outcome:
        stage = Stage(self, plan, rows)
        with Client(f"{HOST}:{PORT}", settings=self._settings, clock=self.world) as client:
            waiting = Waiting(clock=self.world)
            committer = BarrierCommitter(client, self._destination, tasks=TASKS, waiting=waiting, clock=self.world)
            return committer.process(plan, source_offsets, stage.run)[0]

    def repeats_stage(self) -> bool:
        return self._life._trouble("stage repeated", self._life.repeat_stage)

    def failed_task(self, failure: BaseException) -> None:
        self._life.task_failed(failure)


class BarrierLife(Life):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.tasks: list[Process] = []
        super().__init__(*arguments, **settings)
        self.repeat_stage = self.world.random.choice((0.0, 0.003, 0.03))

    def make_driver(self, name: str) -> Driver:
        return BarrierDriver(
            self,
            self.world,
            self.query,
            name,
            settings=self.plan.settings,
            transaction_timeout_ms=self.plan.transaction_timeout_ms,
        )

    def task_failed(self, failure: BaseException) -> None:
        """A task reports what goes wrong with Kafka; whatever else it raises is a mistake of its own."""
        if not isinstance(failure, Killed):
            self._failure = Violation("false alarm", f"a task raises {failure!r}")

    def _live(self) -> None:
        try:
            super()._live()
        finally:
            for task in self.tasks:
                task.kill()
