"""A thread of this process that looks after things while somebody needs them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Regularly(Generic[T]):
    """`work` gets all things that are needed now, every `every_s` seconds. The thread starts with the first of them, so
    what is done sooner costs nothing."""

    def __init__(self, name: str, every_s: float, work: Callable[[list[T]], None]) -> None:
        self._name = name
        self._every_s = every_s
        self._work = work
        self._lock = Lock()
        self._things: list[T] = []
        self._thread: Thread | None = None

    @contextmanager
    def during(self, things: Collection[T]) -> Iterator[None]:
        """They are needed until the block ends."""
        with self._lock:
            self._things += things
            if self._things and self._thread is None:
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                for thing in things:
                    self._things.remove(thing)

    def _run(self) -> None:
        never = Event()
        while not never.wait(self._every_s):
            with self._lock:
                things = list(self._things)
            try:
                self._work(things)
            except Exception:  # noqa: BLE001 - whoever comes next needs the thread
                _log.exception("%s failed; it goes on", self._name)
