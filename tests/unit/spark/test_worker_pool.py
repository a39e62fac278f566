"""The daemon of Spark's workers, with a test in Spark's place: which process runs a task, who is killed, who ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.waiting import wait_until

from suiro.spark.worker_pool import QUERY_ID

TIMEOUT_S = 60
QUERY, OTHER = "9dff1e7c-0a4f-4cf6-8d1a-6f0f2c7a1a11", "0c1f5f0e-4f3b-4f57-9c1c-3f6c0f1b2c22"
PROGRAM = """
import json, os, signal, socket, struct, sys
from types import SimpleNamespace
from pyspark import TaskContext
from pyspark.core.broadcast import _broadcastRegistry
from suiro.spark import worker_pool

held = []

def work(connection, is_trusted):
    head = connection.recv(8)
    if not head:
        return 1
    data = connection.recv(struct.unpack(">ii", head)[1], socket.MSG_WAITALL)
    number, version = struct.unpack(">ii", data[:8])
    query, what = json.loads(data[12 + version : -1])["localProperties"].get(worker_pool.QUERY_ID), data[-1:]
    TaskContext._setTaskContext(SimpleNamespace(partitionId=lambda: number, getLocalProperty=lambda name: query))
    connection.sendall(struct.pack(">i", os.getpid()))
    if what == b"w":
        connection.recv(1)
    elif what == b"b":
        _broadcastRegistry[1] = "a variable"
    elif what == b"h":
        held.append(os.dup(connection.fileno()))
    elif what == b"d":
        _broadcastRegistry.clear()
        while held:
            os.close(held.pop())
    elif what == b"t":
        socket.setdefaulttimeout(0.001)
    elif what == b"f" and os.fork() == 0:
        connection.close()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.pause()
    elif what == b"x":
        os._exit(3)
    elif what == b"c":
        is_as_accepted = os.get_blocking(connection.fileno()) and not os.get_inheritable(connection.fileno())
        connection.sendall(b"y" if is_as_accepted else b"n")
    TaskContext._setTaskContext(None)  # as PySpark does
    connection.sendall(b"e")
    return 0

def failing(function, name):
    failures = [int(number) for number in os.environ.get(name, "").split()]

    def call(*arguments):
        if failures and (number := failures.pop(0)):
            raise OSError(number, "")
        return function(*arguments)

    return call

worker_pool.FORK_AGAIN_S = float(os.environ.get("AGAIN_S", "0.01"))
os.fork = failing(os.fork, "FORKS")
socket.socketpair = failing(socket.socketpair, "PAIRS")
socket.socket.accept = failing(socket.socket.accept, "ACCEPTS")
worker_pool.serve(work, lambda: os.write(1, b"an exception"))
"""


class Spark:
    def __init__(self, **environment: str) -> None:
        self.daemon = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "SPARK_REUSE_WORKER": "1", **environment},
        )  # fmt: skip
        assert self.daemon.stdout is not None
        (self._number,) = struct.unpack(">i", self.daemon.stdout.read(4))
        self._address: str | tuple[str, int] = ("127.0.0.1", self._number)
        if "PYTHON_UNIX_DOMAIN_ENABLED" in environment:
            self._address = self.daemon.stdout.read(self._number).decode()
        self._open = ExitStack()

    def connect(self) -> Connection:
        family = socket.AF_UNIX if isinstance(self._address, str) else socket.AF_INET
        connection = self._open.enter_context(socket.socket(family))
        connection.settimeout(TIMEOUT_S)
        connection.connect(self._address)
        return Connection(connection)

    def kill(self, connection: Connection) -> None:
        assert self.daemon.stdin is not None
        self.daemon.stdin.write(struct.pack(">i", connection.pid))
        self.daemon.stdin.flush()

    def close(self) -> None:
        self._open.close()
        self.daemon.communicate(timeout=TIMEOUT_S)


class Connection:
    """`pid`: by which Spark knows it."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.pid = self._pid()

    def start(self, number: int, what: bytes = b"r", query: str | None = QUERY) -> int:
        """The process that runs the task. `query`: its streaming query."""
        properties = {"spark.app.name": "a test", **({} if query is None else {QUERY_ID: query})}
        texts = b"3.14", json.dumps({"isBarrier": False, "localProperties": properties}).encode()
        data = struct.pack(">i", number) + b"".join(struct.pack(">i", len(text)) + text for text in texts) + what
        self.socket.sendall(struct.pack(">ii", -8, len(data)) + data)
        return self._pid()

    def finish(self, what: bytes = b"") -> bytes:
        try:
            self.socket.sendall(what)
            return self.socket.recv(1)
        except ConnectionError:
            return b""

    def run(self, number: int, what: bytes = b"r", query: str | None = QUERY) -> int:
        found = self.start(number, what, query)
        assert self.finish() == b"e"
        wait_until(lambda: is_idle(found), what="an idle process")
        return found

    def _pid(self) -> int:
        pid: int = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))[0]
        return pid


