"""`suiro run`: runs a topology from a file on Spark, until a signal."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from suiro.cli.command_groups import Argument, Group, Option
from suiro.cli.everyday import DEFAULT_BOOTSTRAP, BootstrapServers, note
from suiro.cli.service_options import Metrics, OpenLineage, Otlp, SchemaRegistry
from suiro.cli.topology_file import UserCodeError, load_topology
from suiro.errors import ConfigError, ReplacedError, SuiroError
from suiro.foundation.settings import assignments
from suiro.foundation.stopping import Stopping
from suiro.foundation.threads import settle

if TYPE_CHECKING:
    from suiro.streams import KafkaStreams
    from suiro.telemetry import Traces

_log = logging.getLogger(__name__)

REPLACED = 3
"""The exit code if another start has replaced this one."""
TELL_S = 0.2
_PHASES = {
    "following": "follows the running process; it writes nothing until it has caught up",
    "switching": "has caught up with the running process and takes its place",
    "switched": "has taken the place of the other process, and writes the results now",
}

_App = Annotated[
    Path,
    Argument(
        metavar="APP.PY",
        path="existing file",
        help="Python file with `topology = ...` or `def build(builder)`, and optionally `application_id`.",
    ),
]
_ApplicationId = Annotated[
    str | None, Option(help="Id of the application. Default: `application_id` of the file, or the name of the file.")
]
_StateDir = Annotated[Path | None, Option(path="folder", help="State directory. Default: ~/.local/share/suiro.")]
_Emit = Annotated[
    str,
    Option(
        choices=("micro-batch", "every"),
        help="Updates that tables send: the last one of each key and micro-batch, or every one.",
    ),
]
_OnProcessingError = Annotated[
    str, Option(help='What to do with a record for which a function raises: "fail", "skip" or "dead-letter:<topic>".')
]
_OnDeserializationError = Annotated[
    str, Option(help='What to do with a record that a serde cannot read: "fail", "skip" or "dead-letter:<topic>".')
]
_MaxOffsetsPerTrigger = Annotated[
    int, Option(min=1, help="Approximate maximum of records in a micro-batch. Default: 2000000.")
]
_Set = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="A setting of the client (`kafka.*`) or the source; repeatable."),
]
_Rebuild = Annotated[
    bool,
    Option(
        "--rebuild",
        help="Rebuild a lost state directory: read the sources again for the state, and write only new results.",
    ),
]
_Replace = Annotated[
    bool,
    Option(
        "--replace",
        help="Replace the running application without a stop: rebuild the state in another "
        "--state-dir, and switch when it has caught up.",
    ),
]
_CreateTopics = Annotated[bool, Option("--create-topics", help="Create source and output topics that do not exist.")]
_Console = Annotated[
    str | None,
    Option(
        metavar="HOST:PORT",
        help="Serve the state of the application on this address, for `suiro console --app` and `suiro app`.",
    ),
]
_UntilDone = Annotated[bool, Option("--until-done", help="Exit when all records that exist now are processed.")]
_Explain = Annotated[bool, Option("--explain", help="Print the topology and how its operators run, and exit.")]


run = Group("run", "")


@run.itself
def run_(
    app: _App,
    application_id: _ApplicationId = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP,
    registry: SchemaRegistry = None,
    state_dir: _StateDir = None,
    emit: _Emit = "micro-batch",
    on_processing_error: _OnProcessingError = "fail",
    on_deserialization_error: _OnDeserializationError = "fail",
    max_offsets_per_trigger: _MaxOffsetsPerTrigger = 2_000_000,
    set_: _Set = None,
    rebuild: _Rebuild = False,
    replace: _Replace = False,
    create_topics: _CreateTopics = False,
    metrics: Metrics = None,
    console: _Console = None,
    otlp: Otlp = None,
    openlineage: OpenLineage = None,
    until_done: _UntilDone = False,
    explain: _Explain = False,
) -> None:
    """Run a topology on Spark. A restart continues where the application stopped. Ctrl-C or SIGTERM stops it. Exit
    status 3 means that another start has taken its place (--replace, --rebuild): do not restart it."""
    try:
        if explain:
            _explain(app, emit)
            sys.exit(0)
        if sys.stderr.isatty():
            print("suiro run: Spark starts, which takes some seconds", file=sys.stderr, flush=True)
        from suiro.spark import java_started_early

        os.environ.setdefault("SUIRO_QUERY_LOG", "off")  # for Java, whose stacks would hide the line below
        with java_started_early(topologies_only=True):
            module, topology = load_topology(app)
            from suiro.streams import KafkaStreams
            from suiro.streams_spark import lineage_report
            from suiro.telemetry import traces_to

            traces = traces_to(otlp, "suiro")
            streams = KafkaStreams(
                topology,
                application_id=application_id or getattr(module, "application_id", None) or app.stem,
                bootstrap_servers=bootstrap_servers,
                state_dir=state_dir,
                emit=emit,  # type: ignore[arg-type]  # it checks the value itself
                on_processing_error=on_processing_error,
                on_deserialization_error=on_deserialization_error,
                max_offsets_per_trigger=max_offsets_per_trigger,
                settings=assignments(set_ or (), "--set"),
                schema_registry_url=registry,
                rebuild=rebuild,
                replace=replace,
                create_topics=create_topics,
                traces=traces,
            )
            if metrics is not None:
                _serve(metrics, streams)
            with (
                _console(console, streams),
                _pushing(otlp, streams, traces),
                lineage_report(streams, openlineage) as lineage,
            ):
                code = until_stopped(streams, until_done)
                if code and lineage is not None and streams.exception is None:
                    lineage.abort()  # it was stopped before everything was processed
    except UserCodeError as error:
        print(error, file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    except SuiroError as error:
        note(str(error), "suiro run")
        code = code_of(error)
    sys.exit(code)


def _explain(app: Path, emit: str) -> None:
    from suiro.streams.explanation import explain as explained
    from suiro.streams.topology.nodes import ForeignKeyResolve, GlobalTableSource

    _, topology = load_topology(app)
    print(topology.describe())
    if any(isinstance(node.operator, ForeignKeyResolve | GlobalTableSource) for node in topology.nodes):
        print("Below, a foreign-key join has more sub-topologies and a global table none, so numbers differ.")
    print(explained(topology, emit=emit))


def _serve(address: str, streams: Any) -> None:
    from suiro.foundation.settings import parse_address
    from suiro.spark import serve_metrics

    host, port = parse_address(address, option="--metrics")
    try:
        url = serve_metrics(lambda: _queries(streams), host, port)
    except OSError as error:
        raise ConfigError(f"--metrics {address}: {error.strerror or error}") from error
    print(f"suiro run: metrics: {url}", file=sys.stderr, flush=True)


def _queries(streams: Any) -> list[Any]:
    return [] if streams.state == "CREATED" else [streams.query]


@contextmanager
def _pushing(otlp: str | None, streams: Any, traces: Traces | None) -> Iterator[None]:
    from suiro.spark import push_metrics

    push = push_metrics(lambda: _queries(streams), otlp)
    try:
        yield
    finally:
        if push is not None:
            push.stop()
        if traces is not None:
            traces.close()


@contextmanager
def _console(address: str | None, streams: KafkaStreams) -> Iterator[None]:
    if address is None:
        yield
        return
    from suiro.foundation.settings import parse_address
    from suiro.streams_spark import ApplicationServer

    host, port = parse_address(address, option="--console")
    server = ApplicationServer(streams, host, port)
    print(f"suiro run: console: {server.url}", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        server.stop()


def until_stopped(streams: Any, until_done: bool) -> int:
    stopping = Stopping()
    # On a thread of its own: on the main one, PySpark takes SIGINT over, cancels the jobs and raises KeyboardInterrupt.
    started: Future[None] = Future()
    threading.Thread(target=settle, args=(started, streams.start), daemon=True).start()
    started.result()
    print(
        f"suiro run: {streams.application_id} runs; its state is in {streams.checkpoint}", file=sys.stderr, flush=True
    )
    all_processed: Future[None] = Future()
    threading.Thread(target=_await_end, args=(streams, stopping), daemon=True).start()
    threading.Thread(target=_tell_replacement, args=(streams, stopping), daemon=True).start()
    if until_done:
        threading.Thread(target=_process_all, args=(streams, all_processed, stopping), daemon=True).start()
    try:
        stopping.wait()
        is_done = all_processed.done()
        failure = streams.exception or (all_processed.exception() if is_done else None)
    finally:
        streams.close()
    if failure is not None:
        note(f"{streams.application_id} ended: {failure}", "suiro run")
        return code_of(failure)
    if until_done and not is_done:
        print("suiro run: stopped before all was processed; run it again to continue", file=sys.stderr)
        return 1
    return 0


def code_of(failure: BaseException) -> int:
    return REPLACED if isinstance(failure, ReplacedError) else 1


def _tell_replacement(streams: Any, stopping: Stopping) -> None:
    """Reports the progress of `--replace`, on a separate thread."""
    told = ""
    while not stopping.wait(TELL_S):
        status = streams.replacement
        if status is None:
            return
        if status.phase != told:
            told = status.phase
            print(f"suiro run: {streams.application_id} {_PHASES[told]}", file=sys.stderr, flush=True)
        if told == "switched":
            return


def _await_end(streams: Any, stopping: Stopping) -> None:
    """Waits for the end of the query on a separate thread, so that signals are handled. The caller then asks for the
    error."""
    try:
        streams.await_termination()
    except Exception as error:  # noqa: BLE001 - the caller asks the query for it
        _log.debug("the query ended: %s", error)
    finally:
        stopping.set()


def _process_all(streams: Any, done: Future[None], stopping: Stopping) -> None:
    """Processes everything on a separate thread, so that a signal stops the wait."""
    settle(done, streams.process_all_available)
    stopping.set()
