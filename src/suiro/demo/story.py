"""The demo in order: start, load, capture, run, kill, change a view, check. `run` is what `suiro demo` calls."""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from suiro.client import Client
from suiro.clock import sleep_s
from suiro.demo.change import Change
from suiro.demo.check import Check
from suiro.demo.database import create_tables, insert
from suiro.demo.dataset import REFERENCES, flights, references, write_weather
from suiro.demo.display import Display, look_around, report
from suiro.demo.flow import Flow
from suiro.demo.names import CAPTURED, RAW, STAGES, WEATHER, WEATHER_REJECTED
from suiro.demo.stage import Stage, StalledError, stopwatch
from suiro.demo.system import System, create_topics
from suiro.errors import UsageError

MICRO_BATCHES_WANTED = 10
IN_THE_SNAPSHOT = 0.5  # of the flights; the others are inserted while the pipeline runs

TO_CHECK = (*CAPTURED, WEATHER, WEATHER_REJECTED, *STAGES[1:])

# The folder of the socket is a word of a shell, and a part of a URL.
_PLAIN = re.compile(r"[\w/.,:@+=~-]+")

# Shares of the last flights, which come while the view changes, and the approximate seconds for each.
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
    keep: bool = False  # everything runs until Ctrl-C


def run(options: DemoOptions) -> int:
    """Returns the exit code: 0 only if every count adds up."""
    took = stopwatch()
    directory = _directory(options.data)
    with ExitStack() as stack:
        stack.enter_context(_unwinding_on_sigterm())
        demo = _Demo(options, directory, stack)
        result, differences = demo.run()
        result["seconds"] = round(took(), 1)
        if options.keep:
            report(demo.show, result, differences, directory=directory)
            demo.show_around()
    is_kept = options.data is not None or not result["ok"]
    if not is_kept:
        shutil.rmtree(directory, ignore_errors=True)
    if not options.keep:
        report(demo.show, result, differences, directory=directory if is_kept else None)
    return 0 if result["ok"] else 1