@pytest.fixture
def spark() -> Iterator[Spark]:
    found = Spark()
    yield found
    found.close()


def test_a_task_comes_to_the_process_that_ran_it_before(spark: Spark) -> None:
    connections = [spark.connect() for _ in range(3)]
    ran = [connection.run(number) for number, connection in enumerate(connections)]
    assert ran == [connection.pid for connection in connections]
    for first in (1, 2, 0):
        assert [connections[(first + number) % 3].run(number) for number in range(3)] == ran
    # A new number goes to a process that was not needed for others.
    assert connections[0].run(1) == connections[1].run(4) or connections[2].run(5) in ran


def test_queries_do_not_take_the_processes_of_each_other(spark: Spark) -> None:
    """Tasks of both have the same numbers; so have jobs of no streaming query."""
    one, two = spark.connect(), spark.connect()
    first = one.start(0, b"w")
    second = two.run(0, query=OTHER)
    assert one.finish(b".") == b"e"
    wait_until(lambda: is_idle(first), what="an idle process")
    for connection in (two, one, one, two):
        connection.run(0, query=None)
        assert connection.run(0) == first
        assert connection.run(0, query=OTHER) == second


def test_a_task_does_not_wait_for_a_process_that_is_busy(spark: Spark) -> None:
    one, two = spark.connect(), spark.connect()
    first, second = one.run(0), two.run(1)
    assert two.start(0, b"w") == first
    assert one.run(0) == second
    assert two.finish(b".") == b"e"
    wait_until(lambda: is_idle(first), what="an idle process")
    assert two.run(0) == first, "who ran it last"


def test_spark_kills_the_process_that_has_the_connection(spark: Spark) -> None:
    one, two = spark.connect(), spark.connect()
    first, second = one.run(0), two.run(1)
    assert one.start(1, b"w") == second
    assert two.start(0, b"w") == first
    spark.kill(one)
    assert one.finish() == b"", "a connection that nobody has is closed"
    assert two.finish(b".") == b"e"
    assert two.run(1) == first


def test_an_idle_connection_that_spark_kills_is_closed(spark: Spark) -> None:
    one, two = spark.connect(), spark.connect()
    first, second = one.run(0), two.run(1)
    spark.kill(two)
    assert two.socket.recv(1) == b""
    wait_until(lambda: not is_running(second), what="the end of the process that nobody needs")
    assert one.run(1) == first


def test_a_process_that_ends_takes_no_other_with_it(spark: Spark) -> None:
    one, two = spark.connect(), spark.connect()
    first, second = one.run(0), two.run(1)
    os.kill(second, signal.SIGKILL)
    wait_until(lambda: not is_running(second), what="the end of the killed process")
    assert one.start(0, b"w") == first
    assert two.run(1) not in (first, second), "its idle connection has a new process"
    assert two.start(1, b"x") != first
    assert two.finish() == b"", "and is closed if that one ends, though others were forked since"
    assert one.finish(b".") == b"e"
    assert one.run(1) == first


def test_a_process_that_has_ended_gets_no_task_though_one_that_it_forked_lives(spark: Spark) -> None:
    """It has the control socket, too. A task that went there was never run."""
    one, two = spark.connect(), spark.connect()
    first, second = one.run(0), two.run(1, b"f")
    os.kill(second, signal.SIGKILL)
    wait_until(lambda: not is_running(second), what="the end of the killed process")
    assert one.run(1) == first


@pytest.mark.parametrize("what", [pytest.param(b"b", id="variables"), pytest.param(b"h", id="descriptors")])
def test_a_process_keeps_its_connection_while_it_has_its(spark: Spark, what: bytes) -> None:
    one, two = spark.connect(), spark.connect()
    first, second = one.run(0), two.start(1, what)
    assert two.finish() == b"e"
    assert one.run(1) == first
    assert two.start(0) == second
    assert two.finish() == b"e"
    assert two.run(0, b"d") == second
    assert one.run(0) == second, "until they are gone"
    assert two.run(1) == first


def test_a_connection_that_was_handed_on_is_as_a_new_one(spark: Spark) -> None:
    """Whatever a task has set for its own connections, and for programs that a later task starts."""
    connection = spark.connect()
    connection.run(0, b"t")
    connection.start(0, b"c")
    assert connection.finish() == b"y"


def test_processes_end_with_their_connections(spark: Spark) -> None:
    connections = [spark.connect() for _ in range(3)]
    ran = [connection.run(number) for number, connection in enumerate(connections)]
    connections[1].socket.close()
    wait_until(lambda: not is_running(ran[1]), what="the end of one process")
    assert connections[0].run(2) == ran[2], "the others stay"
    for connection in connections:
        connection.socket.close()
    wait_until(lambda: not any(map(is_running, ran)), what="the end of all")


