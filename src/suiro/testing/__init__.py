"""For tests of users: a node that is there for the length of a `with`, or of a test.

    from suiro.testing import node

    with node() as log:
        producer = Producer({"bootstrap.servers": log.bootstrap_servers})

In pytest the same is the fixture `node` (`suiro.testing.pytest`, registered by the package).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suiro.node import InProcessNode

__all__ = ["node"]


@contextmanager
def node(
    *, data: Path | str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[InProcessNode]:
    """A node in this process on a free port; its data is gone afterwards, unless `data` names a directory."""
    from suiro.node import InProcessNode

    running = InProcessNode.start(data=data, settings=settings)
    try:
        yield running
    finally:
        running.stop()
