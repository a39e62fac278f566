"""Output of `suiro view`: the status of a view, the progress of a build, the steps of a shift, the history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from suiro.clock import sleep_s

if TYPE_CHECKING:
    from suiro.views import Views

__all__ = ["busy", "done", "print_history", "print_json", "print_status", "watch_build", "watch_steps"]

POLL_S = 0.2


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def done(found: dict[str, Any], as_json: bool, more: str = "") -> None:
    if as_json:
        print_json(found)
        return
    typer.echo(f"{found['view']} is {found['position']}{more}")
    print_status(found)


def print_status(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    routing = found["routing"]
    table = Table(
        "version", "state", "callers", "cut", "lag", "pipeline", "built", title=f"{found['view']}: {found['position']}",
        title_justify="left",
    )  # fmt: skip
    for one in found["versions"]:
        if one["state"] == "retired":
            continue
        share = _share_of(one["version"], routing)
        pipeline = one.get("pipeline") or {}
        said = " ".join(
            str(part) for part in (pipeline.get("state", ""), pipeline.get("restarts") and f"{pipeline['restarts']}x")
            if part
        )  # fmt: skip
        lag_ms = one.get("lag_ms")
        table.add_row(
            f"v{one['version']}",
            one["state"],
            "" if share is None else f"{share / 100:g} %",
            _text(one.get("cut")),
            "" if lag_ms is None else f"{lag_ms / 1000:.1f} s",
            said,
            _built(one),
        )
    console = Console()
    console.print(table)
    for one in found["versions"]:
        for error in (one.get("error"), one.get("follower_error")):
            if error and one["state"] != "retired":
                console.print(f"v{one['version']}: {error}", style="red", markup=False)
    guide = routing["guide"]
    if guide is not None:
        console.print(
            f"steps: {', '.join(f'{step / 100:g} %' for step in guide['steps'])}, at {guide['at'] + 1}"
        )


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
    """Of a version that is being built and has said how far it is."""
    if one["paused"]:
        return "waits for the live version"
    progress = one["progress"]
    left_s = progress.get("left_s")
    return f"{progress['rate']:,.0f} records/s" + ("" if left_s is None else f", {left_s:.0f} s left")


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _shown(key: str, value: Any) -> str:
    if key in ("from", "to"):
        return f"{value / 100:g} %"
    if isinstance(value, list):
        return ", ".join(f"{one / 100:g} %" for one in value)
    return str(value)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).isoformat(sep=" ", timespec="milliseconds")


@contextmanager
def busy(what: str, *, quiet: bool) -> Iterator[None]:
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def watch_build(views: Views, name: str, number: int, *, quiet: bool) -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from suiro.errors import UsageError

    console = Console(stderr=True)
    columns = (
        TextColumn(f"{name} v{number}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as shown:
        task = shown.add_task(name, total=None, said="starting")
        while True:
            status = views.status(name)
            one = next(item for item in status["versions"] if item["version"] == number)
            progress = one.get("progress")
            if progress is not None:
                shown.update(task, total=progress["total"], completed=progress["done"], said=_speed(one))
            if one["state"] == "ready":
                shown.update(task, said="ready")
                return status
            if one["state"] != "building":
                raise UsageError(
                    f"version {number} of {name} is {one['state']}: {one['error'] or 'it was retired'}"
                )
            sleep_s(POLL_S)


def watch_steps(views: Views, name: str, found: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Until the guide is done, or callers went back; one line a step."""
    seen = None
    while True:
        routing = found["routing"]
        if routing["share"] != seen and not quiet:
            typer.echo(f"{routing['share'] / 100:g} % of the callers are on v{routing['candidate']}")
        seen = routing["share"]
        if routing["guide"] is None:
            break
        sleep_s(POLL_S)
        found = views.status(name)
    tripped = [event for event in views.history(name)[-1:] if event["command"] == "trip"]
    for event in tripped:
        typer.echo(f"suiro view: fell back: {event['detail']['reason']}", err=True)
    return found


def print_history(found: list[dict[str, Any]]) -> None:
    for event in found:
        detail = ", ".join(f"{key} {_shown(key, value)}" for key, value in event["detail"].items())
        version = "" if event["version"] is None else f" v{event['version']}"
        typer.echo(
            f"{event['revision']:>4}  {_time(event['time_ms'])}  {event['who']:<16}  {event['command']}{version}: "
            f"{event['before']} -> {event['after']}{f' ({detail})' if detail else ''}"
        )