def test_the_daemon_that_spark_terminates_says_nothing(spark: Spark) -> None:
    pid = spark.connect().run(0)
    spark.daemon.terminate()
    assert spark.daemon.stdout is not None
    assert spark.daemon.stdout.read() == b""
    wait_until(lambda: not is_running(pid), what="the end of its process")


def test_a_process_whose_traceback_spark_looks_for_keeps_its_connection(tmp_path: Path) -> None:
    """`spark.python.worker.faulthandler.enabled`: it is in a file named after the process that Spark knows."""
    spark = Spark(PYTHON_FAULTHANDLER_DIR=str(tmp_path))
    one, two = spark.connect(), spark.connect()
    for connection, number in ((one, 0), (two, 1), (one, 1), (two, 0)):
        assert connection.start(number) == connection.pid
        assert connection.finish() == b"e"
    spark.close()


def test_a_process_that_cannot_be_forked_is_tried_again_or_told_of() -> None:
    """PySpark's daemon tries again, too, where there are too many processes. With too many files it ends."""
    full = str(errno.EMFILE)
    spark = Spark(FORKS=f"{errno.EAGAIN} 0 {errno.ENOMEM}", PAIRS=f"0 0 {full}", ACCEPTS=f"{full} {full}")
    one = spark.connect()
    assert one.run(0) == one.pid
    assert spark.connect().pid < 0
    assert spark.connect().pid < 0
    assert one.run(0) == one.pid
    spark.close()


def test_a_worker_is_killed_although_there_is_no_descriptor_for_another_connection() -> None:
    spark = Spark(ACCEPTS=f"0 {errno.EMFILE}", AGAIN_S="600")
    one = spark.connect()
    assert one.start(0, b"w") == one.pid
    with socket.socket() as another:
        another.connect(("127.0.0.1", spark._number))
        spark.kill(one)
        assert one.finish() == b""
    spark.close()


def test_without_reuse_each_process_runs_one_task() -> None:
    spark = Spark(SPARK_REUSE_WORKER="")
    connection = spark.connect()
    pid = connection.start(0)
    assert connection.finish() == b"e"
    connection.socket.close()
    wait_until(lambda: not is_running(pid), what="the end of the process")
    spark.close()


def test_unix_domain_sockets(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("s")
    spark = Spark(PYTHON_UNIX_DOMAIN_ENABLED="true", PYTHON_WORKER_FACTORY_SOCK_DIR=str(folder))
    one, two = spark.connect(), spark.connect()
    ran = one.run(0), two.run(1)
    assert (two.run(0), one.run(1)) == ran
    spark.close()
    assert not list(folder.iterdir())


def test_a_process_outlives_the_connections_that_spark_closes_when_nothing_runs(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Spark does so after a minute. Another connection is known by that process then, which can be killed by it."""
    folder = tmp_path_factory.mktemp("s")
    spark = Spark(PYTHON_UNIX_DOMAIN_ENABLED="true", PYTHON_WORKER_FACTORY_SOCK_DIR=str(folder))
    connections = [spark.connect() for _ in range(3)]
    first, second = (connection.run(number) for number, connection in enumerate(connections[:2]))
    third = connections[2].run(0, query=None)
    for connection in connections:
        connection.socket.close()
    wait_until(lambda: not is_running(third), what="the end of the process that has run no task of a query")
    one, two, three = (spark.connect() for _ in range(3))
    assert {one.pid, two.pid} == {first, second}
    assert three.pid not in (first, second, third)
    assert (one.run(1), two.run(0)) == (second, first)
    assert two.start(1, b"w") == second
    spark.kill(two)
    assert two.finish() == b""
    assert one.run(0) == first
    spark.close()


def test_an_order_to_kill_that_comes_late_kills_no_other_task(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Spark gives it two seconds after it has interrupted a task, whose process may have ended by then."""
    folder = tmp_path_factory.mktemp("s")
    spark = Spark(PYTHON_UNIX_DOMAIN_ENABLED="true", PYTHON_WORKER_FACTORY_SOCK_DIR=str(folder))
    one, two = spark.connect(), spark.connect()
    one.run(0)
    second = two.run(1)
    assert one.start(1, b"x") == second
    assert one.finish() == b""
    wait_until(lambda: not is_running(second), what="the end of the process")
    two.socket.close()
    three = spark.connect()
    three.start(0, b"w")
    spark.kill(one)
    spark.connect()
    assert three.finish(b".") == b"e"
    spark.close()


def is_idle(pid: int) -> bool:
    """It has its control socket only, and no connection."""
    try:
        files = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except FileNotFoundError:  # one was just closed
        return False
    return sum(name.startswith("socket:") for name in files) == 1


def is_running(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
