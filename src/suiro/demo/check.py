"""Checks everything in a separate process.

Python compares about ten thousand records per second, and the demo writes more than a million. So this process reads
while the demo runs, at a low priority, and reaches the end of each partition after the last write. The demo and the
process take turns on a pipe.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from suiro.demo.expected import expected
from suiro.demo.names import RAW
from suiro.demo.reading import count_uncommitted, read
from suiro.demo.verify import Noted, verify
from suiro.demo.view_check import FlightLog, ViewAccount, check_view
from suiro.errors import FatalError
from suiro.foundation.process import give_way

NICENESS = 10


class Check:
    """Starts to compute the expected results at once."""

    def __init__(self, *, limit: int | None) -> None:
        # A fork would have our connections and none of our threads.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(theirs, limit), daemon=True)
        self._process.start()
        theirs.close()
        self._totals: dict[str, int] | None = None

    def close(self) -> None:
        self._process.kill()
        self._process.join()

    @property
    def is_computed(self) -> bool:
        return self._totals is not None or self._pipe.poll()

    @property
    def totals(self) -> dict[str, int]:
        """The expected totals, by topic. Waits until they are computed."""
        if self._totals is None:
            self._totals = self._answer()
        return self._totals

    def read_along(self, bootstrap_servers: str, topics: Sequence[str], *, registry: str) -> None:
        """Starts to read the topics."""
        assert self.totals  # this answer comes first
        self._say((bootstrap_servers, topics, registry))

    def finish(self) -> tuple[int, int]:
        """Reads to the end of the topics after the last write. Returns the number of records, and of records of aborted
        transactions."""
        self._say(None)
        records, hidden = self._answer()
        return records, hidden

    def verdict(
        self, delivered: Mapping[str, Mapping[str, Any]], account: ViewAccount
    ) -> tuple[dict[str, int], list[str]]:
        """Returns counts, and every difference as text."""
        self._say((delivered, account))
        counts, differences = self._answer()
        return counts, differences

    def _say(self, what: object) -> None:
        with suppress(BrokenPipeError):  # `_answer` reports that it ended
            self._pipe.send(what)

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError):
            raise FatalError("the process that checks the records ended; it wrote why to standard error") from None


def _run(pipe: Connection, limit: int | None) -> None:
    """Runs in the process. It ends with the demo, even after kill -9, because the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the demo handles Ctrl-C
    with suppress(OSError):
        os.setsid()
        give_way(NICENESS)
    gc.disable()  # there are millions of objects, and no cycles
    try:
        wanted = expected(limit=limit)
        pipe.send(wanted.totals)
        bootstrap_servers, topics, registry = pipe.recv()
        noted, flights, records = Noted(wanted), FlightLog(), 0
        for topic, record in read(bootstrap_servers, topics, registry=registry, is_over=pipe.poll):
            records += 1
            noted.note(topic, record)
            if topic == RAW:
                flights.note(record)
        pipe.recv()
        pipe.send((records, count_uncommitted(bootstrap_servers, topics) - records))
        delivered, account = pipe.recv()
        counts, differences = verify(noted, delivered)
        pipe.send((counts, differences + check_view(account, flights, wanted.departures)))
    except (EOFError, BrokenPipeError):
        return
