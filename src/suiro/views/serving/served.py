"""A version that can be read, as the server of reads needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from suiro.views.cuts import Cut
from suiro.views.serving.read_metrics import ReadMetrics
from suiro.views.store import Store, StoreSpec


class Following(Protocol):
    """`suiro.views.pipeline.follower.Follower`."""

    @property
    def cut(self) -> Cut | None: ...
    def listen(self, heard: Callable[[], None]) -> Callable[[], None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    view: str
    version: int
    spec: StoreSpec
    output_topic: str
    store: Store
    follower: Following
    metrics: ReadMetrics


def waking(changed: asyncio.Event) -> Callable[[], None]:
    """For `Following.listen`: sets the event in the loop that runs now."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(changed.set)

    return wake
