"""`suiro app`: the status of running applications that were started with --console."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suiro.cli.command_groups import Group, argument, option
from suiro.cli.everyday import (
    AS_JSON,
    fail,
    note,
    print_fields,
    print_json,
    print_rows,
    print_table,
    reporting,
    say,
    usage,
)
from suiro.cli.services import TIMEOUT_S, ask_service, understood
from suiro.numerals import natural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from suiro.streams_spark.description import Upgrade

app = Group("app")

EXPLAIN_TIMEOUT_S = 120.0
PATH = "/api/v1/application"
EXPECTED = "an application"
_COLUMNS = "application, state, records/s, lag, stores, rows, bytes, held, retries, url"

APP = option(..., "Address that `suiro run --console` printed.", "URL")


@app.command
def list_(
    apps: list[str] | None = option(
        None, "Address that `suiro run --console` printed; repeatable.", "URL", name="--app"
    ),
    as_json: bool = AS_JSON,
) -> None:
    """List applications with their state, rate and lag. If one does not answer, the exit status is 1."""
    if not apps:
        usage("give --app URL for each application: the address that `suiro run --console` printed")
    from suiro.errors import SuiroError

    found: list[dict[str, Any]] = []
    rows: list[tuple[Any, ...]] = []
    failed: list[str] = []
    with reporting():
        for url in apps:
            try:
                with understood(url, EXPECTED):
                    one = {"url": url, **_ask(url, PATH)}
                    rows.append(_row(one))
                    found.append(one)
            except SuiroError as error:
                failed.append(str(error))
        if found:
            print_rows(found, as_json, _COLUMNS, rows)
    for message in failed:
        note(message)
    if failed:
        raise SystemExit(1)


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    return (
        one["application_id"],
        one["state"],
        one["processed_per_s"],
        one["lag"],
        len(one["stores"]),
        _sum(one["stores"], "rows"),
        _sum(one["stores"], "bytes"),
        _sum(one.get("held", ()), "records"),
        one.get("retries"),
        one["url"],
    )


def _sum(rows: Iterable[dict[str, Any]], name: str) -> int | None:
    """Returns None if no row has the value."""
    known = [row[name] for row in rows if row.get(name) is not None]
    return sum(known) if known else None


@app.command
def graph(app: str = APP, as_json: bool = AS_JSON) -> None:
    """Show the operators of an application, how each processes records, and how many. Then show the sizes of its
    stores, records that tasks hold back, and micro-batches that were retried."""
    with reporting(), understood(app, EXPECTED):
        _show_graph(_ask(app, PATH), as_json)


def _show_graph(found: dict[str, Any], as_json: bool) -> None:
    retried = [one for one in found.get("batches", ()) if one.get("retries")]
    if as_json:
        more = {name: found.get(name) for name in ("stores", "held", "retries", "aborts")}
        print_json({**found["graph"], **more, "retried": retried})
        return
    print_fields("application=application_id, state, error, retries", {"retries": None} | found)
    names = {one["id"]: one["name"] for one in found["graph"]["nodes"]}
    children: dict[str, list[str]] = {}
    for edge in found["graph"]["edges"]:
        children.setdefault(edge["from"], []).append(names.get(edge["to"], edge["to"]))
    print_table(
        "sub=sub_topology, node=name, by=engine, records, records/s=records_per_s, topics, store, to",
        found["graph"]["nodes"],
        topics=lambda one: ", ".join(one["topics"]),
        to=lambda one: ", ".join(children.get(one["id"], ())),
    )
    if stores := [dict.fromkeys(("kind", "rows", "bytes", "tasks", "topic")) | one for one in found["stores"]]:
        say()
        print_table("store=name, kind, rows, bytes, tasks, changelog=topic", stores)
    if held := found.get("held"):
        say()
        print_table(
            "task, input, held=records, condition, why",
            held,
            task=lambda one: f"{one['sub_topology']}_{one['partition']}",
            input=lambda one: names.get(one["node"], one["node"]),
        )
    if retried:
        say()
        print_table("micro-batch=batch, retries, rows, ms=duration_ms", retried)


@app.command
def store(
    app: str = APP,
    name: str = argument("STORE", "Name of the store; `suiro app graph` lists them."),
    first: int = option(0, "Skip this number of rows.", "N"),
    limit: int = option(100, "Maximum number of rows, up to 1,000.", "N"),
    contains: str = option("", "Only rows with this text in their key.", "TEXT"),
    as_json: bool = AS_JSON,
) -> None:
    """Show the committed rows of a store, in the order of the bytes of their keys, and the size of the store."""
    from urllib.parse import urlencode

    from suiro.foundation.http import segment

    query = urlencode({"first": first, "limit": limit, "contains": contains})
    with reporting(), understood(app, EXPECTED):
        found = _ask(app, f"{PATH}/stores/{segment(name)}?{query}")
        stores = _ask(app, PATH)["stores"]
        about: dict[str, Any] = next((one for one in stores if one["name"] == name), {})
        if as_json:
            print_json({**found, "store": about})
            return
        columns = "key, window, value" if any(one["window"] for one in found["rows"]) else "key, value"
        print_table(columns, found["rows"], window=lambda one: _window(one["window"]))
        if about.get("rows") is not None:
            tasks = about["tasks"]
            note(
                f"{about['rows']:,} row{'s' * (about['rows'] != 1)}, about {about['bytes']:,} bytes, "
                f"in {tasks} task{'s' * (tasks != 1)} that ran since the start"
            )


@app.command
def explain(
    app: str = APP,
    name: str = argument("STORE", "Name of the store; `suiro app graph` lists them."),
    key: str = argument("KEY", "Key of the row, as printed by `suiro app store`."),
    window: str | None = option(
        None, "Window of the row: its times in ms, as printed by `suiro app store --json`.", "START-END"
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Show the input records from which a row of a store was computed. The topology runs again, in a separate
    process, over at most 1,000,000 records and for at most 60 s."""
    from suiro.foundation.http import segment

    bounds = None
    if window is not None:
        start, _, end = window.rpartition("-")
        if natural(start.removeprefix("-")) is None or natural(end) is None:
            usage(f"--window {window[:80]!r}: expected START-END in ms, such as 1372636800000-1372640400000")
        bounds = [int(start), int(end)]
    path = f"{PATH}/stores/{segment(name)}/explain"
    with reporting(), understood(app, EXPECTED):
        found = _ask(app, path, {"key": key, "window": bounds}, timeout_s=EXPLAIN_TIMEOUT_S)
        said = _said_of(found)
        if as_json:
            print_json(found)
            return
        from suiro.console.text import iso_time

        if found["found"]:
            print_fields("row=value", found)
            print_table("topic, partition, offset, time", found["records"], time=lambda one: iso_time(one["timestamp"]))
        for line in said:
            note(line)


