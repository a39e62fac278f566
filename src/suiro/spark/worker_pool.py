"""The daemon of Spark's Python workers: a task of a streaming query goes to the worker that ran it before.

Spark has one connection for each worker, and sends a task by the connection that has been idle the longest. With
PySpark's own daemon a connection belongs to one process, so a task comes to another process in most micro-batches. That
process has to load what the others did to the task's state, and in the end each process keeps the state of all tasks.
Here a worker without a task gives its connection to the daemon, which hands it on when a task comes:

    Spark -> a connection -> the daemon reads whose task it is, which stays readable -> its worker, by SCM_RIGHTS

Invariants: a connection is open in one process, the daemon or a worker, so Spark learns at once that a worker has died.
For each idle connection there is an idle worker; if it has died, another one is forked. Spark knows a connection by the
number of one process, and has it killed by this number: then whoever has the connection is killed. A worker keeps its
connection while it has broadcast variables, which Spark sends once on each connection.

Spark closes all idle connections when no task has ended for a minute. Workers that have run tasks of streaming queries
outlive that for a while: the next connections are theirs.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import selectors
import signal
import socket
import struct
import sys
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from suiro.clock import monotonic_s, sleep_s

Task = tuple[bytes, int]
"""The id of a streaming query, and the task's number."""
Work = Callable[[socket.socket, bool], int]
"""(connection, whether Spark has said the secret on it) -> exit code: waits for a task and runs it."""

BACKLOG = 1024
POLL_S = 1.0
FORK_AGAIN_S = 1.0
KEPT_S = 600.0
"""How long a worker with tasks of streaming queries waits for a connection."""
TASKS_MAX = 10_000
"""That are remembered. The queries of some have ended."""
HEAD_BYTES = 64 * 1024
QUERY_ID = "sql.streaming.queryId"
"""The local property of Spark."""
_INT = struct.Struct(">i")
_HEAD = struct.Struct(">iiii")
_TOLD = struct.Struct(">i36s")
_START_OF_INIT_MESSAGE = -8
"""`pyspark.serializers.SpecialLengths`. Behind it are the message's length, the task's number in its stage, the Python
version and the task's context as JSON, each text with its length before it."""


@dataclass(eq=False, slots=True)
class _Connection:
    """`pid`: of the process that was forked for it."""

    socket: socket.socket
    pid: int


@dataclass(eq=False, slots=True)
class _Worker:
    """`connection`: what it works on; None while it is idle. `is_free`: Spark knows no connection by it, and has no
    order to kill it on the way. `since_s`: when it became idle."""

    pid: int
    control: socket.socket
    connection: _Connection | None
    is_free: bool
    since_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Listening:
    """Where Spark connects. `path`: of a Unix domain socket, on which Spark says no secret."""

    socket: socket.socket
    path: str | None = None

    @classmethod
    def open(cls, environment: Mapping[str, str]) -> Listening:
        """As Spark's settings want it."""
        path = None
        if environment.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower() == "true":
            path = os.path.join(environment["PYTHON_WORKER_FACTORY_SOCK_DIR"], f".{uuid.uuid4()}.sock")
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(path)
        elif environment.get("SPARK_PREFER_IPV6", "false").lower() == "true":
            listening = socket.socket(socket.AF_INET6)
            listening.bind(("::1", 0))
        else:
            listening = socket.socket(socket.AF_INET)
            listening.bind(("127.0.0.1", 0))
        listening.listen(BACKLOG)
        return cls(listening, path)

    @property
    def address(self) -> bytes:
        """As Spark reads it from the daemon's output."""
        if self.path is None:
            return _INT.pack(self.socket.getsockname()[1])
        path = self.path.encode()
        return _INT.pack(len(path)) + path

    def close(self) -> None:
        self.socket.close()
        if self.path is not None:
            with suppress(OSError):
                os.remove(self.path)


