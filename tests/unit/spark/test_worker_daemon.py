"""PySpark's daemon as Spark starts it: workers whose connection Spark closes end without a word."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from itertools import product

import pytest
from support.share import one_of

SECRET = "secret"
GREETING = struct.pack(">i", len(SECRET)) + SECRET.encode()
SENT = {
    "no secret": b"",  # closed before the worker is asked who it is
    "no task": GREETING,  # and before its first task
    "half a task": GREETING + struct.pack(">i", 3) + b"3.",  # and within it
}


@pytest.mark.parametrize(
    ("closed", "is_reset"), one_of(2, product(("no secret", "no task", "half a task"), (True, False)))
)
def test_a_connection_that_spark_closes_is_no_error(closed: str, is_reset: bool) -> None:
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET, "SPARK_REUSE_WORKER": "1"}
    environment["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"  # as Spark sets it
    daemon = subprocess.Popen(
        [sys.executable, "-m", "suiro.spark.worker_daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert daemon.stdout is not None
    (port,) = struct.unpack(">i", daemon.stdout.read(4))
    workers = []
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            (pid,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            workers.append(pid)
            connection.sendall(SENT[closed])
            if is_reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for pid in workers:
        wait_for_end(pid)
    _, said = daemon.communicate(timeout=60)
    assert said == b""


def wait_for_end(pid: int) -> None:
    from support.waiting import wait_until

    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the end of the worker")
