"""`suiro node --registry`: the registry beside the node, from the ready line to the last signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import wait_until

from suiro.errors import ConfigError
from suiro.node import NodeProcess
from suiro.registry import RegistryClient, Schema

REGISTRY = ["--registry", "127.0.0.1:0"]
TEXT = Schema('"string"')


def children(pid: int) -> list[int]:
    """Of the process, by the process table."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = (line.split() for line in listed.splitlines())
    return [int(child) for child, parent in pairs if int(parent) == pid]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return not state.strip().startswith("Z")


def the_registry_of(node: NodeProcess) -> int:
    return wait_until(lambda: children(node.pid), what="the registry's process")[0]


def test_it_lives_beside_the_node_and_comes_back_when_killed(tmp_path: Path) -> None:
    with NodeProcess.start(data=tmp_path / "data", log=tmp_path / "log", options=REGISTRY) as node:
        assert node.registry_url is not None
        with RegistryClient(node.registry_url) as client:
            schema_id = client.register("s", TEXT)
        first = the_registry_of(node)
        os.kill(first, signal.SIGKILL)
        with RegistryClient(node.registry_url) as client:
            assert client.schema(schema_id) == TEXT  # at the same address: who calls meanwhile waits
            assert client.register("s", TEXT) == schema_id
        second = the_registry_of(node)
        assert second != first
        assert node.stop() == 0
        assert not is_running(second)


def test_it_ends_when_the_node_is_killed(tmp_path: Path) -> None:
    node = NodeProcess.start(data=tmp_path / "data", log=tmp_path / "log", options=REGISTRY)
    registry = the_registry_of(node)
    RegistryClient(node.registry_url or "").subjects()
    node.kill()
    wait_until(lambda: not is_running(registry), what="the end of the registry")
    node.stop()


def test_a_taken_address_is_refused_before_anything_starts(tmp_path: Path, suiro_node: NodeProcess) -> None:
    with pytest.raises(ConfigError, match="the registry cannot listen on"):
        NodeProcess.start(options=["--registry", suiro_node.bootstrap_servers])


def test_a_registry_that_cannot_run_ends_the_node(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "suiro", "node", "--listen", "127.0.0.1:0", *REGISTRY]
    done = subprocess.run(
        [*command, "--registry-auth-file", str(tmp_path / "nobody")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"suiro registry: cannot read the file of users {tmp_path / 'nobody'}: No such file" in done.stderr
    assert "suiro node: the registry beside this process ended with code 1" in done.stderr


def test_options_of_a_registry_need_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "suiro", "node", "--registry-auth-file", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "needs --registry" in done.stderr) == (1, True)
