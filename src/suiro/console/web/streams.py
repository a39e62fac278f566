"""Server-sent events as bytes, and streams that several readers follow: each part is made once, on the thread of the
reader who needs it first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

KEPT = 8
"""The number of parts for a reader that is behind. What it has not read then is left out."""

T = TypeVar("T")


@dataclass(slots=True)
class _Stream(Generic[T]):
    """`waiting` has the parts that each reader has not read yet. The lock is held while one is made."""

    parts: Iterator[T]
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: dict[int, deque[T]] = field(default_factory=dict)
    is_over: bool = False


class SharedStreams(Generic[T]):
    """Thread-safe. An error of a stream reaches one reader, and the stream ends for the others."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the collector may end a forgotten reader on a thread that holds it
        self._streams: dict[Hashable, _Stream[T]] = {}

    def follow(self, key: Hashable, parts: Iterator[T]) -> Iterator[Sequence[T]]:
        """Yields an empty sequence once it follows the stream of a key, and what has come since, one or more parts each
        time. The stream is `parts` if it has no reader yet."""
        mine: deque[T] = deque(maxlen=KEPT)
        with self._lock:
            stream = self._streams.setdefault(key, _Stream(parts))
            stream.waiting[id(mine)] = mine
        try:
            yield ()
            while True:
                with stream.lock:
                    if not mine:
                        part = next(stream.parts, None)
                        if part is None:
                            stream.is_over = True
                            return
                        for one in list(stream.waiting.values()):
                            one.append(part)
                    new = list(mine)
                    mine.clear()
                yield new
        finally:
            with self._lock:
                del stream.waiting[id(mine)]
                if self._streams.get(key) is stream and (stream.is_over or not stream.waiting):
                    del self._streams[key]


KEEP_ALIVE = b": keep-alive\n\n"
_encode = msgspec.json.Encoder().encode


def event(name: str, data: Any) -> bytes:
    """Encoded JSON has no line ends, so an event is one line of data."""
    return b"event: " + name.encode() + b"\ndata: " + _encode(data) + b"\n\n"
