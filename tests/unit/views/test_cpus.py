"""CPUs that are kept for reads: what answers keeps to them, what is started keeps off them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from suiro.errors import ConfigError
from suiro.views.cpus import answer_here, apart, keep_for_reads

OURS = sorted(os.sched_getaffinity(0))
WHERE = [sys.executable, "-c", "import os; print(*sorted(os.sched_getaffinity(0)))"]

pytestmark = pytest.mark.skipif(len(OURS) < 2, reason="one CPU cannot be shared out")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    keep_for_reads(0)


def cpus_of(command: list[str]) -> list[int]:
    return [int(text) for text in subprocess.run(command, capture_output=True, check=True).stdout.split()]


def test_without_any_nothing_is_kept_apart() -> None:
    keep_for_reads(0)
    assert apart(WHERE) == WHERE
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(_answering).result() == OURS


def test_what_answers_and_what_is_started_share_no_cpu() -> None:
    keep_for_reads(1)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(_answering).result() == OURS[-1:]
        # Commands come to the host as requests, so it is that thread, too, which starts what works for them.
        assert thread.submit(cpus_of, apart(WHERE)).result() == OURS[:-1]
    assert cpus_of(apart(WHERE)) == OURS[:-1]
    assert sorted(os.sched_getaffinity(0)) == OURS  # nobody else is moved


@pytest.mark.parametrize("count", [len(OURS), len(OURS) + 1, -1])
def test_one_is_left_for_the_pipelines(count: int) -> None:
    with pytest.raises(ConfigError, match=f"--read-cpus {count}: .*may use {len(OURS)} CPUs"):
        keep_for_reads(count)


def test_a_system_that_cannot_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="--read-cpus 1 needs Linux and its command taskset"):
        keep_for_reads(1)


def _answering() -> list[int]:
    answer_here()
    return sorted(os.sched_getaffinity(0))
