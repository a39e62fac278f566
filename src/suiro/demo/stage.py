"""The shared parts of the acts: the processes, a client of the log, the screen, and the progress.

A read_committed consumer on a thread counts the committed records of the pipeline. It survives restarts of the log. The
final check does not use these counts: it reads everything again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from suiro.client import Client
from suiro.clock import monotonic_s, sleep_s
from suiro.demo import names
from suiro.demo.check import Check
from suiro.demo.database import Feed
from suiro.demo.display import Display, Status, Version
from suiro.demo.processes import finished_micro_batches
from suiro.demo.system import System
from suiro.errors import FatalError, SuiroError
from suiro.views import Views

STALLED_AFTER_S = 600  # takes seconds on an idle machine
LOOK_EVERY_S = 0.1
ASK_EVERY_S = 0.3
DRIVER_STARTS_LIMIT = 6
CONSUME_RECORDS = 10_000
WATCHED = (*names.STAGES, names.WEATHER)


class StalledError(FatalError):
    """Nothing moves while something is waited for."""


class Stage:
    """`flights` is the expected number. `feed` and `views` are set as soon as they exist."""

    def __init__(self, system: System, client: Client, show: Display, check: Check, *, flights: int) -> None:
        self.system = system
        self.client = client
        self.show = show
        self.flights = flights
        self.feed: Feed | None = None
        self.views: Views | None = None
        self.counts = dict.fromkeys(WATCHED, 0)
        self._carriers: dict[str, Mapping[str, Any]] = {}
        self.check = check
        self._versions: tuple[Version, ...] = ()
        self._ask_at_s = 0.0
        self._ended = threading.Event()
        self._counter = threading.Thread(target=self._count, name="demo-count", daemon=True)

    def wait(self, reached: Callable[[], bool], what: str) -> None:
        """Raises `StalledError` if nothing moves any more, and `FatalError` if a process has ended that should not."""
        before, moved_s = self._moving(), monotonic_s()
        while not reached():
            self._look()
            now = self._moving()
            if now != before:
                before, moved_s = now, monotonic_s()
            elif monotonic_s() - moved_s > STALLED_AFTER_S:
                raise StalledError(
                    f"{what} did not come, and nothing has moved for {STALLED_AFTER_S} s: {now}; what each process "
                    f"said is in {self.system.directory}"
                )
            sleep_s(LOOK_EVERY_S)

    def _moving(self) -> dict[str, object]:
        """Returns the values that change while all is well. Reads do not count, because a stalled view answers them,
        too."""
        versions = {f"v{each.version}": (each.state, each.progress.done, each.cut) for each in self.versions}
        return {**self.counts, "alerts delivered": self.delivered, **versions}

    def _look(self) -> None:
        self.system.check()
        if self.system.driver_starts and self.system.driver.ended:
            self.driver_failed()
        failure = None if self.feed is None else self.feed.failure
        if failure is not None:
            raise FatalError(f"inserting flights failed: {failure}") from failure
        for version in self.versions:
            if version.state == "failed":
                raise FatalError(f"version {version.version} of the view failed: {version.error}")
        if self.system.reader is None and self.version(1).state == "ready":
            self.system.start_reader()
        if self._counter.ident is not None:
            self.show.status(self._status())

    def driver_failed(self) -> None:
        """Restarts the driver, up to a limit."""
        if self.system.driver_starts >= DRIVER_STARTS_LIMIT:
            raise FatalError(f"the Spark driver failed {self.system.driver_starts} times; {self.system.driver.tail()}")
        self.show.struck("the Spark driver gave up; starting it again", detail=f"see {self.system.driver.log_path}")
        self.system.driver.kill()
        self.system.start_driver()

    @property
    def processed(self) -> int:
        return self.counts[names.VALIDATED] + self.counts[names.REJECTED]

    @property
    def aggregated(self) -> int:
        return sum(figures.get("flights", 0) for figures in list(self._carriers.values()))

    @property
    def delivered(self) -> int:
        return len(self.system.receiver.taken)

    @property
    def micro_batches(self) -> int:
        return finished_micro_batches(self.system.state_dir / names.APPLICATION)

    def is_complete(self) -> bool:
        """Whether every flight was processed, and every alert delivered."""
        wanted = self.check.totals
        return (
            self.processed >= self.flights
            and min(self.counts[names.ENRICHED], self.aggregated) >= wanted[names.ENRICHED]
            and min(self.counts[names.ALERTS], self.delivered) >= wanted[names.ALERTS]
        )

    def _status(self) -> Status:
        return Status(
            counts=self.counts,
            totals={names.RAW: self.flights} | (self.check.totals if self.check.is_computed else {}),
            aggregated=self.aggregated,
            delivered=self.delivered,
            micro_batches=self.micro_batches,
            versions=self.versions,
            reading=self.reading,
        )

    @property
    def versions(self) -> tuple[Version, ...]:
        """The versions as the host of views reported them last. It is asked regularly."""
        if self.views is not None and monotonic_s() >= self._ask_at_s:
            with suppress(SuiroError):
                self._versions = Version.all_of(self.views.status(names.VIEW))
            self._ask_at_s = monotonic_s() + ASK_EVERY_S
        return self._versions

    def version(self, number: int) -> Version:
        return next((each for each in self.versions if each.version == number), Version(version=number))

    @property
    def reading(self) -> Mapping[str, Any] | None:
        """The last report of the reader."""
        reader = self.system.reader
        return reader.events[-1] if reader is not None and reader.events else None

    def start_counting(self) -> None:
        """Starts the counter. All topics must exist."""
        self._counter.start()

    def stop_counting(self) -> None:
        self._ended.set()
        if self._counter.ident is not None:
            self._counter.join()

    def _count(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.system.bootstrap_servers,
                "group.id": "suiro-demo-count",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,  # the demo kills the node on purpose
            }
        )
        consumer.assign([TopicPartition(topic, p, 0) for topic in WATCHED for p in range(names.PARTITIONS)])
        while not self._ended.is_set():
            for message in consumer.consume(CONSUME_RECORDS, timeout=0.2):
                if message.error() is None and (topic := message.topic()) is not None:
                    self.counts[topic] += 1
                    if topic == names.DELAYS and (key := message.key()) is not None:
                        self._carriers[key.decode()] = json.loads(message.value() or b"{}")
        consumer.close()


def stopwatch() -> Callable[[], float]:
    """Returns a function that returns the seconds since this call."""
    start_s = monotonic_s()
    return lambda: max(0.001, monotonic_s() - start_s)
