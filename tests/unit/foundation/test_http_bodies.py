"""How much of requests' bodies is held, and who gives way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from suiro.foundation.http.bodies import Bodies, Body
from suiro.foundation.http.refusals import Refusal


class Sender:
    """A body whose parts a test sends."""

    def __init__(self, bodies: Bodies, max_bytes: int = 1_000) -> None:
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.body: Body | None = None
        self.read = asyncio.get_running_loop().create_task(self._read(bodies, max_bytes))

    async def _read(self, bodies: Bodies, max_bytes: int) -> bytes:
        self.body = Body(bodies)
        return await self.body.read(self._sent.get, max_bytes)

    async def send(self, part: bytes, *, more: bool = True) -> None:
        await self._sent.put({"type": "http.request", "body": part, "more_body": more})
        for _ in range(5):
            await asyncio.sleep(0)

    async def leave(self) -> None:
        await self._sent.put({"type": "http.disconnect"})


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def test_bytes_count_from_the_first_until_the_request_is_answered() -> None:
    async def test() -> None:
        bodies = Bodies(100)
        sender = Sender(bodies)
        await sender.send(b"a" * 10)
        assert bodies.held == 10
        await sender.send(b"b" * 5, more=False)
        assert await sender.read == b"a" * 10 + b"b" * 5
        assert bodies.held == 15
        sender.body.close()
        sender.body.close()
        assert bodies.held == 0

    run(test())


def test_those_that_hold_half_a_body_back_give_way_the_oldest_first() -> None:
    async def test() -> None:
        bodies = Bodies(100)
        halves = [Sender(bodies) for _ in range(4)]
        for half in halves:
            await half.send(b"x" * 25)
        assert bodies.held == 100
        whole = Sender(bodies)
        await whole.send(b"y" * 40, more=False)
        assert await whole.read == b"y" * 40
        for half in halves[:2]:
            with pytest.raises(Refusal, match="503"):
                await half.read
        assert not any(half.read.done() for half in halves[2:])
        assert bodies.held == 90
        for half in halves[2:]:
            await half.send(b"x", more=False)
            assert await half.read == b"x" * 26

    run(test())


def test_what_waits_for_its_answer_never_gives_way() -> None:
    async def test() -> None:
        bodies = Bodies(100)
        waiting = Sender(bodies)
        await waiting.send(b"x" * 90, more=False)
        assert len(await waiting.read) == 90
        late = Sender(bodies)
        await late.send(b"y" * 20)
        with pytest.raises(Refusal, match="503"):
            await late.read
        assert bodies.unfinished == {}

    run(test())


def test_too_large_and_cut_off() -> None:
    async def test() -> None:
        bodies = Bodies(10_000)
        large, cut = Sender(bodies, 10), Sender(bodies)
        await large.send(b"x" * 8)
        await large.send(b"x" * 3)
        with pytest.raises(Refusal, match="413"):
            await large.read
        await cut.send(b"x")
        await cut.leave()
        with pytest.raises(ClientDisconnect):
            await cut.read
        assert bodies.unfinished == {}

    run(test())


def test_a_request_that_is_cancelled_otherwise_stays_cancelled() -> None:
    async def test() -> None:
        sender = Sender(Bodies(100))
        await sender.send(b"x")
        sender.read.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sender.read

    run(test())
