"""A Python process that has imported the modules of Spark's Python processes, which are forked from it.

A query's start takes seven Python processes, one after the other: to look up the data source, to make it, to plan its
reading, to plan the state, to read, and a daemon for each kind of worker. Each imports the same for 0.5 to 2 s, while
Spark waits. Here it is imported once, while the JVM starts; a fork takes some milliseconds.

    Spark's JVM -> the launcher (`launcher`) -> python_stub -> a socket -> here -> fork -> `python -m MODULE ...`

Invariants: a forked process has the stub's standard streams, arguments, environment and folder, and ends with
the stub; the server has no Python thread and no connection of anybody else's when it forks, and ends with the process
that started it; whatever it cannot do the stub does by becoming Python, as without a server.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import importlib
import os
import re
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from suiro.foundation.process import wait_or_kill
from suiro.spark import python_stub
from suiro.spark.java import cache_directory, set_in, write_script
from suiro.spark.python_stub import ANSWER_S, FOLDER, NUMBER_BYTES, SERVER, asked
from suiro.spark.worker_daemon import PRELOADED, ends_with_its_task

END, END_WORKERS, NICENESS = "end", "end-workers", "niceness"
"""The driver's requests, for the processes of one folder (`_ProcessGroups`)."""

PLANNING = (
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "suiro.streams_spark.source",
)
REQUEST_S = 5.0
END_S = 5.0
LOOK_S = 1.0  # how often it is seen that the driver is gone
_PATH_BYTES = 100  # a Unix socket's path has at most 104 bytes on some systems
_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")  # Spark asks for data sources with the second
# Variables that Python and libraries read when they start. A fork cannot give another process's values to them.
_READ_AT_START = re.compile("PYTHON[A-Z]+|(ARROW|LD|MALLOC|MKL|NUMBA|OPENBLAS)_.+")
_READ_LATER = ("PYTHONPATH", "PYTHONUNBUFFERED")
# Spark starts the workers that plan with PySpark's own daemon, whatever `spark.python.daemon.module` says.
_INSTEAD = {"pyspark.daemon": "suiro.spark.worker_daemon"}


# In the driver


@contextmanager
def python_for_spark() -> Iterator[None]:
    """A JVM that is started inside starts its Python processes quickly. A Python that the user has named is used as it
    is."""
    for name in _VARIABLES:
        os.environ.setdefault(name, sys.executable)
    is_ours = all(os.environ[name] == sys.executable for name in _VARIABLES)
    quick = launcher(os.environ) if is_ours else None
    if quick is None:
        yield
        return
    address = _Server.address()
    values = dict.fromkeys(_VARIABLES, str(quick)) | ({} if address is None else {SERVER: address})
    with set_in(os.environ, **values):
        yield


def launcher(environment: Mapping[str, str]) -> Path | None:
    """A script that starts this interpreter by way of the stub; None where that would not be the same Python: Spark
    has a PySpark of its own, or scripts cannot be started in the cache folder."""
    spec = find_spec("pyspark")
    if os.name != "posix" or spec is None or spec.origin is None:
        return None
    if sys.flags.safe_path or not os.path.isfile(python_stub.__file__):
        return None
    if environment.get("SPARK_HOME", os.path.dirname(spec.origin)) != os.path.dirname(spec.origin):
        return None
    words = [sys.executable, "-I", "-S", python_stub.__file__, sys.executable]
    text = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'
    script = cache_directory(environment) / "python" / hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        write_script(script, text)
    except OSError:
        return None
    return script if os.access(script, os.X_OK) else None


def can_share_jvm() -> bool:
    """Whether several programs can use one JVM (`shared_jvm`): Spark's Python processes come by way of the stub, which
    tells the programs apart."""
    return launcher(os.environ) is not None


class _Server:
    """One for this process, from the first session on until it ends."""

    _lock = threading.Lock()
    _process: subprocess.Popen[bytes] | None = None
    _folder: str | None = None

    @classmethod
    def address(cls) -> str | None:
        """The socket's path. None if the server cannot be started, or if a JVM runs already, which would not know
        it."""
        with cls._lock:
            if cls._process is not None and cls._process.poll() is None:
                return None if cls._folder is None else _socket_in(cls._folder)
            has_java = "PYSPARK_GATEWAY_PORT" in os.environ
            if (core := sys.modules.get("pyspark.core.context")) is not None:
                has_java = has_java or core.SparkContext._gateway is not None
            if has_java:
                return None
            cls._end()
            try:
                return cls._start()
            except OSError:
                return None

    @classmethod
    def _start(cls) -> str | None:
        cls._folder = folder = tempfile.mkdtemp(prefix="suiro-python-")  # nobody else may enter it
        path = _socket_in(folder)
        if len(os.fsencode(path)) > _PATH_BYTES:
            cls._end()
            return None
        defaults = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}  # as Spark sets them for its workers
        environment = {**defaults, **os.environ, "PYTHONUNBUFFERED": "YES"}
        atexit.unregister(cls._end)
        atexit.register(cls._end)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)  # who comes before it has imported all waits in the queue
            listening.listen(64)
            cls._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                env=environment,
            )
        return path

    @classmethod
    def _end(cls) -> None:
        process, folder = cls._process, cls._folder
        cls._process = cls._folder = None
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.write(b".")  # a fork of this process may hold the pipe's other end, too
                process.stdin.close()
            wait_or_kill(process, END_S)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def ask_server(command: str, folder: str, *arguments: str) -> int:
    """Ask this process's server for one of these. Return how many processes the folder has; 0 without a server."""
    address = _Server.address()
    if address is None:
        return 0
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(address)
        return asked(connection, [command, *arguments], {FOLDER: folder})
    return 0


