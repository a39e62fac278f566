"""The demo in order: start, load, capture, run, kill, go on, check. `run` is what `suiro demo` calls."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import psycopg
import pyarrow as pa

from suiro.client import Client
from suiro.clock import Clock, SystemClock
from suiro.demo.database import create_tables, insert
from suiro.demo.dataset import REFERENCES, flights, references, write_weather
from suiro.demo.display import Display, display
from suiro.demo.expected import Expected, expected
from suiro.demo.faults import (
    OpenTransaction,
    finished_micro_batches,
    freeze_in_transaction,
    freeze_when,
    open_transaction,
    readable_end,
    unfinished_micro_batch,
)
from suiro.demo.feed import Feed
from suiro.demo.names import (
    ALERTS,
    APPLICATION,
    CAPTURED,
    DELAYS,
    ENRICHED,
    RAW,
    REJECTED,
    STAGES,
    VALIDATED,
    WEATHER,
    WEATHER_REJECTED,
)
from suiro.demo.processes import Child, RunningCluster
from suiro.demo.reading import count_uncommitted, read
from suiro.demo.report import Outcome, report
from suiro.demo.system import System
from suiro.demo.topics import create_topics
from suiro.demo.verify import verify
from suiro.demo.watch import Progress, Watch
from suiro.errors import FatalError, UsageError

__all__ = ["DemoOptions", "run"]

MICRO_BATCHES_WANTED = 16
STALLED_AFTER_S = 240
LOOK_EVERY_S = 0.1
WATCH_SETTLES_S = 1.0  # it may be so late
DRIVER_STARTS_LIMIT = 6
IN_THE_SNAPSHOT = 0.5  # of the flights; the others are inserted while the pipeline runs
DRIVER_KILL_AT = 0.15  # of the flights enriched
LOG_KILL_AT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    data: Path | None = None  # None: temporary, removed after success
    plain: bool = False
    kafka: bool = False  # a real Apache Kafka in the node's place
    bootstrap: str | None = None  # a running cluster in the node's place
    flights: int | None = None  # the first flights only


def run(options: DemoOptions, *, clock: Clock | None = None) -> int:
    """Returns the exit code: 0 only if every count adds up."""
    return _Demo(options, clock or SystemClock()).run()


class _Demo:
    def __init__(self, options: DemoOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._start_ms = clock.monotonic_ms()
        self._directory, self._temporary = _directory(options.data)
        self._show: Display = display(plain=options.plain)
        self._kills = {"capture": 0, "driver": 0, "node": 0}
        self._pause = Event()
        # Made in this order by `run`; each part of the story uses those before it.
        self._system: System
        self._client: Client
        self._rows: pa.Table
        self._weather = 0
        self._figures: Future[Expected]
        self._watch: Watch
        self._feed: Feed

    def run(self) -> int:
        with ExitStack() as stack:
            stack.enter_context(_unwinding_on_sigterm())
            stack.enter_context(self._show)
            self._start(stack)
            self._load()
            self._figures = stack.enter_context(ThreadPoolExecutor(1)).submit(
                expected, limit=self._options.flights
            )
            self._capture(stack)
            self._run_pipeline(stack)
            outcome = self._check()
        kept = None if outcome.passed and self._temporary else self._directory
        if kept is None:
            shutil.rmtree(self._directory, ignore_errors=True)
        return report(self._show, outcome, directory=kept)

    # -- what there is before the first flight -------------------------------------------------------------------

    def _start(self, stack: ExitStack) -> None:
        took = self._stopwatch()
        options = self._options
        self._show.doing("starting Apache Kafka" if options.kafka else "starting the node")
        self._system = System(self._directory, kafka=options.kafka, bootstrap=options.bootstrap)
        stack.callback(self._system.stop)
        log = self._system.log
        self._show.done(
            f"{log.name} on {log.bootstrap_servers}", detail=f"{took():.1f} s to its first answer"
        )
        create_topics(log.bootstrap_servers)
        self._client = stack.enter_context(Client(log.bootstrap_servers))
        self._system.start_database()
        self._system.start_registry()
        self._show.doing("starting the registry and Postgres")
        self._system.wait_registry()
        self._rows = flights(limit=options.flights)
        self._start_driver()  # Spark needs seconds to start; the flights come meanwhile

    def _load(self) -> None:
        took = self._stopwatch()
        self._system.wait_database()
        self._show.doing("creating the tables in Postgres")
        rows = self._rows.slice(0, self._in_snapshot)
        with psycopg.connect(self._system.dsn, autocommit=True) as connection:
            create_tables(connection)
            for name in REFERENCES:
                insert(connection, name, references(name))
            insert(connection, "flights", rows)
        self._weather = write_weather(self._system.weather_files)
        self._system.start_connect()
        self._show.done(
            f"{len(rows):,} flights are in Postgres, {self._weather:,} hours of weather in files",
            detail=f"{took():.1f} s; airlines, airports and planes as well",
        )

    # -- from the database and the files into the log ----------------------------------------------------------------

    def _capture(self, stack: ExitStack) -> None:
        took = self._stopwatch()
        self._show.doing("the capture reads its snapshot")
        capture = self._system.start_capture()
        while RAW not in self._client.metadata([RAW]):
            self._system.check()
            self._pause.wait(LOOK_EVERY_S)
        self._watch = stack.enter_context(
            Watch(self._system.bootstrap_servers, delivered=lambda: len(self._system.receiver.taken))
        )
        self._kill_capture_in_snapshot(capture)
        ready = self._wait_for_capture()
        self._wait_until(lambda: self._watch.progress().counts[RAW] >= self._in_snapshot, "the snapshot")
        self._show.done(
            f"the capture is ready: {len(ready['topics'])} tables are topics, and changes flow",
            detail=f"{took():.1f} s",
        )
        self._show.doing("the weather comes out of its files")
        self._wait_until(lambda: self._watch.progress().counts[WEATHER] >= self._weather, "the weather")
        self._show.done(f"{self._weather:,} hours of weather are in topic {WEATHER}")

    def _wait_for_capture(self) -> dict[str, list[str]]:
        capture = self._system.capture
        assert capture is not None
        while not capture.events:
            self._system.check()
            self._show_progress()
            self._pause.wait(LOOK_EVERY_S)
        return capture.events[0]

    def _kill_capture_in_snapshot(self, capture: Child) -> None:
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
            inserted = self._in_snapshot + self._feed.inserted
            return max(0, inserted - self._watch.progress().counts[RAW]) or None

        found = freeze_when(capture, look, "change on its way", clock=self._clock, settle_s=WATCH_SETTLES_S)
        if found is None:
            self._system.check()
        else:
            self._kill_capture(capture, "in the stream of changes", f"{found:,} flights are not in {RAW} yet")

    def _kill_capture(self, capture: Child, where: str, detail: str) -> None:
        capture.kill()
        self._kills["capture"] += 1
        self._show.struck(f"kill -9 of the capture {where}", detail=detail)
        self._show.doing("starting the capture again")
        self._system.start_capture()

    # -- the pipeline, and its bad moments -------------------------------------------------------------------------

    def _run_pipeline(self, stack: ExitStack) -> None:
        took = self._stopwatch()

        def enriched(share: float) -> Callable[[], bool]:
            return lambda: self._watch.progress().counts[ENRICHED] >= share * len(self._rows)

        assert self._system.driver is not None
        self._system.driver.tell("start")
        self._feed = Feed(
            self._system.dsn,
            self._rows.slice(self._in_snapshot),
            before=self._in_snapshot,
            ahead=3 * self._batch_size,
            processed=self._processed,
        )
        self._feed.start()
        stack.callback(self._feed.stop)
        self._show.doing("starting Spark")
        self._go_on_until(enriched(DRIVER_KILL_AT))
        self._kill_driver()
        self._go_on_until(enriched(LOG_KILL_AT))
        self._kill_log()
        if not self._kills["capture"]:
            self._kill_capture_live()
        self._go_on_until(self._is_complete)
        self._show.doing("stopping the pipeline, the capture and the connectors")
        self._feed.stop()
        self._system.stop_flow()
        self._show.no_progress()
        self._show.done(
            f"{self._feed.inserted:,} flights were inserted in {self._feed.transactions:,} transactions meanwhile, and "
            "the pipeline is through",
            detail=f"{took():.0f} s, {self._micro_batches()} micro-batches",
        )

    def _start_driver(self, *, goes: bool = False) -> None:
        driver = self._system.start_driver(max_offsets_per_trigger=self._batch_size)
        if goes:
            driver.tell("start")

    def _go_on_until(self, reached: Callable[[], bool]) -> None:
        """Shows progress until `reached`; returns as well when nothing moves any more (the check names why)."""
        at_start = before = self._watch.progress()
        moved_ms = self._clock.monotonic_ms()
        while not reached():
            driver = self._system.driver
            assert driver is not None
            progress = self._show_progress()
            if progress.counts[VALIDATED] != at_start.counts[VALIDATED]:
                self._show.doing(
                    f"the pipeline runs (driver {driver.pid}, start {self._system.driver_starts})"
                )
            if driver.ended:
                self._driver_failed()
            self._system.check()
            if self._feed.failure is not None:
                raise FatalError(f"inserting flights failed: {self._feed.failure}") from self._feed.failure
            now_ms = self._clock.monotonic_ms()
            if (progress.counts, progress.delivered) != (before.counts, before.delivered):
                moved_ms, before = now_ms, progress
            elif now_ms - moved_ms > STALLED_AFTER_S * 1000:
                self._show.failed(f"nothing has moved for {STALLED_AFTER_S} s; checking what is there")
                return
            self._pause.wait(LOOK_EVERY_S)

    def _driver_failed(self) -> None:
        driver = self._system.driver
        assert driver is not None
        if self._system.driver_starts >= DRIVER_STARTS_LIMIT:
            raise FatalError(f"the Spark driver failed {self._system.driver_starts} times; {driver.tail()}")
        self._show.struck("the Spark driver gave up; starting it again", detail=f"see {driver.log_path}")
        driver.kill()
        self._start_driver(goes=True)

    def _freeze_driver(self, topics: Sequence[str]) -> OpenTransaction:
        while True:
            assert self._system.driver is not None
            found = freeze_in_transaction(self._system.driver, self._client, topics, clock=self._clock)
            if found is not None:
                return found
            self._driver_failed()

    def _kill_driver(self) -> None:
        checkpoint = self._system.state_dir / APPLICATION
        self._show.doing(
            "waiting for a micro-batch whose transaction is open, to kill the Spark driver in it"
        )
        found = self._freeze_driver((VALIDATED, REJECTED))
        micro_batch = unfinished_micro_batch(checkpoint)
        assert self._system.driver is not None
        self._system.driver.kill()
        self._kills["driver"] += 1
        if micro_batch is None:
            raise FatalError(f"{checkpoint} has no unfinished micro-batch, but a transaction of it is open")
        self._show.struck(f"kill -9 of the Spark driver in micro-batch {micro_batch}", detail=_told(found))
        self._show.doing("starting the Spark driver again")
        self._start_driver(goes=True)

    def _kill_log(self) -> None:
        log = self._system.log
        if isinstance(log, RunningCluster):
            self._show.done("the cluster is not ours to kill; going on")
            return
        self._show.doing(f"waiting for an open transaction, to kill {log.name} in it")
        found = self._freeze_driver((VALIDATED, REJECTED, ENRICHED, DELAYS))
        assert self._system.driver is not None
        try:
            log.kill()
            self._kills["node"] += 1
            self._show.struck(f"kill -9 of {log.name} in a transaction", detail=_told(found))
            took = self._stopwatch()
            log.restart()
            still = open_transaction(self._client, (found[0],))
            self._show.done(
                f"{log.name} is back on its data",
                detail=f"{took():.1f} s; the transaction is {'still open' if still else 'decided'}, as its log says",
            )
        finally:
            self._system.driver.resume()

    # -- the check -------------------------------------------------------------------------------------------------

    def _check(self) -> Outcome:
        took = self._stopwatch()
        self._show.doing("reading every topic from the start (confluent-kafka, read_committed)")
        topics = (*CAPTURED, WEATHER, WEATHER_REJECTED, *STAGES[1:])
        bootstrap, receiver = self._system.bootstrap_servers, self._system.receiver
        found = read(bootstrap, topics, registry=self._system.registry_url, clock=self._clock)
        records = sum(map(len, found.values()))
        self._show.doing("comparing every record with the wheel's CSV files")
        verdict = verify(found, receiver.taken, self._figures.result())
        hidden = count_uncommitted(bootstrap, topics) - records
        self._show.done(f"{records:,} records read back and compared", detail=f"{took():.1f} s")
        return Outcome(
            verdict=verdict,
            loaded=len(self._rows),
            live=self._feed.inserted,
            posts=receiver.posts,
            hidden=hidden,
            micro_batches=self._micro_batches(),
            driver_starts=self._system.driver_starts,
            kills=dict(self._kills),
            seconds=(self._clock.monotonic_ms() - self._start_ms) / 1000,
        )

    # -- what the parts ask ------------------------------------------------------------------------------------------

    @property
    def _in_snapshot(self) -> int:
        return int(len(self._rows) * IN_THE_SNAPSHOT)

    @property
    def _batch_size(self) -> int:
        return max(1, len(self._rows) // MICRO_BATCHES_WANTED)

    def _processed(self) -> int:
        counts = self._watch.progress().counts
        return counts[VALIDATED] + counts[REJECTED]

    def _is_complete(self) -> bool:
        progress, figures = self._watch.progress(), self._figures.result()
        counts, total, alerts = progress.counts, figures.validated_count, len(figures.alerts)
        through = self._processed() >= len(figures.flights) and counts[ENRICHED] >= total
        told = counts[ALERTS] >= alerts and progress.delivered >= alerts
        return through and told and progress.aggregated >= total

    def _show_progress(self) -> Progress:
        progress = self._watch.progress()
        self._show.progress(progress, totals=self._totals(), micro_batches=self._micro_batches())
        return progress

    def _totals(self) -> dict[str, int]:
        """What each topic will hold, as far as it is known by now."""
        if not self._figures.done():
            return {RAW: len(self._rows)}
        figures = self._figures.result()
        return {
            RAW: len(self._rows),
            VALIDATED: figures.validated_count,
            REJECTED: len(figures.rejected),
            ENRICHED: figures.validated_count,
            ALERTS: len(figures.alerts),
        }

    def _wait_until(self, reached: Callable[[], bool], what: str) -> None:
        deadline_ms = self._clock.monotonic_ms() + STALLED_AFTER_S * 1000
        while not reached():
            self._system.check()
            self._show_progress()
            if self._clock.monotonic_ms() > deadline_ms:
                raise FatalError(
                    f"{what} did not come within {STALLED_AFTER_S} s; the logs are in {self._directory}"
                )
            self._pause.wait(LOOK_EVERY_S)

    def _micro_batches(self) -> int:
        return finished_micro_batches(self._system.state_dir / APPLICATION)

    def _stopwatch(self) -> Callable[[], float]:
        start_ms = self._clock.monotonic_ms()
        return lambda: max(1, self._clock.monotonic_ms() - start_ms) / 1000


@contextmanager
def _unwinding_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: what it started is stopped on the way out."""

    def unwind(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _directory(data: Path | None) -> tuple[Path, bool]:
    if data is None:
        return Path(tempfile.mkdtemp(prefix="suiro-demo-")), True
    data = data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    if any(data.iterdir()):
        raise UsageError(
            f"--data {data} is not empty; the demo counts from offset 0, so give it a new directory"
        )
    return data, False


def _told(found: OpenTransaction) -> str:
    topic, partition, last_stable, end = found
    return f"{topic}-{partition} ends at {end:,}, decided up to {last_stable:,}"
