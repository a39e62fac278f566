"""How a request that waits ends: once, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from suiro.broker.handlers.purgatory import Delayed


class Growing:
    """What is waited for."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def wait(self, wake: Callable[[], None]) -> None:
        self.waiting.append(wake)

    def stop_waiting(self, wake: Callable[[], None]) -> None:
        self.waiting.remove(wake)


def unreadable() -> bool:
    raise OSError("too many open files")


def unwritable() -> None:
    raise ValueError("no such field")


@pytest.mark.parametrize(
    ("is_ready", "finish"), [(unreadable, lambda: None), (lambda: True, unwritable)], ids=["look", "answer"]
)
@pytest.mark.parametrize("grows", [True, False], ids=["on growth", "out of time"])
def test_one_that_fails_does_not_leave_its_client_waiting(
    is_ready: Callable[[], bool], finish: Callable[[], None], grows: bool
) -> None:
    async def run() -> None:
        growth, failed = Growing(), asyncio.Event()
        wait_ms = 60_000 if grows else 0
        Delayed(
            loop=asyncio.get_running_loop(),
            growth=growth,
            is_ready=is_ready,
            finish=finish,
            fail=failed.set,
            wait_ms=wait_ms,
        )
        if grows:
            growth.waiting[0]()
        await asyncio.wait_for(failed.wait(), 30)
        assert growth.waiting == []

    asyncio.run(run())