def _said_of(found: dict[str, Any]) -> list[str]:
    """Returns the notes on an explanation, besides its records."""
    said = [f"{found['read']:,} records were read"]
    if not found["found"]:
        said.append("they make no such row")
    elif found["earlier"]:
        said.append(f"{found['earlier']:,} earlier records of the row are not shown")
    if found["stopped"]:
        said.append(f"it stopped early, because {found['stopped']}: later records are missing")
    said += [
        f"{one['topic']}-{one['partition']} begins at offset {one['offset']}: records before it are gone"
        for one in found["begin_later"]
    ]
    if found["found"]:
        said.append(
            "these records alone make this row"
            if found["proven"]
            else "these records alone do not make this row: it depends on others, on time or on chance"
        )
    return said


def _window(window: list[int] | None) -> str:
    from suiro.console.text import iso_time

    return "" if window is None else f"{iso_time(window[0])} to {iso_time(window[1])}"


def _ask(url: str, path: str, body: Any = None, *, timeout_s: float = TIMEOUT_S) -> Any:
    """Raises `UsageError` and `TransientError`."""
    method = "GET" if body is None else "POST"
    return ask_service(method, url, path, expected=EXPECTED, body=body, timeout_s=timeout_s)


@app.command
def upgrade(
    old: Path = argument("OLD.PY", "File of the running application."),
    new: Path = argument("NEW.PY", "File of the changed application."),
    check: bool = option(False, "Exit with status 1 if the state does not carry over."),
    as_json: bool = AS_JSON,
) -> None:
    """Show which state of an application survives a change of its file. The command starts nothing and needs no
    cluster."""
    from suiro.cli.run import UserCodeError, forgotten, load_topology
    from suiro.streams_spark.description import upgrade_of

    with reporting():
        for path in (old, new):
            if not path.is_file():
                fail(f"{path} is not a file")
        try:
            with forgotten():
                before = load_topology(old)[1]
            with forgotten():
                found = upgrade_of(before, load_topology(new)[1])
        except UserCodeError as error:
            print(error, file=sys.stderr)
            raise SystemExit(1) from None
    items = [{"kind": one.kind, "name": one.name, "fate": str(one.fate), "said": one.said} for one in found.items]
    shown = {"carries_over": found.carries_over, "items": items}
    print_rows(shown, as_json, "what=kind, name, state=fate, why=said", items)
    if not as_json:
        note(_what_to_do(found, new))
    if check and not found.carries_over:
        raise SystemExit(1)


def _what_to_do(found: Upgrade, new: Path) -> str:
    if found.carries_over:
        return (
            "the state carries over: stop the application and start the new file, with the same application id and "
            "state directory. Functions are not compared: the new ones get the rows that the old ones made"
        )
    if found.names_suffice:
        return f"the state carries over once {new} has the names above"
    return (
        "the state does not carry over as a whole: stop the application, move its state directory away and start "
        f"`suiro run {new} --rebuild`, which reads the sources again and writes only what is new; or let it run and "
        f"start `suiro run {new} --replace --state-dir ANOTHER`, which does so and then takes its place; or take a new "
        "application id, which reads from the beginning and writes everything"
    )
