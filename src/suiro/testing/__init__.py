"""For tests of users: a node that is there for the length of a `with`, or of a test.

    from suiro.testing import node

    with node() as log:
        producer = Producer({"bootstrap.servers": log.bootstrap_servers})

In pytest the same is the fixture `node` (`suiro.testing.pytest`, registered by the package). Topologies are tested
without any log by `TopologyTestDriver`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suiro.testing.batch_cuts import BatchesDifferError
    from suiro.testing.node_under_test import NodeUnderTest
    from suiro.testing.topology_test_driver import TopologyTestDriver

__all__ = ["BatchesDifferError", "TopologyTestDriver", "node"]


def __getattr__(name: str) -> Any:
    # The package is a pytest plugin: what it does not need at every start is imported when asked for.
    if name == "TopologyTestDriver":
        from suiro.testing.topology_test_driver import TopologyTestDriver

        return TopologyTestDriver
    if name == "BatchesDifferError":
        from suiro.testing.batch_cuts import BatchesDifferError

        return BatchesDifferError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class node:
    """A node in this process on a free port; its data is gone afterwards, unless `data` names a directory.

    `with node() as log:`, or `async with` in a test that runs on asyncio, whose loop goes on while the node starts.

    `node.faults` makes requests go wrong, `node.advance(ms)` skips time, `node.kill()` and `node.restart()` do
    what they say.
    """

    def __init__(self, *, data: Path | str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._data, self._settings = data, settings
        self._running: NodeUnderTest | None = None

    def __enter__(self) -> NodeUnderTest:
        from suiro.testing.node_under_test import NodeUnderTest

        self._running = NodeUnderTest.begin(data=self._data, settings=self._settings)
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
