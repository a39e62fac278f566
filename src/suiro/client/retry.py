"""Deadlines, and repeated attempts with backoff."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from suiro.client.settings import CONCURRENT_BACKOFF_MS, UNKNOWN_TOPIC_GRACE_MS, ClientSettings
from suiro.clock import Clock
from suiro.errors import (
    BrokenConnectionError,
    DeadlineExceededError,
    RetriableKafkaError,
    UnknownTopicError,
)

T = TypeVar("T")

# Errors after which another attempt may succeed. `AbortableError` is not one of them: its transaction is lost.
RETRIED = (RetriableKafkaError, BrokenConnectionError)
UNKNOWN_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"})
NO_LEADER = "LEADER_NOT_AVAILABLE"
"""The code of a `RetriableKafkaError`: the partition has no leader at present."""


class Attempts:
    """The attempts of one operation. The caller loops; `failed` waits before the next one, or gives up."""

    def __init__(
        self,
        what: str,
        *,
        timeout_ms: int,
        settings: ClientSettings,
        clock: Clock,
        is_abandoned: Callable[[], bool],
        leader_wait_ms: int | None = None,
    ) -> None:
        self.what = what
        self._is_abandoned = is_abandoned
        self._timeout_ms = timeout_ms
        self._settings = settings
        self._clock = clock
        self._leader_wait_ms = leader_wait_ms
        self._backoff_ms: int | None = None
        self._code = ""
        """Of the last failure, and of all since `_code_since_ms`."""
        self._code_since_ms = 0
        self.deadline_ms = clock.monotonic_ms() + timeout_ms

    def progressed(self) -> None:
        """Resets the deadline and the backoff after a success."""
        self.deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        self._backoff_ms = None
        self._code = ""

    def without_counting(self, work: Callable[[], T]) -> T:
        """Returns the result of work that is not the brokers'. The deadline moves by the time that it takes."""
        began_ms = self._clock.monotonic_ms()
        made = work()
        self.deadline_ms += self._clock.monotonic_ms() - began_ms
        return made

    def failed(self, error: RetriableKafkaError | BrokenConnectionError) -> None:
        """Waits the backoff. Raises `DeadlineExceededError`; `UnknownTopicError` after its grace; after
        `leader_wait_ms` the error itself, if there was no leader all the time."""
        if self._is_abandoned():
            raise DeadlineExceededError(f"told not to {self.what} any more; the last failure was: {error}")
        now_ms = self._clock.monotonic_ms()
        backoff_ms = self._next_backoff_ms(error)
        expired = now_ms + backoff_ms >= self.deadline_ms
        code = error.code_name if isinstance(error, RetriableKafkaError) else ""
        if code != self._code:
            self._code, self._code_since_ms = code, now_ms
        waited_ms = now_ms - self._code_since_ms
        if code in UNKNOWN_TOPIC and (expired or waited_ms >= UNKNOWN_TOPIC_GRACE_MS):
            raise UnknownTopicError(*error.args) from error
        if code == NO_LEADER and self._leader_wait_ms is not None and waited_ms >= self._leader_wait_ms:
            raise error
        if expired:
            raise DeadlineExceededError(f"could not {self.what} within {self._timeout_ms} ms: {error}") from error
        self._clock.sleep_ms(backoff_ms)

    def _next_backoff_ms(self, error: RetriableKafkaError | BrokenConnectionError) -> int:
        if self._backoff_ms is None:
            soon = isinstance(error, RetriableKafkaError) and error.code_name == "CONCURRENT_TRANSACTIONS"
            self._backoff_ms = CONCURRENT_BACKOFF_MS if soon else self._settings.retry_backoff_ms
        else:
            self._backoff_ms = min(max(self._backoff_ms, 1) * 2, self._settings.retry_backoff_max_ms)
        return self._backoff_ms

    def run(self, once: Callable[[int], T]) -> T:
        """Returns the result of `once(deadline_ms)`, repeated while it raises retriable errors."""
        while True:
            try:
                return once(self.deadline_ms)
            except RETRIED as error:
                self.failed(error)
