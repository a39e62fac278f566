"""The figures of the flow: what a flight costs is what the drivers used that worked on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from support.waiting import wait_until

from suiro.demo.flow import Figures, Meter
from suiro.demo.processes import Session

BURNS = "import time\nwhile time.process_time() < {seconds}: pass\nprint('burnt', flush=True)\n"
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURNS.format(seconds=0.3)!r}])
sys.stdin.read()
"""


class Driver(Session):
    """A session whose use is said by the test."""

    def __init__(self, *used: float) -> None:
        super().__init__(0)
        self._used = list(used)

    def cpu_seconds(self) -> float:
        return self._used.pop(0)

    def members(self) -> Sequence[int]:
        return []


def test_drivers_are_metered_while_they_work_only() -> None:
    meter = Meter()
    meter.begin(Driver(10.0, 14.0))  # 10 s were its start
    assert meter.end() == 4.0
    meter.begin(Driver(7.0, 8.5))  # a stand-by
    assert meter.end() == 5.5
    assert meter.end() == 5.5


def test_a_rate_and_a_price() -> None:
    figures = Figures(flights=50_000, seconds=10.0, cpu_s=6.0)
    assert (figures.per_second, figures.cpu_us) == (5_000, 120)
    assert Figures(flights=0, seconds=1.0, cpu_s=0.0).cpu_us == 0


def test_what_processes_that_have_ended_used_counts_too() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"burnt\n"
        session = Session(child.pid)
        wait_until(lambda: session.cpu_seconds() >= 0.3)
    finally:
        child.communicate()
