"""The log is away for longer than any client has patience: a topology waits, goes on by itself, and can be stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.batches import batch_of, read_all

from suiro.client import Client, NewTopic
from suiro.node import NodeProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

APP = """
from suiro.streams import serdes

def build(builder):
    words = builder.stream("in", key=serdes.string, value=serdes.string)
    words.to("out")
    words.group_by(lambda key, value: value).count().to_stream().to("counts")
"""
DEADLINE_S = 300.0  # the first word comes after `default.api.timeout.ms`


class Run:
    """`suiro run`, and the node that it needs."""

    def __init__(self, directory: Path) -> None:
        self._data, self._log = directory / "log", directory / "run.log"
        self._node = NodeProcess.start(data=self._data)
        self.bootstrap_servers = self._node.bootstrap_servers
        with Client(self.bootstrap_servers) as client:
            client.create_topics([NewTopic(name, 1) for name in ("in", "out", "counts")])
        (directory / "words.py").write_text(APP)
        command = [sys.executable, "-m", "suiro", "run", str(directory / "words.py")]
        command += ["--bootstrap-servers", self.bootstrap_servers, "--state-dir", str(directory / "state")]
        with self._log.open("wb") as output:
            self.process = subprocess.Popen([*command, "--emit", "every"], stderr=output)

    def produce(self, *values: str) -> None:
        with Client(self.bootstrap_servers) as client:
            client.produce({("in", 0): batch_of(*values)})

    def written(self, topic: str = "out") -> int:
        assert self.process.poll() is None, self.said()
        with Client(self.bootstrap_servers) as client:
            return len(read_all(client, topic))

    def said(self) -> str:
        return self._log.read_text()

    def lose_the_log(self) -> None:
        self._node.kill()
        waits = "waiting for the log"
        wait_until(lambda: waits in self.said() or self.process.poll() is not None, DEADLINE_S, waits)

    def find_the_log(self) -> None:
        self._node = NodeProcess.start(data=self._data, listen=self.bootstrap_servers)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._node.kill()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    try:
        made.produce("a", "b", "a")
        wait_until(lambda: (made.written(), made.written("counts")) == (3, 3), DEADLINE_S, "the first records")
        made.lose_the_log()
        assert made.process.poll() is None, made.said()
        yield made
    finally:
        made.close()


def test_it_goes_on_by_itself_and_the_totals_are_exact(run: Run) -> None:
    run.find_the_log()
    run.produce("b", "a")
    wait_until(lambda: (run.written(), run.written("counts")) == (5, 5), DEADLINE_S, "the other records")
    with Client(run.bootstrap_servers) as client:
        assert read_all(client, "out") == ["a", "b", "a", "b", "a"]
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(60) == 0, run.said()


def test_a_stop_ends_the_wait(run: Run) -> None:
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(60) == 0, run.said()
