"""`suiro connect`: runs the sources and sinks of a file in one process, and shows their status."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from suiro.cli.command_groups import Group, argument, option
from suiro.cli.everyday import AS_JSON, fail, log_to_stderr, print_rows, reporting, say_lines
from suiro.cli.services import WHILE_STDIN_IS_OPEN, ask_service, understood

connect = Group("connect")

_FILE = argument("FILE", "File of connectors, such as connectors.toml.")
_NAME = argument("NAME", "Name of the connector.")
_URL = option("http://127.0.0.1:8083", "Address of `suiro connect run`.", "URL")
_TOKEN = option(None, "Token in the file of connectors.", "TOKEN", env="SUIRO_CONNECT_TOKEN")
EXPECTED = "`suiro connect run`"
_COLUMNS = "name, type, kind, state, records, rejected, lag, restarts"


@connect.command
def run(file: Path = _FILE, while_stdin_is_open: bool = WHILE_STDIN_IS_OPEN) -> None:
    """Run all connectors of FILE until SIGTERM or SIGINT. One JSON line on stdout has the address of the HTTP API."""
    from suiro.connect import Runtime, push_connect_metrics, read_configuration, serve_control
    from suiro.foundation.http import Tls, Users
    from suiro.foundation.readiness import say_ready
    from suiro.foundation.stopping import Stopping
    from suiro.telemetry import sender_to, traces_to

    log_to_stderr()
    stopping = Stopping(while_stdin_is_open=while_stdin_is_open)
    with reporting("suiro connect"):
        configuration = read_configuration(file)
        settings = configuration.settings
        lineage = sender_to(settings.openlineage_target(configuration.folder))
        traces = traces_to(settings.otlp, "suiro-connect")
        runtime = Runtime(configuration, lineage=lineage, traces=traces)
        push = push_connect_metrics(runtime, settings.otlp)
        host, port = settings.address
        control = serve_control(
            runtime,
            host,
            port,
            token=settings.token,
            users=None if settings.auth_file is None else Users(settings.auth_file),
            tls=Tls.of(settings.tls_certificate, settings.tls_key, options="tls_certificate and tls_key"),
        )
    runtime.start()
    names = [connector.name for connector in configuration.connectors]
    address = f"[{host}]" if ":" in host else host
    scheme = "http" if settings.tls_certificate is None else "https"
    say_ready({"url": f"{scheme}://{address}:{control.port}", "connectors": names, "pid": os.getpid()})
    stopping.wait()
    stopped = runtime.stop()
    for telemetry in (lineage, traces):
        if telemetry is not None:
            telemetry.close()
    if push is not None:
        push.stop()
    control.stop()
    if not stopped:
        fail("a connector did not stop in time; the next start repeats its uncommitted work", "suiro connect")


@connect.command
def check(file: Path = _FILE) -> None:
    """Check every section of FILE, and list its connectors. Nothing is opened."""
    from suiro.connect import read_configuration

    with reporting("suiro connect"):
        configuration = read_configuration(file)
    for connector in configuration.connectors:
        print(f"{connector.side}.{connector.name}: {connector.kind}{' (paused)' if connector.paused else ''}")


@connect.command
def status(url: str = _URL, token: str | None = _TOKEN, as_json: bool = AS_JSON) -> None:
    """Show state, records and lag of every connector."""
    answer = _ask("GET", url, "/connectors?expand=status", token)
    with reporting("suiro connect"), understood(url, EXPECTED):
        found = [item["status"] for item in answer.values()]
        rows = [[one[name] for name in _COLUMNS.split(", ")] for one in found]
        errors = [f"{one['name']}: {one['error']}" for one in found if one["error"]]
    print_rows(found, as_json, _COLUMNS, rows)
    if not as_json:
        say_lines(errors)


@connect.command
def pause(name: str = _NAME, url: str = _URL, token: str | None = _TOKEN) -> None:
    """Pause a connector until it is resumed, or until the process restarts."""
    _change("PUT", url, name, "pause", token)


@connect.command
def resume(name: str = _NAME, url: str = _URL, token: str | None = _TOKEN) -> None:
    """Resume a paused connector at its position."""
    _change("PUT", url, name, "resume", token)


@connect.command
def restart(name: str = _NAME, url: str = _URL, token: str | None = _TOKEN) -> None:
    """Restart a connector immediately, at its committed position."""
    _change("POST", url, name, "restart", token)


def _ask(method: str, url: str, path: str, token: str | None) -> Any:
    from suiro.foundation.settings import is_header_value

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if not all(map(is_header_value, headers.values())):
        fail("the token is empty or has a character that no header can have, such as a line break", "suiro connect")
    with reporting("suiro connect"):
        return ask_service(method, url, path, expected=EXPECTED, headers=headers)


def _change(method: str, url: str, name: str, change: str, token: str | None) -> None:
    from suiro.foundation.http import segment

    _ask(method, url, f"/connectors/{segment(name)}/{change}", token)
