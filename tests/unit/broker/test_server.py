"""What the listening sockets do when there is no descriptor left for a connection, and which connections are idle."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from suiro.broker.metrics.metrics import Metrics
from suiro.broker.net import server as module
from suiro.broker.net.connection import Connection
from suiro.broker.net.listeners import Listener, SecurityProtocol
from suiro.broker.net.server import Server, bind_socket
from suiro.broker.net.turns import MOST_OF_A_CLIENT, MOST_UNFINISHED
from suiro.clock import ManualClock
from suiro.config import NodeSettings
from suiro.errors import ConfigError

TURNS = 50


class Full:
    """A listening socket of a process that has no descriptor left."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.is_full = True
        self.refusals = 0

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.is_full:
            return self._sock.accept()
        self.refusals += 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()


def quiet_server(clock: ManualClock, settings: NodeSettings) -> Server:
    """It has no loop and listens nowhere."""
    return Server(
        loop=SimpleNamespace(),  # type: ignore[arg-type]
        sink=SimpleNamespace(),  # type: ignore[arg-type]
        clock=clock,
        metrics=Metrics(),
        settings=lambda: settings,
    )


def test_of_connections_that_are_refused_the_log_has_some_lines_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger who sends garbage a thousand times in a second filled the disk with lines."""
    clock = ManualClock()
    server = quiet_server(clock, NodeSettings())
    stranger: Any = SimpleNamespace(peer="10.0.0.1:7")
    for _ in range(1000):
        server.was_refused(stranger, "no API has the key 999")
    assert len(caplog.records) == 20
    assert caplog.messages[0] == "closing connection from 10.0.0.1:7: no API has the key 999"
    clock.advance(60_000)
    server.was_refused(stranger, "no API has the key 999")
    assert caplog.messages[20].endswith("(980 such lines were left out before it)")


def test_lines_that_the_log_does_not_have_take_no_place_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """At the level WARN, twenty connections over max.connections.per.ip hid each failed handshake for a minute."""
    server = quiet_server(ManualClock(), NodeSettings(max_connections_per_ip=0))
    refused: Any = SimpleNamespace(refused=SimpleNamespace(add=lambda: None))
    client: Any = SimpleNamespace(close=lambda: None)
    stranger: Any = SimpleNamespace(peer="10.0.0.1:7")
    with caplog.at_level("WARNING", logger=module.logger.name):
        for _ in range(30):
            server._take(refused, client, ("10.0.0.2", 7))
        server.was_refused(stranger, "the TLS handshake failed")
    assert caplog.messages == ["closing connection from 10.0.0.1:7: the TLS handshake failed"]


def test_out_of_descriptors_it_rests_and_takes_the_backlog_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket stays readable: without a rest the loop would do nothing but fail, and log it."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        settings = NodeSettings()
        server = Server(
            loop=loop,
            sink=SimpleNamespace(),  # type: ignore[arg-type]
            clock=ManualClock(),
            metrics=Metrics(),
            settings=lambda: settings,
        )
        listener = Listener(name="PLAINTEXT", protocol=SecurityProtocol.PLAINTEXT, host="127.0.0.1", port=0)
        server.listen([listener])
        (acceptor,) = server._acceptors.values()
        assert acceptor.socket is not None
        full = Full(acceptor.socket)
        acceptor.socket = full  # type: ignore[assignment]
        with socket.create_connection((server.listeners[0].host, server.listeners[0].port)):
            for _ in range(TURNS):
                await asyncio.sleep(0)
            assert full.refusals == 1
            assert not server.connections
            full.is_full = False
            server._open(acceptor)  # as its timer will do
            while not server.connections:
                await asyncio.sleep(0)
        server.close()

    monkeypatch.setattr(module, "ACCEPT_PAUSE_S", 3600.0)
    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_connection_is_not_idle_while_an_answer_or_a_request_is_on_its_way() -> None:
    """Over a slow line it takes longer than `connections.max.idle.ms`, and would never come to its end."""
    idle_ms = 1000
    answer = bytes(32 << 20)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        settings = NodeSettings(connections_max_idle_ms=idle_ms)
        clock = ManualClock()

        class Sink:
            def handle(self, connection: Connection, frame: memoryview) -> bool:
                connection.last_active_ms = clock.monotonic_ms()
                connection.send([answer])
                return True

        server = Server(loop=loop, sink=Sink(), clock=clock, metrics=Metrics(), settings=lambda: settings)
        server.listen([Listener(name="PLAINTEXT", protocol=SecurityProtocol.PLAINTEXT, host="127.0.0.1", port=0)])
        reader, writer = await asyncio.open_connection(
            server.listeners[0].host, server.listeners[0].port, limit=1 << 16
        )

        async def until(condition: Callable[[], bool]) -> None:
            while not condition():
                await asyncio.sleep(0)

        async def is_open_after(ms: int) -> bool:
            clock.advance(ms)
            server.close_idle()
            return bool(server.connections)

        writer.write((1000).to_bytes(4, "big") + bytes(500))
        await until(lambda: any(connection.has_not_begun() for connection in server.connections))
        (connection,) = server.connections
        assert await is_open_after(idle_ms)
        writer.write(bytes(400))
        await until(lambda: connection.last_active_ms == clock.monotonic_ms())
        assert await is_open_after(idle_ms)
        writer.write(bytes(100))
        await until(lambda: bool(connection._output))
        for _ in range(2):
            assert await is_open_after(idle_ms)
            await reader.readexactly(8 << 20)
            await until(lambda: connection.last_active_ms == clock.monotonic_ms())
        assert await is_open_after(idle_ms)
        assert not await is_open_after(1)
        writer.close()
        server.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(
    "large",
    [["127.0.0.1"] * MOST_OF_A_CLIENT, [f"10.0.0.{number}" for number in range(MOST_UNFINISHED)]],
    ids=["of the same client", "of other clients"],
)
def test_a_connection_is_not_idle_while_its_request_waits_for_those_of_others(large: list[str]) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        clock = ManualClock()
        settings = NodeSettings()

        class Sink:
            def handle(self, connection: Connection, frame: memoryview) -> bool:
                connection.send([b"answer"])
                return True

            def may_take_long(self, frame: memoryview) -> bool:
                return True

        server = Server(loop=loop, sink=Sink(), clock=clock, metrics=Metrics(), settings=lambda: settings)
        server.listen([Listener(name="PLAINTEXT", protocol=SecurityProtocol.PLAINTEXT, host="127.0.0.1", port=0)])
        turns = server._context.turns
        for client in large:
            turns.begin_large(client)
        reader, writer = await asyncio.open_connection(server.listeners[0].host, server.listeners[0].port)
        writer.write((5000).to_bytes(4, "big") + bytes(5000))
        _, other = await asyncio.open_connection(server.listeners[0].host, server.listeners[0].port)
        other.write((5000).to_bytes(4, "big") + bytes(5000))
        while sum(connection.rests for connection in server.connections) < 2:
            await asyncio.sleep(0)
        other.close()
        while len(server.connections) == 2:
            await asyncio.sleep(0)
        assert len(turns._put_off) == 1
        clock.advance(settings.connections_max_idle_ms + 1)
        server.close_idle()
        turns.end_large(large[0])
        assert await reader.readexactly(6) == b"answer"
        clock.advance(settings.connections_max_idle_ms + 1)
        server.close_idle()
        assert not server.connections
        writer.close()
        server.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_files_of_slow_consumers_leave_some_descriptors_where_connections_leave_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        loop, settings = asyncio.get_running_loop(), NodeSettings()
        sink: Any = SimpleNamespace()
        server = Server(loop=loop, sink=sink, clock=ManualClock(), metrics=Metrics(), settings=lambda: settings)
        others: Any = dict.fromkeys(range(server._most_by_descriptors))
        server.connections = others
        monkeypatch.setattr(module.descriptors, "open_now", lambda: 1000)
        assert server._are_too_many_files(200)
        monkeypatch.setattr(module.descriptors, "open_now", lambda: 920)
        assert not server._are_too_many_files(200)

    monkeypatch.setattr(module.descriptors, "limit", lambda: 1024)
    asyncio.run(run())


@pytest.mark.parametrize("host", ["a..b", "a" * 300 + ".example"], ids=["empty label", "long label"])
def test_a_name_that_no_host_can_have_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on {host}:9092: .* choose another address"):
        bind_socket(host, 9092, advice="choose another address")
