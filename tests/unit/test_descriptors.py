"""The shares of files and connections in what a process may open."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from suiro import descriptors


@pytest.mark.parametrize("of", [64, 128, 256, 1024, 4096, 20_000, 524_288, descriptors.MOST])
def test_each_has_a_share_and_some_are_left(of: int) -> None:
    files, connections = descriptors.for_files(of), descriptors.for_connections(of)
    assert files >= 64
    assert connections >= 16
    if of >= 256:
        assert connections + files + min(of // 8, 512) == of


def test_three_times_as_many_descriptors_are_enough_for_so_many_connections() -> None:
    for connections in (10, 100, 1000, 10_000, 100_000):
        assert descriptors.for_connections(3 * connections) >= connections


def test_the_soft_limit_becomes_the_hard_one() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = 900 if hard == resource.RLIM_INFINITY else min(900, hard)
    program = (
        "import resource; from suiro import descriptors; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (200, {own})); "
        "descriptors.raise_limit(); descriptors.raise_limit(); print(descriptors.limit())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) == own


def test_what_is_open_is_counted() -> None:
    before = descriptors.open_now()
    with open(__file__), open(__file__):
        assert descriptors.open_now() == before + 2
