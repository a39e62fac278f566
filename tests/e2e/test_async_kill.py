"""A topology that calls a service, killed by kill -9 while the service is down: results are there once, in their order.

The service counts what it is asked. It goes down after some calls and comes back after the kill: calls are made again,
results are not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pytest
from support.spark_streams import Outputs
from support.spark_streams import by_key as grouped
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.protocol.records import Record, encode_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 2
RECORDS = 300
KEYS = 20
CALLS_BEFORE_DOWN = 150
DEADLINE_S = 240

APP = """
import httpx
from suiro.streams import serdes

application_id = "calling"
_client = None


def client():
    global _client
    if _client is None:
        _client = httpx.AsyncClient()
    return _client


async def answered(number):
    answer = await client().post("%(url)s", json=number)
    answer.raise_for_status()
    return answer.json()


def build(builder):
    numbers = builder.stream("in", key=serdes.string, value=serdes.json)
    numbers.map_values_async(answered, concurrency=20, retries=1000, backoff=20).to("out", value=serdes.json)
"""


class Service(ThreadingHTTPServer):
    """Answers with the double. Down: answers 503."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.is_down = False
        self.refused = 0
        self.answered: Counter[int] = Counter()
        self.order: list[int] = []
        self.lock = Lock()
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_POST(self) -> None:
        number = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            is_down = self.server.is_down = self.server.is_down or (
                not self.server.refused and self.server.answered.total() >= CALLS_BEFORE_DOWN
            )
            if is_down:
                self.server.refused += 1
            else:
                self.server.answered[number] += 1
                self.server.order.append(number)
        body = b"" if is_down else json.dumps(number * 2).encode()
        self.send_response(503 if is_down else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.mark.soak  # CI's time: two starts of Spark
def test_results_are_there_once_whatever_happens_to_the_service(suiro_node: Any, tmp_path: Path) -> None:
    service = Service()
    app = tmp_path / "calling_app.py"
    app.write_text(APP % {"url": service.url})
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics([NewTopic(name, PARTITIONS, configs={"retention.ms": "-1"}) for name in ("in", "out")])
        for partition in range(PARTITIONS):
            numbers = range(partition, RECORDS, PARTITIONS)
            client.produce({("in", partition): encode_batch([_record(n, at) for at, n in enumerate(numbers)])})
        first = _start(app, suiro_node.bootstrap_servers, tmp_path)
        try:
            wait_until(
                lambda: service.refused or first.poll() is not None,
                DEADLINE_S,
                "calls find it down",
                poll_s=0.1,
            )
            assert first.poll() is None, _log(tmp_path)
        finally:
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
        outputs = Outputs(client, ["out"], PARTITIONS)
        before = outputs.read()["out"]
        service.is_down = False
        second = _start(app, suiro_node.bootstrap_servers, tmp_path)
        try:
            assert second.wait(DEADLINE_S) == 0, _log(tmp_path)
        finally:
            if second.poll() is None:
                os.killpg(second.pid, signal.SIGKILL)
                second.wait()
        found = [*before, *outputs.read()["out"]]
    service.shutdown()
    by_key = {key: [json.loads(value or b"") for value, _ in values] for key, values in grouped(found).items()}
    assert by_key == {f"k{key}".encode(): [2 * n for n in range(key, RECORDS, KEYS)] for key in range(KEYS)}
    # What was under way at the kill was asked again, and nothing was asked for nothing.
    assert set(service.answered) == set(range(RECORDS))
    assert service.answered.total() > RECORDS
    _assert_in_order_of_keys(service.order)


def _record(number: int, offset: int) -> Record:
    return Record(offset=offset, timestamp=number, key=f"k{number % KEYS}".encode(), value=str(number).encode())


def _assert_in_order_of_keys(asked: list[int]) -> None:
    """The service saw a key's numbers one after the other; after the kill from where the transactions stood."""
    for key in range(KEYS):
        numbers = [number for number in asked if number % KEYS == key]
        back = [at for at in range(1, len(numbers)) if numbers[at] <= numbers[at - 1]]
        assert len(back) <= 1, (key, numbers)


def _start(app: Path, bootstrap: str, directory: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "suiro", "run", str(app), "--until-done"]
    command += ["--bootstrap-servers", bootstrap, "--state-dir", str(directory / "state")]
    with (directory / "driver.log").open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)


def _log(directory: Path) -> str:
    return (directory / "driver.log").read_text()[-4000:]
