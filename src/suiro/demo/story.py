"""The demo in order: start, load, capture, run, kill, change a view, check. `run` is what `suiro demo` calls."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import psycopg
import pyarrow as pa

from suiro.client import Client
from suiro.clock import Clock, SystemClock
from suiro.demo.change import Change
from suiro.demo.database import create_tables, insert
from suiro.demo.dataset import REFERENCES, flights, references, write_weather
from suiro.demo.display import Display, display
from suiro.demo.expected import expected
from suiro.demo.flow import Flow
from suiro.demo.looking import Looking, StalledError, stopwatch
from suiro.demo.names import CAPTURED, RAW, STAGES, WEATHER, WEATHER_REJECTED
from suiro.demo.read_back import ReadingAlong
from suiro.demo.reading import count_uncommitted
from suiro.demo.report import Outcome, look_around, report
from suiro.demo.system import System
from suiro.demo.topics import create_topics
from suiro.demo.verify import verify
from suiro.demo.view_check import check_view
from suiro.demo.watch import Watch
from suiro.errors import UsageError

__all__ = ["DemoOptions", "run"]

MICRO_BATCHES_WANTED = 10
IN_THE_SNAPSHOT = 0.5  # of the flights; the others are inserted while the pipeline runs

TO_CHECK = (*CAPTURED, WEATHER, WEATHER_REJECTED, *STAGES[1:])

# The last flights come while the view changes: shares of them, and in how many seconds about.
WHILE_BUILT = (0.4, 25)
WHILE_SHIFTED = (0.4, 20)
WHILE_BACK = (0.2, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    data: Path | None = None  # None: temporary, removed after success
    plain: bool = False
    kafka: bool = False  # a real Apache Kafka in the node's place
    bootstrap: str | None = None  # a running cluster in the node's place
    flights: int | None = None  # the first flights only
    keep: bool = False  # everything runs on until Ctrl-C


def run(options: DemoOptions, *, clock: Clock | None = None) -> int:
    """Returns the exit code: 0 only if every count adds up."""
    directory, is_temporary = _directory(options.data)
    with ExitStack() as stack:
        stack.enter_context(_unwinding_on_sigterm())
        demo = _Demo(options, directory, clock or SystemClock(), stack)
        outcome = demo.run()
        if options.keep:
            report(demo.show, outcome, directory=directory)
            demo.show_around()
    is_done_with = is_temporary and outcome.passed
    if is_done_with:
        shutil.rmtree(directory, ignore_errors=True)
    if not options.keep:
        report(demo.show, outcome, directory=None if is_done_with else directory)
    return 0 if outcome.passed else 1


class _Demo:
    """`stack` ends, in the opposite order, what is begun here."""

    def __init__(self, options: DemoOptions, directory: Path, clock: Clock, stack: ExitStack) -> None:
        self._options = options
        self._clock = clock
        self._start_ms = clock.monotonic_ms()
        self._stack = stack
        self.show: Display = stack.enter_context(display(plain=options.plain))
        # Read and computed while the first processes start.
        workers = stack.enter_context(ThreadPoolExecutor(1))
        self.show.act(1, "Everything starts")
        self._system, self._client = self._start(directory)
        self._rows: pa.Table = flights(limit=options.flights)
        self._in_snapshot = int(len(self._rows) * IN_THE_SNAPSHOT)
        self._system.batch_size = max(1, len(self._rows) // MICRO_BATCHES_WANTED)
        self._looking = Looking(
            self._system,
            self.show,
            clock,
            workers.submit(expected, limit=options.flights),
            flights=len(self._rows),
        )

    def run(self) -> Outcome:
        self._system.start_driver()  # Spark needs seconds to start; the flights come meanwhile
        self._load()
        flow = Flow(
            self._system,
            self._client,
            self.show,
            self._clock,
            self._looking,
            self._rows,
            in_snapshot=self._in_snapshot,
        )
        change = self._capture(flow)
        assert self._system.driver is not None
        self._system.driver.tell("start")
        self.show.act(2, "Flights flow: raw, validated or rejected, enriched, aggregated")
        self._stack.callback(flow.feed.stop)
        flow.run()
        self.show.act(3, "A view of them serves look-ups")
        change.serves()
        self.show.act(4, "It has a bug: v2 is built from offset 0, beside v1")
        flow.go_on(*WHILE_BUILT)
        change.mend()
        reading = self._stack.enter_context(self._reading())
        self.show.act(5, "Both versions at the same offsets: what differs, and why")
        change.compare()
        self.show.act(6, "Readers move to v2, step by step")
        flow.go_on(*WHILE_SHIFTED)
        change.shift()
        self.show.act(7, "Back, forward, and the old version goes")
        flow.go_on(*WHILE_BACK)
        change.turn_back()
        flow.finish()
        self.show.doing("the last flights come in")
        try:
            self._looking.wait(self._looking.is_complete, "the last flight's result")
        except StalledError as error:
            self.show.failed(str(error))  # the check will name what is missing
        change.compare_the_end(self._looking.figures.departures)
        change.retire()
        self.show.act(8, "The account")
        flow.feed.stop()
        self._stop()
        return self._check(flow, change, reading)

    def show_around(self) -> None:
        """Until Ctrl-C."""
        self.show.show(look_around(self._system))
        self.show.doing("everything runs; Ctrl-C ends it")
        pause = Event()
        try:
            while True:
                self._system.check()
                pause.wait(1.0)
        except KeyboardInterrupt:
            self.show.doing("stopping")

    # -- what there is before the first flight -------------------------------------------------------------------

    def _start(self, directory: Path) -> tuple[System, Client]:
        took = stopwatch(self._clock)
        options = self._options
        self.show.doing("starting Apache Kafka" if options.kafka else "starting the node")
        system = System(directory, kafka=options.kafka, bootstrap=options.bootstrap)
        self._stack.callback(system.stop)
        log = system.log
        self.show.done(f"{log.name} on {log.bootstrap_servers}", detail=f"{took():.1f} s to its first answer")
        create_topics(log.bootstrap_servers)
        client = self._stack.enter_context(Client(log.bootstrap_servers))
        system.start_database()
        system.start_registry()
        self.show.doing("starting the registry, Postgres and the host of views")
        system.wait_registry()
        system.start_views()
        return system, client

    def _load(self) -> None:
        took = stopwatch(self._clock)
        self._system.wait_database()
        self.show.doing("creating the tables in Postgres")
        rows = self._rows.slice(0, self._in_snapshot)
        with psycopg.connect(self._system.dsn, autocommit=True) as connection:
            create_tables(connection)
            for name in REFERENCES:
                insert(connection, name, references(name))
            insert(connection, "flights", rows)
        self._weather = write_weather(self._system.weather_files)
        self._system.start_connect()
        self.show.done(
            f"{len(rows):,} flights are in Postgres, {self._weather:,} hours of weather in files",
            detail=f"{took():.1f} s; airlines, airports and planes as well",
        )

    # -- from the database and the files into the log ----------------------------------------------------------------

    def _capture(self, flow: Flow) -> Change:
        took = stopwatch(self._clock)
        looking, system = self._looking, self._system
        self.show.doing("the capture reads its snapshot")
        capture = system.start_capture()
        looking.wait(lambda: RAW in self._client.metadata([RAW]), f"topic {RAW}")
        looking.watch = self._stack.enter_context(
            Watch(system.bootstrap_servers, delivered=lambda: len(system.receiver.taken))
        )
        flow.kill_capture_in_snapshot(capture)
        change = self._change()  # its version starts while the snapshot is read
        looking.wait(lambda: system.capture is not None and bool(system.capture.events), "the capture")
        looking.wait(lambda: looking.progress.counts[RAW] >= self._in_snapshot, "the snapshot")
        self.show.done("the capture has its snapshot, and changes flow", detail=f"{took():.1f} s")
        self.show.doing("the weather comes out of its files")
        looking.wait(lambda: looking.progress.counts[WEATHER] >= self._weather, "the weather")
        self.show.done(f"{self._weather:,} hours of weather are in topic {WEATHER}")
        return change

    def _change(self) -> Change:
        self._system.wait_views()
        self.show.done(f"the host of views is on {self._system.views_url}")
        self._system.start_console()
        self.show.done(f"the console, a page for your browser, is on {self._system.console_url}")
        change = Change(self._system, self._client, self.show, self._looking.wait, self._clock)
        self._stack.callback(change.close)
        change.deploy()
        self._looking.change = change
        return change

    # -- the account -------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        took = stopwatch(self._clock)
        self.show.no_progress()
        self.show.doing("stopping the reader, the pipelines, the capture and the connectors")
        self._system.stop_reader()
        if not self._options.keep:
            self._system.stop_flow()
            self.show.done("all that moves data has ended", detail=f"{took():.1f} s")

    def _reading(self) -> ReadingAlong:
        return ReadingAlong(
            self._system.bootstrap_servers,
            TO_CHECK,
            registry=self._system.registry_url,
            limit=self._options.flights,
        )

    def _check(self, flow: Flow, change: Change, reading: ReadingAlong) -> Outcome:
        took = stopwatch(self._clock)
        self.show.doing(
            "waiting for those who read every topic from the start (confluent-kafka, read_committed), and compare each "
            "record with the wheel's CSV files"
        )
        receiver, figures = self._system.receiver, self._looking.figures
        found = reading.finish()
        verdict = verify(found.noted, receiver.taken, figures)
        hidden = count_uncommitted(self._system.bootstrap_servers, TO_CHECK) - found.records
        self.show.done(
            f"{found.records:,} records read back and compared", detail=f"{took():.1f} s after the end"
        )
        account = change.ended()
        wrong = check_view(account, found.flights, figures.departures)
        self.show.done(
            f"{len(account.answers['rows']):,} different answers of the view made again and compared"
        )
        return Outcome(
            verdict=verdict,
            account=account,
            flow=flow.figures,
            view_differences=wrong,
            loaded=len(self._rows),
            live=flow.feed.inserted,
            posts=receiver.posts,
            hidden=hidden,
            micro_batches=self._looking.micro_batches,
            driver_starts=self._system.driver_starts,
            kills=dict(flow.kills),
            seconds=(self._clock.monotonic_ms() - self._start_ms) / 1000,
        )


@contextmanager
def _unwinding_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: what it started is stopped on the way out."""

    def unwind(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Callable[..., object] | int | None = signal.signal(signal.SIGTERM, unwind)
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
