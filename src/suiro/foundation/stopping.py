"""When a service stops: SIGTERM, SIGINT, or nobody holds its standard input any more."""

from __future__ import annotations

import os
import select
import signal
import sys

__all__ = ["Stopping"]


class Stopping:
    """From its making on the two signals no longer end the process, but `wait`. For the main thread."""

    def __init__(self, *, while_stdin_is_open: bool = False) -> None:
        self._stdin = sys.stdin.fileno() if while_stdin_is_open else None
        self._told, self._tell = os.pipe()  # an Event may be set by a handler that interrupts its own wait
        os.set_blocking(self._tell, False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)

    def _signalled(self, *_: object) -> None:
        try:
            os.write(self._tell, b"x")
        except BlockingIOError:
            pass  # told often enough

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until it is to stop, then true, at every later call too; false once the time is over."""
        poll = select.poll()
        for watched in (self._told, self._stdin):
            if watched is not None:
                poll.register(watched, select.POLLIN)
        while ready := poll.poll(None if timeout_s is None else timeout_s * 1_000):
            if any(readable == self._told for readable, _ in ready):
                return True
            if not os.read(ready[0][0], 4096):
                self._signalled()
        return False
