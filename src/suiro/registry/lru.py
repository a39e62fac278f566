"""A cache that drops the least recently used entries first. Thread-safe."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lru(Generic[K, V]):
    """Has at most `size` entries, which together weigh at most `weight`."""

    def __init__(self, size: int, *, weight: int, weigh: Callable[[K, V], int]) -> None:
        self._size = size
        self._weight = weight
        self._weigh = weigh
        self._weighs = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """An entry that is there stays: threads that miss a key at the same time find the same value."""
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value
            self._weighs += self._weigh(key, value)
            while self._weighs > self._weight or len(self._values) > self._size:
                self._weighs -= self._weigh(*self._values.popitem(last=False))

    def get_or(self, key: K, make: Callable[[], V]) -> V:
        """Two threads that miss a key both make a value; either is right."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def forget(self, key: K) -> None:
        with self._lock:
            if key in self._values:
                self._weighs -= self._weigh(key, self._values.pop(key))
