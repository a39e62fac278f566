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
    ) -> None:
        self._what = what
        self._is_abandoned = is_abandoned
        self._timeout_ms = timeout_ms
        self._settings = settings
        self._clock = clock
        self._backoff_ms: int | None = None
        self._unknown_topic_since_ms: int | None = None
        self.deadline_ms = clock.monotonic_ms() + timeout_ms

    def progressed(self) -> None:
        """Resets the deadline and the backoff after a success."""
        self.deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        self._backoff_ms = None
        self._unknown_topic_since_ms = None

    def without_counting(self, work: Callable[[], T]) -> T:
        """Returns the result of work that is not the brokers'. The deadline moves by the time that it takes."""
        began_ms = self._clock.monotonic_ms()
        made = work()
        self.deadline_ms += self._clock.monotonic_ms() - began_ms
        return made

    def failed(self, error: RetriableKafkaError | BrokenConnectionError) -> None:
        """Waits the backoff. Raises `DeadlineExceededError`, or `UnknownTopicError` after its grace."""
        if self._is_abandoned():
            raise DeadlineExceededError(f"told not to {self._what} any more; the last failure was: {error}")
        now_ms = self._clock.monotonic_ms()
        backoff_ms = self._next_backoff_ms(error)
        expired = now_ms + backoff_ms >= self.deadline_ms
        if isinstance(error, RetriableKafkaError) and error.code_name == "UNKNOWN_TOPIC_OR_PARTITION":
            if self._unknown_topic_since_ms is None:
                self._unknown_topic_since_ms = now_ms
            if expired or now_ms - self._unknown_topic_since_ms >= UNKNOWN_TOPIC_GRACE_MS:
                raise UnknownTopicError(*error.args) from error
        else:
            self._unknown_topic_since_ms = None
        if expired:
            raise DeadlineExceededError(
                f"could not {self._what} within {self._timeout_ms} ms: {error}"
            ) from error
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
