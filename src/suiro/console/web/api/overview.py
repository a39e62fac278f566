"""The user, the state of the cluster, the stream of changes, the log of actions, and current problems.

The problems of the cluster are in the overview, too. Those of the configured applications, views and connectors are
read at each call, like their lists. A server that does not answer is itself a problem, and does not delay the response
for long (`remotes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from suiro import __version__
from suiro.console.dead_letters import is_named_as_dead_letters
from suiro.console.web.api.applications import list_applications
from suiro.console.web.api.connectors import list_connectors
from suiro.console.web.api.views import list_views
from suiro.console.web.endpoint import Call, Events, get
from suiro.console.web.model import Model, Overview, Problem, new_dead_letters
from suiro.console.web.streams import KEEP_ALIVE, event
from suiro.foundation.http import Role, segment

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


@get("/me", from_memory=True)
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


@get("/overview", from_memory=True)
def _overview(call: Call) -> Overview:
    """How the cluster stands."""
    return call.console.model.overview


@get("/audit", Role.OPERATOR, from_memory=True)
def _audit(call: Call) -> dict[str, Any]:
    """The last changes that were asked for through this console, the newest first."""
    return {"events": call.console.audit()}


@get("/events", from_memory=True)
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

    def tell(told: bytes) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(put, told)

    with model.subscribed(tell):
        yield event("hello", {"version": model.version})
        while True:
            try:
                told = await asyncio.wait_for(waiting.get(), KEEP_ALIVE_S)
            except TimeoutError:
                told = KEEP_ALIVE
            if not told:  # the console stops
                return
            yield told


PROBLEMS_MAX = 100
TEXT_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """`problems` has errors first. `left_out` is the number of further problems."""

    problems: tuple[Problem, ...]
    left_out: int


@get("/problems")
def _problems(call: Call) -> Problems:
    """What is wrong now, in the cluster and in what runs on it."""
    found = [
        *call.console.model.overview.problems,
        *_of_applications(call),
        *_of_connectors(call),
        *_of_views(call),
    ]
    found.sort(key=lambda one: one.severity != "error")
    return Problems(problems=tuple(found[:PROBLEMS_MAX]), left_out=max(len(found) - PROBLEMS_MAX, 0))


def _of_applications(call: Call) -> Iterator[Problem]:
    model = call.console.model
    for one in list_applications(call)["apps"]:
        name = str(one.get("application_id") or "")
        link = f"#/applications/{one['app']}"
        if one["error"] is not None:
            yield _error(f"Application {name}".strip(), one["error"], link)
        elif one.get("state") == "ERROR":
            yield _error(f"Application {name}", "it has stopped with an error", link)
        topics = one.get("dead_letter_topics")
        for topic in topics if isinstance(topics, list) else ():
            # The overview has the topics with such a name.
            if not is_named_as_dead_letters(str(topic)) and model.grew_lately(str(topic)):
                text = f"{new_dead_letters(str(topic))}, of application {name}"
                yield Problem(severity="warning", text=text, link=f"#/dead-letters/{segment(str(topic))}")


def _of_connectors(call: Call) -> Iterator[Problem]:
    for host in list_connectors(call).hosts:
        if host.error is not None:
            yield _error("Connectors", host.error, "#/connectors")
        for one in host.connectors:
            state = one.get("state")
            # While it runs, its error is the last one that it had.
            if state == "FAILED" or (state != "RUNNING" and one.get("error") is not None):
                yield _error(f"Connector {one.get('name')}", one.get("error") or "it has failed", "#/connectors")


def _of_views(call: Call) -> Iterator[Problem]:
    for host in list_views(call).hosts:
        if host.error is not None:
            yield _error("Views", host.error, "#/views")
        for raw in host.views:
            view = msgspec.json.decode(raw) if isinstance(raw, msgspec.Raw) else raw
            if isinstance(view, dict):
                yield from _of_view(host.host, view)


def _of_view(host: int, view: Mapping[str, Any]) -> Iterator[Problem]:
    link = f"#/views/{host}/{segment(str(view.get('view')))}"
    versions = view.get("versions")
    for version in versions if isinstance(versions, list) else ():
        if not isinstance(version, dict) or version.get("state") == "retired":
            continue
        error = version.get("error") or version.get("follower_error") or _error_of(version.get("pipeline"))
        if error:
            yield _error(f"View {view.get('view')}, version {version.get('version')}", error, link)


def _error_of(pipeline: Any) -> Any:
    return pipeline.get("error") if isinstance(pipeline, dict) else None


def _error(what: str, why: Any, link: str) -> Problem:
    """Returns a problem of one line. The error of a server that does not answer has its address."""
    text = " ".join(f"{what}: {why}".split())
    return Problem(severity="error", text=text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}…", link=link)
