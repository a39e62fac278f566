"""A Python that has imported what Spark's Python processes need, and from which they are forked.

A query's start takes seven Python processes, one after the other: to look up the data source, to make it, to plan its
reading, to plan the state, to read, and a daemon for each kind of worker. Each imports the same for 0.5 to 2 s, while
Spark waits. Here it is imported once, while the JVM starts; a fork takes some milliseconds.

    Spark's JVM -> the launcher (`launcher`) -> python_stub -> a socket -> here -> fork -> `python -m MODULE ...`

What is always true: a forked process has the stub's standard streams, arguments, environment and folder; the server has
no thread and no connection of anybody else's when it forks, and ends with the process that started it; whatever it
cannot do the stub does by becoming Python, as without a server.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import importlib
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from suiro.spark import python_stub
from suiro.spark.java import cache_directory
from suiro.spark.python_stub import NUMBER_BYTES, SERVER
from suiro.spark.worker_daemon import PRELOADED

__all__ = ["python_for_spark"]

PLANNING = (
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "suiro.streams.spark.source",
)
REQUEST_S = 5.0
END_S = 5.0
_PATH_BYTES = 100  # a Unix socket's path has at most 104 bytes on some systems
_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")  # Spark asks for data sources with the second
# What Python itself reads when it starts; another process's value of these cannot be had by a fork.
_READ_LATER = ("PYTHONPATH", "PYTHONUNBUFFERED")


# -- in the driver ----------------------------------------------------------------------------------------


@contextmanager
def python_for_spark() -> Iterator[None]:
    """A JVM that is started here starts its Python processes quickly. What the user said to use is used."""
    chosen = [name for name in _VARIABLES if name not in os.environ]
    for name in _VARIABLES:
        os.environ.setdefault(name, sys.executable)
    quick = launcher(os.environ) if len(chosen) == len(_VARIABLES) else None
    if quick is None:
        yield
        return
    address = _Server.address()
    before = {name: os.environ[name] for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, str(quick)))
    if address is not None:
        os.environ[SERVER] = address
    try:
        yield
    finally:
        os.environ.update(before)
        os.environ.pop(SERVER, None)


def launcher(environment: Mapping[str, str]) -> Path | None:
    """A script that starts this interpreter by way of the stub; None where that would not be the same Python: Spark
    has a PySpark of its own, or scripts cannot be started in the cache folder."""
    spec = find_spec("pyspark")
    if os.name != "posix" or spec is None or spec.origin is None:
        return None
    if environment.get("SPARK_HOME", os.path.dirname(spec.origin)) != os.path.dirname(spec.origin):
        return None
    words = [sys.executable, "-I", "-S", python_stub.__file__, sys.executable]
    text = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'
    script = cache_directory(environment) / "python" / hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        if not script.is_file() or script.read_text() != text:
            script.parent.mkdir(parents=True, exist_ok=True)
            # Another process may be starting this very file: write beside it, then put it in place in one step.
            fresh = script.with_name(f"{script.name}.{os.getpid()}")
            fresh.write_text(text)
            fresh.chmod(0o755)
            fresh.replace(script)
    except OSError:
        return None
    return script if os.access(script, os.X_OK) else None


class _Server:
    """One for this process, from the first session on until it ends."""

    _lock = threading.Lock()
    _process: subprocess.Popen[bytes] | None = None
    _address: str | None = None

    @classmethod
    def address(cls) -> str | None:
        with cls._lock:
            if cls._process is None or cls._process.poll() is not None:
                cls._start()
            return cls._address

    @classmethod
    def _start(cls) -> None:
        folder = tempfile.mkdtemp(prefix="suiro-python-")  # nobody else may enter it
        path = os.path.join(folder, "socket")
        if len(os.fsencode(path)) > _PATH_BYTES:
            os.rmdir(folder)
            return
        defaults = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}  # as Spark sets them for its workers
        environment = {**defaults, **os.environ, "PYTHONUNBUFFERED": "YES"}
        listening = socket.socket(socket.AF_UNIX)
        with listening:
            listening.bind(path)  # who comes before it has imported all waits in the queue
            listening.listen(64)
            cls._process = subprocess.Popen(
                [sys.executable, "-m", __name__, folder, str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                env=environment,
            )
        if cls._address is None:
            atexit.register(cls._end)
        cls._address = path

    @classmethod
    def _end(cls) -> None:
        if cls._process is not None and cls._process.stdin is not None:
            with suppress(OSError):
                cls._process.stdin.close()
            try:
                cls._process.wait(END_S)
            except subprocess.TimeoutExpired:  # a fork of ours has the other end, too
                cls._process.kill()


# -- in the server ----------------------------------------------------------------------------------------


def serve(listening: socket.socket) -> Callable[[], object] | None:
    """In the server: None once the process that started it has ended. In a forked process: what it has to run."""
    woken, wakes = socket.socketpair()
    for end in (woken, wakes, listening):
        end.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    beside: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for item in (0, woken, listening):
            selector.register(item, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if 0 in ready:
                return None
            if woken.fileno() in ready:
                with suppress(BlockingIOError):
                    woken.recv(4096)
                _tell_who_ended(beside)
            if listening.fileno() not in ready:
                continue
            try:
                connection, _ = listening.accept()
            except OSError:
                continue
            run = _forked(connection, beside)
            if run is not None:
                signal.set_wakeup_fd(-1)
                for one in (woken, wakes, listening, *beside.values()):
                    one.close()
                return run


def _forked(connection: socket.socket, beside: dict[int, socket.socket]) -> Callable[[], object] | None:
    """Not None in the forked process."""
    streams: list[int] = []
    try:
        connection.settimeout(REQUEST_S)
        arguments, folder, environment, streams = _request(connection)
        pid = os.fork() if _can_run(arguments, environment) else None
        if pid == 0:
            connection.close()
            _become(arguments, folder, environment, streams)
            return lambda: runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        connection.sendall((pid or 0).to_bytes(NUMBER_BYTES, "big"))
        if pid is not None:
            beside[pid] = connection
            return None
    except (OSError, ValueError):
        pass  # who asks starts Python without us
    finally:
        for descriptor in streams:
            with suppress(OSError):
                os.close(descriptor)
    connection.close()
    return None


def _request(connection: socket.socket) -> tuple[list[str], str, dict[str, str], list[int]]:
    size, streams, _, _ = socket.recv_fds(connection, NUMBER_BYTES, 3)
    left = int.from_bytes(size, "big")
    parts: list[bytes] = []
    while left:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            raise OSError("the request ends midway")
        parts.append(part)
        left -= len(part)
    texts = [os.fsdecode(item) for item in b"".join(parts).split(b"\0")]
    split = texts.index("")
    named = (item.partition("=") for item in texts[split + 2 :])
    return texts[:split], texts[split + 1], {name: value for name, _, value in named}, streams


def _can_run(arguments: list[str], environment: Mapping[str, str]) -> bool:
    if len(arguments) < 2 or arguments[0] != "-m":
        return False
    return all(
        os.environ.get(name) == value
        for name, value in environment.items()
        if name.startswith("PYTHON") and name.isalpha() and name not in _READ_LATER
    )


def _become(arguments: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for place, descriptor in enumerate(streams):
        os.dup2(descriptor, place)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.argv = ["-m", *arguments[2:]]
    more = [item for item in environment.get("PYTHONPATH", "").split(os.pathsep) if item]
    sys.path[:1] = [folder, *(item for item in more if item not in sys.path)]
    sys.modules.pop(arguments[1], None)  # it runs as the main module


def _tell_who_ended(beside: dict[int, socket.socket]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        connection = beside.pop(pid, None)
        if connection is not None:
            code = os.waitstatus_to_exitcode(status)
            with suppress(OSError):
                connection.sendall((code if code >= 0 else 128 - code).to_bytes(NUMBER_BYTES, "big"))
            connection.close()


def main() -> Callable[[], object] | None:
    folder, listening = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's; Spark's JVM ignores it as well
    for name in (*PRELOADED, *PLANNING):
        importlib.import_module(name)
    gc.freeze()
    run = serve(listening)
    if run is None:
        with suppress(OSError):
            os.unlink(os.path.join(folder, "socket"))
            os.rmdir(folder)
    return run


if __name__ == "__main__":
    _run = main()
    if _run is not None:
        _run()
