"""`suiro run`: runs a topology on Spark, until a signal. The file has `topology = ...` or `def build(builder)`."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import TracebackException, walk_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any

from suiro.cli.command_groups import Group, argument, option, options
from suiro.cli.everyday import BOOTSTRAP_SERVERS, note
from suiro.cli.services import METRICS, OPENLINEAGE, OTLP, SCHEMA_REGISTRY
from suiro.errors import ConfigError, ReplacedError, SuiroError
from suiro.foundation.settings import assignments
from suiro.foundation.stopping import Stopping
from suiro.foundation.threads import settle

if TYPE_CHECKING:
    from suiro.streams import KafkaStreams, Topology
    from suiro.telemetry import Traces

_log = logging.getLogger(__name__)

BY = "suiro run"
REPLACED = 3
"""The exit code if another start has replaced this one."""
TELL_S = 0.2
_PHASES = {
    "following": "follows the running process; it writes nothing until it has caught up",
    "switching": "has caught up with the running process and takes its place",
    "switched": "has taken the place of the other process, and writes the results now",
}

run = Group("run")


@options
class _Settings:
    """The options that are parameters of `KafkaStreams`, with its names."""

    application_id: str | None = option(
        None, "Id of the application. Default: `application_id` of the file, or the name of the file."
    )
    bootstrap_servers: str = BOOTSTRAP_SERVERS
    schema_registry_url: str | None = SCHEMA_REGISTRY
    state_dir: Path | None = option(None, "State directory. Default: ~/.local/share/suiro.", path="folder")
    emit: str = option(
        "micro-batch",
        "Updates that tables send: the last one of each key and micro-batch, or every one.",
        choices=("micro-batch", "every"),
    )
    on_processing_error: str = option(
        "fail", 'What to do with a record for which a function raises: "fail", "skip" or "dead-letter:<topic>".'
    )
    on_deserialization_error: str = option(
        "fail", 'What to do with a record that a serde cannot read: "fail", "skip" or "dead-letter:<topic>".'
    )
    max_offsets_per_trigger: int = option(2_000_000, "Approximate maximum of records in a micro-batch.", min=1)
    settings: list[str] | None = option(
        None, "A setting of the client (`kafka.*`) or the source; repeatable.", "NAME=VALUE", name="--set"
    )
    rebuild: bool = option(
        False, "Rebuild a lost state directory: read the sources again for the state, and write only new results."
    )
    replace: bool = option(
        False,
        "Replace the running application without a stop: rebuild the state in another --state-dir, and switch when it "
        "has caught up.",
    )
    create_topics: bool = option(False, "Create source and output topics that do not exist.")


@run.itself
def run_(
    given: _Settings,
    app: Path = argument(
        "APP.PY",
        "Python file with `topology = ...` or `def build(builder)`, and optionally `application_id`.",
        path="existing file",
    ),
    metrics: str | None = METRICS,
    console: str | None = option(
        None,
        "Serve the state of the application on this address, for `suiro console --app` and `suiro app`.",
        "HOST:PORT",
    ),
    otlp: str | None = OTLP,
    openlineage: str | None = OPENLINEAGE,
    until_done: bool = option(False, "Exit when all records that exist now are processed."),
    explain: bool = option(False, "Print the topology and how its operators run, and exit."),
) -> None:
    """Run a topology on Spark. A restart continues where the application stopped. Ctrl-C or SIGTERM stops it. Exit
    status 3 means that another start has taken its place (--replace, --rebuild): do not restart it."""
    try:
        if explain:
            _explain(app, given.emit)
            sys.exit(0)
        if sys.stderr.isatty():
            note("Spark starts, which takes some seconds", BY)
        from suiro.spark import java_started_early

        os.environ.setdefault("SUIRO_QUERY_LOG", "off")  # for Java, whose stacks would hide the line below
        with java_started_early(topologies_only=True):
            module, topology = load_topology(app)
            from suiro.streams import KafkaStreams
            from suiro.streams_spark import lineage_report
            from suiro.telemetry import traces_to

            traces = traces_to(otlp, "suiro")
            named = asdict(given) | {"settings": assignments(given.settings or (), "--set"), "traces": traces}
            named["application_id"] = given.application_id or getattr(module, "application_id", None) or app.stem
            streams = KafkaStreams(topology, **named)
            with (
                _serving(streams, metrics=metrics, console=console, otlp=otlp, traces=traces),
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
        note(str(error), BY)
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


@contextmanager
def _serving(
    streams: KafkaStreams, *, metrics: str | None, console: str | None, otlp: str | None, traces: Traces | None
) -> Iterator[None]:
    """Within it, metrics and the state of the application are served, and telemetry is sent."""
    from suiro.foundation.settings import parse_address
    from suiro.spark import push_metrics, serve_metrics

    def queries() -> list[Any]:
        return [] if streams.state == "CREATED" else [streams.query]

    with ExitStack() as stack:
        if metrics is not None:
            host, port = parse_address(metrics, option="--metrics")
            try:
                note(f"metrics: {serve_metrics(queries, host, port)}", BY)
            except OSError as error:
                raise ConfigError(f"--metrics {metrics}: {error.strerror or error}") from error
        if console is not None:
            from suiro.streams_spark import ApplicationServer

            server = ApplicationServer(streams, *parse_address(console, option="--console"))
            stack.callback(server.stop)
            note(f"console: {server.url}", BY)
        if traces is not None:
            stack.callback(traces.close)
        push = push_metrics(queries, otlp)
        if push is not None:
            stack.callback(push.stop)
        yield


def until_stopped(streams: Any, until_done: bool) -> int:
    stopping = Stopping()
    # On a thread of its own: on the main one, PySpark takes SIGINT over, cancels the jobs and raises KeyboardInterrupt.
    started: Future[None] = Future()
    threading.Thread(target=settle, args=(started, streams.start), daemon=True).start()
    started.result()
    note(f"{streams.application_id} runs; its state is in {streams.checkpoint}", BY)
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
        note(f"{streams.application_id} ended: {failure}", BY)
        return code_of(failure)
    if until_done and not is_done:
        note("stopped before all was processed; run it again to continue", BY)
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
            note(f"{streams.application_id} {_PHASES[told]}", BY)
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


class UserCodeError(Exception):
    """An error of the code in the file. The text has the lines of the file, not those of suiro."""

    def __init__(self, path: Path, error: BaseException) -> None:
        shown = TracebackException.from_exception(error)
        own = (place for place, frame in enumerate(shown.stack) if Path(frame.filename) == path.resolve())
        del shown.stack[: next(own, len(shown.stack))]
        super().__init__("".join(shown.format(chain=False)) + f"suiro: {path} could not be loaded")


def load_topology(path: Path) -> tuple[ModuleType, Topology]:
    """Returns the file as a module, and its topology. Raises `SuiroError`, with the line of the file, and
    `UserCodeError` for errors of the file."""
    try:
        module = load_module(path)
        return module, topology_of(module)
    except SuiroError as error:
        calls = ((frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__))
        if lines := [line for file, line in calls if Path(file) == path.resolve()]:
            error.args = (f"{path.name}, line {lines[-1]}: {error}",)
        raise
    except Exception as error:
        raise UserCodeError(path, error) from error


@contextmanager
def forgotten() -> Iterator[None]:
    """Forgets the modules loaded inside the `with`, so that another version of the file and its neighbours can be
    loaded."""
    before, path = set(sys.modules), list(sys.path)
    try:
        yield
    finally:
        folders = [item for item in sys.path if item not in path]
        sys.path[:] = path
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and any(Path(file).is_relative_to(folder) for folder in folders):
                del sys.modules[name]


def load_module(path: Path) -> ModuleType:
    """Runs the file as a module with its own name. Modules next to it can be imported, here and in workers."""
    path = path.resolve()
    if path.stem in sys.modules:
        raise ConfigError(
            f"{path.name} has the name of a module that is loaded already ({path.stem}); give the file another name"
        )
    sys.path.insert(0, str(path.parent))
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file; its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def topology_of(module: ModuleType) -> Topology:
    from suiro.streams import StreamsBuilder, Topology

    found = getattr(module, "topology", None)
    if isinstance(found, Topology):
        return found
    if isinstance(found, StreamsBuilder):
        return found.build()
    build = getattr(module, "build", None)
    if not callable(build):
        raise ConfigError(
            f"{module.__name__} has neither a topology (topology = builder.build()) nor a function build(builder)"
        )
    builder = StreamsBuilder()
    made = build(builder)
    return made if isinstance(made, Topology) else builder.build()
