"""`suiro capture`: copies the tables of a database into topics, and sends requests to a running capture."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from suiro.cli.command_groups import Group, Option
from suiro.cli.everyday import DEFAULT_BOOTSTRAP, BootstrapServers, fail, log_to_stderr
from suiro.cli.service_options import Metrics, OpenLineage, Otlp, WhileStdinIsOpen
from suiro.errors import ConfigError, SuiroError

if TYPE_CHECKING:
    from suiro.connect import PostgresCapture
    from suiro.foundation.stopping import Stopping

capture = Group("capture", "Capture a database: its tables become topics.")


@capture.command
def postgres(
    dsn: Annotated[str, Option(metavar="DSN", help="Connection string of the database: postgresql://user@host/name.")],
    registry: Annotated[str, Option(metavar="URL", env="SUIRO_REGISTRY", help="Address of the schema registry.")],
    topic_prefix: Annotated[
        str, Option(metavar="P", help="Prefix of the topics, P.schema.table. It also names the capture.")
    ],
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP,
    tables: Annotated[
        str,
        Option(
            metavar="A,B", help="Tables, as schema.table without quotes, or table in the schema public. Default: all."
        ),
    ] = "",
    slot: Annotated[
        str, Option(metavar="S", help="Replication slot; created if it does not exist. Default: suiro_P.")
    ] = "",
    publication: Annotated[
        str, Option(metavar="N", help="Publication; created if it does not exist. Default: suiro_P.")
    ] = "",
    partitions: Annotated[int, Option(metavar="N", help="Partitions of new topics. Default: the broker's.")] = -1,
    decimals: Annotated[
        str, Option(metavar="HOW", help='How numeric values are written: "decimal" or "string".')
    ] = "decimal",
    as_text: Annotated[
        str, Option(metavar="C,D", help="Columns to write as Postgres prints them: schema.table.column.")
    ] = "",
    compression: Annotated[
        str, Option(metavar="CODEC", help="Compression of records: none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    snapshot: Annotated[
        str,
        Option(
            metavar="WHICH",
            help='Which tables to read: "initial" (those without a snapshot), "new" (all, again) or "never" (none).',
        ),
    ] = "initial",
    state_directory: Annotated[
        Path | None,
        Option(metavar="DIR", help="Directory for last values that exceed the memory. Default: a temporary one."),
    ] = None,
    chunk_rows: Annotated[
        int, Option(metavar="N", help="Rows of a snapshot to read at a time. Default: 10000.")
    ] = 10_000,
    owed_keys_max: Annotated[
        int,
        Option(
            metavar="N",
            help="Rows that may wait to be selected again by key. Above this number, a table is read "
            "again. Default: 50000.",
        ),
    ] = 50_000,
    heartbeat: Annotated[float, Option(metavar="SECONDS", help="Seconds between two heartbeats. Default: 10.")] = 10.0,
    lag_alert_mb: Annotated[
        int, Option(metavar="MB", help="Report an alert above this lag in the log of Postgres. Default: 1024.")
    ] = 1024,
    catch_up_mb: Annotated[
        int, Option(metavar="MB", help="Read changes by SQL if the capture is further behind than this. Default: 16.")
    ] = 16,
    metrics: Metrics = None,
    otlp: Otlp = None,
    openlineage: OpenLineage = None,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="A setting of the Kafka client; repeatable.")
    ] = None,
    while_stdin_is_open: WhileStdinIsOpen = False,
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

        chosen = CaptureOptions(
            dsn=dsn,
            bootstrap_servers=bootstrap_servers,
            registry=registry,
            topic_prefix=topic_prefix,
            tables=_list(tables),
            slot=slot,
            publication=publication,
            partitions=partitions,
            decimals=decimals,
            as_text=_list(as_text),
            compression=compression,
            snapshot=snapshot,
            state_directory=state_directory,
            chunk_rows=chunk_rows,
            owed_keys_max=owed_keys_max,
            heartbeat_s=heartbeat,
            catch_up_bytes=catch_up_mb << 20,
            lag_alert_bytes=lag_alert_mb << 20,
            kafka_settings=assignments(set_ or (), "--set"),
        )
        traces = traces_to(otlp, "suiro-capture")
        running = PostgresCapture(chosen, on_event=_say, traces=traces)
        stopping = Stopping(while_stdin_is_open=while_stdin_is_open)
        threading.Thread(target=_stop_by_signal, args=(running, stopping), daemon=True).start()
        if metrics is not None:
            address = host_and_port(metrics, port_suffices=True)
            if address is None:
                raise ConfigError(f"--metrics {metrics}: expected HOST:PORT")
            url = serve_capture_metrics(running.status, chosen.name, address[0] or "127.0.0.1", address[1])
            logging.getLogger(__name__).info("metrics: %s", url)
        push = push_capture_metrics(running.status, chosen.name, otlp)
        try:
            _run(running, openlineage)
        finally:
            if push is not None:
                push.stop()
            if traces is not None:
                traces.close()


@capture.command
def snapshot(
    dsn: Annotated[str, Option(metavar="DSN", help="Connection string of the captured database.")],
    topic_prefix: Annotated[str, Option(metavar="P", help="Prefix of the capture.")],
    table: Annotated[str, Option(metavar="T", help="Table, as schema.table, or table in the schema public.")],
    slot: Annotated[str, Option(metavar="S", help="Slot of the capture, if it is not suiro_P.")] = "",
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


def _run(capture: PostgresCapture, openlineage: str | None) -> None:
    from suiro.telemetry import Job, LineageRun, job_namespace, sender_to

    sender = sender_to(openlineage)
    if sender is None:
        capture.run()
        return
    options = capture.options
    file = None
    if options.state_directory is not None:
        options.state_directory.mkdir(parents=True, exist_ok=True)
        file = options.state_directory / f"{options.name}.openlineage"
    job = Job(namespace=job_namespace(), name=options.name, kind="CAPTURE")
    run = LineageRun(sender, job, capture.datasets, file=file)
    try:
        capture.run()
        run.complete()
    except BaseException as error:
        run.fail(error)
        raise
    finally:
        sender.close()


def _stop_by_signal(capture: PostgresCapture, stopping: Stopping) -> None:
    """Runs on a thread, because a signal handler must not set the event that the capture may be waiting for."""
    stopping.wait()
    capture.stop()


def _say(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)


def _list(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())
