"""Punctuators: user functions called as stream time or wall-clock time advances (KIP-138).

When each is due next is kept by runners with the stores (`state`), so that a task that is made again goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from suiro.streams.errors import ProcessingError
from suiro.streams.records import LATEST_MS

PunctuationType = Literal["stream-time", "wall-clock-time"]

_NEVER = LATEST_MS
"""When a cancelled function is due."""


@dataclass(slots=True)
class Cancellable:
    """A scheduled function, and when it is due next."""

    name: str
    interval_ms: int
    type: PunctuationType
    callback: Callable[[int], None]
    next_ms: int
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Punctuators:
    """Stream-time functions are due at 0, so with the first record, and at multiples of their interval. Wall-clock
    functions are due an interval after they were scheduled, then every interval. Functions are called in the order in
    which they are due. A clock that jumps over several intervals calls a function once; one that is set back calls it
    an interval later.

    A processor schedules its functions again whenever its task is made, so cancelled functions are remembered.

    `failed(node, time, error)` is called for a function that raised. It raises if the policy is to fail.
    """

    def __init__(self, failed: Callable[[str, int, Exception], None]) -> None:
        self._failed = failed
        self._scheduled: list[Cancellable] = []
        self._counts: dict[str, int] = {}
        self._due: dict[str, int] = {}
        self._returning: list[Cancellable] = []
        self._replaced: set[str] = set()
        self.is_starting = True
        """True while processors are made."""

    def __bool__(self) -> bool:
        return bool(self._scheduled)

    def __iter__(self) -> Iterator[Cancellable]:
        return iter(self._scheduled)

    def schedule(
        self,
        node: str,
        interval_ms: int,
        type: PunctuationType,
        callback: Callable[[int], None],
        now_ms: int | None,
    ) -> Cancellable:
        """Schedules a function. `now_ms`: the wall clock; None for stream time. The functions of a node are identified
        by their order."""
        number = self._counts[node] = self._counts.get(node, -1) + 1
        name = f"{node}#{number}"
        first = 0 if now_ms is None else now_ms + interval_ms
        found = Cancellable(name, interval_ms, type, callback, self._due.get(name, first))
        if self.is_starting:
            found.cancelled = self._due.get(name) == _NEVER
            self._returning.append(found)
        else:
            # Nobody schedules it in the next task; so what it took the place of comes back there.
            self._replaced.add(node)
            if found.next_ms == _NEVER:
                found.next_ms = first
        self._scheduled.append(found)
        return found

    def state(self) -> dict[str, int]:
        due = {item.name: item.next_ms for item in self._scheduled}
        gone = [item.name for item in self._returning if item.cancelled]
        return due | {name: _NEVER for name in gone if _node_of(name) not in self._replaced}

    def restore(self, due: Mapping[str, int]) -> None:
        """Restores what `state` returned. To be called before anything is scheduled."""
        self._due.update(due)

    def stream_time_is(self, time_ms: int) -> None:
        self._call("stream-time", time_ms)

    def wall_clock_time_is(self, time_ms: int) -> None:
        self._call("wall-clock-time", time_ms)

    def _call(self, type: PunctuationType, time_ms: int) -> None:
        self._scheduled = [item for item in self._scheduled if not item.cancelled]
        if time_ms < 0:
            return
        if type == "wall-clock-time":
            for item in self._scheduled:
                # Later than an interval from now it is due only where the clock was set back.
                if item.type == type:
                    item.next_ms = min(item.next_ms, time_ms + item.interval_ms)
        due = [item for item in self._scheduled if item.type == type and item.next_ms <= time_ms]
        for item in sorted(due, key=lambda item: item.next_ms):
            if item.cancelled:
                continue
            # Skips what a jump left behind: the next call is after this time, on the same grid.
            item.next_ms += ((time_ms - item.next_ms) // item.interval_ms + 1) * item.interval_ms
            try:
                item.callback(time_ms)
            except ProcessingError:
                raise  # a node further down said it already
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._failed(_node_of(item.name), time_ms, error)


def _node_of(name: str) -> str:
    return name.rpartition("#")[0]
