"""Waits for a log that cannot be reached: a micro-batch waits without limit and then continues.

It waits for errors that time may fix: no broker answers, none leads or coordinates, one cannot write (a full disk).
Other errors (no permission, another driver, a topic that is gone) pass through at once. Each wait is logged once a
minute, and `note` passes it on to the metrics.

Each single call has its own deadline (`default.api.timeout.ms`, `delivery.timeout.ms`). The wait begins after it.

`Idling` says how long a check for new records may wait after checks that found none. Each check takes time of Java, of
the process that plans, and of the broker: at Spark's own pace, a query with nothing to do takes a tenth of a core. So a
check that finds nothing is answered late. The broker answers at once when a record comes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Union

from suiro.clock import Clock
from suiro.errors import (
    BrokenConnectionError,
    DeadlineExceededError,
    HostNotFoundError,
    RetriableKafkaError,
    TransientError,
)
from suiro.foundation.types import TopicPartition

if TYPE_CHECKING:
    from suiro.client import Client

WAITED_FOR = (TransientError, HostNotFoundError)
"""A broker's name may be gone while it is started again elsewhere."""

AWAY = (BrokenConnectionError, DeadlineExceededError, RetriableKafkaError, HostNotFoundError)
"""The errors among them that do not depend on who asked: the log is away, or cannot serve."""

TOLD_EVERY_MS = 60_000
PAUSE_MS, PAUSE_MAX_MS = 50, 1_000  # for failures that come at once; most calls have waited by themselves

FIRST_WAIT_MS = 25
LONGEST_WAIT_MS = 500
"""While a check waits, it notices nothing else: no stop, no new partition."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Waiting:
    """One caller's.

    `limit_ms`: how long to wait at most; None for as long as it takes, 0 not at all. `is_wanted`: asked before each
    wait; where it is False the failure is raised. `note` gets since when it waits, in wall-clock ms, and None when that
    is over.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        limit_ms: int | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
        note: Callable[[int | None], None] = lambda since_ms: None,
    ) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._is_wanted = is_wanted
        self._note = note
        self._pause_ms = PAUSE_MS
        self._told_ms: int | None = None  # None: nothing is waited for
        self._began_ms = clock.monotonic_ms()

    def begin(self) -> None:
        """Begins a piece of work: the limit counts from here."""
        self._began_ms = self._clock.monotonic_ms()

    def failed(self, what: str, error: Exception) -> None:
        """Returns when it is time for another attempt, or raises the error."""
        now = self._clock.monotonic_ms()
        waited_ms = now - self._began_ms
        if (self._limit_ms is not None and waited_ms >= self._limit_ms) or not self._is_wanted():
            self._forget()
            raise error
        if self._told_ms is None:
            self._note(self._clock.wall_ms() - waited_ms)
        if self._told_ms is None or now - self._told_ms >= TOLD_EVERY_MS:
            self._told_ms = now
            _log.warning("waiting for the log, for %d s now, to %s: %s", waited_ms // 1000, what, error)
        self._clock.sleep_ms(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MAX_MS)

    def over(self) -> None:
        """The work is done."""
        if self._told_ms is not None:
            waited_s = (self._clock.monotonic_ms() - self._began_ms) // 1000
            _log.warning("the log is there again after %d s", waited_s)
            self._forget()

    def run(self, what: str, call: Callable[[], T]) -> T:
        """The result of `call`, which is repeated while waiting may fix its failure."""
        self.begin()
        while True:
            try:
                result = call()
            except WAITED_FOR as error:
                self.failed(what, error)
            else:
                self.over()
                return result

    def _forget(self) -> None:
        if self._told_ms is not None:
            self._told_ms, self._pause_ms = None, PAUSE_MS
            self._note(None)


class RetryingClient:
    """`suiro.client.Client`, as far as a source uses it. It waits until failures are over; without `waits_at_first`,
    only after the client has answered once."""

    def __init__(self, client: Any, waiting: Waiting, *, waits_at_first: bool = True) -> None:
        self._client = client
        self._waiting = waiting
        self._waits = waits_at_first

    def metadata(self, topics: Sequence[str] | None = None) -> Mapping[str, Any]:
        return self._run("look topics up", lambda: self._client.metadata(topics))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> Mapping[TopicPartition, Any]:
        return self._run("list offsets", lambda: self._client.list_offsets(wanted, read_committed=read_committed))

    def fetch(self, offsets: Mapping[TopicPartition, int], **limits: Any) -> Mapping[TopicPartition, Any]:
        what = "fetch " + ", ".join(f"{topic}-{partition}" for topic, partition in offsets)
        return self._run(what, lambda: self._client.fetch(offsets, **limits))

    def offset_fetch(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = True
    ) -> Mapping[TopicPartition, Any]:
        return self._run(
            "ask for committed offsets",
            lambda: self._client.offset_fetch(group, partitions, require_stable=require_stable),
        )

    def _run(self, what: str, call: Callable[[], Mapping[Any, Any]]) -> Mapping[Any, Any]:
        found = self._waiting.run(what, call) if self._waits else call()
        self._waits = True
        return found


SourceClient: TypeAlias = Union["Client", RetryingClient]


class Idling:
    """One query's. The first check that finds nothing after one that found something does not wait:
    `processAllAvailable` returns with it."""

    def __init__(self) -> None:
        self._empty_looks = 0

    def found_something(self) -> None:
        self._empty_looks = 0

    def found_nothing(self) -> int:
        """Returns for how many ms this check may wait now."""
        self._empty_looks += 1
        waits = self._empty_looks - 1
        return min(FIRST_WAIT_MS << min(waits - 1, 16), LONGEST_WAIT_MS) if waits else 0
