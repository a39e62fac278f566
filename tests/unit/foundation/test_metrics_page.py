"""What a metrics page does with those who say nothing, take nothing, or are web pages."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from suiro.foundation.http import listen_on
from suiro.foundation.http import page as module
from suiro.foundation.http.page import CONNECTIONS, MetricsPage

LARGE = b"x" * (64 << 20)
"""More than sockets hold."""
GET = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def served(act: Callable[[MetricsPage, tuple[str, int]], Awaitable[None]], text: bytes = b"up 1\n") -> None:
    async def run() -> None:
        listener = listen_on("127.0.0.1", 0, name="the page")
        address = listener.getsockname()
        page = MetricsPage(listener, prepare=lambda: text, render=lambda given: given)
        await page.listen()
        try:
            await act(page, address)
        finally:
            page.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


async def asked(address: tuple[str, int], request: bytes = GET) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


def test_a_page_that_nobody_takes_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.2)

    async def act(page: MetricsPage, address: tuple[str, int]) -> None:
        with socket.create_connection(address) as peer:
            peer.sendall(GET)
            for count in (1, 0):
                while len(page._open) != count:
                    await asyncio.sleep(0)
            received = await asyncio.get_running_loop().run_in_executor(None, _all_of, peer)
        assert received < len(LARGE)

    served(act, LARGE)


def test_silent_connections_keep_no_scraper_out() -> None:
    async def act(page: MetricsPage, address: tuple[str, int]) -> None:
        silent = [await asyncio.open_connection(*address) for _ in range(3 * CONNECTIONS)]
        for number in range(CONNECTIONS):
            assert (await asked(address)).endswith(b"up 1\n"), number
        assert len(page._open) <= CONNECTIONS
        assert await silent[0][0].read() == b""  # the first of them made room
        for _, writer in silent:
            writer.close()

    served(act)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GET, b"200"),
        (b"GET /metrics HTTP/1.0\r\n\r\n", b"200"),
        (b"HEAD /metrics HTTP/1.1\r\nHost: localhost:9404\r\n\r\n", b"200"),
        (
            b"GET /metrics HTTP/1.1\r\nHost: pages.example\r\n\r\n",
            b"403",
        ),  # a name that was made to point here
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
    ],
)
def test_who_is_answered(request_: bytes, status: bytes) -> None:
    async def act(page: MetricsPage, address: tuple[str, int]) -> None:
        answer: Any = await asked(address, request_)
        assert answer.split(b" ")[1] == status
        assert (b"up 1" in answer) == (status == b"200" and request_.startswith(b"GET"))

    served(act)


def _all_of(peer: socket.socket) -> int:
    received = 0
    try:
        while part := peer.recv(1 << 20):
            received += len(part)
    except ConnectionResetError:
        pass
    return received
