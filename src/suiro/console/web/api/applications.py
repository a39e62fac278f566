"""Applications that run with `--console`: their status, and rows of their stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from suiro.console.web.endpoint import Body, Call, get, post
from suiro.console.web.remotes import Peer, json_without_errors, listed, peer_of, without_errors
from suiro.foundation.http import Role, segment

PATH = "/api/v1/application"
EXPLAIN_TIMEOUT_S = 120.0
"""The application stops earlier and says so."""
_ROWS = {
    "first": "how many rows to leave out",
    "limit": "how many rows at the most",
    "contains": "only rows whose key has this in its text",
}


class RowBody(Body):
    """A row as `GET /apps/{app}/stores/{store}` names it."""

    key: str
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """A reader or writer of a topic. `link` is a place of the page."""

    kind: str
    name: str
    direction: str  # "reads" or "writes"
    link: str


class _Node(msgspec.Struct, frozen=True):
    kind: str = ""
    topics: list[str] = []


class _Graph(msgspec.Struct, frozen=True):
    nodes: list[_Node] = []


class _Store(msgspec.Struct, frozen=True):
    topic: str | None = None


class _Topology(msgspec.Struct, frozen=True):
    """The part of an answer that `related_to` needs."""

    graph: _Graph = _Graph()
    stores: list[_Store] = []


@get("/apps")
def list_applications(call: Call) -> Mapping[str, Any]:
    """The applications that were named, and how they stand.

    Each as it tells of itself, with its number and address; `error`: why it tells nothing, or what ended it.
    """
    apps = []
    for host, answer in listed(call, call.console.settings.apps, PATH, _application):
        told = without_errors(call, answer or {})
        error = told.get("error") if host["error"] is None else host["error"]
        apps.append({**told, "app": host["host"], "url": host["url"], "error": error})
    return {"apps": apps}


def _application(content: bytes) -> dict[str, Any]:
    msgspec.json.decode(content, type=_Topology)
    return msgspec.json.decode(content, type=dict[str, Any])


def related_to(call: Call, topic: str) -> Iterator[Related]:
    """Yields the applications whose topology reads or writes a topic, also as a changelog, as far as they answer."""
    for one in list_applications(call)["apps"]:
        name = str(one.get("application_id", ""))
        link = f"#/applications/{one['app']}"
        told = msgspec.convert(one, _Topology)
        kinds = {node.kind for node in told.graph.nodes if topic in node.topics}
        if kinds & {"source", "global"}:
            yield Related(kind="application", name=name, direction="reads", link=link)
        changelogs = [store.topic for store in told.stores]
        if "sink" in kinds or (topic in changelogs and topic.startswith(f"{name}-")):
            yield Related(kind="application", name=name, direction="writes", link=link)


@get("/apps/{app}")
def _one(call: Call) -> bytes:
    """An application: graph with rates, micro-batches, lag, stores."""
    return json_without_errors(call, _peer(call).ask("GET", PATH, call.gone))


@get("/apps/{app}/stores/{store}", query=_ROWS)
def _rows(call: Call) -> bytes:
    """Rows of a store."""
    call.require_unmasked("rows of stores")
    query = "&".join(f"{name}={segment(value)}" for name, value in call.query.items())
    return _peer(call).ask("GET", f"{PATH}/stores/{segment(call.path['store'])}?{query}", call.gone)


@post("/apps/{app}/stores/{store}/explain", Role.VIEWER, RowBody)
def _explain(call: Call) -> bytes:
    """The input records that a row of a store is made of."""
    call.require_unmasked("rows of stores")
    path = f"{PATH}/stores/{segment(call.path['store'])}/explain"
    said = msgspec.to_builtins(call.body)
    return _peer(call).long(path, said, call.gone, user=None, timeout_s=EXPLAIN_TIMEOUT_S)


def _peer(call: Call) -> Peer:
    return peer_of(call, call.console.settings.apps, "application", named="app")
