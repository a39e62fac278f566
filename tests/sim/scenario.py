"""A life drawn from a seed: a query, a node, what goes wrong and when; and what became of it.

Each seed draws which kinds of trouble there are and how likely each is, and a budget of how many there may be, so that
some seeds see one crash at an odd moment and others everything at once. When the budget is spent the world is well
again, and then the query must come to its end: an outcome that is safe because nothing goes on any more is no outcome.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random

from suiro.client import Client
from suiro.errors import FatalError, FencedError, TransientError
from tests.sim.checker import Checker, Violation
from tests.sim.network import HOST, PORT, Link, Network, Troubles
from tests.sim.node import AUDIT, OUT, TOPICS, SimulatedNode, Template, edges_of
from tests.sim.query import ConcurrentUpdate, Driver, Place, Query
from tests.sim.world import Killed, Process, World
from tests.support.batches import values_of

HOUR_MS = 3_600_000
DEADLINE_MS = HOUR_MS
AFTERMATH_MS = 200_000
"""After the query's end: late copies arrive, open transactions time out."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """What one seed draws."""

    budget: int
    troubles: Troubles
    kill_driver: float = 0.0  # at a message of its
    pause_driver: float = 0.0
    kill_node: float = 0.0
    kill_node_in_write: float = 0.0
    refuse_write: float = 0.0
    full_ms: int = 0  # for so long after a refused write all others are refused, too: the disk is full
    away_ms: tuple[int, ...] = (10, 1_000, 20_000)  # a killed node
    new_worker: float = 0.0
    transaction_timeout_ms: int = 60_000
    settings: dict[str, int] = field(default_factory=dict)

    @property
    def longest_ms(self) -> int:
        """All outages, one after another."""
        return self.budget * max(self.full_ms, *self.away_ms)

    @classmethod
    def draw(cls, random: Random) -> Plan:
        def rate(most: float) -> float:
            return random.choice((0.0, most / 4, most)) if random.random() < 0.6 else 0.0

        return cls(
            budget=random.choice((1, 2, 3, 5, 8, 13)),
            troubles=Troubles(
                most_latency_ms=random.choice((5, 20, 200)),
                slow=rate(0.1),
                stall=rate(0.04),
                break_before=rate(0.06),
                break_after=rate(0.08),
                silent=random.choice((0.0, 0.5, 1.0)),
                ghost=rate(0.3),
            ),
            kill_driver=rate(0.06),
            pause_driver=rate(0.06),
            kill_node=rate(0.03),
            kill_node_in_write=rate(0.06),
            refuse_write=rate(0.05),
            new_worker=random.choice((0.0, 0.3)),
            transaction_timeout_ms=random.choice((3_000, 15_000, 60_000)),
            settings={
                "request.timeout.ms": random.choice((2_000, 30_000)),
                "default.api.timeout.ms": random.choice((5_000, 60_000)),
                "delivery.timeout.ms": random.choice((5_000, 120_000)),
            },
        )


@dataclass(slots=True, kw_only=True)
class Result:
    seed: int | str
    violation: Violation | None
    story: list[str]
    events: int
    virtual_ms: int
    happened: Counter[str]


