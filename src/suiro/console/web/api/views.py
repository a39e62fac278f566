"""Views, through the hosts that serve them. Responses of a host are passed on unchanged, with all digits."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from suiro.console.web.endpoint import Body, Call, get, post
from suiro.console.web.remotes import Peer, json_without_errors, listed, peer_of
from suiro.errors import UsageError
from suiro.foundation.http import Role, segment

LONG_TIMEOUT_MS = 10 * 60_000
"""The default timeout of a comparison or an explanation."""
LONGEST_TIMEOUT_MS = 60 * 60_000
DEPLOY_TIMEOUT_S = 180.0
"""The host checks the code in a separate process, for at most two minutes."""
ROWS = "rows of views"
SLACK_S = 30.0  # the time for the answer of the host, after its own timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewsHost:
    """`views` are as the host reports them. `error` tells why there are none."""

    host: int
    url: str
    error: str | None
    views: list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewsHosts:
    hosts: tuple[ViewsHost, ...]


class DeployBody(Body):
    """`files` has texts by file name; all files are in one folder. `entry` is APP.PY:FUNCTION: one of the files, and
    its function with `@view`."""

    entry: str
    files: dict[str, str]
    settings: dict[str, str] | UnsetType = UNSET
    registry: str | UnsetType = UNSET
    throttle: int | UnsetType = UNSET


class CompareBody(Body):
    old: int | UnsetType = UNSET
    new: int | UnsetType = UNSET
    tolerances: dict[str, float] | UnsetType = UNSET
    ignored: list[str] | UnsetType = UNSET
    timeout_ms: int | UnsetType = UNSET


class ExplainBody(Body):
    keys: list[list[Any]] | UnsetType = UNSET
    full: bool | UnsetType = UNSET
    old: int | UnsetType = UNSET
    new: int | UnsetType = UNSET
    timeout_ms: int | UnsetType = UNSET


class ShiftBody(Body):
    steps: list[float]
    hold_ms: int | UnsetType = UNSET
    max_lag_ms: int | UnsetType = UNSET
    guards: dict[str, float] | UnsetType = UNSET


class ForwardBody(Body):
    max_lag_ms: int | UnsetType = UNSET


class ThrottleBody(Body):
    """null: no limit."""

    records_per_second: int | None


class RetireBody(Body):
    version: int
    yes: bool
    last: bool | UnsetType = UNSET


@get("/views")
def list_views(call: Call) -> ViewsHosts:
    """All views, by the host that serves them."""
    found = listed(call, call.console.settings.views, "/views", partial(_views, call))
    return ViewsHosts(hosts=tuple(ViewsHost(**host, views=answer or []) for host, answer in found))


def _views(call: Call, content: bytes) -> list[Any]:
    msgspec.json.decode(content)  # `Raw` may be a number that no double can hold
    views = msgspec.json.decode(content, type=list[msgspec.Raw])
    return [msgspec.Raw(json_without_errors(call, bytes(one))) for one in views]


@get("/views/{host}/{view}", summary="A view: versions, routing, lag, progress, processes")
@get("/views/{host}/{view}/history", summary="The last changes of a view: when, who, what")
@get("/views/{host}/{view}/comparisons", summary="The last comparisons of a view's versions, by id")
def _look(call: Call) -> bytes:
    if call.action == "/comparisons":
        call.require_unmasked(ROWS)
    return json_without_errors(call, _peer(call).ask("GET", _path(call), call.gone))


@post("/views/{host}", Role.ADMIN, DeployBody)
def _deploy(call: Call) -> bytes:
    """Deploy a version of a view: its code runs on the host."""
    from suiro.views.pipeline.archive import archive_of_files

    said = _said(call)
    files, entry = said.pop("files"), said["entry"]
    if entry.rpartition(":")[0] not in files:
        raise UsageError(f'"entry" is {entry[:200]!r}: expected APP.PY:FUNCTION, and APP.PY among the files')
    said["code"] = base64.b64encode(archive_of_files(files)).decode()
    return _peer(call).long("/views", said, call.gone, user=call.user, timeout_s=DEPLOY_TIMEOUT_S)


@post("/views/{host}/{view}/shift", Role.OPERATOR, ShiftBody, summary="Move readers to the other version by steps")
@post("/views/{host}/{view}/rollback", Role.OPERATOR, summary="Give all readers the version before")
@post(
    "/views/{host}/{view}/forward", Role.OPERATOR, ForwardBody, summary="Give all readers the version after a rollback"
)
@post("/views/{host}/{view}/throttle", Role.OPERATOR, ThrottleBody, summary="Records a second of a version being built")
@post("/views/{host}/{view}/retire", Role.ADMIN, RetireBody, summary="End a version and what it stores")
def _do(call: Call) -> bytes:
    told = _peer(call).ask("POST", _path(call), call.gone, _said(call), user=call.user)
    return json_without_errors(call, told)


@post("/views/{host}/{view}/compare", Role.VIEWER, CompareBody, summary="Compare two versions row by row")
@post("/views/{host}/{view}/explain", Role.VIEWER, ExplainBody, summary="Why rows of two versions differ")
def _work(call: Call) -> bytes:
    """A request that may take minutes. It ends when its caller disconnects."""
    call.require_unmasked(ROWS)
    peer = _peer(call)
    said = {"timeout_ms": LONG_TIMEOUT_MS, **_said(call)}
    timeout_ms = said["timeout_ms"]
    if not 0 < timeout_ms <= LONGEST_TIMEOUT_MS:
        raise UsageError(f'"timeout_ms" is {timeout_ms}: expected more than 0, at most {LONGEST_TIMEOUT_MS}')
    return peer.long(_path(call), said, call.gone, user=call.user, timeout_s=timeout_ms / 1_000 + SLACK_S)


def _peer(call: Call) -> Peer:
    return peer_of(call, call.console.settings.views, "host of views")


def _path(call: Call) -> str:
    return f"/views/{segment(call.path['view'])}{call.action}"


def _said(call: Call) -> dict[str, Any]:
    said: dict[str, Any] = msgspec.to_builtins(call.body)
    return {**said, "who": call.user or "console"}
