"""For the tests of users: a node that runs for the length of a `with`, or of a test.

    from suiro.testing import node

    with node() as log:
        producer = Producer({"bootstrap.servers": log.bootstrap_servers})

In pytest, the fixture `node` does the same (`suiro.testing.pytest`, which the package registers).
`TopologyTestDriver` tests topologies without a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from suiro.extras import on_first_use

if TYPE_CHECKING:
    from suiro.testing.batch_cuts import BatchesDifferError
    from suiro.testing.node_under_test import NodeUnderTest
    from suiro.testing.topology_test_driver import TestInputTopic, TestOutputTopic, TopologyTestDriver

__all__ = ["BatchesDifferError", "TestInputTopic", "TestOutputTopic", "TopologyTestDriver", "node"]


# The package is a pytest plugin, and pytest imports it at every start.
__getattr__ = on_first_use(
    __name__,
    {
        "batch_cuts": "BatchesDifferError",
        "topology_test_driver": "TestInputTopic TestOutputTopic TopologyTestDriver",
    },
)


class node:
    """A node in this process on a free port; its data is gone afterwards, unless `data` names a directory.

    `with node() as log:`, or `async with` in an asyncio test, whose event loop continues while the node starts.

    `node.faults` makes requests fail, `node.advance(ms)` moves the clock forward, `node.kill()` and `node.restart()`
    kill and restart the node.
    """

    def __init__(self, *, data: Path | str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._data, self._settings = data, settings
        self._running: NodeUnderTest | None = None

    def __enter__(self) -> NodeUnderTest:
        from suiro.clock import ShiftedClock
        from suiro.testing.node_under_test import NodeUnderTest

        self._running = NodeUnderTest.start(data=self._data, settings=self._settings, clock=ShiftedClock())
        return self._running

    def __exit__(self, *error: object) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    async def __aenter__(self) -> NodeUnderTest:
        import asyncio

        starting = asyncio.create_task(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await starting  # nobody else would stop it
            await self.__aexit__()
            raise

    async def __aexit__(self, *error: object) -> None:
        import asyncio

        await asyncio.to_thread(self.__exit__)
