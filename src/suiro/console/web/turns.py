"""Turns for slow work: limits how many run and how many wait; requests for the same result share one.

Handlers run on a few threads. Reading a large topic, or waiting for a server that does not answer, uses at most the
configured number of them. Further callers are told to try again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from suiro.errors import TransientError
from suiro.foundation.threads import settle

LOOK_S = 0.2
"""The interval between checks whether a waiting caller is still connected."""

T = TypeVar("T")


class Turns:
    """`at_once` may work and `waiting` may wait at the same time. `what` names the work in errors."""

    def __init__(self, what: str, *, at_once: int, waiting: int) -> None:
        self._what = what
        self._at_once = at_once
        self._places = threading.BoundedSemaphore(at_once + waiting)
        self._at_work = threading.BoundedSemaphore(at_once)
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[Any]] = {}

    @contextmanager
    def taken(self, gone: threading.Event) -> Iterator[None]:
        """Holds a turn for the `with`. Raises `TransientError` if too many wait, or `gone` is set while waiting."""
        with self._place(), self._turn(gone):
            yield

    def shared(self, key: Hashable, work: Callable[[], T], gone: threading.Event) -> T:
        """If several callers ask for the same key at the same time, the first does the work, and the others get its
        result or error. The work continues if the first caller disconnects, because others may wait for it."""
        with self._place():
            with self._lock:
                answer: Future[T] | None = self._running.get(key)
                is_first = answer is None
                if answer is None:
                    answer = self._running[key] = Future()
            if is_first:
                settle(answer, lambda: self._worked(key, work))
            while True:
                try:
                    return answer.result(LOOK_S)
                except TimeoutError:
                    if answer.done():  # the work itself raised TimeoutError
                        raise
                    _look(gone)

    def _worked(self, key: Hashable, work: Callable[[], T]) -> T:
        """Ends the sharing before the result is set: later callers start new work."""
        try:
            with self._turn(threading.Event()):
                return work()
        finally:
            with self._lock:
                del self._running[key]

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise TransientError(f"{self._at_once} {self._what} are at work and others wait; try again in a moment")
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def _turn(self, gone: threading.Event) -> Iterator[None]:
        while not self._at_work.acquire(timeout=LOOK_S):
            _look(gone)
        try:
            yield
        finally:
            self._at_work.release()


def _look(gone: threading.Event) -> None:
    if gone.is_set():
        raise TransientError("whoever asked has gone")
