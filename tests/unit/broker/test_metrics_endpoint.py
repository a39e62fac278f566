"""What the metrics page does with somebody who asks for it and does not take it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from suiro.broker import metrics_endpoint as module
from suiro.broker.metrics import Metrics
from suiro.broker.metrics_endpoint import MetricsEndpoint

PAGE = b"x" * (64 << 20)
"""More than sockets hold."""


def test_a_page_that_nobody_takes_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.2)
    monkeypatch.setattr(module, "render", lambda _: PAGE)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        endpoint = MetricsEndpoint(Metrics(), loop=loop, host="127.0.0.1", port=0)
        endpoint.start()
        assert endpoint._starting is not None
        await endpoint._starting
        with socket.create_connection(endpoint.address) as peer:
            peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            for state in (1, 0):
                while endpoint._open != state:
                    await asyncio.sleep(0)
            received = await loop.run_in_executor(None, _all_of, peer)
        endpoint.stop()
        assert received < len(PAGE)

    asyncio.run(asyncio.wait_for(run(), 60))


def _all_of(peer: socket.socket) -> int:
    received = 0
    try:
        while part := peer.recv(1 << 20):
            received += len(part)
    except ConnectionResetError:
        pass
    return received
