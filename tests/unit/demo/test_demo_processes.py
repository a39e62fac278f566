"""What processes use, as the price of a flight is made of."""

from __future__ import annotations

import subprocess
import sys

from support.waiting import wait_until

from suiro.demo.processes import Session

BURNS = "import time\nwhile time.process_time() < {seconds}: pass\nprint('burnt', flush=True)\n"
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURNS.format(seconds=0.5)!r}])
sys.stdin.read()
"""


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
        # Less than was used: the kernel rounds each of the four numbers down to 10 ms.
        wait_until(lambda: session.cpu_seconds() >= 0.4)
    finally:
        child.communicate()
