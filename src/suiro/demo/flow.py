"""The first act: flights pass through the pipeline while capture, driver and log are killed and continue."""

from __future__ import annotations

import pyarrow as pa

from suiro.demo.database import Feed
from suiro.demo.names import APPLICATION, DELAYS, ENRICHED, RAW, REJECTED, VALIDATED
from suiro.demo.processes import (
    Child,
    OpenTransaction,
    freeze_when,
    open_transaction,
    readable_ends,
    unfinished_micro_batch,
)
from suiro.demo.stage import Stage, stopwatch
from suiro.errors import FatalError

COUNTS_SETTLE_S = 1.0  # the delay of the counts
DRIVER_KILL_AT = 0.15  # of the flights enriched
LOG_KILL_AT = 0.5
BAITS_IN_A_MICRO_BATCH = 8
FEED_EVERY_S = 0.5  # a transaction, while the view changes
KEPT_BACK = 0.15  # of the flights: they come while the view changes


class Flow:
    """`rows` are all flights. The first `in_snapshot` are in the table when the capture starts. `per_second` is the
    rate from the first micro-batch to the end of the act, including the kills; `cpu_us` is the drivers' processor time
    for each flight."""

    def __init__(self, stage: Stage, rows: pa.Table, *, in_snapshot: int) -> None:
        self._stage = stage
        self._system, self._show = stage.system, stage.show
        self._in_snapshot = in_snapshot
        batch_size = stage.system.batch_size
        self._kept_back = int(len(rows) * KEPT_BACK)
        self._until = len(rows) - in_snapshot - self._kept_back
        # Some flights are kept back to provoke an open transaction, even if the pipeline is fast.
        self._bait = max(1, batch_size // BAITS_IN_A_MICRO_BATCH)
        self._allowed = min(self._until, max(0, int(len(rows) * LOG_KILL_AT) - in_snapshot) + batch_size)
        self.feed = stage.feed = Feed(
            stage.system.dsn,
            rows.slice(in_snapshot),
            before=in_snapshot,
            ahead=3 * batch_size,
            processed=lambda: stage.processed,
        )
        self.kills = {"capture": 0, "driver": 0, "node": 0}
        self.per_second = self.cpu_us = 0.0
        self._cpu_s = 0.0  # of the drivers, while they worked

    def run(self) -> None:
        """Runs until all flights are processed, except those that are kept back."""
        stage, took = self._stage, stopwatch()
        self.feed.go_on(self._allowed)
        self.feed.start()
        self._show.doing("starting Spark")
        stage.wait(lambda: stage.processed > 0, "the first micro-batch")
        self._runs()
        first, since_first = stage.processed, stopwatch()
        self._cpu_s -= self._system.driver.cpu_seconds()
        self._system.start_stand_by()
        self._wait_enriched(DRIVER_KILL_AT)
        self._kill_driver()
        self._wait_enriched(LOG_KILL_AT)
        self._kill_log()
        self._until = max(self._until, self._allowed)
        self.feed.go_on(self._until)
        if not self.kills["capture"]:
            self._kill_capture_live()
        self._runs()
        stage.wait(lambda: stage.processed >= self._in_snapshot + self._until, "the flights until here")
        self._cpu_s += self._system.driver.cpu_seconds()
        count = max(1, stage.processed - first)
        self.per_second, self.cpu_us = count / since_first(), 1e6 * max(0.0, self._cpu_s) / count
        counts = stage.counts
        self._show.done(
            f"{counts[RAW]:,} raw = {counts[VALIDATED]:,} validated + {counts[REJECTED]:,} rejected",
            detail=f"{took():.0f} s, {stage.micro_batches} micro-batches, {self.per_second:,.0f} flights a "
            f"second; {self._kept_back:,} flights are left, for what follows",
        )

    def _runs(self) -> None:
        pid, starts = self._system.driver.pid, self._system.driver_starts
        self._show.doing(f"the pipeline runs (driver {pid}, start {starts})")

    def _wait_enriched(self, share: float) -> None:
        counts, wanted = self._stage.counts, share * self._stage.flights
        self._stage.wait(lambda: counts[ENRICHED] >= wanted, f"{share:.0%} of the flights enriched")

    def go_on(self, share: float, seconds: float) -> None:
        """Inserts this share of the kept flights in about so many seconds."""
        count = int(self._kept_back * share)
        self._until = min(len(self.feed), self._until + count)
        self.feed.go_on(self._until, rows=max(1, int(count * FEED_EVERY_S / seconds)), every_s=FEED_EVERY_S)

    def finish(self) -> None:
        """Inserts all other flights at once."""
        self.feed.go_on(len(self.feed))

    def kill_capture_in_snapshot(self, capture: Child) -> None:
        """Kills the capture in its snapshot, unless it is faster."""

        def is_over() -> bool:
            return bool(capture.events)

        def look() -> int | None:
            return None if is_over() else sum(readable_ends(self._stage.client, RAW).values()) or None

        found = freeze_when(capture, look, "half a snapshot", until=is_over)
        if found is not None:
            self._kill_capture(capture, "in the middle of its snapshot", f"{RAW} can be read to {found:,}")

    def _kill_capture_live(self) -> None:
        self._show.doing("waiting for changes that the capture has not written, to kill it before them")

        def look() -> int | None:
            return max(0, self._in_snapshot + self.feed.inserted - self._stage.counts[RAW]) or None

        def is_over() -> bool:
            return self.feed.inserted >= self._until and look() is None

        found = freeze_when(self._system.capture, look, "change on its way", settle_s=COUNTS_SETTLE_S, until=is_over)
        if found is None:
            self._system.check()
        else:
            where = f"{found:,} flights are not in {RAW} yet"
            self._kill_capture(self._system.capture, "in the stream of changes", where)

    def _kill_capture(self, capture: Child, where: str, detail: str) -> None:
        capture.kill()
        self.kills["capture"] += 1
        self._show.struck(f"kill -9 of the capture {where}", detail=detail)
        self._show.doing("starting the capture again")
        self._system.start_capture()

    def _freeze_driver(self, *topics: str) -> OpenTransaction:
        """Freezes the driver in a micro-batch with an open transaction on these topics."""

        def look() -> OpenTransaction | None:
            # An idle pipeline opens no transaction, so it gets more flights.
            if self._stage.processed >= self._in_snapshot + self._allowed:
                if self._allowed == len(self.feed):
                    raise FatalError("all flights were processed before an open transaction was seen")
                self._allowed = min(len(self.feed), self._allowed + self._bait)
                self.feed.go_on(self._allowed)
            return open_transaction(self._stage.client, *topics)

        while (found := freeze_when(self._system.driver, look, "open transaction of the pipeline")) is None:
            self._stage.driver_failed()
        return found

    def _kill_driver(self) -> None:
        checkpoint = self._system.state_dir / APPLICATION
        self._show.doing("waiting for a micro-batch whose transaction is open, to kill the Spark driver in it")
        found = self._freeze_driver(VALIDATED, REJECTED)
        micro_batch = unfinished_micro_batch(checkpoint)
        self._cpu_s += self._system.driver.cpu_seconds()  # it is gone with the process
        self._system.driver.kill()
        self.kills["driver"] += 1
        if micro_batch is None:
            raise FatalError(f"{checkpoint} has no unfinished micro-batch, but a transaction of it is open")
        self._show.struck(f"kill -9 of the Spark driver in micro-batch {micro_batch}", detail=str(found))
        self._show.doing("the driver that stands by takes over")
        self._cpu_s -= self._system.start_driver().cpu_seconds()  # what it used while it stood by

    def _kill_log(self) -> None:
        log = self._system.log
        if not log.is_ours:
            self._show.done("the cluster is not ours to kill; going on")
            return
        self._show.doing(f"waiting for an open transaction, to kill {log.name} in it")
        found = self._freeze_driver(VALIDATED, REJECTED, ENRICHED, DELAYS)
        try:
            log.kill()
            self.kills["node"] += 1
            self._show.struck(f"kill -9 of {log.name} in a transaction", detail=str(found))
            took = stopwatch()
            log.restart()
            still = "still open" if open_transaction(self._stage.client, found.topic) else "decided"
            self._show.done(
                f"{log.name} is back on its data",
                detail=f"{took():.1f} s; the transaction is {still}, as its log says",
            )
        finally:
            self._system.driver.resume()
