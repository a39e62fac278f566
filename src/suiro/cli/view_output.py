"""Output of `suiro view`: the status of a view, the progress of a build, the steps of a shift, the history."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from suiro.cli.everyday import note, print_json, print_table, say
from suiro.clock import monotonic_s, sleep_s

if TYPE_CHECKING:
    from suiro.views import Views

POLL_S = 0.2
BAR_COLUMNS = 30
ERROR_COLUMNS = 300


def done(found: dict[str, Any], as_json: bool, more: str = "") -> None:
    if as_json:
        print_json(found)
        return
    say(f"{found['view']} is {found['position']}{more}")
    print_status(found)


def print_status(found: dict[str, Any]) -> None:
    routing = found["routing"]
    say(f"{found['view']}: {found['position']}")
    rows = []
    for one in found["versions"]:
        if one["state"] == "retired":
            continue
        share = _share_of(one["version"], routing)
        pipeline = one.get("pipeline") or {}
        restarts = pipeline.get("restarts")
        rows.append(
            (
                f"v{one['version']}",
                one["state"],
                None if share is None else f"{share / 100:g} %",
                one.get("cut"),
                _seconds(one.get("lag_ms")),
                _seconds(one.get("input_lag_ms")),
                " ".join(filter(None, (pipeline.get("state"), f"{restarts}x" if restarts else ""))),
                _built(one),
            )
        )
    print_table("version, state, callers, cut, lag, input lag, pipeline, built", rows)
    errors = [
        (f"v{one['version']}", one.get(field)) for one in found["versions"] for field in ("error", "follower_error")
    ]
    for what, error in (*errors, ("guard", found.get("guard_error"))):
        if error:
            say(f"{what}: {_beginning_of(error, found['view'])}")
    guide = routing["guide"]
    if guide is not None:
        say(f"steps: {', '.join(f'{step / 100:g} %' for step in guide['steps'])}, at {guide['at'] + 1}")


def _beginning_of(error: str, view: str) -> str:
    """Returns the first line. Errors of failed versions are shown until they are retired, and may be a page long."""
    first, _, rest = error.strip().partition("\n")
    if not rest and len(first) <= ERROR_COLUMNS:
        return first
    return f"{first[:ERROR_COLUMNS]} ... (all of it: suiro view status {view} --json)"


def _seconds(ms: int | None) -> str | None:
    return None if ms is None else f"{ms / 1000:.1f} s"


def _share_of(number: int, routing: dict[str, Any]) -> int | None:
    if number == routing["candidate"]:
        return int(routing["share"])
    return 10_000 - int(routing["share"]) if number == routing["serving"] else None


def _built(one: dict[str, Any]) -> str:
    progress = one.get("progress")
    if not progress or not progress["total"]:
        return ""
    built = f"{progress['done']:,} of {progress['total']:,}"
    return f"{built}; {_speed(one)}" if one["state"] == "building" else built


def _speed(one: dict[str, Any]) -> str:
    """Returns the speed of a version that is being built and has reported its progress."""
    if one["paused"]:
        return "waits for the live version"
    progress = one["progress"]
    left_s = progress.get("left_s")
    return f"{progress['rate']:,.0f} records/s" + ("" if left_s is None else f", {left_s:.0f} s left")


def _shown(key: str, value: Any) -> str:
    if key in ("from", "to"):
        return f"{value / 100:g} %"
    if isinstance(value, list):
        return ", ".join(f"{one / 100:g} %" for one in value)
    return str(value)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).isoformat(sep=" ", timespec="milliseconds")


class _Line:
    """A line on the terminal's standard error that is overwritten, and removed at the end."""

    def __init__(self, *, quiet: bool) -> None:
        self._is_shown = not quiet and sys.stderr.isatty()
        self._began_s = monotonic_s()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.clear()

    def clear(self) -> None:
        self._write("")

    def show(self, text: str) -> None:
        self._write(f"{text}  {monotonic_s() - self._began_s:.0f} s")

    def _write(self, text: str) -> None:
        if self._is_shown:
            from suiro.console.text import printable

            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\x1b[K{printable(text)[:width]}")
            sys.stderr.flush()


@contextmanager
def busy(what: str, *, quiet: bool) -> Iterator[None]:
    with _Line(quiet=quiet) as line:
        line.show(f"{what} ...")
        yield


def watch_build(views: Views, name: str, number: int, *, quiet: bool) -> dict[str, Any]:
    """Shows the progress, and each error that the version is tried again after."""
    told = None

    def seen(one: dict[str, Any]) -> None:
        nonlocal told
        error = one.get("error") or one.get("follower_error")
        if error and error != told and one["state"] == "building":
            line.clear()
            note(f"v{number}: {_beginning_of(error, name)}", "suiro view")
        told = error
        progress = one.get("progress")
        if progress is not None:
            done, total = progress["done"], progress["total"]
            filled = BAR_COLUMNS * done // max(total, 1)
            bar = "#" * filled + "-" * (BAR_COLUMNS - filled)
            line.show(f"{name} v{number} [{bar}] {done:,}/{total:,} {_speed(one)}")

    with _Line(quiet=quiet) as line:
        return views.wait_until_built(name, number, seen=seen)


def watch_steps(views: Views, name: str, found: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Prints one line a step, until the steps are done or callers went back."""
    seen = None
    while True:
        routing = found["routing"]
        if routing["share"] != seen and not quiet:
            say(f"{routing['share'] / 100:g} % of the callers are on v{routing['candidate']}")
        seen = routing["share"]
        if routing["guide"] is None:
            break
        sleep_s(POLL_S)
        found = views.status(name)
    tripped = [event for event in views.history(name)[-1:] if event["command"] == "trip"]
    for event in tripped:
        note(f"all callers were moved back: {event['detail']['reason']}", "suiro view")
    return found


def print_history(found: list[dict[str, Any]]) -> None:
    for event in found:
        detail = ", ".join(f"{key} {_shown(key, value)}" for key, value in event["detail"].items())
        version = "" if event["version"] is None else f" v{event['version']}"
        say(
            f"{event['revision']:>4}  {_time(event['time_ms'])}  {event['who']:<16}  {event['command']}{version}: "
            f"{event['before']} -> {event['after']}{f' ({detail})' if detail else ''}"
        )
