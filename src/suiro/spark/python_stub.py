"""Spark starts this program instead of Python: `python -I -S python_stub.py PYTHON ARGUMENTS...`.

It asks `python_server` for a process that has everything imported, and stays beside it, for Spark to wait for and to
kill; that process ends with Spark. Where there is no server, or it refuses, this one becomes the Python that was meant.
Only the standard library, and little of it: it is loaded by each of the processes that should start in no time.
"""

from __future__ import annotations

import array
import os
import signal
import socket
import sys
import time

SERVER = "SUIRO_PYTHON_SERVER"  # where it listens, in the environment of Spark's JVM
# Of several programs on one JVM (`shared_jvm`), each has its own: where its processes run, and what they say.
FOLDER = "SUIRO_PYTHON_FOLDER"
LOG = "SUIRO_PYTHON_LOG"
NUMBER_BYTES = 8
ANSWER_S = 8.0  # a server that has just been started is still importing; Spark waits for 10 s
LOOK_S = 1.0  # how often it is seen that Spark is gone
CHATTY = "pyspark.sql.streaming.transform_with_state_driver_worker"
"""Runs code of ours only, and prints what it does. Spark sends that to the user's terminal."""
STREAMING = "pyspark.sql.streaming."
QUIETLY = """\
import runpy, sys
from suiro.spark.worker_daemon import ends_with_its_task
ends_with_its_task(runpy.run_module)(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""Runs a module that Spark starts for a query. The server ends with the driver, and Spark soon after it."""
SENT_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    python, arguments = sys.argv[1], sys.argv[2:]
    environment = dict(os.environ)
    address = environment.pop(SERVER, None)
    environment["PYTHONPATH"] = without_spark_archives(
        environment.get("PYTHONPATH", ""), environment.get("SPARK_HOME", "")
    )
    if CHATTY in arguments:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    _go_to_its_program(environment)
    if address is not None:
        # From the request on there may be a process that has to be told. Until its number is known, signals wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, SENT_ON)
        try:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(ANSWER_S)
            connection.connect(address)
            pid = asked(connection, arguments, environment)
        except OSError:
            pid = 0
        if pid:
            sys.exit(_beside(connection, pid))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SENT_ON)
    if arguments[:1] == ["-m"] and arguments[1:] and arguments[1].startswith(STREAMING):
        arguments = ["-c", QUIETLY, *arguments[1:]]
    os.execve(python, [python, *arguments], environment)


def _go_to_its_program(environment: dict[str, str]) -> None:
    if log := environment.get(LOG):
        said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(said, 2)
        os.close(said)
    if folder := environment.get(FOLDER):
        os.chdir(folder)


def without_spark_archives(python_path: str, spark_home: str) -> str:
    """Spark puts its `pyspark.zip` in front, whose sources every process compiles anew: 0.6 s of CPU. The same PySpark
    is among the interpreter's packages, compiled."""
    archives = os.path.join(spark_home, "python", "lib")
    kept = [
        item
        for item in python_path.split(os.pathsep)
        if not (item.endswith(".zip") and os.path.dirname(item) == archives)
    ]
    return os.pathsep.join(kept)


def request_of(arguments: list[str], environment: dict[str, str]) -> bytes:
    """Arguments, an empty one, the folder, then NAME=VALUE: none of them can hold a zero byte."""
    texts = [*arguments, "", os.getcwd(), *(f"{name}={value}" for name, value in environment.items())]
    return b"\0".join(os.fsencode(text) for text in texts)


def asked(connection: socket.socket, arguments: list[str], environment: dict[str, str]) -> int:
    """The server's answer: the process that was forked, or 0 where it refuses."""
    request = request_of(arguments, environment)
    descriptors = array.array("i", [0, 1, 2])
    size = len(request).to_bytes(NUMBER_BYTES, "big")
    connection.sendmsg([size], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    connection.sendall(request)
    return int.from_bytes(connection.recv(NUMBER_BYTES), "big")


def _beside(connection: socket.socket, pid: int) -> int:
    """Until it has ended: its exit code. What is sent to this process is sent on to it."""

    def send_on(number: int, _: object) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # it has ended, and the server is about to tell

    for number in SENT_ON:
        signal.signal(number, send_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SENT_ON)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # they are the other's; here they would keep pipes open that it has closed
        os.dup2(nothing, descriptor)
    connection.settimeout(LOOK_S)
    spark, is_served = os.getppid(), True
    while True:
        if is_served:
            try:
                told = connection.recv(NUMBER_BYTES)
            except TimeoutError:
                pass
            except OSError:
                is_served = False
            else:
                if told:
                    return int.from_bytes(told, "big")
                is_served = False  # the server is gone, and the process need not be
        else:
            time.sleep(LOOK_S)
        try:
            os.kill(pid, 0 if os.getppid() == spark else signal.SIGTERM)
        except OSError:
            return 1


if __name__ == "__main__":
    main()
