"""A node that may open few files: connections leave it what its logs need."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.batches import batch_of
from support.waiting import wait_until
from support.wire import TIMEOUT_S, Wire

from suiro.client import Client, NewTopic

HARD_LIMIT = 400


@dataclass(frozen=True)
class Limited:
    pid: int
    bootstrap_servers: str
    log: Path

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


@contextmanager
def limited_node(folder: Path) -> Iterator[Limited]:
    """`suiro node` as started by a shell with a low limit on open files, the soft one lower still."""
    command = [sys.executable, "-m", "suiro", "node", "--data", str(folder / "data")]
    command += ["--listen", "127.0.0.1:0", "--set", "log.segment.bytes=1048576"]
    limits = f'ulimit -Sn 100 && ulimit -Hn {HARD_LIMIT} && exec "$@"'
    log = folder / "node.log"
    with open(log, "wb") as errors:
        process = subprocess.Popen(["bash", "-c", limits, "bash", *command], stdout=subprocess.PIPE, stderr=errors)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield Limited(pid=process.pid, bootstrap_servers=ready["bootstrap"], log=log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


def test_silent_connections_leave_the_logs_their_files(tmp_path: Path) -> None:
    """They took every descriptor: producers were told KAFKA_STORAGE_ERROR, and creating a topic closed the
    connection."""
    with limited_node(tmp_path) as node, ExitStack() as stack:
        client = stack.enter_context(Client(node.bootstrap_servers))
        client.create_topics([NewTopic("before", 2)])
        wire = stack.enter_context(Wire(node.bootstrap_servers))
        assert wire.produce("before", batch_of("a")) == ("none", 0)

        host, _, port = node.bootstrap_servers.rpartition(":")
        silent = []
        for _ in range(HARD_LIMIT + 50):  # what does not come in waits in the backlog
            silent.append(stack.enter_context(socket.create_connection((host, int(port)), timeout=TIMEOUT_S)))
        wait_until(lambda: "and the next ones wait" in node.log.read_text())
        assert node.open_files < HARD_LIMIT * 3 / 4

        client.create_topics([NewTopic(f"during-{number}", 3) for number in range(20)])
        large = batch_of("x" * 200_000)
        for offset in range(1, 12):  # segments are rolled on the way
            for topic in ("before", "during-7"):
                code, _ = wire.produce(topic, large)
                assert code == "none", (topic, offset)

        for sock in silent:
            sock.close()
        with Wire(node.bootstrap_servers) as late:
            assert late.produce("before", batch_of("b")) == ("none", 12)
        said = node.log.read_text()
        assert f"this process may have {HARD_LIMIT} open files, which leaves 150 connections" in said
        assert "ERROR" not in said
