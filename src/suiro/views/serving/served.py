"""A version that can be read, with what the server of reads needs of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from suiro.views.definition import VersionSpec
from suiro.views.pipeline.follower import Follower
from suiro.views.serving.read_metrics import ReadMetrics
from suiro.views.store.tables import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    spec: VersionSpec
    store: Store
    follower: Follower
    metrics: ReadMetrics


def waking(changed: asyncio.Event) -> Callable[[], None]:
    """For `Follower.listen`: sets the event in the running loop."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(changed.set)

    return wake
