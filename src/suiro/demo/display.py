"""Shows the demo on a terminal: finished steps scroll by, and the status is redrawn below them.

If standard output is not a terminal, or with `--plain`, the status is a line now and then. At the end come the counts,
every difference, and one JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from suiro.clock import monotonic_s
from suiro.demo.names import ALERTS, DELAYS, ENRICHED, RAW, REJECTED, STAGES, VALIDATED, VIEW, WEATHER

if TYPE_CHECKING:
    from suiro.demo.system import System

PLAIN_EVERY_S = 3.0
REFRESH_PER_SECOND = 8


class Progress(msgspec.Struct, frozen=True):
    """`left_s` is the time until everything is read, at this rate."""

    done: int = 0
    total: int = 0
    rate: float = 0.0
    left_s: float | None = None


class Pipeline(msgspec.Struct, frozen=True):
    pid: int | None = None
    restarts: int = 0


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the view, from `GET /views/V`. `share` is the share of callers, 0 to 1. `lag_ms` is the lag behind
    the serving version."""

    version: int
    state: str = "unknown"
    share: float = 0.0
    progress: Progress = Progress()
    pipeline: Pipeline = Pipeline()
    lag_ms: int | None = None
    input_lag_ms: int | None = None
    cut: int | None = None
    error: str | None = None

    @classmethod
    def all_of(cls, status: Mapping[str, Any]) -> tuple[Version, ...]:
        """Returns the versions that are not retired."""
        routing, found = status["routing"], []
        moved = (routing["share"] or 0) / 10_000
        for said in status["versions"]:
            share = {routing["serving"]: 1 - moved, routing["candidate"]: moved}.get(said["version"], 0.0)
            if said["state"] != "retired":
                known = {name: value for name, value in said.items() if value is not None}
                found.append(msgspec.convert({**known, "share": share}, cls))
        return tuple(found)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """`counts` are the committed records of each topic; `totals` are the expected ones, as far as known. `aggregated`
    is the number of flights in the carriers' figures. `reading` is the last report of the reader."""

    counts: Mapping[str, int]
    totals: Mapping[str, int]
    aggregated: int
    delivered: int
    micro_batches: int
    versions: Sequence[Version] = ()
    reading: Mapping[str, Any] | None = None

    def lines(self) -> list[str]:
        counts = self.counts
        lines = [
            f"validated {counts[VALIDATED]:>7,} + rejected {counts[REJECTED]:>5,} of {self.totals[RAW]:,}"
            f" | enriched {counts[ENRICHED]:,} | aggregated {self.aggregated:,}"
            f" | alerts {counts[ALERTS]:,}, sent {self.delivered:,} | {self.micro_batches} micro-batches"
        ]
        if self.versions:
            parts = [f"v{version.version} {_text_of(version)}" for version in self.versions]
            lines.append(" | ".join([*parts, *self.reads()]))
        return lines

    def tables(self) -> list[RenderableType]:
        stages = Table("topic", "", "records", box=None, header_style="dim", caption_justify="left")
        for topic in STAGES:
            count, total = self.counts[topic], self.totals.get(topic)
            stages.add_row(topic, _bar(count, total), f"{count:,}")
        stages.caption = f" {self.delivered:,} alerts delivered · {self.micro_batches} micro-batches"
        if not self.versions:
            return [stages]
        view = Table(f"view {VIEW}", "", "flights", "", box=None, header_style="dim", caption_justify="left")
        for version in self.versions:
            read = version.progress
            bar = _bar(read.done, max(1, read.total))
            view.add_row(f"v{version.version}", bar, f"{read.done:,}", _text_of(version))
        view.caption = " ".join(["", *self.reads()])
        return [stages, view]

    def reads(self) -> list[str]:
        if (said := self.reading) is None:
            return []
        p99 = "" if said["p99_ms"] is None else f", p99 {said['p99_ms']:.1f} ms"
        return [f"{said['reads']:,} reads, {said['errors']} errors{p99}"]


class Display:
    """Writes everything to standard output."""

    def __init__(self, console: Console | None = None, *, plain: bool = True) -> None:
        self._console = console or Console(highlight=False, color_system=None if plain else "auto")
        self._start_s = monotonic_s()
        self._next_s = 0.0
        self._doing = ""
        self._spinner = Spinner("dots", style="cyan")
        self._tables: list[RenderableType] = []
        self._live: Live | None = None
        if not plain and self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=REFRESH_PER_SECOND, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live is not None:
            self._live.update(Text(""))
            self._live.stop()

    def act(self, number: int, title: str) -> None:
        """Shows the beginning of a part."""
        self._console.print()
        self._line(f"== {number}. {title}", "bold cyan")

    def command(self, text: str) -> None:
        """Shows a command as a user would type it."""
        self._line(f"$ {text}", "bold")

    def text(self, text: str) -> None:
        """Shows the output of a command, or a part of a file."""
        for line in text.splitlines():
            is_diff = line[1:2] != " " or "=" in line
            style = {"+": "green", "-": "red"}.get(line[:1], "") if is_diff else ""
            self._console.print(Text(f"          {line}", style=style), soft_wrap=True)

    def doing(self, what: str) -> None:
        """Shows the current activity, which replaces the previous one."""
        if self._live is not None:
            self._spinner.update(text=Text(what))
            self._redraw()
        elif what != self._doing:
            self._line(f"... {what}")
        self._doing = what

    def done(self, what: str, *, detail: str = "") -> None:
        """Shows a finished step."""
        self._line(f"ok  {what}" + (f"  ({detail})" if detail else ""))

    def struck(self, what: str, *, detail: str) -> None:
        """Shows that something was killed."""
        self._line(f"!!! {what}  ({detail})", "bold red")

    def failed(self, what: str) -> None:
        self._line(f"BAD {what}", "bold red")

    def status(self, status: Status | None) -> None:
        """Shows the status; None at the end."""
        if self._live is not None:
            self._tables = [] if status is None else status.tables()
            self._redraw()
        elif status is not None and monotonic_s() >= self._next_s:
            self._next_s = monotonic_s() + PLAIN_EVERY_S
            for line in status.lines():
                self._line(f"    {line}")

    def show(self, renderable: RenderableType) -> None:
        self._console.print(renderable)

    def _redraw(self) -> None:
        assert self._live is not None
        spaced = [line for part in self._tables for line in (Text(""), part)]
        self._live.update(Group(*spaced, Text(""), self._spinner))

    def _line(self, text: str, style: str = "") -> None:
        seconds = monotonic_s() - self._start_s
        self._console.print(Text(f"{seconds:6.1f} s  {text}", style=style), soft_wrap=True)


