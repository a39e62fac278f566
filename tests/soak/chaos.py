"""What is done to whom, and when, drawn from a seed. A fault is a generator: it yields what to wait for.

The next one comes when the pipeline moves again, or, now and then, before it does.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from suiro.demo.processes import Child
from tests.soak.driver import TRANSACTION_TIMEOUT_MS
from tests.soak.sampling import members
from tests.soak.stage import Job, Stage
from tests.soak.story import Trouble

Wait = float | Callable[[], bool]
Fault = Iterator[Wait]

GIVES_WAY_S = 240.0
"""So long two drivers of one application may be there until one has found out."""
AT_ONCE_MAX = 2
AT_ONCE_SHARE = 0.25
PAUSE_S = (2.0, 30.0)
TIMEOUT_S = TRANSACTION_TIMEOUT_MS / 1000
LOST = (
    "end_txn",
    "produce",
    "txn_offset_commit",
    "init_producer_id",
    "offset_fetch",
    "fetch",
    "list_offsets",
)


def driver_and_all(stage: Stage, dice: random.Random) -> Fault:
    job, child = _one(stage, dice)
    stage.story.tell("kill", f"driver {job.name}, its JVM and its workers")
    child.kill()
    yield 0.0


def driver_alone(stage: Stage, dice: random.Random) -> Fault:
    job, child = _one(stage, dice)
    stage.story.tell("kill", f"the Python of driver {job.name}; what it leaves behind may go on")
    _kill(child.pid)
    yield 0.0


def jvm(stage: Stage, dice: random.Random) -> Fault:
    yield from _part(stage, dice, "jvm", "the JVM")


def daemon(stage: Stage, dice: random.Random) -> Fault:
    yield from _part(stage, dice, "daemon", "the parent of the Python workers")


def worker(stage: Stage, dice: random.Random) -> Fault:
    yield from _part(stage, dice, "worker", "a Python worker")


def _part(stage: Stage, dice: random.Random, part: str, words: str) -> Fault:
    job, child = _one(stage, dice)
    yield lambda: child.ended or bool(members(child)[part])
    if there := members(child)[part]:
        stage.story.tell("kill", f"{words} of driver {job.name}")
        _kill(dice.choice(there))


def log(stage: Stage, dice: random.Random) -> Fault:
    seconds = dice.choice([0.0, 0.0, dice.uniform(0, 10)])
    stage.story.tell("kill", f"the log; it comes back after {seconds:.1f} s")
    stage.broker.kill()
    yield seconds
    stage.broker.restart()
    stage.story.tell("back", "the log")


def sleep(stage: Stage, dice: random.Random) -> Fault:
    """For longer than its transaction may be open."""
    job, child = _one(stage, dice)
    seconds = dice.uniform(TIMEOUT_S + 2, 2 * TIMEOUT_S)
    stage.story.tell("stop", f"driver {job.name} for {seconds:.0f} s")
    child.freeze()
    yield seconds
    job.disturbed_at = stage.story.now
    child.resume()


def rival(stage: Stage, dice: random.Random) -> Fault:
    """Both are healthy, and have one application id and one checkpoint."""
    job, child = _one(stage, dice)
    other = job.start(with_fault=False)
    job.disturbed_at = stage.story.now
    stage.story.tell("rival", f"of driver {job.name}")
    yield from _one_gives_way(stage, job, child, other)


def sleeper(stage: Stage, dice: random.Random) -> Fault:
    """It wakes beside its successor."""
    job, child = _one(stage, dice)
    stage.story.tell("stop", f"driver {job.name} until another one has its place")
    child.freeze()
    other = job.start(with_fault=False)
    topic = job.outputs[0]
    at = stage.seen[topic]
    yield dice.uniform(0, 5)
    at = max(at, stage.seen[topic])
    until = stage.story.now + GIVES_WAY_S
    yield lambda: child.ended or other.ended or stage.seen[topic] > at or stage.story.now > until
    yield dice.choice([0.0, dice.uniform(0, 5)])
    stage.story.tell("wake", f"the earlier driver {job.name}")
    job.disturbed_at = stage.story.now
    child.resume()
    yield from _one_gives_way(stage, job, child, other)


def _one_gives_way(stage: Stage, job: Job, child: Child, other: Child) -> Fault:
    until = stage.story.now + GIVES_WAY_S
    yield lambda: child.ended or other.ended or stage.story.now > until
    if not (child.ended or other.ended):
        raise Trouble(f"two drivers {job.name} run beside each other for {GIVES_WAY_S:.0f} s: {child.pid}, {other.pid}")
    job.disturbed_at = stage.story.now
    stage.story.tell("gave way", f"the {'earlier' if child.ended else 'later'} driver {job.name}")


def network(stage: Stage, dice: random.Random) -> Fault:
    seconds = dice.choice([0.0, dice.uniform(0, 3), dice.uniform(0, 1.5 * TIMEOUT_S)])
    stage.story.tell("network", f"torn for {seconds:.1f} s")
    stage.proxy.down()
    yield seconds
    stage.proxy.up()


def answer(stage: Stage, dice: random.Random) -> Fault:
    api, action = dice.choice(LOST), dice.choice(["refuse", "lose", "cut"])
    before = len(stage.proxy.happened)
    stage.proxy.plan(api, action, skip=dice.randrange(5))
    until = stage.story.now + 30
    yield lambda: len(stage.proxy.happened) > before or stage.story.now > until
    stage.story.tell("network", f"{action} {api}: {'done' if len(stage.proxy.happened) > before else 'not asked yet'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    begin: Callable[[Stage, random.Random], Fault]
    weight: int
    ends_driver: bool = True
    ends_log: bool = False


KINDS = (
    Kind(name="kill -9 of a driver with its JVM and workers", begin=driver_and_all, weight=3),
    Kind(name="kill -9 of a driver's Python alone", begin=driver_alone, weight=2),
    Kind(name="kill -9 of a driver's JVM", begin=jvm, weight=2),
    Kind(name="kill -9 of the workers' parent", begin=daemon, weight=1, ends_driver=False),
    Kind(name="kill -9 of a Python worker", begin=worker, weight=4, ends_driver=False),
    Kind(name="kill -9 of the log", begin=log, weight=4, ends_driver=False, ends_log=True),
    Kind(name="a driver stopped for longer than its transaction timeout", begin=sleep, weight=2),
    Kind(name="a rival beside a healthy driver", begin=rival, weight=2),
    Kind(name="a stopped driver wakes beside its successor", begin=sleeper, weight=2),
    Kind(name="the network torn", begin=network, weight=3, ends_driver=False),
    Kind(name="a request or an answer lost", begin=answer, weight=4, ends_driver=False),
)


class Chaos:
    """In the second half the log is left alive, in the last quarter the drivers are: a leak has time to show."""

    def __init__(self, stage: Stage, dice: random.Random, seconds: float) -> None:
        self._stage = stage
        self._dice = dice
        self._seconds = seconds
        self._began: float | None = None
        self._active: list[tuple[Kind, Fault, Wait, float]] = []
        self._next_at: float | None = None
        self._totals: dict[str, int] = {}
        self._recovering_since: float | None = None
        self.recoveries: list[float] = []
        self.calm_since = 0.0
        """Since when nothing is being done to anybody."""

    @property
    def is_over(self) -> bool:
        return self._passed >= self._seconds and not self._active

    @property
    def _passed(self) -> float:
        """Seconds since the first output."""
        return 0.0 if self._began is None else self._stage.story.now - self._began

    def tick(self) -> None:
        """Raises `Trouble`."""
        self._go_on()
        now = self._stage.story.now
        if self._active:
            self.calm_since = now
        if self._recovering_since is not None and not self._active and self._moves():
            self.recoveries.append(now - self._recovering_since)
            self._recovering_since = None
        if self._began is None and self._moves():
            self._began = now
        if self._passed >= self._seconds:
            return
        if self._next_at is None and self._recovering_since is None and self._moves():
            self._next_at = now + self._dice.uniform(*PAUSE_S)
        if self._next_at is not None and now >= self._next_at and len(self._active) < AT_ONCE_MAX:
            self._begin(self._drawn(self._passed / self._seconds))
            soon = self._dice.random() < AT_ONCE_SHARE
            self._next_at = now + self._dice.uniform(0, 10) if soon else None

    def _drawn(self, share: float) -> Kind:
        kinds = [
            kind
            for kind in KINDS
            if not (kind.ends_log and share > 0.5)
            and not (kind.ends_driver and share > 0.75)
            and kind not in (active for active, *_ in self._active)
        ]
        return self._dice.choices(kinds, [kind.weight for kind in kinds])[0]

    def _begin(self, kind: Kind) -> None:
        self._stage.faults[kind.name] += 1
        self._active.append((kind, kind.begin(self._stage, self._dice), 0.0, self._stage.story.now))
        self._go_on()

    def _go_on(self) -> None:
        for item in list(self._active):
            kind, fault, wait, since = item
            now = self._stage.story.now
            if not (wait() if callable(wait) else now - since >= wait):
                continue
            self._active.remove(item)
            try:
                self._active.append((kind, fault, next(fault), now))
            except StopIteration:
                self._totals = dict(self._stage.seen)
                if self._recovering_since is None:
                    self._recovering_since = self._stage.story.now

    def _moves(self) -> bool:
        """Every output has more than when the last fault was over."""
        return all(
            self._stage.seen[topic] > self._totals.get(topic, 0) for job in self._stage.jobs for topic in job.outputs
        )


def _one(stage: Stage, dice: random.Random) -> tuple[Job, Child]:
    job = dice.choice(stage.jobs)
    if not job.drivers:
        job.start()
    return job, dice.choice(job.drivers)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