class _Demo:
    """`stack` stops everything that is started here, in reverse order."""

    def __init__(self, options: DemoOptions, directory: Path, stack: ExitStack) -> None:
        self._options = options
        self._stack = stack
        self.show = stack.enter_context(Display(plain=options.plain))
        self._check = Check(limit=options.flights)
        stack.callback(self._check.close)
        self.show.act(1, "Everything starts")
        self._system, client = self._start(directory)
        self._rows: pa.Table = flights(limit=options.flights)
        self._in_snapshot = int(len(self._rows) * IN_THE_SNAPSHOT)
        self._system.batch_size = max(1, len(self._rows) // MICRO_BATCHES_WANTED)
        self._stage = Stage(self._system, client, self.show, self._check, flights=len(self._rows))

    def run(self) -> tuple[dict[str, Any], list[str]]:
        """Returns the JSON object of the result, and every difference as text."""
        stage, show = self._stage, self.show
        self._system.start_stand_by()  # Spark starts while the flights are loaded
        self._load()
        flow = Flow(stage, self._rows, in_snapshot=self._in_snapshot)
        change = self._capture(flow)
        self._system.start_driver()
        show.act(2, "Flights flow: raw, validated or rejected, enriched, aggregated")
        self._stack.callback(flow.feed.stop)
        flow.run()
        show.act(3, "A view of them serves look-ups")
        change.serves()
        show.act(4, "It has a bug: v2 is built from offset 0, beside v1")
        flow.go_on(*WHILE_BUILT)
        change.fix()
        self._check.read_along(self._system.bootstrap_servers, TO_CHECK, registry=self._system.registry_url)
        show.act(5, "Both versions at the same offsets: what differs, and why")
        change.compare()
        show.act(6, "Readers move to v2, step by step")
        flow.go_on(*WHILE_SHIFTED)
        change.shift()
        show.act(7, "Back, forward, and the old version goes")
        flow.go_on(*WHILE_BACK)
        change.turn_back()
        flow.finish()
        show.doing("the last flights come in")
        try:
            stage.wait(stage.is_complete, "the last flight's result")
        except StalledError as error:
            show.failed(str(error))  # the check names the missing records
        change.compare_the_end()
        change.retire()
        show.act(8, "The account")
        flow.feed.stop()
        self._stop()
        return self._result(flow, change)

    def show_around(self) -> None:
        """Runs until Ctrl-C."""
        self.show.show(look_around(self._system))
        self.show.doing("everything runs; Ctrl-C ends it")
        try:
            while True:
                self._system.check()
                sleep_s(1.0)
        except KeyboardInterrupt:
            self.show.doing("stopping")

    def _start(self, directory: Path) -> tuple[System, Client]:
        took = stopwatch()
        options = self._options
        self.show.doing("starting Apache Kafka" if options.kafka else "starting the node")
        system = System(directory, kafka=options.kafka, bootstrap=options.bootstrap)
        self._stack.callback(system.stop)
        servers = system.bootstrap_servers
        self.show.done(f"{system.log.name} on {servers}", detail=f"{took():.1f} s to its first answer")
        client = self._stack.enter_context(Client(servers))
        create_topics(client, servers)
        self.show.doing("starting the registry, Postgres and the host of views")
        system.start_database()
        system.start_registry()
        system.registry_url = system.running["registry"].wait_ready()["registry"]
        system.start_views()
        return system, client

    def _load(self) -> None:
        took, system = stopwatch(), self._system
        system.dsn = system.running["database"].wait_ready()["dsn"]
        self.show.doing("creating the tables in Postgres")
        rows = self._rows.slice(0, self._in_snapshot)
        with psycopg.connect(system.dsn, autocommit=True) as connection:
            create_tables(connection)
            for name in REFERENCES:
                insert(connection, name, references(name))
            insert(connection, "flights", rows)
        self._weather = write_weather(system.weather_files)
        system.start_connect()
        self.show.done(
            f"{len(rows):,} flights are in Postgres, {self._weather:,} hours of weather in files",
            detail=f"{took():.1f} s; airlines, airports and planes as well",
        )

    def _capture(self, flow: Flow) -> Change:
        took = stopwatch()
        stage, system = self._stage, self._system
        self.show.doing("the capture reads its snapshot")
        capture = system.start_capture()
        stage.wait(lambda: RAW in stage.client.metadata([RAW]), f"topic {RAW}")
        stage.start_counting()
        self._stack.callback(stage.stop_counting)
        flow.kill_capture_in_snapshot(capture)
        change = self._views()  # v1 starts while the snapshot is read
        stage.wait(lambda: bool(system.capture.events), "the capture")
        stage.wait(lambda: stage.counts[RAW] >= self._in_snapshot, "the snapshot")
        self.show.done("the capture has its snapshot, and changes flow", detail=f"{took():.1f} s")
        self.show.doing("the weather comes out of its files")
        stage.wait(lambda: stage.counts[WEATHER] >= self._weather, "the weather")
        self.show.done(f"{self._weather:,} hours of weather are in topic {WEATHER}")
        return change

    def _views(self) -> Change:
        system = self._system
        system.views_url = system.running["view"].wait_ready()["url"]
        self.show.done(f"the host of views is on {system.views_url}")
        system.start_console()
        self.show.done(f"the console, a page for your browser, is on {system.console_url}")
        change = Change(self._stage)
        self._stack.callback(change.close)
        change.deploy()
        return change

    def _stop(self) -> None:
        took = stopwatch()
        self.show.status(None)
        self.show.doing("stopping the reader, the pipelines, the capture and the connectors")
        self._system.stop_reader()
        if not self._options.keep:
            self._system.stop_flow()
            self.show.done("all that moves data has ended", detail=f"{took():.1f} s")

    def _result(self, flow: Flow, change: Change) -> tuple[dict[str, Any], list[str]]:
        took = stopwatch()
        self.show.doing(
            "waiting for the process that reads every topic from the start (confluent-kafka, read_committed), and "
            "compares each record with the wheel's CSV files"
        )
        receiver, account = self._system.receiver, change.ended()
        records, hidden = self._check.finish()
        self.show.done(f"{records:,} records read back and compared", detail=f"{took():.1f} s after the end")
        counts, differences = self._check.verdict(receiver.taken, account)
        self.show.done(f"{len(account.answers['rows']):,} different answers of the view made again and compared")
        compared, answers = account.comparisons[-1], account.answers
        return {
            "ok": not differences,
            "flights": len(self._rows),
            **counts,
            "inserted_live": flow.feed.inserted,
            "alert_posts": receiver.posts,
            "aborted_never_seen": hidden,
            "micro_batches": self._stage.micro_batches,
            "driver_starts": self._system.driver_starts,
            **{f"{name}_kills": count for name, count in flow.kills.items()},
            "view_kills": account.kills,
            "rows_equal": compared.equal,
            "rows_differing": compared.differing,
            "differences_explained": account.explained,
            "differences_to_explain": account.to_explain,
            "rebuilt_records": account.rebuilt,
            "rebuild_seconds": round(account.rebuilt_s, 1),
            "rollback_ms": round(account.rollback_ms),
            "reads": answers["reads"],
            "read_errors": answers["errors"],
            "read_p50_ms": answers["p50_ms"],
            "read_p99_ms": answers["p99_ms"],
            "differences": len(differences),
            "flights_per_second": round(flow.per_second),
            "cpu_us_per_flight": round(flow.cpu_us),
        }, differences


@contextmanager
def _unwinding_on_sigterm() -> Iterator[None]:
    """Makes SIGTERM end the demo like Ctrl-C, so that all its processes are stopped."""

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


def _directory(data: Path | None) -> Path:
    where = Path(tempfile.gettempdir()) if data is None else data.resolve()
    if not _PLAIN.fullmatch(str(where)):
        raise UsageError(
            f"{where} has a blank or a sign of the shell in its name, which the embedded Postgres does not take; give "
            "another --data, or another TMPDIR"
        )
    if data is None:
        return Path(tempfile.mkdtemp(prefix="suiro-demo-"))
    data = where
    data.mkdir(parents=True, exist_ok=True)
    if any(data.iterdir()):
        raise UsageError(f"--data {data} is not empty; the demo counts from offset 0, so give it a new directory")
    return data
