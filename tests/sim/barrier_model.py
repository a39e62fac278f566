"""The sink whose tasks send the records themselves, as a model: `exactly_once_model` with a stage in it.

Coordinator, partitions and their trouble are those of that model. A driver runs a stage for each micro-batch: task 0
fences and asks for the marker, then each task writes to the partition of its own, and the driver commits. Beside all
that may go wrong there, a stage may fail at any time, whatever its tasks have done, and they go on; the next attempt
has only those tasks that no attempt has finished, as Spark believes; and Spark counts a task as finished whichever
attempt it was of. What an attempt writes is its own: two attempts may encode the rows of a micro-batch otherwise.

A message is served late by being served late, and never by not being served. A repeated one leaves a copy under way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from tests.sim.exactly_once_model import (
    PREPARED,
    Action,
    Answer,
    Coordinator,
    Kind,
    Model,
    Request,
    Rules,
    State,
    _add,
)


class Step(IntEnum):
    """What a task does now; all but the last two wait for an answer, or for task 0."""

    FENCE = 0
    ASK = 1
    LISTEN = 2
    ADD = 3
    SEND = 4
    REPORTED = 5
    FAILED = 6


class Task(NamedTuple):
    step: Step
    sent: int = 0  # record batches


class Attempt(NamedTuple):
    """Of a stage. `tasks`: None where it has none of this number."""

    run: int
    batch: int
    tasks: tuple[Task | None, ...]
    epoch: int = -1  # task 0's
    known: int = -2  # the marker's batch, as task 0 was told before it fenced (only without rule 1)


class Report(NamedTuple):
    epoch: int  # -1: there was no task 0
    is_suppressed: bool = False


class Phase(IntEnum):
    STAGE = 0
    JOIN = 1
    OFFSETS = 2
    END = 3
    NOTE = 4
    STOPPED = 5


class Driver(NamedTuple):
    run: int
    phase: Phase
    batch: int
    reports: tuple[Report | None, ...]
    begun: bool = False  # its stage has an attempt that has not failed
    epoch: int = -1


class World(NamedTuple):
    kafka: State
    drivers: tuple[Driver, ...] = ()
    attempts: tuple[Attempt, ...] = ()

    @property
    def epoch(self) -> int:
        return self.kafka.epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierRules:
    """Rules 6 and 7 of `suiro.spark.barrier`, and 1 and 2 where they are otherwise than in the committer."""

    epoch_for_each_attempt: bool = True
    reports_of_one_epoch: bool = True
    fence_before_asking: bool = True
    ask: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierModel:
    """`tasks` have a partition each and write `pieces` record batches to it. `attempts`: of all stages together."""

    rules: BarrierRules = BarrierRules()
    verification: bool = True
    is_v2: bool = False
    tasks: int = 2
    pieces: int = 1
    batches: int = 1
    drivers: int = 1
    attempts: int = 2
    troubles: int = 0
    epochs: int = 99
    node: Node = field(init=False)

    def __post_init__(self) -> None:
        node = Node(
            is_v2=self.is_v2,
            partitions=self.tasks,
            troubles=self.troubles,
            rules=Rules(verification=self.verification),
        )
        object.__setattr__(self, "node", node)

    def beginning(self) -> World:
        return World(self.node.beginning())

    # Everything that may happen

    def steps(self, world: World) -> Iterator[tuple[Action, World]]:
        kafka = world.kafka
        for action, after in self.node.node_steps(kafka):
            yield action, world._replace(kafka=after)
        for position, ghost in enumerate(kafka.under_way):
            rest = kafka.under_way[:position] + kafka.under_way[position + 1 :]
            served, answer = self.node.serve(kafka._replace(under_way=rest), ghost)
            yield Action("a copy is served", ghost.run, ghost, answer), world._replace(kafka=served)
        for number, attempt in enumerate(world.attempts):
            for index, task in enumerate(attempt.tasks):
                if task is not None:
                    yield from self._task_steps(world, number, index, task)
        for index, driver in enumerate(world.drivers):
            yield from self._driver_steps(world, index, driver)
        if len(world.drivers) < self.drivers:
            yield Action("a driver starts"), self._started(world)

    def _exchange(self, world: World, request: Request, who: str) -> Iterator[tuple[Action, World, Answer | None]]:
        """It is served and heard; or served and not heard; or heard, and a copy of it is still under way."""
        served, answer = self.node.serve(world.kafka, request)
        action = Action(who, request.run, request, answer)
        yield action, world._replace(kafka=served), answer
        if world.kafka.troubles:
            fewer = served._replace(troubles=served.troubles - 1)
            yield action._replace(name=f"{who}, and does not hear it,"), world._replace(kafka=fewer), None
            copies = fewer._replace(under_way=tuple(sorted((*fewer.under_way, request))))
            yield action._replace(name=f"{who}, twice,"), world._replace(kafka=copies), answer

    # Tasks

    def _task_steps(self, world: World, number: int, index: int, task: Task) -> Iterator[tuple[Action, World]]:
        attempt = world.attempts[number]
        request = self._needs(attempt, number, index, task)
        if request is None:
            return
        who = f"task {index} of attempt {number}"
        for action, after, answer in self._exchange(world, request, who):
            if answer is None or answer.word == "again":
                yield action, after
            elif answer.word != "ok":
                yield action, _with_task(after, number, index, Task(Step.FAILED))
            else:
                yield action, self._heard(after, number, index, task, answer)

    def _needs(self, attempt: Attempt, number: int, index: int, task: Task) -> Request | None:
        run = attempt.run
        match task.step:
            case Step.FENCE:
                return Request(run, Kind.INIT)
            case Step.ASK:
                return Request(run, Kind.MARKER)
            case Step.ADD:
                return Request(run, Kind.ADD_PARTITIONS, attempt.epoch, index)
            case Step.SEND:
                content = (attempt.batch * 100 + number) * 10 + task.sent
                return Request(run, Kind.PRODUCE, attempt.epoch, index, task.sent, content)
        return None

    def _heard(self, world: World, number: int, index: int, task: Task, answer: Answer) -> World:
        attempt = world.attempts[number]
        match task.step:
            case Step.FENCE:
                fenced = _with_attempt(world, number, attempt._replace(epoch=answer.epoch))
                if self.rules.fence_before_asking:
                    return _with_task(fenced, number, index, Task(Step.ASK))
                return self._told(fenced, number, attempt.known)
            case Step.ASK:
                if self.rules.fence_before_asking:
                    return self._told(world, number, answer.batch)
                asked = _with_attempt(world, number, attempt._replace(known=answer.batch))
                return _with_task(asked, number, index, Task(Step.FENCE))
            case Step.ADD:
                return _with_task(world, number, index, Task(Step.SEND))
            case _ if task.sent + 1 < self.pieces:
                return _with_task(world, number, index, Task(Step.SEND, task.sent + 1))
        return self._reported(world, number, index, Report(attempt.epoch))

    def _told(self, world: World, number: int, known: int) -> World:
        """Task 0 has decided, and every task of the attempt hears it."""
        attempt = world.attempts[number]
        present = [index for index, task in enumerate(attempt.tasks) if task is not None]
        if self.rules.ask and known == attempt.batch:
            for index in present:
                world = self._reported(world, number, index, Report(attempt.epoch, is_suppressed=True))
            return world
        goes_on = not self.rules.ask or known == attempt.batch - 1
        step = Step.FAILED if not goes_on else Step.SEND if self.is_v2 else Step.ADD
        for index in present:
            world = _with_task(world, number, index, Task(step))
        return world

    def _reported(self, world: World, number: int, index: int, report: Report) -> World:
        """Spark takes it if it has none of this task, of whichever attempt of the stage it is."""
        world = _with_task(world, number, index, Task(Step.REPORTED))
        attempt = world.attempts[number]
        driver = world.drivers[attempt.run - 1]
        if driver.phase is not Phase.STAGE or driver.batch != attempt.batch or driver.reports[index]:
            return world
        driver = driver._replace(reports=(*driver.reports[:index], report, *driver.reports[index + 1 :]))
        return _with_driver(world, driver if None in driver.reports else self._judged(driver))

    # Drivers

    def _started(self, world: World) -> World:
        batch = world.kafka.finished + 1
        phase = Phase.STOPPED if batch == self.batches else Phase.STAGE
        driver = Driver(len(world.drivers) + 1, phase, batch, self._no_reports)
        return world._replace(drivers=(*world.drivers, driver))

    @property
    def _no_reports(self) -> tuple[None, ...]:
        return (None,) * self.tasks

    def _driver_steps(self, world: World, index: int, driver: Driver) -> Iterator[tuple[Action, World]]:
        if driver.phase is Phase.STOPPED:
            return
        if driver.phase is Phase.NOTE:
            yield Action("notes it as finished", driver.run), self._noted(world, driver)
            return
        if driver.phase is Phase.STAGE:
            yield from self._stage_steps(world, driver)
            return
        request = _request_of(driver)
        for action, after, answer in self._exchange(world, request, "the driver"):
            if answer is None or answer.word == "again":
                yield action, after
            elif answer.word == "fenced":
                yield action, _with_driver(after, _stopped(driver))
            elif answer.word == "abortable":
                yield action, _with_driver(after, self._again(driver))
            else:
                yield action, _with_driver(after, driver._replace(phase=Phase(driver.phase + 1)))
        yield Action("gives up waiting", driver.run), _with_driver(world, self._again(driver))

    def _again(self, driver: Driver) -> Driver:
        return driver._replace(phase=Phase.STAGE, reports=self._no_reports, begun=False, epoch=-1)

    def _stage_steps(self, world: World, driver: Driver) -> Iterator[tuple[Action, World]]:
        if not driver.begun:
            if len(world.attempts) < self.attempts:
                yield Action("begins a stage", driver.run), self._attempted(world, driver)
        else:
            # All that it had from the failed attempt is void. What comes from now on counts, of any attempt.
            yield Action("sees the stage fail", driver.run), _with_driver(world, self._again(driver))

    def _attempted(self, world: World, driver: Driver) -> World:
        missing = [index for index, report in enumerate(driver.reports) if report is None]
        number = len(world.attempts)
        first = Step.FENCE if self.rules.fence_before_asking else Step.ASK
        tasks = tuple(
            None if index not in missing else Task(Step.LISTEN if index else first) for index in range(self.tasks)
        )
        attempt = Attempt(driver.run, driver.batch, tasks)
        world = world._replace(attempts=(*world.attempts, attempt))
        world = _with_driver(world, driver._replace(begun=True))
        if 0 not in missing:
            for index in missing:
                world = self._reported(world, number, index, Report(-1))
        elif not self.rules.epoch_for_each_attempt:
            before = [one.epoch for one in world.attempts[:-1] if one[:2] == attempt[:2] and one.epoch >= 0]
            if before:
                world = _with_attempt(world, number, attempt._replace(epoch=before[-1]))
                world = self._told(world, number, driver.batch - 1)
        return world

    def _judged(self, driver: Driver) -> Driver:
        reports = [report for report in driver.reports if report is not None]
        epochs = {report.epoch for report in reports}
        if -1 in epochs or (self.rules.reports_of_one_epoch and len(epochs) > 1):
            return self._again(driver)
        if any(report.is_suppressed for report in reports):
            return driver._replace(phase=Phase.NOTE)
        return driver._replace(phase=Phase.OFFSETS if self.is_v2 else Phase.JOIN, epoch=max(epochs))

    def _noted(self, world: World, driver: Driver) -> World:
        kafka = world.kafka
        if kafka.finished != driver.batch - 1:
            return _with_driver(world, _stopped(driver))
        world = world._replace(kafka=kafka._replace(finished=driver.batch))
        if driver.batch + 1 == self.batches:
            return _with_driver(world, _stopped(driver))
        return _with_driver(world, self._again(driver)._replace(batch=driver.batch + 1))

    # What must not be

    def wrong(self, world: World) -> str:
        kafka = world.kafka
        if kafka.coordinator in PREPARED:
            return ""  # not all markers are written
        logs = [log.committed for log in kafka.partitions]
        for log in logs:
            if len({content // 1000 * 10 + content % 10 for content in log}) < len(log):
                return f"duplicate: a partition has {log}"
        for place, log in enumerate(logs):
            expected = [batch * 10 + piece for batch in range(kafka.marker[0] + 1) for piece in range(self.pieces)]
            if [content // 1000 * 10 + content % 10 for content in log] != expected:
                return f"torn transaction: the marker is at {kafka.marker[0]}, {place} has {log}"
            if [content // 10 for content in log] != [content // 10 for content in logs[0]]:
                return f"torn transaction: of more than one attempt, {logs}"
            if kafka.partitions[place].open and kafka.coordinator is not Coordinator.ONGOING:
                return f"hanging transaction: nobody will end what is open in partition {place}"
        if kafka.finished > kafka.marker[0]:
            return f"lost write: micro-batch {kafka.finished} is finished, the marker is at {kafka.marker[0]}"
        return ""


class Node(Model):
    """Each task adds the partition of its own."""

    def serve(self, state: State, request: Request) -> tuple[State, Answer]:
        if request.kind is Kind.ADD_PARTITIONS:
            return _add(state, request.epoch, frozenset((request.place,)))
        return super().serve(state, request)


def _request_of(driver: Driver) -> Request:
    match driver.phase:
        case Phase.JOIN:
            return Request(driver.run, Kind.ADD_OFFSETS, driver.epoch)
        case Phase.OFFSETS:
            return Request(driver.run, Kind.COMMIT_OFFSETS, driver.epoch, batch=driver.batch)
    return Request(driver.run, Kind.END, driver.epoch)


def _stopped(driver: Driver) -> Driver:
    return Driver(driver.run, Phase.STOPPED, -1, ())


def _with_driver(world: World, driver: Driver) -> World:
    drivers, index = world.drivers, driver.run - 1
    return world._replace(drivers=(*drivers[:index], driver, *drivers[index + 1 :]))


def _with_attempt(world: World, number: int, attempt: Attempt) -> World:
    attempts = world.attempts
    return world._replace(attempts=(*attempts[:number], attempt, *attempts[number + 1 :]))


def _with_task(world: World, number: int, index: int, task: Task) -> World:
    attempt = world.attempts[number]
    if not attempt.tasks:
        return world  # all of it is over
    tasks = (*attempt.tasks[:index], task, *attempt.tasks[index + 1 :])
    if index == 0 and task.step is Step.FAILED:
        tasks = tuple(other and task for other in tasks)  # nobody tells them anything
    if all(other is None or other.step >= Step.REPORTED for other in tasks):
        attempt = Attempt(attempt.run, attempt.batch, (), attempt.epoch)
        return _with_attempt(world, number, attempt)
    return _with_attempt(world, number, attempt._replace(tasks=tasks))
