"""When a process must stop: SIGTERM, SIGINT, a call of `set`, or a closed standard input."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys


class Stopping:
    """An event that signals set. Create it on the main thread; all threads may use it.

    It is not a `threading.Event`: a signal handler that sets one while the main thread waits for it can deadlock.
    """

    def __init__(self, *, while_stdin_is_open: bool = False) -> None:
        self._stdin = sys.stdin.fileno() if while_stdin_is_open else None
        self._readable, self._writable = os.pipe()  # readable once the event is set, and from then on
        os.set_blocking(self._writable, False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.set())

    def set(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full: the event is set
            os.write(self._writable, b"x")

    def is_set(self) -> bool:
        return self.wait(0)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the event is set. Waits until it is, or until the timeout."""
        poll = select.poll()
        for watched in (self._readable, self._stdin):
            if watched is not None:
                poll.register(watched, select.POLLIN)
        while ready := poll.poll(None if timeout_s is None else timeout_s * 1_000):
            if any(readable == self._readable for readable, _ in ready):
                return True
            if not os.read(ready[0][0], 4096):
                self.set()
        return False
