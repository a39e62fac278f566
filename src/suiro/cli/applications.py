"""`suiro app`: the status of running applications that were started with --console."""

from __future__ import annotations

import sys
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from suiro.cli.command_groups import Argument, Group, Option
from suiro.cli.everyday import (
    AsJson,
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
    from collections.abc import Iterable, Sequence

    from suiro.streams_spark.description import Upgrade

app = Group(
    "app", "Running applications: list, graph, rows of stores and their input records. Also checks a changed topology."
)

EXPLAIN_TIMEOUT_S = 120.0
PATH = "/api/v1/application"
EXPECTED = "an application"
_COLUMNS = ("application", "state", "records/s", "lag", "stores", "rows", "bytes", "held", "retries", "url")

App = Annotated[str, Option("--app", "URL", "Address that `suiro run --console` printed.")]
Apps = Annotated[list[str] | None, Option("--app", "URL", "Address that `suiro run --console` printed; repeatable.")]


@app.command
def list_(apps: Apps = None, as_json: AsJson = False) -> None:
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
def graph(app: App, as_json: AsJson = False) -> None:
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
    print_fields(
        {
            "application": found["application_id"],
            "state": found["state"],
            "error": found["error"],
            "retries": found.get("retries"),
        }
    )
    names = {one["id"]: one["name"] for one in found["graph"]["nodes"]}
    children: dict[str, list[str]] = {}
    for edge in found["graph"]["edges"]:
        children.setdefault(edge["from"], []).append(names.get(edge["to"], edge["to"]))
    print_table(
        ("sub", "node", "by", "records", "records/s", "topics", "store", "to"),
        (
            (
                one["sub_topology"],
                one["name"],
                one["engine"],
                one["records"],
                one["records_per_s"],
                ", ".join(one["topics"]),
                one["store"],
                ", ".join(children.get(one["id"], ())),
            )
            for one in found["graph"]["nodes"]
        ),
    )
    _show_stores(found["stores"])
    _show_held(found)
    if retried:
        say()
        print_table(
            ("micro-batch", "retries", "rows", "ms"),
            map(itemgetter("batch", "retries", "rows", "duration_ms"), retried),
        )


def _show_stores(stores: Sequence[dict[str, Any]]) -> None:
    if not stores:
        return
    say()
    names = ("kind", "rows", "bytes", "tasks", "topic")
    print_table(
        ("store", "kind", "rows", "bytes", "tasks", "changelog"),
        ((one["name"], *(one.get(name) for name in names)) for one in stores),
    )


def _show_held(found: dict[str, Any]) -> None:
    held = found.get("held") or ()
    if not held:
        return
    names = {one["id"]: one["name"] for one in found["graph"]["nodes"]}
    say()
    print_table(
        ("task", "input", "held", "condition", "why"),
        (
            (
                f"{one['sub_topology']}_{one['partition']}",
                names.get(one["node"], one["node"]),
                one["records"],
                one["condition"],
                one["why"],
            )
            for one in held
        ),
    )


@app.command
def store(
    app: App,
    name: Annotated[str, Argument("STORE", "Name of the store; `suiro app graph` lists them.")],
    first: Annotated[int, Option("--first", "N", "Skip this number of rows.")] = 0,
    limit: Annotated[int, Option("--limit", "N", "Maximum number of rows, up to 1,000. Default: 100.")] = 100,
    contains: Annotated[str, Option("--contains", "TEXT", "Only rows with this text in their key.")] = "",
    as_json: AsJson = False,
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
        windows = any(one["window"] for one in found["rows"])
        print_table(
            ("key", "window", "value") if windows else ("key", "value"),
            (
                (one["key"], _window(one["window"]), one["value"]) if windows else (one["key"], one["value"])
                for one in found["rows"]
            ),
        )
        if about.get("rows") is not None:
            tasks = about["tasks"]
            note(
                f"{about['rows']:,} row{'s' * (about['rows'] != 1)}, about {about['bytes']:,} bytes, "
                f"in {tasks} task{'s' * (tasks != 1)} that ran since the start"
            )


@app.command
def explain(
    app: App,
    name: Annotated[str, Argument("STORE", "Name of the store; `suiro app graph` lists them.")],
    key: Annotated[str, Argument("KEY", "Key of the row, as printed by `suiro app store`.")],
    window: Annotated[
        str | None,
        Option("--window", "START-END", "Window of the row: its times in ms, as printed by `suiro app store --json`."),
    ] = None,
    as_json: AsJson = False,
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
            print_fields({"row": found["value"]})
            print_table(
                ("topic", "partition", "offset", "time"),
                (
                    (one["topic"], one["partition"], one["offset"], iso_time(one["timestamp"]))
                    for one in found["records"]
                ),
            )
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
    old: Annotated[Path, Argument("OLD.PY", "File of the running application.")],
    new: Annotated[Path, Argument("NEW.PY", "File of the changed application.")],
    check: Annotated[bool, Option("--check", help="Exit with status 1 if the state does not carry over.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which state of an application survives a change of its file. The command starts nothing and needs no
    cluster."""
    from suiro.cli.topology_file import UserCodeError, forgotten, load_topology
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
    rows = [(one.kind, one.name, str(one.fate), one.said) for one in found.items]
    names = ("kind", "name", "fate", "said")
    items = [dict(zip(names, row, strict=True)) for row in rows]
    shown = {"carries_over": found.carries_over, "items": items}
    print_rows(shown, as_json, ("what", "name", "state", "why"), rows)
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
