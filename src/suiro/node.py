"""A node: the broker of one data directory, in this process or in a child process.

- `serve` runs a node in the foreground until SIGTERM or SIGINT (`suiro node`).
- `NodeProcess` starts `suiro node` as a child process: for tests that kill it, for the demo, for isolation.
- `InProcessNode` runs a broker on a thread: it starts fastest, and ends with this process.

The module imports the broker only when one is started, so that importing it is cheap.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from suiro.clock import Clock, SystemClock
from suiro.config import NodeSettings
from suiro.errors import ConfigError, SuiroError, TransientError
from suiro.extras import require
from suiro.foundation.process import first_line, kill, send_line, start_service, stop
from suiro.foundation.readiness import say_ready
from suiro.foundation.settings import parse_address
from suiro.foundation.threads import settle

if TYPE_CHECKING:
    from suiro.broker import Broker, BrokerConfig, ScramUser
    from suiro.foundation.beside import Beside

T = TypeVar("T")

logger = logging.getLogger(__name__)

DEFAULT_ADDRESS = "127.0.0.1:9092"
FREE_ADDRESS = "127.0.0.1:0"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
_IS_OPEN = (
    "is open to everybody who reaches this machine: no login is asked for, and whoever connects can read, change and "
    "delete all topics. Listen on 127.0.0.1, ask for logins (SASL or client certificates, see the guide on security), "
    "or turn on access control; --insecure says that it is meant so"
)


def serve(
    *,
    data: Path | None,
    listen: str | None,
    settings: NodeSettings,
    add_scram: Sequence[str] = (),
    registry: str | None = None,
    registry_options: Sequence[str] = (),
    console: str | None = None,
    console_options: Sequence[str] = (),
    while_stdin_is_open: bool = False,
    insecure: bool = False,
) -> None:
    """Run a node until SIGTERM or SIGINT; prints the ready line on stdout once it answers.

    `add_scram` are users to create at the start, `SCRAM-SHA-256=[name=...,password=...]`. `registry` and `console` are
    the addresses of a schema registry and of a console, each in a separate process, so that the node's event loop stays
    free. `registry_options` and `console_options` are options of `suiro registry` and `suiro console`. With
    `while_stdin_is_open`, the node also stops when its standard input is closed. With `insecure`, it does not warn
    about listeners without a login.
    """
    if registry is not None:
        require("registry")
    config, temporary = _broker_config(data, listen, settings, add_scram, otherwise=DEFAULT_ADDRESS)
    if temporary is not None:
        print("suiro node: without --data, everything is removed at the exit", file=sys.stderr, flush=True)
    beside = []
    try:
        for name, address, options in (
            ("registry", registry, registry_options),
            ("console", console, console_options),
        ):
            if address is not None:
                from suiro.foundation.http import listen_on

                at = listen_on(*parse_address(address, option=f"--{name}"), name=f"the {name}")
                beside.append((name, at, options))
        _Foreground(config, beside, while_stdin_is_open=while_stdin_is_open, insecure=insecure).run()
    finally:
        _remove(temporary)


def _broker_config(
    data: Path | str | None,
    listen: str | None,
    settings: NodeSettings,
    add_scram: Sequence[str],
    *,
    otherwise: str,
) -> tuple[BrokerConfig, Path | None]:
    """The configuration of a broker, and the temporary folder that was made for it if no data folder is named."""
    from suiro.broker import BrokerConfig

    if listen is not None and settings.listeners:
        raise ConfigError(
            f"--listen {listen} and listeners = {settings.listeners} both say where to listen; leave one out"
        )
    host, port = parse_address(listen or otherwise)
    users = _scram_users(add_scram)
    temporary = None
    if data is None:
        data = temporary = Path(tempfile.mkdtemp(prefix="suiro-node-"))
    config = BrokerConfig(data=Path(data), host=host, port=port, settings=settings, scram_users=users)
    return config, temporary


class _Foreground:
    """A node in the foreground. `listening` are the services beside it: name, socket and options of each."""

    def __init__(
        self,
        config: BrokerConfig,
        listening: Sequence[tuple[str, socket.socket, Sequence[str]]],
        *,
        while_stdin_is_open: bool,
        insecure: bool,
    ) -> None:
        from suiro.broker import Broker
        from suiro.foundation.threads import new_event_loop

        self._loop = new_event_loop()
        self._broker = Broker(config, loop=self._loop)
        self._listening = listening
        self._while_stdin_is_open = while_stdin_is_open
        self._insecure = insecure
        self._services: list[Beside] = []
        self._failure: BaseException | None = None

    def run(self) -> None:
        self._loop.call_soon(self._begin)
        try:
            self._loop.run_forever()
            if self._failure is not None:
                raise self._failure
            logger.info("stopping")
        finally:
            for service in self._services:
                service.tell_to_stop()  # it does so while the broker does
            self._broker.stop()
            for service in self._services:
                service.stop()
            self._loop.close()

    def _begin(self) -> None:
        # Within the running loop: uvloop loses a signal that comes after the handler is set and before the loop runs.
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._loop.stop)
        if self._while_stdin_is_open:
            self._loop.add_reader(sys.stdin.fileno(), self._stop_at_end_of_input)
        try:
            self._broker.start()
            gc.freeze()  # Topics and logs stay; a collection need not look at them.
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._fail(error)
            return
        ready = _ready(self._broker)
        for name, at, options in self._listening:
            self._services.append(_beside(name, at, options, ready, failed=self._fail_from_thread))
        if not self._insecure:
            for listener in self._broker.open_listeners:
                where = f"listener {listener.name} on {listener.host}:{listener.port}"
                print(f"suiro node: WARNING: {where} {_IS_OPEN}", file=sys.stderr, flush=True)
        say_ready(ready)

    def _stop_at_end_of_input(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            self._loop.remove_reader(sys.stdin.fileno())
            self._loop.stop()

    def _fail_from_thread(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._loop.stop()


def _ready(broker: Broker) -> dict[str, Any]:
    """The content of the ready line, without the addresses of the services beside the node."""
    ready: dict[str, Any] = {"bootstrap": broker.bootstrap_servers, "registry": None, "pid": os.getpid()}
    if broker.settings.listeners:
        ready["listeners"] = {one.name: one.bootstrap_servers for one in broker.server.listeners}
    if broker.metrics_url is not None:
        ready["metrics"] = broker.metrics_url
    return ready


def _beside(
    name: str,
    at: socket.socket,
    options: Sequence[str],
    ready: dict[str, Any],
    *,
    failed: Callable[[BaseException], None],
) -> Beside:
    """Start a service of this node, and put its address into `ready`."""
    from suiro.foundation.beside import Beside
    from suiro.foundation.http import url_of

    ready[name] = url_of(at)
    arguments = [name, "--bootstrap-servers", ready["bootstrap"], *options]
    if name == "console" and ready["registry"] is not None:
        arguments += ["--registry", ready["registry"]]
    return Beside(name, at, arguments, failed=failed)


def _scram_users(texts: Sequence[str]) -> tuple[ScramUser, ...]:
    if not texts:
        return ()
    from suiro.broker import ScramUser

    return tuple(ScramUser.parse(text) for text in texts)


def _remove(temporary: Path | None) -> None:
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)


class NodeProcess:
    """A `suiro node` child process. A context manager: leaving it stops the node.

    The node also stops, cleanly, when this process ends without stopping it, be it by kill -9.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], ready: Mapping[str, Any], log: Path, temporary: Path | None
    ) -> None:
        self._process = process
        self._temporary = temporary
        self.bootstrap_servers: str = ready["bootstrap"]
        self.listeners: dict[str, str] = ready.get("listeners", {})
        """Address by name of those that the setting `listeners` names."""
        self.metrics_url: str | None = ready.get("metrics")
        self.registry_url: str | None = ready.get("registry")
        self.console_url: str | None = ready.get("console")
        self.log = log

    @classmethod
    def start(
        cls,
        *,
        data: Path | str | None = None,
        listen: str | None = None,
        settings: Mapping[str, str] | None = None,
        log: Path | str | None = None,
        timeout_s: float = START_TIMEOUT_S,
        options: Sequence[str] = (),
    ) -> NodeProcess:
        """Start a node and wait until it responds. Its log is written to `log`, by default next to the data.

        It uses a free port, unless `listen` or the setting `listeners` names one. `options` are further options of
        `suiro node`.

        Raises `ConfigError` with the node's last message if it does not start.
        """
        temporary = None
        if data is None or log is None:
            temporary = Path(tempfile.mkdtemp(prefix="suiro-node-"))
        log_path = Path(log) if log is not None else (temporary or Path()) / "node.log"
        data_path = Path(data) if data is not None else (temporary or Path()) / "data"
        arguments = ["node", "--data", str(data_path), *options]
        if listen is not None or "listeners" not in (settings or {}):
            arguments += ["--listen", listen or FREE_ADDRESS]
        with open(log_path, "ab") as log_file:
            process = start_service([*arguments, "--settings-on-stdin"], stdout=subprocess.PIPE, stderr=log_file)
        send_line(process, json.dumps({name: str(value) for name, value in (settings or {}).items()}))
        try:
            ready = _read_ready_line(process, log_path, timeout_s)
        except BaseException:
            kill(process)
            _remove(temporary)
            raise
        return cls(process, ready, log_path, temporary)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash."""
        kill(self._process)

    def stop(self) -> int:
        """Stop cleanly and return the exit code. A node that does not stop in time is killed; the code shows it."""
        code = stop(self._process, STOP_TIMEOUT_S * 2)
        _remove(self._temporary)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def _read_ready_line(process: subprocess.Popen[bytes], log: Path, timeout_s: float) -> dict[str, Any]:
    try:
        line = first_line(process, timeout_s)
    except TimeoutError:
        raise TransientError(f"the node did not answer within {timeout_s:g} s; its log is {log}") from None
    if not line:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise ConfigError(f"the node did not start (exit {process.wait()}): {said[-1] if said else 'it said nothing'}")
    return dict(json.loads(line))


class InProcessNode:
    """A broker on a thread of this process, with its own event loop. `start` creates one."""

    def __init__(self, config: BrokerConfig, *, clock: Clock, temporary: Path | None) -> None:
        self._config = config
        self._clock = clock
        self._temporary = temporary
        self._launch()

    @classmethod
    def start(
        cls,
        *,
        data: Path | str | None = None,
        listen: str | None = None,
        settings: Mapping[str, str] | None = None,
        add_scram: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> Self:
        """Start a broker and wait until it answers. Raises `ConfigError` if it cannot.

        `add_scram` are users to create at the start, `SCRAM-SHA-256=[name=...,password=...]`.
        """
        made = NodeSettings.from_mapping(settings or {}, source="settings")
        config, temporary = _broker_config(data, listen, made, add_scram, otherwise=FREE_ADDRESS)
        try:
            return cls(config, clock=clock or SystemClock(), temporary=temporary)
        except BaseException:
            _remove(temporary)
            raise

    def _launch(self) -> None:
        from suiro.broker import Broker
        from suiro.foundation.threads import new_event_loop

        self._loop = loop = new_event_loop()
        self.broker = broker = Broker(self._config, loop=loop, clock=self._clock)
        self._crashed = False
        started = threading.Event()
        failure: list[BaseException] = []

        def run() -> None:
            try:
                broker.start()
            except BaseException as error:  # noqa: BLE001 - the caller of the thread gets it
                failure.append(error)
                started.set()
                return
            loop.call_soon(started.set)
            loop.run_forever()
            if not self._crashed:
                broker.stop()

        self._thread = threading.Thread(target=run, name="suiro-node", daemon=True)
        self._thread.start()
        started.wait()
        if failure:
            self._thread.join()
            loop.close()
            raise failure[0]
        self.bootstrap_servers = broker.bootstrap_servers

    def call(self, action: Callable[[], T]) -> T:
        """Run a function on the node's thread, which owns all state, and return its result."""
        result: Future[T] = Future()
        self._loop.call_soon_threadsafe(settle, result, action)
        return result.result(STOP_TIMEOUT_S * 2)

    def crash_here(self) -> None:
        """Run on the node's thread: end as after SIGKILL. Only written data is kept."""
        self._crashed = True
        self.broker.abandon()
        self._loop.stop()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def kill(self) -> None:
        """End the node as SIGKILL would. Safe to call again."""
        if self.is_running:
            self._loop.call_soon_threadsafe(self.crash_here)
        self._join()

    def restart(self) -> None:
        """Restart at the same address with the written data; stops cleanly first if it runs."""
        port, settings = self.broker.port, self._config.settings
        if settings.listeners:
            bound = ",".join(f"{one.name}://{one.host}:{one.port}" for one in self.broker.server.listeners)
            settings = replace(settings, listeners=bound)
        self._end()
        self._config = replace(self._config, port=port, settings=settings)
        self._launch()

    def stop(self) -> None:
        """Stop cleanly. Safe to call again."""
        self._end()
        _remove(self._temporary)

    def _end(self) -> None:
        if self.is_running:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._join()

    def _join(self) -> None:
        self._thread.join(STOP_TIMEOUT_S * 2)
        if self._thread.is_alive():
            raise SuiroError("the node's thread did not stop in time")
        if not self._loop.is_closed():
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
