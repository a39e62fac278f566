"""Connectors of the configured processes: `suiro connect`, or Kafka Connect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from suiro.console.web.endpoint import Call, get, post
from suiro.console.web.remotes import listed, peer_of, without_errors
from suiro.foundation.http import Role, segment

LIST = "/connectors?expand=status"
METHODS = {"pause": "PUT", "resume": "PUT", "restart": "POST"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectHost:
    """`connectors` has the status of each connector as the host reports it. `error` tells why there are none."""

    host: int
    url: str
    error: str | None
    connectors: list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectHosts:
    hosts: tuple[ConnectHost, ...]


@get("/connectors")
def list_connectors(call: Call) -> ConnectHosts:
    """All connectors, by the process that runs them."""
    found = listed(call, call.console.settings.connect, LIST, _statuses)
    return ConnectHosts(
        hosts=tuple(ConnectHost(**host, connectors=without_errors(call, answer or [])) for host, answer in found)
    )


def _statuses(content: bytes) -> list[Any]:
    found = msgspec.json.decode(content, type=dict[str, dict[str, Any]])
    return [_status(name, one["status"]) for name, one in sorted(found.items())]


def _status(name: str, status: Any) -> dict[str, Any]:
    """Returns the status of a connector. Kafka Connect reports the connector and each of its tasks separately."""
    if not isinstance(status, dict):
        raise TypeError(f"the status of {name[:80]!r} is no object")
    connector = status.get("connector")
    if not isinstance(connector, dict):
        return {"name": name, **status}
    parts = [connector, *(one for one in status.get("tasks") or () if isinstance(one, dict))]
    failed = [one for one in parts if one.get("state") == "FAILED"]
    return {
        "name": name,
        "type": status.get("type"),
        "kind": None,
        "state": "FAILED" if failed else connector.get("state"),
        "error": next((str(one["trace"]).partition("\n")[0] for one in failed if one.get("trace")), None),
    }


@post("/connectors/{host}/{name}/pause", Role.OPERATOR, summary="Pause a connector; its state follows")
@post("/connectors/{host}/{name}/resume", Role.OPERATOR, summary="Resume a connector; its state follows")
@post("/connectors/{host}/{name}/restart", Role.OPERATOR, summary="Restart a connector; its state follows")
def _do(call: Call) -> Mapping[str, Any]:
    peer, name = peer_of(call, call.console.settings.connect, "process of connect"), call.path["name"]
    method = METHODS[call.action.removeprefix("/")]
    peer.ask(method, f"/connectors/{segment(name)}{call.action}", call.gone, user=call.user)
    return {"name": name}
