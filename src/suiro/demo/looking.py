"""Waits for a condition, shows the status meanwhile, and fails if a process has ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event

from suiro.clock import Clock
from suiro.demo.change import Change
from suiro.demo.display import Display
from suiro.demo.expected import Expected
from suiro.demo.faults import finished_micro_batches
from suiro.demo.feed import Feed
from suiro.demo.names import ALERTS, APPLICATION, ENRICHED, RAW, REJECTED, VALIDATED
from suiro.demo.system import System
from suiro.demo.watch import Progress, Watch
from suiro.errors import FatalError

__all__ = ["Looking", "StalledError", "stopwatch"]

STALLED_AFTER_S = 600  # what takes seconds on a machine that has nothing else to do
LOOK_EVERY_S = 0.1
DRIVER_STARTS_LIMIT = 6


class StalledError(FatalError):
    """What was waited for does not come."""


class Looking:
    """`watch`, `feed` and `change` are set as soon as there are some. `flights`: how many there will be."""

    def __init__(
        self, system: System, show: Display, clock: Clock, figures: Future[Expected], *, flights: int
    ) -> None:
        self._system = system
        self._show = show
        self._clock = clock
        self._figures = figures
        self._flights = flights
        self._pause = Event()
        self.watch: Watch | None = None
        self.feed: Feed | None = None
        self.change: Change | None = None

    # -- waiting -----------------------------------------------------------------------------------------------------

    def wait(self, reached: Callable[[], bool], what: str) -> None:
        """Raises `StalledError` where nothing moves any more, `FatalError` where something ended that should not."""
        before, moved_ms = self._moved(), self._clock.monotonic_ms()
        while not reached():
            self.look()
            now, now_ms = self._moved(), self._clock.monotonic_ms()
            if now != before:
                before, moved_ms = now, now_ms
            elif now_ms - moved_ms > STALLED_AFTER_S * 1000:
                raise StalledError(
                    f"{what} did not come, and nothing has moved for {STALLED_AFTER_S} s: {now}; what each process "
                    f"said is in {self._system.directory}"
                )
            self._pause.wait(LOOK_EVERY_S)

    def _moved(self) -> dict[str, object]:
        """What grows while all is well; reads do not count, for they are answered by a view that stands still, too."""
        versions = () if self.change is None else self.change.state.versions
        cuts = {f"v{version.number}": (version.state, version.done, version.cut) for version in versions}
        return {**self.progress.counts, "alerts delivered": self.progress.delivered, **cuts}

    def look(self) -> None:
        self._system.check()
        if self._system.driver is not None and self._system.driver.ended:
            self.driver_failed()
        failure = None if self.feed is None else self.feed.failure
        if failure is not None:
            raise FatalError(f"inserting flights failed: {failure}") from failure
        if self.watch is not None:
            self._show.progress(self.progress, totals=self._totals(), micro_batches=self.micro_batches)
        if self.change is not None:
            self._show.view(self.change.look())

    def driver_failed(self) -> None:
        """Starts it again, unless that was done often enough."""
        driver = self._system.driver
        assert driver is not None
        if self._system.driver_starts >= DRIVER_STARTS_LIMIT:
            raise FatalError(f"the Spark driver failed {self._system.driver_starts} times; {driver.tail()}")
        self._show.struck("the Spark driver gave up; starting it again", detail=f"see {driver.log_path}")
        driver.kill()
        self._system.start_driver().tell("start")

    # -- how far it is -----------------------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        return Progress() if self.watch is None else self.watch.progress()

    @property
    def figures(self) -> Expected:
        """What must come out; waits until it is computed."""
        return self._figures.result()

    @property
    def processed(self) -> int:
        counts = self.progress.counts
        return counts[VALIDATED] + counts[REJECTED]

    @property
    def micro_batches(self) -> int:
        return finished_micro_batches(self._system.state_dir / APPLICATION)

    def is_complete(self) -> bool:
        """Every flight is through, and every alert was delivered."""
        progress, figures = self.progress, self.figures
        counts, total, alerts = progress.counts, figures.validated_count, len(figures.alerts)
        through = self.processed >= len(figures.flights) and counts[ENRICHED] >= total
        told = counts[ALERTS] >= alerts and progress.delivered >= alerts
        return through and told and progress.aggregated >= total

    def _totals(self) -> dict[str, int]:
        """What each topic will hold, as far as it is known by now."""
        if not self._figures.done():
            return {RAW: self._flights}
        figures = self.figures
        return {
            RAW: self._flights,
            VALIDATED: figures.validated_count,
            REJECTED: len(figures.rejected),
            ENRICHED: figures.validated_count,
            ALERTS: len(figures.alerts),
        }


def stopwatch(clock: Clock) -> Callable[[], float]:
    """Seconds since now."""
    start_ms = clock.monotonic_ms()
    return lambda: max(1, clock.monotonic_ms() - start_ms) / 1000
