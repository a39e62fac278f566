"""Current problems: of the cluster, and of the configured applications, views and connectors.

The problems of the cluster are in the overview, too. The others are read at each call, like their lists. A server that
does not answer is itself a problem, and does not delay the response for long (`remotes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from suiro.console.dead_letters import is_named_as_dead_letters
from suiro.console.web.api.applications import list_applications
from suiro.console.web.api.connectors import list_connectors
from suiro.console.web.api.views import list_views
from suiro.console.web.endpoint import Call, Endpoint
from suiro.console.web.model import Problem, new_dead_letters
from suiro.foundation.http import Role, segment

PROBLEMS_MAX = 100
TEXT_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """`problems` has errors first. `left_out` is the number of further problems."""

    problems: tuple[Problem, ...]
    left_out: int


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


ENDPOINTS = (Endpoint("GET", "/problems", Role.VIEWER, _problems),)