def _bar(count: int, total: int | None) -> RenderableType:
    return ProgressBar(total=total, completed=count, width=24) if total else Text("")


def _text_of(version: Version) -> str:
    if version.state == "building":
        read = version.progress
        if not read.done:
            return "starts"
        left = "" if read.left_s is None else f", {read.left_s:.0f} s left"
        return f"is built: {read.done:,} of {read.total:,}, {read.rate:,.0f}/s{left}"
    behind = version.input_lag_ms or version.lag_ms or 0
    again = f", start {version.pipeline.restarts + 1}" if version.pipeline.restarts else ""
    return f"answers {version.share:.0%}, lag {behind / 1000:.1f} s{again}"


WHERE_NEXT = """\
Where to look next
  suiro node              a log for any Kafka client, on 127.0.0.1:9092
  {look}
  suiro demo --kafka      the same with a real Apache Kafka in the node's place
  src/suiro/demo/pipeline.py, carrier_delays.py   the pipeline, and the view
  docs/guides/views.md    your own views
  docs/guides/capture.md, docs/guides/connect.md   your own database, files and webhooks
  docs/explain/exactly-once.md   why nothing was lost or doubled"""

LOOK_AROUND = """\
Have a look around
  the console   {system.console_url} in your browser: all of the below
  the log       {system.bootstrap_servers} (any Kafka client; kcat -b {system.bootstrap_servers} -L)
  the registry  {system.registry_url}/subjects
  Postgres      psql '{system.dsn}'
  the view      {url}/views/{view}/rows
  its changes   curl -N {url}/views/{view}/changes
  its history   suiro view history {view} --url {url}
  its code      {file}; change it, then
                suiro view deploy {file}:{view} --url {url}
                suiro view compare {view} --url {url}"""


def report(show: Display, result: Mapping[str, Any], differences: Sequence[str], *, directory: Path | None) -> None:
    """`result`: the JSON object. `directory` has all data and logs; None if it was removed."""
    show.show(_summary(result))
    for difference in differences:
        show.failed(difference)
    look = "suiro demo --keep       leaves everything running, for a look around"
    if directory is not None:
        look = f"everything is in {directory}: the log, Postgres, the state, and what each process said"
    show.show(WHERE_NEXT.format(look=look))
    print(json.dumps(result), flush=True)


def _summary(result: Mapping[str, Any]) -> Panel:
    of = dict(result)
    of["kills"] = sum(count for name, count in of.items() if name.endswith("_kills"))
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="bold")
    table.add_column()
    for name, what in (
        ("flights", f"flights in Postgres, {of['inserted_live']:,} of them inserted while the pipeline ran"),
        ("raw", f"captured, in {RAW}"),
        ("weather", f"hours of weather out of files, in {WEATHER}"),
        ("validated", f"in {VALIDATED}"),
        ("rejected", f"in {REJECTED}, with the reason and where they came from"),
        ("enriched", f"in {ENRICHED}"),
        ("carriers", f"carriers in {DELAYS}, in {of['carrier_updates']:,} updates"),
        ("alerts", f"in {ALERTS}: hours in which a carrier was late"),
        ("alerts_delivered", f"delivered by webhook, in {of['alert_posts']:,} requests"),
        ("aborted_never_seen", "records of aborted transactions in the log, never seen by a reader"),
        (
            "flights_per_second",
            "flights a second through the pipeline, with its kills, at "
            f"{of['cpu_us_per_flight']:,} µs of processor time",
        ),
        ("rebuilt_records", f"flights read again for v2 of {VIEW}, in {of['rebuild_seconds']} s, while v1 answered"),
        ("reads", f"reads of {VIEW}, half of them within {of['read_p50_ms']} ms, p99 {of['read_p99_ms']} ms"),
        ("read_errors", "of these reads failed"),
        ("rollback_ms", "ms for the rollback"),
        ("differences_explained", f"differences of the view explained, of {of['differences_to_explain']}"),
        ("kills", "processes killed with kill -9, in the middle of something"),
        ("lost", "records lost"),
        ("duplicates", "records duplicated"),
        ("differences", "differences from the wheel's CSV files"),
    ):
        table.add_row(f"{of[name]:,}", what)
    title = "exactly once" if result["ok"] else "NOT exactly once"
    return Panel(table, title=title, border_style="green" if result["ok"] else "bold red", expand=False)


def look_around(system: System) -> str:
    """Returns the addresses of all parts, and commands to try."""
    file = system.directory / "app" / f"{VIEW}.py"
    return LOOK_AROUND.format(system=system, url=system.views_url, view=VIEW, file=file)
