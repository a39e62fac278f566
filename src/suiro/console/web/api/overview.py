"""The user, the state of the cluster, the stream of changes, and the log of actions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from suiro import __version__
from suiro.console.web.endpoint import Call, Endpoint, Events
from suiro.console.web.events import KEEP_ALIVE, event
from suiro.console.web.model import Model, Overview
from suiro.foundation.http import Role

KEEP_ALIVE_S = 10.0
WAITING_EVENTS = 16
"""The most waiting events of one reader. If it is further behind, it is told to load everything again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Has:
    registry: bool
    connect: int
    views: int
    apps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    user: str | None
    role: str
    read_only: bool
    can_log_out: bool
    version: str
    bootstrap: str
    has: Has


def _me(call: Call) -> Me:
    """Who is asking."""
    settings = call.console.settings
    return Me(
        user=call.user,
        role=call.role.name.lower(),
        read_only=settings.read_only,
        can_log_out=call.can_log_out,
        version=__version__,
        bootstrap=settings.bootstrap_servers,
        has=Has(
            registry=settings.registry is not None,
            connect=len(settings.connect),
            views=len(settings.views),
            apps=len(settings.apps),
        ),
    )


def _overview(call: Call) -> Overview:
    """How the cluster stands."""
    return call.console.model.overview


def _audit(call: Call) -> dict[str, Any]:
    """The last changes that were asked for through this console, the newest first."""
    return {"events": call.console.audit()}


def _events(call: Call) -> Events:
    """Server-sent events: what changed, about each five seconds."""
    return Events(parts=_deltas(call.console.model))


async def _deltas(model: Model) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[bytes] = asyncio.Queue()

    def put(told: bytes) -> None:
        if waiting.qsize() < WAITING_EVENTS:
            waiting.put_nowait(told)
            return
        while not waiting.empty():
            waiting.get_nowait()
        waiting.put_nowait(event("reload", {}))

    with model.subscribed(lambda told: _call(loop, put, told)):
        yield event("hello", {"version": model.version})
        while True:
            try:
                told = await asyncio.wait_for(waiting.get(), KEEP_ALIVE_S)
            except TimeoutError:
                told = KEEP_ALIVE
            if not told:  # the console stops
                return
            yield told


def _call(loop: asyncio.AbstractEventLoop, put: Any, told: bytes) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(put, told)


ENDPOINTS = (
    Endpoint("GET", "/me", Role.VIEWER, _me, from_memory=True),
    Endpoint("GET", "/overview", Role.VIEWER, _overview, from_memory=True),
    Endpoint("GET", "/events", Role.VIEWER, _events, from_memory=True),
    Endpoint("GET", "/audit", Role.OPERATOR, _audit, from_memory=True),
)
