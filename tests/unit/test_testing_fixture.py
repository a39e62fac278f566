"""The fixture that the package gives to its users' tests."""

from __future__ import annotations

import subprocess
import sys

from suiro.client import Client
from suiro.node import InProcessNode


def test_node_is_a_fixture(node: InProcessNode) -> None:
    with Client(node.bootstrap_servers) as client:
        assert client.metadata() == {}


def test_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, suiro.testing.pytest; "
        "print([n for n in ('kio', 'uvloop', 'numpy', 'asyncio.events') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
