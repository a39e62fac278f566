"""Shows the demo on a terminal: a live table, or plain lines if standard output is not a terminal.

Both print each finished step once. Everything goes to stdout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from suiro.clock import Clock, SystemClock
from suiro.demo.names import ALERTS, DELAYS, ENRICHED, RAW, REJECTED, STAGES, VALIDATED, VIEW
from suiro.demo.view_watch import Reading, VersionState, ViewState
from suiro.demo.watch import Progress

__all__ = ["Display", "LiveDisplay", "display"]

PLAIN_EVERY_MS = 3_000
REFRESH_PER_SECOND = 8
RATE_OVER_MS = 3_000
CARRIERS_SHOWN = 7
SIDE_BY_SIDE_COLUMNS = 108


def display(*, plain: bool) -> Display:
    console = Console(highlight=False)
    return Display(console) if plain or not console.is_terminal else LiveDisplay(console)


class Display:
    """Lines without colour or cursor movement: for logs and CI."""

    def __init__(self, console: Console, *, clock: Clock | None = None) -> None:
        self._console = console
        self._clock = clock or SystemClock()
        self._start_ms = self._clock.monotonic_ms()
        self._shown_ms = {"progress": 0, "view": 0}
        self._doing = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def act(self, number: int, title: str) -> None:
        """A part of the story begins."""
        self._console.print()
        self._line(f"== {number}. {title}")

    def command(self, text: str) -> None:
        """A command, as a user would type it."""
        self._line(f"$ {text}")

    def text(self, text: str) -> None:
        """What a command answered, or a part of a file."""
        for line in text.splitlines():
            self._console.print(f"          {line}", markup=False, soft_wrap=True)

    def doing(self, what: str) -> None:
        """What goes on now; replaces what was said before."""
        if what != self._doing:
            self._doing = what
            self._line(f"... {what}")

    def done(self, what: str, *, detail: str = "") -> None:
        """A step that is finished."""
        self._line(f"ok  {what}" + (f"  ({detail})" if detail else ""))

    def struck(self, what: str, *, detail: str) -> None:
        """Something was killed."""
        self._line(f"!!! {what}  ({detail})")

    def failed(self, what: str) -> None:
        self._line(f"BAD {what}")

    def progress(self, progress: Progress, *, totals: Mapping[str, int], micro_batches: int) -> None:
        """How far the pipeline is."""
        if self._is_due("progress"):
            counts = progress.counts
            self._line(
                f"    validated {counts[VALIDATED]:>7,} + rejected {counts[REJECTED]:>5,} of {totals[RAW]:,}"
                f" | enriched {counts[ENRICHED]:,} | aggregated {progress.aggregated:,}"
                f" | alerts {counts[ALERTS]:,}, sent {progress.delivered:,} | {micro_batches} micro-batches"
            )

    def view(self, state: ViewState) -> None:
        """How the view stands."""
        if state.versions and self._is_due("view"):
            parts = [f"v{version.number} {_standing(version)}" for version in state.versions]
            if state.reading is not None:
                parts.append(_reading_text(state.reading))
            self._line("    " + " | ".join(parts))

    def no_progress(self) -> None:
        """Everything is over: the tables have done their work."""

    def show(self, renderable: RenderableType) -> None:
        """Printed as it is."""
        self._console.print(renderable)

    def _is_due(self, what: str) -> bool:
        now_ms = self._clock.monotonic_ms()
        is_due = now_ms - self._shown_ms[what] >= PLAIN_EVERY_MS
        if is_due:
            self._shown_ms[what] = now_ms
        return is_due

    def _line(self, text: str) -> None:
        seconds = (self._clock.monotonic_ms() - self._start_ms) / 1000
        self._console.print(f"{seconds:6.1f} s  {text}", markup=False, soft_wrap=True)


class LiveDisplay(Display):
    """Finished steps scroll by; below them, redrawn in place: the stages, the carriers, what goes on now."""

    def __init__(self, console: Console, *, clock: Clock | None = None) -> None:
        super().__init__(console, clock=clock)
        self._live = Live(console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True)
        self._spinner = Spinner("dots", style="cyan")
        self._stages: RenderableType | None = None
        self._view: RenderableType | None = None
        self._history: deque[tuple[int, Mapping[str, int]]] = deque()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.update(Text(""))
        self._live.stop()

    def act(self, number: int, title: str) -> None:
        self._console.print(Text(f"\n {number}  {title}", style="bold cyan"))

    def command(self, text: str) -> None:
        self._console.print(Text(f"   $ {text}", style="bold"))

    def text(self, text: str) -> None:
        for line in text.splitlines():
            style = {"+": "green", "-": "red"}.get(line[:1], "") if line[1:2] != " " or "=" in line else ""
            self._console.print(Text(f"     {line}", style=style))

    def doing(self, what: str) -> None:
        self._spinner.update(text=Text(what))
        self._redraw()

    def done(self, what: str, *, detail: str = "") -> None:
        self._step("✓", "green", what, detail)

    def struck(self, what: str, *, detail: str) -> None:
        self._step("✗", "bold red", what, detail)

    def failed(self, what: str) -> None:
        self._step("✗", "bold red", what, "")

    def progress(self, progress: Progress, *, totals: Mapping[str, int], micro_batches: int) -> None:
        now_ms = self._clock.monotonic_ms()
        self._history.append((now_ms, progress.counts))
        while now_ms - self._history[0][0] > RATE_OVER_MS:
            self._history.popleft()
        stages = self._stage_table(progress, totals, micro_batches)
        if self._console.width < SIDE_BY_SIDE_COLUMNS:
            self._stages = stages
        else:
            both = Table.grid(padding=(0, 3))
            both.add_row(stages, _carrier_table(progress))
            self._stages = both
        self._redraw()

    def view(self, state: ViewState) -> None:
        if state.versions:
            self._view = _view_table(state)
            self._redraw()

    def no_progress(self) -> None:
        self._stages = self._view = None
        self._redraw()

    def _step(self, mark: str, style: str, what: str, detail: str) -> None:
        line = Text(f" {mark} ", style=style)
        line.append(what, style="bold" if style != "green" else "default")
        if detail:
            line.append(f"  {detail}", style="dim")
        self._console.print(line)

    def _redraw(self) -> None:
        now = Table.grid(padding=(0, 1))
        now.add_row("", self._spinner)
        parts = [part for part in (self._stages, self._view) if part is not None]
        spaced = [line for part in parts for line in (Text(""), part)]
        self._live.update(Group(*spaced, Text(""), now) if parts else now)

    def _stage_table(self, progress: Progress, totals: Mapping[str, int], micro_batches: int) -> Table:
        table = Table(
            box=None, pad_edge=True, header_style="dim", caption_justify="left", caption_style="dim"
        )
        table.add_column("topic")
        table.add_column("", width=24)
        table.add_column("records", justify="right", width=9)
        table.add_column("records/s", justify="right", width=9)
        for topic in STAGES:
            count, total = progress.counts[topic], totals.get(topic)
            bar = ProgressBar(total=total, completed=count, width=24) if total else Text("")
            style = "bold" if total and count >= total else ""
            table.add_row(
                Text(topic, style=style), bar, Text(f"{count:,}", style=style), f"{self._rate(topic):,.0f}"
            )
        counts = progress.counts
        open_count = counts[RAW] - counts[VALIDATED] - counts[REJECTED]
        table.caption = (
            f" raw = validated + rejected + {open_count:,} to go · {progress.delivered:,} alerts delivered · "
            f"{micro_batches} micro-batches"
        )
        return table

    def _rate(self, topic: str) -> float:
        (then_ms, then), (now_ms, now) = self._history[0], self._history[-1]
        return (now[topic] - then[topic]) * 1000 / (now_ms - then_ms) if now_ms > then_ms else 0.0


def _carrier_table(progress: Progress) -> Table:
    table = Table(box=None, header_style="dim")
    table.add_column(DELAYS)
    for name in ("flights", "cancelled", "mean delay"):
        table.add_column(name, justify="right")
    largest = sorted(progress.carriers.values(), key=lambda figures: -figures["flights"])
    for figures in largest[:CARRIERS_SHOWN]:
        mean = figures["mean_arr_delay"]
        table.add_row(
            figures["carrier"],
            f"{figures['flights']:,}",
            f"{figures['cancelled']:,}",
            "" if mean is None else f"{mean:+.2f} min",
        )
    return table


def _view_table(state: ViewState) -> Table:
    table = Table(box=None, header_style="dim", caption_justify="left", caption_style="dim")
    table.add_column(f"view {VIEW}")
    table.add_column("", width=24)
    for name in ("flights", "flights/s", "callers"):
        table.add_column(name, justify="right", width=9)
    table.add_column("")
    for version in state.versions:
        is_built = version.state == "building"
        bar = ProgressBar(total=max(1, version.total), completed=version.done, width=24)
        table.add_row(
            f"v{version.number}",
            bar,
            f"{version.done:,}",
            f"{version.rate:,.0f}",
            "" if is_built else f"{version.share:.0%}",
            _note(version),
            style="" if version.share or is_built else "dim",
        )
    table.caption = "" if state.reading is None else f" {_reading_text(state.reading)}"
    return table


def _standing(version: VersionState) -> str:
    if version.state != "building":
        return f"answers {version.share:.0%}, {_note(version)}"
    if not version.done:
        return "starts"
    return f"is built: {version.done:,} of {version.total:,}, {version.rate:,.0f}/s, {_note(version)}"


def _note(version: VersionState) -> str:
    if version.state == "building":
        return "" if version.left_s is None else f"{version.left_s:.0f} s left"
    behind = version.input_lag_ms or version.lag_ms or 0
    again = f", start {version.restarts + 1}" if version.restarts else ""
    return f"lag {behind / 1000:.1f} s{again}"


def _reading_text(reading: Reading) -> str:
    p99 = "" if reading.p99_ms is None else f", p99 {reading.p99_ms:.1f} ms"
    return f"{reading.reads:,} reads, {reading.errors} errors{p99}"