def _socket_in(folder: str) -> str:
    return os.path.join(folder, "socket")


# In the server


def serve(listening: socket.socket) -> Callable[[], object] | None:
    """In the server: None once the process that started it has ended. In a forked process: what it has to run."""
    with selectors.DefaultSelector() as selector:
        return _Forks(listening, selector).serve()


class _Forks:
    """Forks a process for each request of a stub, and tells the stub how it ended."""

    def __init__(self, listening: socket.socket, selector: selectors.BaseSelector) -> None:
        self._listening = listening
        self._selector = selector
        self._woken, self._wakes = socket.socketpair()
        self._stubs: dict[int, socket.socket] = {}  # the stub of each process that runs
        self._groups = _ProcessGroups()

    def serve(self) -> Callable[[], object] | None:
        for end in (self._woken, self._wakes, self._listening):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        driver = os.getppid()
        for item in (0, self._woken, self._listening):
            self._selector.register(item, selectors.EVENT_READ)
        while True:
            ready = {key.fd: key.data for key, _ in self._selector.select(LOOK_S)}
            if 0 in ready or os.getppid() != driver:
                signal.set_wakeup_fd(-1)  # its socket is closed with this object, and children still end
                return None
            for pid in self._stubs.keys() & ready.values():
                self._end_without_stub(pid)
            if self._woken.fileno() in ready:
                with suppress(BlockingIOError):
                    self._woken.recv(4096)
                self._tell_who_ended()
            if self._listening.fileno() in ready and (forked := self._take_request()) is not None:
                return forked.run

    def _end_without_stub(self, pid: int) -> None:
        """Its stub is gone, and was not told of its end."""
        self._selector.unregister(self._stubs.pop(pid))
        with suppress(OSError):
            os.kill(pid, signal.SIGTERM)

    def _tell_who_ended(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._groups.discard(pid)
            connection = self._stubs.pop(pid, None)
            if connection is not None:
                self._selector.unregister(connection)
                code = os.waitstatus_to_exitcode(status)
                _answer(connection, code if code >= 0 else 128 - code)
                connection.close()

    def _take_request(self) -> _Asked | None:
        """Answers the next request. Returns it in the process that was forked for it, otherwise None."""
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return None
        request = _asked(connection)
        if request is not None and not request.is_of_driver:
            return self._fork(connection, request)
        with suppress(OSError):  # a process that is looked at may end meanwhile
            _answer(connection, 0 if request is None else request.done(self._groups))
        connection.close()
        if request is not None:
            request.close()
        return None

    def _fork(self, connection: socket.socket, request: _Asked) -> _Asked | None:
        try:
            pid = os.fork()
        except OSError:  # no process is left at the moment; the stub is one, and becomes Python
            request.close()
            connection.close()
            return None
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for one in (connection, self._woken, self._wakes, self._listening, *self._stubs.values()):
                one.close()
            os.nice(self._groups.niceness(request.program))
            return request
        request.close()
        if _answer(connection, pid):
            self._stubs[pid] = connection
            self._groups.add(pid, request.program)
            self._selector.register(connection, selectors.EVENT_READ, pid)
        else:
            os.kill(pid, signal.SIGKILL)  # the stub has become Python meanwhile: there must not be two
            connection.close()
        return None


class _ProcessGroups:
    """Whose the processes of a JVM are that several programs share (`shared_jvm`): told apart by their folders. `""` is
    the folder of a JVM that is one program's."""

    def __init__(self) -> None:
        self._folders: dict[int, str] = {}  # of processes that run
        self._niceness: dict[str, int] = {}

    def niceness(self, folder: str) -> int:
        return self._niceness.get(folder, 0)

    def add(self, pid: int, folder: str) -> None:
        self._folders[pid] = folder

    def discard(self, pid: int) -> None:
        self._folders.pop(pid, None)

    def end(self, folder: str, *, with_daemons: bool) -> int:
        """Kill them, and their workers. Return how many there were.

        Daemons have imported nothing of the program. One that comes back needs them: Spark starts none again.
        """
        found = self._of(folder)
        for pid in found:
            for member in list(_with_workers(pid)):
                with suppress(OSError):
                    if member != pid or with_daemons or os.getpgid(pid) != pid:
                        os.kill(member, signal.SIGKILL)
        return len(found)

    def set_niceness(self, folder: str, niceness: int) -> int:
        """Of those that run, where the system lets it, and of those that are still to be forked."""
        self._niceness[folder] = niceness
        found = self._of(folder)
        for pid in found:
            for member in _with_workers(pid):
                _set_niceness(member, niceness)
        return len(found)

    def _of(self, folder: str) -> list[int]:
        return [pid for pid, its in self._folders.items() if its == folder]


def _set_niceness(pid: int, niceness: int) -> None:
    """Of all its threads: Linux has a priority for each. Only root may raise it again."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(task.name), niceness)


def _with_workers(pid: int) -> Iterator[int]:
    yield pid
    for entry in Path("/proc").glob("[0-9]*"):
        member = int(entry.name)
        with suppress(OSError):
            if member != pid and os.getpgid(member) == pid:
                yield member


def _answer(connection: socket.socket, number: int) -> bool:
    """Returns whether it was taken."""
    try:
        connection.sendall(number.to_bytes(NUMBER_BYTES, "big"))
    except OSError:
        return False
    return True


def _asked(connection: socket.socket) -> _Asked | None:
    """The request; None if the stub is to do it by itself."""
    request = None
    try:
        connection.settimeout(REQUEST_S)
        request = _request(connection)
        connection.setblocking(False)
        try:
            is_gone = connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            is_gone = False
        connection.settimeout(REQUEST_S)
        if not is_gone and (request.is_of_driver or request.can_be_run):
            return request
    except (OSError, ValueError):
        pass
    if request is not None:
        request.close()
    return None


@dataclass(frozen=True, slots=True)
class _Asked:
    """The request of a stub. `streams`: its standard input, output and errors."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    streams: list[int]

    @property
    def program(self) -> str:
        """Its folder; "" where the JVM is one program's."""
        return self.environment.get(FOLDER, "")

    @property
    def is_of_driver(self) -> bool:
        """Not of a stub: of `ask_server`."""
        return self.arguments[:1] in ([END], [END_WORKERS], [NICENESS])

    def done(self, groups: _ProcessGroups) -> int:
        if self.arguments[0] in (END, END_WORKERS):
            return groups.end(self.program, with_daemons=self.arguments[0] == END)
        return groups.set_niceness(self.program, int(self.arguments[1]))

    @property
    def can_be_run(self) -> bool:
        if len(self.arguments) < 2 or self.arguments[0] != "-m" or len(self.streams) != 3:
            return False
        differs = any(
            os.environ.get(name) != value
            for name, value in self.environment.items()
            if _READ_AT_START.fullmatch(name) and name not in _READ_LATER
        )
        return not differs and os.access(self.folder, os.X_OK)

    def close(self) -> None:
        for descriptor in self.streams:
            with suppress(OSError):
                os.close(descriptor)

    def run(self) -> None:
        """Runs the module, in the forked process and until its end."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for place, descriptor in enumerate(self.streams):
            os.dup2(descriptor, place)
        self.close()
        os.environ.clear()
        os.environ.update(self.environment)
        time.tzset()
        os.chdir(self.folder)
        module = _INSTEAD.get(self.arguments[1], self.arguments[1])
        _name(self.arguments[1])
        sys.argv = ["-m", *self.arguments[2:]]
        path = [item for item in self.environment.get("PYTHONPATH", "").split(os.pathsep) if item]
        sys.path[:1] = [self.folder, *(item for item in path if item not in sys.path)]
        sys.modules.pop(module, None)  # it runs as the main module
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()  # Python's own `random` is seeded anew by itself
        ends_with_its_task(runpy.run_module)(module, run_name="__main__", alter_sys=True)


def _name(module: str) -> None:
    """Sets the name that `ps -o comm` and `top` show for this process and its children. Their command lines are the
    server's."""
    with suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write(f"py:{module.rpartition('.')[2]}")


def _request(connection: socket.socket) -> _Asked:
    size, streams, _, _ = socket.recv_fds(connection, NUMBER_BYTES, 3)
    try:
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
    except BaseException:
        for descriptor in streams:
            os.close(descriptor)
        raise
    named = (item.partition("=") for item in texts[split + 2 :])
    return _Asked(texts[:split], texts[split + 1], {name: value for name, _, value in named}, list(streams))


def main() -> Callable[[], object] | None:
    listening = socket.socket(fileno=int(sys.argv[1]))
    path = listening.getsockname()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's; Spark's JVM ignores it as well
    for name in (*PRELOADED, *PLANNING):
        importlib.import_module(name)
    gc.freeze()
    run = serve(listening)
    if run is None:
        with suppress(OSError):
            os.unlink(path)
            os.rmdir(os.path.dirname(path))
    return run


if __name__ == "__main__":
    _run = main()
    if _run is not None:
        _run()