class Life:
    """One seed's world. `run` lets it happen."""

    def __init__(self, seed: int | str, template: Template, *, plan: Plan | None = None) -> None:
        self.seed = seed
        self.world = world = World(seed)
        self.plan = plan or Plan.draw(world.random)
        self.network = Network(world, self.plan.troubles)
        self.query = Query(world.random)
        self.happened: Counter[str] = Counter()
        self._template = template
        self._drivers: list[Process] = []
        self._names = 0
        self._left = self.plan.budget
        self._failure: Violation | None = None
        self._is_well = False
        self._full_until = 0

    def run(self) -> Result:
        world, network = self.world, self.network
        violation = None
        with self._template.copy() as directory, edges_of(network), _quiet():
            self.node = node = SimulatedNode(world, network, directory)
            self.checker = Checker(node, self.query)
            network.on_request = self._requested
            network.on_answer = self._answered
            node.before_write = self._fate_of_write
            node.on_killed = self._node_was_killed
            world.after_event = self.looked
            try:
                node.start()
                self._start_driver()
                self._live()
            except Violation as found:
                violation = found
                world.tell("VIOLATION, {}", found)
            finally:
                world.after_event = lambda: None
                for driver in self._drivers:
                    driver.kill()
                node.kill()
        return Result(
            seed=self.seed,
            violation=violation,
            story=told(self),
            events=world.events,
            virtual_ms=world.now,
            happened=self.happened,
        )

    def looked(self) -> None:
        """After every event."""
        self.checker.look()

    def _live(self) -> None:
        world, query, plan = self.world, self.query, self.plan
        if not world.run(
            lambda: query.is_finished or self._failure is not None, deadline=DEADLINE_MS + plan.longest_ms
        ):
            raise Violation("no end", "the query has not come to its end in time")
        if self._failure is not None:
            raise self._failure
        self._heal()
        if not self.node.is_up or world.now < self._full_until:
            world.run(
                lambda: self.node.is_up and world.now >= self._full_until,
                deadline=world.now + plan.longest_ms,
            )
        ends = world.now + AFTERMATH_MS
        world.run(lambda: self._failure is not None, deadline=ends)
        if self._failure is not None:
            raise self._failure
        self.checker.check_end(self._read_all())

    # Trouble

    def _trouble(self, kind: str, probability: float) -> bool:
        """Whether it happens now, if there may be any more of it."""
        if self._left <= 0 or not self.world.chance(probability):
            return False
        self._left -= 1
        self.happened[kind] += 1
        if self._left == 0:
            self._heal()
        return True

    def _heal(self) -> None:
        if not self._is_well:
            self._is_well = True
            self._left = 0
            self.network.troubles.heal()

    def _requested(self, link: Link, frame: bytes) -> None:
        self._around_message(link)

    def _answered(self, link: Link, request: bytes, answer: bytes) -> None:
        self._around_message(link)

    def _around_message(self, link: Link) -> None:
        """Somebody falls, before or after the message arrives."""
        world, random, plan = self.world, self.world.random, self.plan
        if self._left <= 0:
            return
        moment = random.choice((0, 0, 1, 10, 100))
        process = link.process
        if process is not None and self._trouble("driver killed", plan.kill_driver):
            world.after(moment, self._kill_driver, process)
        elif process is not None and self._trouble("driver paused", plan.pause_driver):
            length = random.choice((200, 5_000, 40_000, 120_000))
            world.after(moment, self._pause_driver, process, length)
        elif self._trouble("node killed", plan.kill_node):
            world.after(moment, self.node.kill)

    def _fate_of_write(self, node: SimulatedNode) -> str:
        plan = self.plan
        if self.world.now < self._full_until:
            return "full"
        if self._trouble("node killed at a write", plan.kill_node_in_write):
            return self.world.random.choice(("before", "within", "after"))
        if self._trouble("write refused", plan.refuse_write):
            self._full_until = self.world.now + plan.full_ms
            return "full"
        return ""

    def _node_was_killed(self) -> None:
        self.world.after(self.world.random.choice(self.plan.away_ms), self._start_node)

    def _start_node(self) -> None:
        if not self.node.is_up:
            self.node.start()

    # Drivers

    def _start_driver(self) -> None:
        """A supervisor starts one when it believes that none is there."""
        if self.query.is_finished:
            return
        self._names += 1
        driver = self.make_driver(f"driver {self._names}")
        self.world.tell("{} starts", driver.name)
        ended = partial(self._driver_ended, driver)
        self._drivers.append(Process(self.world, driver.name, driver.run, ended))

    def make_driver(self, name: str) -> Driver:
        plan = self.plan
        return Driver(
            self.world,
            self.query,
            name,
            settings=plan.settings,
            transaction_timeout_ms=plan.transaction_timeout_ms,
            new_worker=plan.new_worker,
        )

    def _kill_driver(self, process: Process) -> None:
        if process.alive:
            process.kill()

    def _pause_driver(self, process: Process, length: int) -> None:
        if process.alive:
            self.world.tell("{} stands still for {} ms", process.name, length)
            process.pause(length)
            if self.world.chance(0.7):  # it is taken for dead
                self.world.after(self.world.random.randint(0, 10_000), self._start_driver)

    def _driver_ended(self, driver: Driver, process: Process, failure: BaseException | None) -> None:
        world = self.world
        if failure is None:
            world.tell("{} has nothing left to do", process.name)
            return
        if isinstance(failure, Killed):
            world.tell("{} is killed", process.name)
        else:
            world.tell("{} stops: {}: {}", process.name, type(failure).__name__, failure)
            self.happened[type(failure).__name__] += 1
        expected = isinstance(failure, (Killed, FencedError, ConcurrentUpdate, TransientError)) or (
            # It has slept through what others did, and finds the marker ahead of it: it stops, as it should.
            isinstance(failure, FatalError) and driver.is_overtaken
        )
        if not expected:
            self._failure = Violation("false alarm", f"{process.name}: {failure!r}")
        if not any(driver.alive for driver in self._drivers):
            world.after(world.random.choice((10, 2_000, 30_000)), self._start_driver)

    # The end

    def _read_all(self) -> dict[Place, list[str]]:
        """As a consumer with read_committed does, over the wire."""
        found: dict[Place, list[str]] = {}
        failures: list[BaseException | None] = []

        def read() -> None:
            with Client(f"{HOST}:{PORT}", clock=self.world) as client:
                for topic in (OUT, AUDIT):
                    for place in ((topic, index) for index in range(TOPICS[topic])):
                        found[place] = _read_partition(client, place)

        Process(self.world, "reader", read, lambda process, failure: failures.append(failure))
        finished = self.world.run(lambda: bool(failures), deadline=self.world.now + AFTERMATH_MS)
        if not finished or failures != [None]:
            raise Violation("blocked readers", f"a reader does not come to the end: {failures}")
        return found


def _read_partition(client: Client, place: Place) -> list[str]:
    end = client.list_offsets({place: -1}, read_committed=True)[place].offset
    log_end = client.list_offsets({place: -1})[place].offset
    if end != log_end:
        raise AssertionError(f"{place} is readable up to {end} of {log_end}")
    return values_of(client.fetch({place: 0}, max_wait_ms=0)[place]) if end else []


def run(seed: int | str, template: Template, *, plan: Plan | None = None) -> Result:
    return Life(seed, template, plan=plan).run()


def told(life: Life) -> list[str]:
    """The story's lines, made when asked for: most stories nobody reads."""
    return _Story(life.world.story)


class _Story(list[str]):
    def __init__(self, entries: list[tuple[int, str, tuple[object, ...]]]) -> None:
        super().__init__()
        self._entries = entries

    def __iter__(self) -> Iterator[str]:
        for time, words, arguments in self._entries:
            yield f"{time / 1000:11.3f} s  {words.format(*arguments)}"

    def __len__(self) -> int:
        return len(self._entries)


@contextmanager
def _quiet() -> Iterator[None]:
    """The node's own log says of every fault what the story says."""
    logger = logging.getLogger("suiro")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