class WorkerPool:
    """`work` runs in the forked processes; `says` prints the exception that ends one."""

    def __init__(self, listening: Listening, work: Work, says: Callable[[], None], *, reuses: bool) -> None:
        self._listening = listening
        self._work = work
        self._says = says
        self._reuses = reuses
        self._idle: dict[int, _Connection] = {}
        self._workers: dict[int, _Worker] = {}
        self._ran: dict[Task, _Worker] = {}  # who ran it last; the latest ones at the end
        self._selector = selectors.PollSelector()
        self._accepts_from_s = 0.0
        """Spark's next connection is taken no sooner."""

    def serve(self) -> None:
        """Returns when Spark has closed the daemon's standard input."""
        self._selector.register(0, selectors.EVENT_READ)
        while True:
            if self._listening.socket not in self._selector.get_map() and monotonic_s() >= self._accepts_from_s:
                self._selector.register(self._listening.socket, selectors.EVENT_READ)
            ready = {key.fd for key, _ in self._selector.select(POLL_S)}
            if 0 in ready:
                told = os.read(0, BACKLOG * _INT.size)
                if len(told) < _INT.size:
                    return
                # All of them, before a new connection is known by one of these processes.
                for (pid,) in _INT.iter_unpack(told):
                    self._kill(pid)
            # First the workers that have ended or have become idle, then what there is for them to do.
            for descriptor in ready & self._workers.keys():
                self._hear(self._workers[descriptor])
            for descriptor in ready & self._idle.keys():
                self._hand_on(self._idle[descriptor])
            if self._listening.socket.fileno() in ready:
                self._accept()
            self._end_surplus()

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.socket.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                # It stays ready until another connection is closed. Meanwhile Spark may want a worker killed.
                self._selector.unregister(self._listening.socket)
                self._accepts_from_s = monotonic_s() + FORK_AGAIN_S
            return
        spare = self._spare()
        if spare is None:
            self._fork(_Connection(connection, 0))
            return
        spare.is_free = False
        with suppress(OSError):  # if Spark has closed it, the next look finds that
            connection.sendall(_INT.pack(spare.pid))
        self._put_idle(_Connection(connection, spare.pid))

    def _spare(self) -> _Worker | None:
        """A free worker that has no connection to wait for. On other than Unix domain sockets, a new connection has to
        go to a worker at once, which reads the secret."""
        idle = self._idle_workers()
        if self._listening.path is None or len(idle) <= len(self._idle):
            return None
        return next((worker for worker in idle if worker.is_free and _is_alive(worker)), None)

    def _idle_workers(self) -> list[_Worker]:
        return [worker for worker in self._workers.values() if worker.connection is None]

    def _free(self, pid: int) -> None:
        for worker in self._workers.values():
            worker.is_free |= worker.pid == pid

    def _hand_on(self, connection: _Connection) -> None:
        """To the worker of the task that has come. If Spark has closed the connection, nobody needs it."""
        try:
            head = connection.socket.recv(HEAD_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:  # its descriptor was another's when `select` looked
            return
        except OSError:
            head = b""
        self._forget_idle(connection)
        if not head:
            self._free(connection.pid)
            connection.socket.close()
            return
        task = _task_of(head)
        while (worker := self._idle_worker(task)) is not None:
            # The control socket of one that has ended is open while a process lives that it has forked.
            if _is_alive(worker):
                with suppress(OSError):
                    socket.send_fds(worker.control, [b"."], [connection.socket.fileno()])
                    connection.socket.close()
                    worker.connection = connection
                    return
            self._discard(worker)
        self._fork(connection)

    def _put_idle(self, connection: _Connection) -> None:
        self._idle[connection.socket.fileno()] = connection
        self._selector.register(connection.socket, selectors.EVENT_READ)

    def _forget_idle(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        del self._idle[connection.socket.fileno()]

    def _idle_worker(self, task: Task | None) -> _Worker | None:
        """The one that ran the task, else the one that would leave the fewest tasks to others."""
        before = None if task is None else self._ran.get(task)
        if before is not None:
            self._hear(before)  # it may have become idle since `select`
        idle = self._idle_workers()
        return before if before in idle else min(idle, key=self._tasks, default=None)

    def _tasks(self, worker: _Worker) -> int:
        return sum(one is worker for one in self._ran.values())

    def _hear(self, worker: _Worker) -> None:
        """It may have ended, or have given its connection back."""
        try:
            said, descriptors, _, _ = socket.recv_fds(worker.control, _TOLD.size, 1)
        except BlockingIOError:
            return
        except OSError:
            said, descriptors = b"", []
        if len(said) < _TOLD.size or not descriptors or worker.connection is None:
            for descriptor in descriptors:
                os.close(descriptor)
            self._discard(worker)
            return
        number, query = _TOLD.unpack(said)
        if query := query.rstrip(b"\0"):
            self._ran.pop((query, number), None)
            self._ran[query, number] = worker
            if len(self._ran) > TASKS_MAX:
                del self._ran[next(iter(self._ran))]
        connection, worker.connection, worker.since_s = worker.connection, None, monotonic_s()
        connection.socket = _received(descriptors[0])
        self._put_idle(connection)

    def _discard(self, worker: _Worker) -> None:
        """It ends if it has not: an idle worker waits for the other end of its control socket."""
        self._selector.unregister(worker.control)
        del self._workers[worker.control.fileno()]
        worker.control.close()
        self._ran = {number: one for number, one in self._ran.items() if one is not worker}

    def _end_surplus(self) -> None:
        """Ends idle workers that have no connection to wait for. Spark takes a connection for dead if the process that
        it knows it by has ended: these stay longest."""
        idle = self._idle_workers()
        if len(idle) <= len(self._idle):
            return
        kept = set(self._ran.values()) if self._listening.path is not None else set()
        idle.sort(key=lambda worker: (not worker.is_free, self._tasks(worker)))
        for worker in idle[: len(idle) - len(self._idle)]:
            if worker not in kept or monotonic_s() > worker.since_s + KEPT_S:
                self._discard(worker)

    def _kill(self, pid: int) -> None:
        """Spark does not want the task any more that it sent by the connection of this process."""
        self._free(pid)
        for worker in list(self._workers.values()):
            self._hear(worker)  # it may have become idle since `select`
            if worker.connection is not None and worker.connection.pid == pid:
                with suppress(OSError):
                    os.kill(worker.pid, signal.SIGKILL)
                return
        for connection in list(self._idle.values()):
            if connection.pid == pid:
                self._forget_idle(connection)
                connection.socket.close()

    def _fork(self, connection: _Connection) -> None:
        """A worker for a connection, which is a new one if its process is not known yet."""
        control = others = None
        try:
            control, others = socket.socketpair()
            control.setblocking(False)
            pid = _forked()
        except OSError as error:
            print(f"cannot start a worker process: {error}", file=sys.stderr)
            if not connection.pid:
                with suppress(OSError):
                    connection.socket.sendall(_INT.pack(-1))  # Spark then fails the task, and says why
            for one in filter(None, (control, others, connection.socket)):
                one.close()
            return
        if pid == 0:
            self._listening.socket.close()
            for one in (control, *(idle.socket for idle in self._idle.values())):
                one.close()
            for worker in self._workers.values():
                worker.control.close()
            self._selector.close()
            self._run(connection, others)
        others.close()
        connection.socket.close()
        connection.pid = connection.pid or pid
        self._workers[control.fileno()] = _Worker(pid, control, connection, is_free=pid != connection.pid)
        self._selector.register(control, selectors.EVENT_READ)

    def _run(self, connection: _Connection, control: socket.socket) -> NoReturn:
        """In the forked process, until it ends."""
        from pyspark.util import enable_faulthandler

        try:
            with enable_faulthandler():
                # Descriptor 0 stays taken: a file that a program opens would become its standard input.
                nothing = os.open(os.devnull, os.O_RDONLY)
                os.dup2(nothing, 0)
                os.close(nothing)
                is_trusted = True
                if connection.pid == 0:
                    connection.socket.sendall(_INT.pack(os.getpid()))
                    is_trusted = self._listening.path is not None
                self._run_tasks(connection.socket, control, is_trusted)
        except BaseException:  # noqa: BLE001 - a worker ends here, whatever it is
            self._says()
            os._exit(1)
        os._exit(0)

    def _run_tasks(self, connection: socket.socket, control: socket.socket, is_trusted: bool) -> None:
        from pyspark.core.broadcast import _broadcastRegistry

        tasks = _tasks_of_spark()
        while self._work(connection, is_trusted) == 0 and self._reuses:
            is_trusted = True
            # If a process crashes, Spark looks for its traceback by the number that it knows the connection by.
            keeps = _broadcastRegistry or "PYTHON_FAULTHANDLER_DIR" in os.environ
            if keeps or not tasks or _is_held(connection):
                gc.collect()
                continue
            with connection, suppress(OSError):
                query, number = tasks.pop()
                socket.send_fds(control, [_TOLD.pack(number, query)], [connection.fileno()])
            gc.collect()  # its next task waits for this rather than go to another
            _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if not descriptors:
                return
            connection = _received(descriptors[0])
        with suppress(OSError):
            while connection.recv(1024):
                pass


def _forked() -> int:
    try:
        return os.fork()
    except BlockingIOError:  # there are as many processes as there may be, and some may end
        sleep_s(FORK_AGAIN_S)
        return os.fork()


def _received(descriptor: int) -> socket.socket:
    """As `accept` makes a connection: a program that a task starts does not get it. It blocks, though a task may have
    set a default time-out (`socket.setdefaulttimeout`)."""
    os.set_inheritable(descriptor, False)
    connection = socket.socket(fileno=descriptor)
    connection.settimeout(None)
    return connection


def _is_alive(worker: _Worker) -> bool:
    try:
        os.kill(worker.pid, 0)
    except OSError:
        return False
    return True


def _task_of(head: bytes) -> Task | None:
    """The task that Spark has begun to send; None: it is of no streaming query, or too little of it has come."""
    try:
        message, _, number, length = _HEAD.unpack_from(head)
        start = _HEAD.size + length + _INT.size
        (size,) = _INT.unpack_from(head, start - _INT.size)
        if message != _START_OF_INIT_MESSAGE:
            return None
        return json.loads(head[start : start + size])["localProperties"][QUERY_ID].encode(), number
    except (struct.error, ValueError, LookupError, TypeError, AttributeError):
        return None


def _tasks_of_spark() -> deque[Task]:
    """Has the task that has begun last. PySpark forgets a task's context at its end."""
    from pyspark import TaskContext

    found: deque[Task] = deque(maxlen=1)
    set_context = TaskContext._setTaskContext.__func__  # type: ignore[attr-defined]

    def note(cls: type[TaskContext], context: TaskContext | None) -> None:
        if context is not None:
            query = context.getLocalProperty(QUERY_ID) or ""
            found.append((query.encode(), context.partitionId()))
        set_context(cls, context)

    TaskContext._setTaskContext = classmethod(note)  # type: ignore[assignment, method-assign]
    return found


def _is_held(connection: socket.socket) -> bool:
    """Whether this process has more descriptors of it: of a task that left a reader behind, until it is collected."""
    wanted, count = os.fstat(connection.fileno()), 0
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):
            count += os.path.samestat(os.fstat(int(name)), wanted)
    return count > 1


def serve(work: Work, says: Callable[[], None]) -> NoReturn:
    """Runs the daemon. Its processes are a group, which ends with it."""
    os.setpgid(0, 0)
    listening = Listening.open(os.environ)
    os.write(1, listening.address)
    daemon = os.getpid()

    def end(code: int) -> NoReturn:
        if os.getpid() == daemon:
            listening.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(0, signal.SIGHUP)
        sys.exit(code)

    signal.signal(signal.SIGTERM, lambda *_: end(1))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    pool = WorkerPool(listening, work, says, reuses=bool(os.environ.get("SPARK_REUSE_WORKER")))
    try:
        pool.serve()
    except SystemExit:  # of `end`
        raise
    except BaseException:
        if os.getpid() == daemon:
            says()
            end(1)
        raise
    end(0)
