"""The event that signals set."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from suiro.foundation.stopping import Stopping


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_it(number: signal.Signals) -> None:
    stopping = Stopping()
    assert not stopping.is_set()
    assert not stopping.wait(0)
    os.kill(os.getpid(), number)
    assert stopping.wait(60)
    assert stopping.is_set()


def test_a_thread_sets_it_for_all_who_wait() -> None:
    stopping = Stopping()
    seen: list[bool] = []
    waiting = [threading.Thread(target=lambda: seen.append(stopping.wait(60))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    stopping.set()
    for thread in waiting:
        thread.join(60)
    assert seen == [True] * 3


def test_signals_in_quick_succession_end_a_process_that_polls() -> None:
    """An Event would deadlock: the handler waits for the lock that the interrupted wait holds."""
    program = (
        "from suiro.foundation.stopping import Stopping\n"
        "stopping = Stopping()\n"
        "print('ready', flush=True)\n"
        "for _ in range(2000): stopping.wait(0); stopping.is_set()\n"
        "stopping.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        for _ in range(200):
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
