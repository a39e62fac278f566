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
from suiro.cli.everyday import log_to_stderr
from suiro.errors import ConfigError, SuiroError

if TYPE_CHECKING:
    from suiro.connect import PostgresCapture
    from suiro.foundation.stopping import Stopping

capture = Group("capture", "Capture a database: its tables become topics.")


@capture.command
def postgres(
    dsn: Annotated[str, Option(metavar="DSN", help="The database: postgresql://user@host/name.")],
    bootstrap: Annotated[str, Option(metavar="HOST:PORT", help="The Kafka cluster or node.")],
    registry: Annotated[str, Option(metavar="URL", help="The schema registry.")],
    topic_prefix: Annotated[str, Option(metavar="P", help="Topics are P.schema.table; names the capture.")],
    tables: Annotated[
        str, Option(metavar="A,B", help="schema.table, or table of public. Default: all.")
    ] = "",
    slot: Annotated[str, Option(metavar="S", help="Default: suiro_P; made if it is not there.")] = "",
    publication: Annotated[str, Option(metavar="N", help="Default: suiro_P; made likewise.")] = "",
    partitions: Annotated[int, Option(metavar="N", help="Of new topics. Default: the broker's.")] = -1,
    decimals: Annotated[str, Option(metavar="HOW", help='"decimal" or "string".')] = "decimal",
    as_text: Annotated[
        str, Option(metavar="C,D", help="Columns as Postgres prints them: schema.table.column.")
    ] = "",
    compression: Annotated[str, Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    snapshot: Annotated[
        str,
        Option(metavar="WHICH", help='"initial": of tables that have none; "new": of all, again; "never".'),
    ] = "initial",
    state_directory: Annotated[
        Path | None, Option(metavar="DIR", help="For large transactions. Default: a temporary one.")
    ] = None,
    chunk_rows: Annotated[int, Option(metavar="N", help="Of a snapshot, at once. Default: 10000.")] = 10_000,
    owed_keys_max: Annotated[
        int,
        Option(
            metavar="N",
            help="Rows to be read by their keys, until a table begins again. Default: 50000.",
        ),
    ] = 50_000,
    heartbeat: Annotated[float, Option(metavar="SECONDS", help="Default: 10.")] = 10.0,
    lag_alert_mb: Annotated[
        int, Option(metavar="MB", help="Of Postgres's log held back. Default: 1024.")
    ] = 1024,
    catch_up_mb: Annotated[int, Option(metavar="MB", help="Further behind, read by SQL. Default: 16.")] = 16,
    metrics: Annotated[
        str | None, Option(metavar="HOST:PORT", help="Serve /metrics there, for Prometheus.")
    ] = None,
    otlp: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="Push metrics and traces there by OTLP. Default: OTEL_EXPORTER_OTLP_ENDPOINT.",
        ),
    ] = None,
    openlineage: Annotated[
        str | None,
        Option(
            metavar="URL-OR-FILE",
            help="Send OpenLineage events there. Default: OPENLINEAGE_URL of the environment.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="A setting of the Kafka client; repeatable."),
    ] = None,
    while_stdin_is_open: Annotated[bool, Option(hidden=True)] = False,
) -> None:
    """A consistent snapshot of the tables, then every change, exactly once, until SIGTERM or SIGINT.

    Started again, it goes on where it was. JSON lines on stdout say what happens; the first is {"event": "ready", ...},
    when all tables are read and changes flow. Logs go to stderr. The exit code is 0 after a clean stop, and 1 if the
    capture cannot go on.
    """
    with _started():
        from suiro.connect import CaptureOptions, PostgresCapture, push_capture_metrics, serve_capture_metrics
        from suiro.foundation.settings import assignments, host_and_port
        from suiro.foundation.stopping import Stopping
        from suiro.telemetry import traces_to

        chosen = CaptureOptions(
            dsn=dsn,
            bootstrap_servers=bootstrap,
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
    dsn: Annotated[str, Option(metavar="DSN", help="The database that is captured.")],
    topic_prefix: Annotated[str, Option(metavar="P", help="That of the capture.")],
    table: Annotated[str, Option(metavar="T", help="schema.table, or table of public.")],
    slot: Annotated[str, Option(metavar="S", help="That of the capture, if it has one of its own.")] = "",
) -> None:
    """Ask a capture that runs (or that will be started again) to read one table anew, beside its changes.

    The request goes into Postgres's log, so it needs only the database.
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
        print(f"suiro capture: {error}", file=sys.stderr)
        sys.exit(1)


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
