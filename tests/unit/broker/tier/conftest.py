"""A node with a remote tier for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tiering import TieredNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TieredNode]:
    made = TieredNode(tmp_path)
    yield made
    made.stop()
