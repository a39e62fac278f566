"""For tests of users: a node that is there for the length of a `with`, or of a test.

    from suiro.testing import node

    with node() as log:
        producer = Producer({"bootstrap.servers": log.bootstrap_servers})

In pytest the same is the fixture `node` (`suiro.testing.pytest`, registered by the package). Topologies are tested
without any log by `TopologyTestDriver`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suiro.testing.node_under_test import NodeUnderTest
    from suiro.testing.topology_test_driver import TopologyTestDriver

__all__ = ["TopologyTestDriver", "node"]


def __getattr__(name: str) -> Any:
    # The package is a pytest plugin: what it does not need at every start is imported when asked for.
    if name == "TopologyTestDriver":
        from suiro.testing.topology_test_driver import TopologyTestDriver

        return TopologyTestDriver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@contextmanager
def node(
    *, data: Path | str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[NodeUnderTest]:
    """A node in this process on a free port; its data is gone afterwards, unless `data` names a directory.

    `node.faults` makes requests go wrong, `node.advance(ms)` skips time, `node.kill()` and `node.restart()` do
    what they say.
    """
    from suiro.testing.node_under_test import NodeUnderTest

    running = NodeUnderTest.begin(data=data, settings=settings)
    try:
        yield running
    finally:
        running.stop()
