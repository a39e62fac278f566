"""The threads for calls that the event loop must not wait for."""

from __future__ import annotations

import asyncio
import threading

from suiro.broker.storage.workers import Workers


def test_a_call_whose_caller_is_gone_holds_up_no_other() -> None:
    """A store that does not answer kept the one thread that there was, and all reads after it waited for that one."""
    begun, ends = threading.Event(), threading.Event()

    def hangs() -> None:
        begun.set()
        ends.wait(60)

    async def run() -> int:
        loop = asyncio.get_running_loop()
        workers = Workers(loop, name="some", count=2)
        try:
            given_up = loop.create_task(workers.run(hangs))
            await asyncio.to_thread(begun.wait, 30)
            given_up.cancel()
            await asyncio.wait([given_up])
            return await asyncio.wait_for(workers.run(lambda: 7), 30)
        finally:
            ends.set()
            workers.close()

    assert asyncio.run(run()) == 7
