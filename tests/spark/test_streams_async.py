"""Async functions and functions of batches on Spark: results as of one record after the other; calls end with it."""

from __future__ import annotations

import asyncio
import socketserver
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

import pytest
from support.spark_streams import Running, Sent, by_key, send
from support.waiting import wait_until

from suiro.streams import StreamsBuilder, serdes

pytestmark = pytest.mark.spark

DEADLINE_S = 60


class Silent(socketserver.ThreadingTCPServer):
    """Never answers, and counts who waits for it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Waits)
        self.lock = Lock()
        self.came = self.waiting = 0
        Thread(target=self.serve_forever, daemon=True).start()


class _Waits(socketserver.BaseRequestHandler):
    server: Silent

    def handle(self) -> None:
        with self.server.lock:
            self.server.came += 1
            self.server.waiting += 1
        try:
            while self.request.recv(1024):
                pass
        except ConnectionError:
            pass
        finally:
            with self.server.lock:
                self.server.waiting -= 1


def _squares(table: Any) -> Any:
    if 7 in table["value"].to_pylist():
        raise ValueError("seven")
    return [value * value for value in table["value"].to_pylist()]


def test_results_are_those_of_one_record_after_the_other(run: Callable[..., Running], name: str) -> None:
    async def looked_up(value: int) -> list[int]:
        for _ in range(value % 5):
            await asyncio.sleep(0)
        if value == 7:
            raise ValueError("seven")
        return [value, value * value]

    async def is_wanted(key: str, value: Any) -> bool:
        await asyncio.sleep(0)
        return key != "k1"

    builder = StreamsBuilder()
    numbers = builder.stream(f"{name}.in", key=serdes.string, value=serdes.json)
    found = numbers.map_values_async(looked_up, concurrency=4, value=serdes.json)
    found.filter_async(is_wanted).to(f"{name}.stateless")
    counts = numbers.filter(lambda key, value: value != 7).group_by_key().count().to_stream()
    counts.map_values_async(looked_up, order="none", value=serdes.json).to(f"{name}.stateful")
    numbers.map_batches(_squares, reads="int64", schema="int64", value=serdes.json).to(f"{name}.batches")
    topology = builder.build()
    sent = [Sent(f"{name}.in", f"k{n % 4}", n, n) for n in range(60) if n % 4 or n < 28]
    good = [each for each in sent if each.value != 7]
    with run(
        topology,
        name,
        before=sent,
        on_processing_error="skip",
        emit="every",
        max_offsets_per_trigger=25,
    ) as running:
        came = running.finish()
        # By key, a count of seven comes once; so does the number.
        seventh = {f"k{n}": 7 for n in range(4)}
        assert running.streams.dropped_records == {"processing error": 2 + len(seventh)}
    stateless = [(each.key, [each.value, each.value**2]) for each in good if each.key != "k1"]
    assert [(got.key, serdes.json.deserialize("", got.value or b"")) for got in came[f"{name}.stateless"]] == [
        (key.encode(), value) for key, value in stateless
    ]
    assert [serdes.json.deserialize("", got.value or b"") for got in came[f"{name}.batches"]] == [
        each.value**2 for each in good
    ]
    for key, rows in by_key(came[f"{name}.stateful"]).items():
        count = sum(each.key.encode() == key for each in good)
        assert [serdes.json.deserialize("", value or b"") for value, _ in rows] == [
            [n, n * n] for n in range(1, count + 1) if n != 7
        ]


@pytest.mark.parametrize("where", ["in a worker", "in the driver"])
def test_no_call_goes_on_when_the_application_is_stopped(where: str, run: Callable[..., Running], name: str) -> None:
    service = Silent()
    port = service.server_address[1]

    async def asked(value: int) -> int:
        if value:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await reader.readline()
            finally:
                writer.close()
        return value

    builder = StreamsBuilder()
    numbers = builder.stream(f"{name}.in", key=serdes.string, value=serdes.json)
    numbers.map_values_async(asked, timeout=None, value=serdes.json).to(f"{name}.out")
    first = 0 if where == "in the driver" else 1  # the first micro-batch of a run is always Spark's
    with run(
        builder.build(),
        name,
        before=[Sent(f"{name}.in", "a", first, 0), Sent(f"{name}.in", "b", first, 0)],
    ) as running:
        if where == "in the driver":
            running.finish()
            send(running.client, running.topology, [Sent(f"{name}.in", key, 1, 1) for key in "ab"])
        wait_until(lambda: service.waiting == 2, DEADLINE_S, "both calls are under way")
    wait_until(lambda: service.waiting == 0, DEADLINE_S, "the calls end")
    assert service.came == 2
    service.shutdown()
    service.server_close()
