"""CPUs that are kept for reads: what answers keeps to them, what is started keeps off them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from suiro.errors import ConfigError
from suiro.views import cpus

OURS = sorted(os.sched_getaffinity(0))
WHERE = [sys.executable, "-c", "import os; print(*sorted(os.sched_getaffinity(0)))"]

pytestmark = pytest.mark.skipif(len(OURS) < 2, reason="one CPU cannot be shared out")


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cpus, "_of_others", frozenset())
    yield
    os.sched_setaffinity(0, OURS)


def cpus_of(command: list[str]) -> list[int]:
    return [int(text) for text in subprocess.run(command, capture_output=True, check=True).stdout.split()]


def test_without_any_nothing_is_kept_apart() -> None:
    cpus.keep_for_reads(0)
    assert cpus.apart(WHERE) == WHERE
    assert sorted(os.sched_getaffinity(0)) == OURS


def test_the_host_and_what_it_starts_share_no_cpu() -> None:
    cpus.keep_for_reads(1)
    assert sorted(os.sched_getaffinity(0)) == OURS[-1:]
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(os.sched_getaffinity, 0).result() == set(OURS[-1:])
        assert thread.submit(cpus_of, cpus.apart(WHERE)).result() == OURS[:-1]


@pytest.mark.parametrize("count", [len(OURS), len(OURS) + 1, -1])
def test_one_is_left_for_the_pipelines(count: int) -> None:
    with pytest.raises(ConfigError, match=f"--read-cpus {count}: .*may use {len(OURS)} CPUs"):
        cpus.keep_for_reads(count)
    assert sorted(os.sched_getaffinity(0)) == OURS


def test_a_system_that_cannot_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="--read-cpus 1 needs Linux and its command taskset"):
        cpus.keep_for_reads(1)
