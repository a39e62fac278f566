"""`suiro capture`: copies the tables of a database into topics, and sends requests to a running capture."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from suiro.cli.command_groups import Group, option, options
from suiro.cli.everyday import BOOTSTRAP_SERVERS, fail, log_to_stderr
from suiro.cli.services import METRICS, OPENLINEAGE, OTLP, WHILE_STDIN_IS_OPEN
from suiro.errors import ConfigError, SuiroError

if TYPE_CHECKING:
    from suiro.connect import PostgresCapture
    from suiro.foundation.stopping import Stopping

capture = Group("capture")


@options
class _Capture:
    """The options that are fields of `CaptureOptions`, with their names."""

    dsn: str = option(..., "Connection string of the database: postgresql://user@host/name.", "DSN")
    registry: str = option(..., "Address of the schema registry.", "URL", env="SUIRO_REGISTRY")
    topic_prefix: str = option(..., "Prefix of the topics, P.schema.table. It also names the capture.", "P")
    bootstrap_servers: str = BOOTSTRAP_SERVERS
    tables: str = option(
        "", "Tables, as schema.table without quotes, or table in the schema public. Default: all.", "A,B"
    )
    slot: str = option("", "Replication slot; created if it does not exist. Default: suiro_P.", "S")
    publication: str = option("", "Publication; created if it does not exist. Default: suiro_P.", "N")
    partitions: int = option(-1, "Partitions of new topics. Default: the broker's.", "N")
    decimals: str = option("decimal", 'How numeric values are written: "decimal" or "string".', "HOW")
    as_text: str = option("", "Columns to write as Postgres prints them: schema.table.column.", "C,D")
    compression: str = option("none", "Compression of records: none, gzip, snappy, lz4 or zstd.", "CODEC")
    snapshot: str = option(
        "initial",
        'Which tables to read: "initial" (those without a snapshot), "new" (all, again) or "never" (none).',
        "WHICH",
    )
    state_directory: Path | None = option(
        None, "Directory for last values that exceed the memory. Default: a temporary one.", "DIR"
    )
    chunk_rows: int = option(10_000, "Rows of a snapshot to read at a time.", "N")
    owed_keys_max: int = option(
        50_000, "Rows that may wait to be selected again by key. Above this number, a table is read again.", "N"
    )
    heartbeat_s: float = option(10.0, "Seconds between two heartbeats. Default: 10.", "SECONDS", name="--heartbeat")
    lag_alert_mb: int = option(1024, "Report an alert above this lag in the log of Postgres.", "MB")
    catch_up_mb: int = option(16, "Read changes by SQL if the capture is further behind than this.", "MB")


@capture.command
def postgres(
    given: _Capture,
    metrics: str | None = METRICS,
    otlp: str | None = OTLP,
    openlineage: str | None = OPENLINEAGE,
    set_: list[str] | None = option(None, "A setting of the Kafka client; repeatable.", "NAME=VALUE"),
    while_stdin_is_open: bool = WHILE_STDIN_IS_OPEN,
) -> None:
    """Write a consistent snapshot of the tables to topics, then every change, exactly once, until SIGTERM or SIGINT.

    A restart continues where the capture stopped. JSON lines on stdout report events; {"event": "ready", ...} means
    that all tables are read and changes flow. Logs go to stderr. The exit status is 0 after a clean stop, and 1 if the
    capture cannot continue.
    """
    with _started():
        from suiro.connect import CaptureOptions, PostgresCapture, push_capture_metrics, serve_capture_metrics
        from suiro.foundation.settings import assignments, host_and_port
        from suiro.foundation.stopping import Stopping
        from suiro.telemetry import traces_to

        named = asdict(given) | {"tables": _list(given.tables), "as_text": _list(given.as_text)}
        bytes_of = {f"{name}_bytes": named.pop(f"{name}_mb") << 20 for name in ("lag_alert", "catch_up")}
        chosen = CaptureOptions(**named, **bytes_of, kafka_settings=assignments(set_ or (), "--set"))
        traces = traces_to(otlp, "suiro-capture")
        running = PostgresCapture(chosen, on_event=lambda event: print(json.dumps(event), flush=True), traces=traces)
        stopping = Stopping(while_stdin_is_open=while_stdin_is_open)
        threading.Thread(target=_stop_by_signal, args=(running, stopping), daemon=True).start()
        if metrics is not None:
            address = host_and_port(metrics, port_suffices=True)
            if address is None:
                raise ConfigError(f"--metrics {metrics}: expected HOST:PORT")
            url = serve_capture_metrics(running.status, chosen.name, address[0] or "127.0.0.1", address[1])
            logging.getLogger(__name__).info("metrics: %s", url)
        push = push_capture_metrics(running.status, chosen.name, otlp)
        with ExitStack() as stack:
            if traces is not None:
                stack.callback(traces.close)
            if push is not None:
                stack.callback(push.stop)
            _report(running, openlineage, stack)
            running.run()


@capture.command
def snapshot(
    dsn: str = option(..., "Connection string of the captured database.", "DSN"),
    topic_prefix: str = option(..., "Prefix of the capture.", "P"),
    table: str = option(..., "Table, as schema.table, or table in the schema public.", "T"),
    slot: str = option("", "Slot of the capture, if it is not suiro_P.", "S"),
) -> None:
    """Ask a capture to read a table again while it captures changes. If it does not run, it does so after its next
    start.

    The request is a message in Postgres's log, so the command needs only the database.
    """
    with _started():
        from suiro.connect import request_snapshot

        request_snapshot(dsn, topic_prefix=topic_prefix, slot=slot, table=table)


@contextmanager
def _started() -> Iterator[None]:
    log_to_stderr()
    # Prevents httpx from importing its command line with Click and Rich.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    try:
        yield
    except SuiroError as error:
        fail(str(error), "suiro capture")


def _report(capture: PostgresCapture, openlineage: str | None, stack: ExitStack) -> None:
    from suiro.telemetry import Job, LineageRun, job_namespace, sender_to

    sender = sender_to(openlineage)
    if sender is None:
        return
    stack.callback(sender.close)
    options = capture.options
    file = None
    if options.state_directory is not None:
        options.state_directory.mkdir(parents=True, exist_ok=True)
        file = options.state_directory / f"{options.name}.openlineage"
    job = Job(namespace=job_namespace(), name=options.name, kind="CAPTURE")
    stack.enter_context(LineageRun(sender, job, capture.datasets, file=file))


def _stop_by_signal(capture: PostgresCapture, stopping: Stopping) -> None:
    """Runs on a thread, because a signal handler must not set the event that the capture may be waiting for."""
    stopping.wait()
    capture.stop()


def _list(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())
