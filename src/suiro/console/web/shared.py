"""Streams that several readers follow: each part is made once, on the thread of the reader who needs it first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

KEPT = 8
"""The number of parts for readers that are behind. What they have not read then is left out."""

T = TypeVar("T")


@dataclass(slots=True)
class _Stream(Generic[T]):
    """`made` is the number of parts so far. The lock is held while one is made."""

    parts: Iterator[T]
    lock: threading.Lock = field(default_factory=threading.Lock)
    kept: deque[T] = field(default_factory=lambda: deque(maxlen=KEPT))
    made: int = 0
    readers: int = 0
    is_over: bool = False


class SharedStreams(Generic[T]):
    """Thread-safe. An error of a stream reaches one reader, and the stream ends for the others."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the collector may end a forgotten reader on a thread that holds it
        self._streams: dict[Hashable, _Stream[T]] = {}

    def follow(self, key: Hashable, parts: Iterator[T]) -> Iterator[Sequence[T]]:
        """Yields an empty sequence once it follows the stream of a key, and what has come since, one or more parts each
        time. The stream is `parts` if it has no reader yet."""
        with self._lock:
            stream = self._streams.setdefault(key, _Stream(parts))
            stream.readers += 1
        read = stream.made
        try:
            yield ()
            while True:
                with stream.lock:
                    if stream.made == read:
                        part = next(stream.parts, None)
                        if part is None:
                            stream.is_over = True
                            return
                        if stream.readers == 1:  # nobody is behind
                            stream.kept.clear()
                        stream.kept.append(part)
                        stream.made += 1
                    new = list(stream.kept)[-(stream.made - read) :]
                    read = stream.made
                yield new
        finally:
            with self._lock:
                stream.readers -= 1
                if self._streams.get(key) is stream and (stream.is_over or not stream.readers):
                    del self._streams[key]
