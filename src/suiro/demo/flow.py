"""The first act: flights pass through the pipeline while capture, driver and log are killed and continue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from suiro.client import Client
from suiro.clock import Clock
from suiro.demo.display import Display
from suiro.demo.faults import (
    OpenTransaction,
    freeze_in_transaction,
    freeze_when,
    open_transaction,
    readable_end,
    unfinished_micro_batch,
)
from suiro.demo.feed import Feed, FeedRate
from suiro.demo.looking import Looking, stopwatch
from suiro.demo.names import APPLICATION, DELAYS, ENRICHED, RAW, REJECTED, VALIDATED
from suiro.demo.processes import Child, Session
from suiro.demo.system import System
from suiro.errors import FatalError

__all__ = ["Figures", "Flow", "told"]

WATCH_SETTLES_S = 1.0  # it may be so late
DRIVER_KILL_AT = 0.15  # of the flights enriched
LOG_KILL_AT = 0.5
BAITS_IN_A_MICRO_BATCH = 8
KEPT_BACK = 0.15  # of the flights: they come while the view changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of the flights that went through the pipeline in its act: from its first micro-batch on, its bad moments
    included. `cpu_s`: of all processes of the drivers that worked; what a stand-by used before it took over is not."""

    flights: int
    seconds: float
    cpu_s: float

    @property
    def per_second(self) -> float:
        return self.flights / self.seconds

    @property
    def cpu_us(self) -> float:
        """Of each flight; 0 where the system does not tell."""
        return 1e6 * self.cpu_s / self.flights if self.flights else 0.0


class Meter:
    """The processor time of one driver after the other."""

    def __init__(self) -> None:
        self._done = self._began = 0.0
        self._of: Session | None = None

    def begin(self, session: Session) -> None:
        self._of, self._began = session, session.cpu_seconds()

    def end(self) -> float:
        """Before the driver is killed, too; seconds so far."""
        if self._of is not None:
            # A driver that gave up by itself is gone, and with it what it used.
            self._done += max(0.0, self._of.cpu_seconds() - self._began)
            self._of = None
        return self._done


