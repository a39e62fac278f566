"""A slow broker slows the sink, and neither fails it nor costs it a record: stalled, and throttled by a quota."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.admin import ask
from support.batches import batch_of, read_all
from support.waiting import wait_until
from support.wire import Wire

from suiro.client import Client, NewTopic
from suiro.client.connection import Connection
from suiro.node import NodeProcess
from suiro.spark.committer import MARKER_TOPIC, Committer, Destination, MicroBatch, Outcome
from suiro.spark.decide import Plan

NO_TIME = timedelta(0)
SETTINGS = {"request.timeout.ms": 150, "socket.connection.setup.timeout.ms": 150, "retry.backoff.ms": 10}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """Of its own: it is stopped in its tracks, and its quotas change."""
    with NodeProcess.start(data=tmp_path / "node", listen="127.0.0.1:0") as process:
        yield process


class Rows:
    """Two batches of one partition."""

    partitions = (("out", 0),)

    def __init__(self, number: int, *, padding: str = "") -> None:
        self._values = [f"{number}{half}{padding}" for half in "ab"]

    def batches(self) -> Iterator[tuple[str, int, bytes, int]]:
        for value in self._values:
            yield "out", 0, batch_of(value), 1


def micro_batch(number: int, *, padding: str = "") -> MicroBatch:
    plan = Plan(batch_id=number, lineage="q", run_id="r", start_digest="", end_digest=f"{number}")
    return MicroBatch(plan=plan, writes=Rows(number, padding=padding))


def prepared(client: Client) -> Committer:
    client.create_topics([NewTopic("out", 1), NewTopic(MARKER_TOPIC, 1)])
    return Committer(client, Destination(application_id="app"))


@pytest.mark.parametrize(
    "stalls_for_s", [0.5, pytest.param(30.0, marks=pytest.mark.soak, id="longer than a request's deadline")]
)
def test_a_node_that_stands_still(node: NodeProcess, stalls_for_s: float) -> None:
    """At each step of a micro-batch once. Its requests run into their deadline and are sent again."""
    points = [
        "after_fence",
        "after_add_partitions",
        "after_first_produce",
        "after_produce",
        "after_commit_offsets",
    ]
    waking: list[threading.Timer] = []
    with Client(node.bootstrap_servers, settings=SETTINGS) as client:
        committer = prepared(client)

        def stall(point: str, number: int) -> None:
            if number < len(points) and point == points[number]:
                os.kill(node.pid, signal.SIGSTOP)
                waking.append(threading.Timer(stalls_for_s, os.kill, (node.pid, signal.SIGCONT)))
                waking[-1].start()

        committer._reach = stall
        try:
            for number in range(len(points)):
                assert committer.process(micro_batch(number)) is Outcome.PRODUCED
        finally:
            for timer in waking:
                timer.cancel()
            os.kill(node.pid, signal.SIGCONT)
    assert len(waking) == len(points)
    with Client(node.bootstrap_servers) as client:
        values = [f"{number}{half}" for number in range(len(points)) for half in "ab"]
        wait_until(lambda: read_all(client, "out") == values, what="every record once")


@pytest.mark.soak  # a throttle is seconds long
def test_a_quota(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node reads no further request for as long as its answer says; the sink waits for it."""
    throttled: list[timedelta] = []
    receive = Connection.receive

    def spy(self: Connection, *arguments: Any, **deadline: Any) -> Any:
        answer = receive(self, *arguments, **deadline)
        if getattr(answer, "throttle_time", NO_TIME) > NO_TIME:
            throttled.append(answer.throttle_time)
        return answer

    monkeypatch.setattr(Connection, "receive", spy)
    with Client(node.bootstrap_servers) as client, Wire(node.bootstrap_servers) as wire:
        committer = prepared(client)
        quota = {
            "entity": [{"entity_type": "client-id", "entity_name": None}],
            "ops": [{"key": "producer_byte_rate", "value": 7_000.0, "remove": False}],
        }
        (answer,) = ask(wire, "alter_client_quotas", 1, entries=[quota], validate_only=False)["entries"]
        assert answer["error_code"] == "none"
        for number in range(2):
            assert committer.process(micro_batch(number, padding="x" * 19_000)) is Outcome.PRODUCED
        assert throttled, "the quota was never reached"
        assert [value[:2] for value in read_all(client, "out")] == ["0a", "0b", "1a", "1b"]
