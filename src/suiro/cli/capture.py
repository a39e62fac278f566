"""`suiro capture`: copies the tables of a database into topics, and sends requests to a running capture."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suiro.errors import ConfigError, SuiroError

if TYPE_CHECKING:
    from suiro.connect import PostgresCapture
    from suiro.foundation.stopping import Stopping

_DESCRIPTION = "Capture a database: its tables become log-compacted topics, with every change from then on."
_POSTGRES = """\
A consistent snapshot of the tables, then every change, exactly once, until SIGTERM or SIGINT. Started again, it goes
on where it was. JSON lines on stdout say what happens; the first is {"event": "ready", ...}, when all tables are read
and changes flow. Logs go to stderr."""
_SNAPSHOT = """\
Ask a capture that runs (or that will be started again) to read one table anew, beside its changes. The request goes
into Postgres's log, so it needs only the database."""


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 after a clean stop, 1 if the capture cannot go on, 2 for a wrong call."""
    parser = capture_parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # httpx would import its command line, with Click and Rich, which nobody calls here.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        return _snapshot(options) if options.command == "snapshot" else _postgres(options)
    except SuiroError as error:
        print(f"suiro capture: {error}", file=sys.stderr)
        return 1


def _postgres(options: argparse.Namespace) -> int:
    from suiro.connect import CaptureOptions, PostgresCapture, push_capture_metrics, serve_capture_metrics
    from suiro.foundation.settings import assignments, host_and_port
    from suiro.foundation.stopping import Stopping
    from suiro.telemetry import traces_to

    chosen = CaptureOptions(
        dsn=options.dsn,
        bootstrap_servers=options.bootstrap,
        registry=options.registry,
        topic_prefix=options.topic_prefix,
        tables=_list(options.tables),
        slot=options.slot,
        publication=options.publication,
        partitions=options.partitions,
        decimals=options.decimals,
        as_text=_list(options.as_text),
        compression=options.compression,
        snapshot=options.snapshot,
        state_directory=options.state_directory,
        chunk_rows=options.chunk_rows,
        owed_keys_max=options.owed_keys_max,
        heartbeat_s=options.heartbeat,
        catch_up_bytes=options.catch_up_mb << 20,
        lag_alert_bytes=options.lag_alert_mb << 20,
        kafka_settings=assignments(options.set, "--set"),
    )
    traces = traces_to(options.otlp, "suiro-capture")
    capture = PostgresCapture(chosen, on_event=_say, traces=traces)
    stopping = Stopping(while_stdin_is_open=options.while_stdin_is_open)
    threading.Thread(target=_stop_by_signal, args=(capture, stopping), daemon=True).start()
    if options.metrics is not None:
        address = host_and_port(options.metrics, port_suffices=True)
        if address is None:
            raise ConfigError(f"--metrics {options.metrics}: expected HOST:PORT")
        url = serve_capture_metrics(capture.status, chosen.name, address[0] or "127.0.0.1", address[1])
        logging.getLogger(__name__).info("metrics: %s", url)
    push = push_capture_metrics(capture.status, chosen.name, options.otlp)
    try:
        _run(capture, options.openlineage)
    finally:
        if push is not None:
            push.stop()
        if traces is not None:
            traces.close()
    return 0


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
    """On a thread: a signal handler must not set the event that the capture may be waiting for."""
    stopping.wait()
    capture.stop()


def _snapshot(options: argparse.Namespace) -> int:
    from suiro.connect import request_snapshot

    request_snapshot(options.dsn, topic_prefix=options.topic_prefix, slot=options.slot, table=options.table)
    return 0


def _say(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)


def _list(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


def capture_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="suiro capture",
        description=_DESCRIPTION,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    postgres = commands.add_parser(
        "postgres", help="capture a Postgres database", description=_POSTGRES, allow_abbrev=False
    )
    postgres.add_argument("--dsn", required=True, help="the database: postgresql://user@host/name")
    postgres.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="the Kafka cluster or node")
    postgres.add_argument("--registry", required=True, metavar="URL", help="the schema registry")
    postgres.add_argument(
        "--topic-prefix", required=True, metavar="P", help="topics are P.schema.table; names the capture"
    )
    postgres.add_argument(
        "--tables", default="", metavar="A,B", help="schema.table, or table of public; default: all"
    )
    postgres.add_argument("--slot", default="", metavar="S", help="default: suiro_P; made if it is not there")
    postgres.add_argument("--publication", default="", metavar="N", help="default: suiro_P; made likewise")
    postgres.add_argument(
        "--partitions", type=int, default=-1, metavar="N", help="of new topics; default: the broker's"
    )
    postgres.add_argument("--decimals", default="decimal", help='"decimal" (default) or "string"')
    postgres.add_argument(
        "--as-text", default="", metavar="C,D", help="columns as Postgres prints them: schema.table.column"
    )
    postgres.add_argument("--compression", default="none", help="none (default), gzip, snappy, lz4 or zstd")
    postgres.add_argument(
        "--snapshot",
        default="initial",
        help='"initial" (default): of tables that have none; "new": of all, again; "never"',
    )
    postgres.add_argument(
        "--state-directory", type=Path, metavar="DIR", help="for large transactions; default: a temporary one"
    )
    postgres.add_argument(
        "--chunk-rows", type=int, default=10_000, metavar="N", help="of a snapshot, at once; default: 10000"
    )
    postgres.add_argument(
        "--owed-keys-max",
        type=int,
        default=50_000,
        metavar="N",
        help="rows to be read by their keys, until a table begins again; default: 50000",
    )
    postgres.add_argument("--heartbeat", type=float, default=10.0, metavar="SECONDS", help="default: 10")
    postgres.add_argument(
        "--lag-alert-mb",
        type=int,
        default=1024,
        metavar="MB",
        help="of Postgres's log held back; default: 1024",
    )
    postgres.add_argument(
        "--catch-up-mb", type=int, default=16, metavar="MB", help="further behind, read by SQL; default: 16"
    )
    postgres.add_argument("--while-stdin-is-open", action="store_true", help=argparse.SUPPRESS)
    _add_telemetry(postgres)
    postgres.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the Kafka client; repeatable",
    )
    snapshot = _snapshot_parser(commands)
    parser.epilog = "\n".join(command.format_help() for command in (postgres, snapshot))
    return parser


def _add_telemetry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics there, for Prometheus")
    parser.add_argument(
        "--otlp",
        metavar="URL",
        help="push metrics and traces there by OTLP; default: OTEL_EXPORTER_OTLP_ENDPOINT",
    )
    parser.add_argument(
        "--openlineage",
        metavar="URL-OR-FILE",
        help="send OpenLineage events there; default: OPENLINEAGE_URL of the environment",
    )


def _snapshot_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    snapshot = commands.add_parser(
        "snapshot", help="ask a capture to read a table again", description=_SNAPSHOT, allow_abbrev=False
    )
    snapshot.add_argument("--dsn", required=True, help="the database that is captured")
    snapshot.add_argument("--topic-prefix", required=True, metavar="P", help="that of the capture")
    snapshot.add_argument(
        "--slot", default="", metavar="S", help="that of the capture, if it has one of its own"
    )
    snapshot.add_argument("--table", required=True, metavar="T", help="schema.table, or table of public")
    return snapshot
