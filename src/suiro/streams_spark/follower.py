"""The thread that watches a topology follow a running application, and switches when it has caught up."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from suiro.clock import SystemClock
from suiro.spark import Positions, RetryingClient, SinkOptions, Waiting, newest_in, reach, read_planned
from suiro.streams_spark.rebuild import committed_boundary
from suiro.streams_spark.replacement import Following, switch

LOOK_S = 0.5
PAUSES_S = (0.02, 0.3)
"""Between attempts to take over; drawn, so that they do not keep step with the other one's transactions."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replacement:
    """The progress of a replacement. `lag_records`: offsets that the running application has committed and that are not
    processed here; None before the first micro-batch."""

    phase: Literal["following", "switching", "switched"]
    lag_records: int | None = None


class Follower:
    """`connect` gives a client. `stop_query` ends the query that follows, `go_on` starts the one that writes."""

    def __init__(
        self,
        *,
        connect: Callable[[], Any],
        sink: SinkOptions,
        topics: tuple[str, ...],
        checkpoint: Path,
        is_active: Callable[[], bool],
        stop_query: Callable[[], None],
        go_on: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._sink = sink
        self._topics = topics
        self._checkpoint = checkpoint
        self._is_active = is_active
        self._stop_query = stop_query
        self._go_on = go_on
        self._clock = SystemClock()
        self._stopping = threading.Event()
        self.status = Replacement("following")
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended. Safe to call again."""
        self._stopping.set()
        self.wait()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it has switched or given up. Returns False if it has done neither."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_at_it(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            with self._connect() as client:
                if not (self._catch_up(client) and self._take_over(client)):
                    return
            self._go_on()
            self.status = Replacement("switched", 0)
        except Exception as error:  # noqa: BLE001 - whoever waits for the application gets it
            _log.debug("%s could not take over: %s", self._sink.application_id, error)
            self.failure = error

    def _catch_up(self, client: Any) -> bool:
        """Returns False if the query ended before."""
        patient = RetryingClient(client, self._waiting())
        following = Following()
        while not self._stopping.wait(LOOK_S):
            if not self._is_active():
                return False
            found = committed_boundary(patient, self._sink, self._topics, is_stable=False)
            if found is None:
                continue  # the query says so
            following.see(self._clock.monotonic_ms(), found.offsets, self._done())
            self.status = Replacement("following", following.lag_records)
            if following.has_caught_up:
                _log.info("%s has caught up with the running process", self._sink.application_id)
                return True
        return False

    def _take_over(self, client: Any) -> bool:
        self.status = Replacement("switching", self.status.lag_records)
        self._stop_query()
        waiting = self._waiting()
        while not self._stopping.is_set():
            if waiting.run(
                "take over from the running process",
                lambda: switch(client, self._sink, self._topics, self._checkpoint, reach=reach),
            ):
                return True
            self._stopping.wait(random.uniform(*PAUSES_S))
        return False

    def _done(self) -> Positions | None:
        """The end of the last micro-batch that is done, as Spark wrote it down."""
        number = newest_in(str(self._checkpoint), "commits")
        planned = None if number < 0 else read_planned(str(self._checkpoint), number)
        return None if planned is None else planned.positions[0]

    def _waiting(self) -> Waiting:
        return Waiting(clock=self._clock, is_wanted=lambda: not self._stopping.is_set())
