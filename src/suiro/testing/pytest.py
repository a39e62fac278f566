"""The pytest fixture `node`. The package registers this module with pytest, so it imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from suiro.testing.node_under_test import NodeUnderTest


@pytest.fixture
def node() -> Iterator[NodeUnderTest]:
    """A fresh, empty node for this test: `node.bootstrap_servers`."""
    from suiro.testing import node as running_node

    with running_node() as running:
        yield running