class Flow:
    """`rows`: all flights; the first `in_snapshot` are in the table when the capture begins."""

    def __init__(
        self,
        system: System,
        client: Client,
        show: Display,
        clock: Clock,
        looking: Looking,
        rows: pa.Table,
        *,
        in_snapshot: int,
    ) -> None:
        self._system = system
        self._client = client
        self._show = show
        self._clock = clock
        self._looking = looking
        self._flights = len(rows)
        self._in_snapshot = in_snapshot
        self._kept_back = int(len(rows) * KEPT_BACK)
        self._until = len(rows) - in_snapshot - self._kept_back
        # What is hunted for are transactions: some flights are left for them, however fast the pipeline is.
        self._bait = max(1, system.batch_size // BAITS_IN_A_MICRO_BATCH)
        self._allowed = min(
            self._until, max(0, int(len(rows) * LOG_KILL_AT) - in_snapshot) + system.batch_size
        )
        self.feed = looking.feed = Feed(
            system.dsn,
            rows.slice(in_snapshot),
            before=in_snapshot,
            ahead=3 * system.batch_size,
            processed=lambda: looking.processed,
        )
        self.kills = {"capture": 0, "driver": 0, "node": 0}
        self.figures = Figures(flights=0, seconds=1.0, cpu_s=0.0)
        self._meter = Meter()

    def run(self) -> None:
        """Until all are through but those that are kept back."""
        took = stopwatch(self._clock)
        looking = self._looking

        def enriched(share: float) -> Callable[[], bool]:
            return lambda: looking.progress.counts[ENRICHED] >= share * self._flights

        self.feed.go_on(FeedRate(until=self._allowed))
        self.feed.start()
        self._show.doing("starting Spark")
        looking.wait(lambda: looking.processed > 0, "the first micro-batch")
        self._runs()
        first, since_first = looking.processed, stopwatch(self._clock)
        assert self._system.driver is not None
        self._meter.begin(self._system.driver)
        self._system.start_stand_by()
        looking.wait(enriched(DRIVER_KILL_AT), "the first flights enriched")
        self._kill_driver()
        looking.wait(enriched(LOG_KILL_AT), "half of the flights enriched")
        self._kill_log()
        self._until = max(self._until, self._allowed)
        self.feed.go_on(FeedRate(until=self._until))
        if not self.kills["capture"]:
            self._kill_capture_live()
        self._runs()
        looking.wait(lambda: looking.processed >= self._in_snapshot + self._until, "the flights until here")
        self.figures = Figures(
            flights=looking.processed - first, seconds=since_first(), cpu_s=self._meter.end()
        )
        counts = looking.progress.counts
        self._show.done(
            f"{counts[RAW]:,} raw = {counts[VALIDATED]:,} validated + {counts[REJECTED]:,} rejected",
            detail=f"{took():.0f} s, {looking.micro_batches} micro-batches, {self.figures.per_second:,.0f} flights a "
            f"second; {self._kept_back:,} flights are left, for what follows",
        )

    def _runs(self) -> None:
        driver = self._system.driver
        assert driver is not None
        self._show.doing(f"the pipeline runs (driver {driver.pid}, start {self._system.driver_starts})")

    def go_on(self, share: float, seconds: float) -> None:
        """So much of what was kept back is inserted, in about so many seconds."""
        count = int(self._kept_back * share)
        self._until = min(len(self.feed), self._until + count)
        self.feed.go_on(FeedRate(until=self._until, per_second=max(1.0, count / seconds)))

    def finish(self) -> None:
        """All others, at once."""
        self.feed.go_on(FeedRate(until=len(self.feed)))

    # -- the capture -------------------------------------------------------------------------------------------------

    def kill_capture_in_snapshot(self, capture: Child) -> None:
        """Unless it was faster than we."""

        def look() -> int | None:
            return readable_end(self._client, RAW) or None if not capture.events else None

        found = freeze_when(
            capture, look, "half a snapshot", clock=self._clock, until=lambda: bool(capture.events)
        )
        if found is not None:
            self._kill_capture(capture, "in the middle of its snapshot", f"{RAW} can be read to {found:,}")

    def _kill_capture_live(self) -> None:
        capture = self._system.capture
        assert capture is not None
        self._show.doing("waiting for changes that the capture has not written, to kill it before them")

        def look() -> int | None:
            inserted = self._in_snapshot + self.feed.inserted
            return max(0, inserted - self._looking.progress.counts[RAW]) or None

        def is_over() -> bool:
            return self.feed.inserted >= self._until and look() is None

        found = freeze_when(
            capture, look, "change on its way", clock=self._clock, settle_s=WATCH_SETTLES_S, until=is_over
        )
        if found is None:
            self._system.check()
        else:
            self._kill_capture(capture, "in the stream of changes", f"{found:,} flights are not in {RAW} yet")

    def _kill_capture(self, capture: Child, where: str, detail: str) -> None:
        capture.kill()
        self.kills["capture"] += 1
        self._show.struck(f"kill -9 of the capture {where}", detail=detail)
        self._show.doing("starting the capture again")
        self._system.start_capture()

    # -- the driver and the log --------------------------------------------------------------------------------------

    def _freeze_driver(self, topics: Sequence[str]) -> OpenTransaction:
        while True:
            assert self._system.driver is not None
            found = freeze_in_transaction(
                self._system.driver, self._client, topics, clock=self._clock, feed=self._feed_the_hunt
            )
            if found is not None:
                return found
            self._looking.driver_failed()

    def _feed_the_hunt(self) -> None:
        """Where the pipeline has done all that there is, some more flights come."""
        if self._looking.processed >= self._in_snapshot + self._allowed:
            self._allowed = min(len(self.feed), self._allowed + self._bait)
            self.feed.go_on(FeedRate(until=self._allowed))

    def _kill_driver(self) -> None:
        checkpoint = self._system.state_dir / APPLICATION
        self._show.doing(
            "waiting for a micro-batch whose transaction is open, to kill the Spark driver in it"
        )
        found = self._freeze_driver((VALIDATED, REJECTED))
        micro_batch = unfinished_micro_batch(checkpoint)
        assert self._system.driver is not None
        self._meter.end()
        self._system.driver.kill()
        self.kills["driver"] += 1
        if micro_batch is None:
            raise FatalError(f"{checkpoint} has no unfinished micro-batch, but a transaction of it is open")
        self._show.struck(f"kill -9 of the Spark driver in micro-batch {micro_batch}", detail=told(found))
        self._show.doing("the driver that stands by takes over")
        driver = self._system.start_driver()
        self._meter.begin(driver)
        driver.tell("start")

    def _kill_log(self) -> None:
        log = self._system.log
        if not log.is_ours:
            self._show.done("the cluster is not ours to kill; going on")
            return
        self._show.doing(f"waiting for an open transaction, to kill {log.name} in it")
        found = self._freeze_driver((VALIDATED, REJECTED, ENRICHED, DELAYS))
        assert self._system.driver is not None
        try:
            log.kill()
            self.kills["node"] += 1
            self._show.struck(f"kill -9 of {log.name} in a transaction", detail=told(found))
            took = stopwatch(self._clock)
            log.restart()
            still = open_transaction(self._client, (found[0],))
            self._show.done(
                f"{log.name} is back on its data",
                detail=f"{took():.1f} s; the transaction is {'still open' if still else 'decided'}, as its log says",
            )
        finally:
            self._system.driver.resume()


def told(found: OpenTransaction) -> str:
    topic, partition, last_stable, end = found
    return f"{topic}-{partition} ends at {end:,}, decided up to {last_stable:,}"
