"""Commands for views over HTTP; `reads` has the reads. `client.Views` and `suiro view` send them.

| request | does |
|---|---|
| `GET /views`, `GET /views/V` | the status: versions, routing, measurements of guards, lag, progress, processes |
| `GET /views/V/history` | the last 1,000 changes: when, who, what |
| `GET /views/V/comparisons` | the last results, by id |
| `GET /journal` | whether the topic `_suiro_views` is trusted; how many of its records were refused |
| `GET /metrics` | the same for Prometheus, and whether the pipeline of each version runs |
| `POST /views` | deploy `{"code": base64 of a zip, "entry": "app.py:function", "settings": {}, "throttle": n}` |
| `POST /views/V/throttle` | `{"records_per_second": n}`, null for no limit |
| `POST /views/V/compare` | `{"old": n, "new": n, "tolerances": {}, "ignored": [], "timeout_ms": n}`, all optional |
| `POST /views/V/explain` | `{"keys": [["UA", "2013-07-04"]]}`, or without keys examples of each group; `"timeout_ms"` |
| `POST /views/V/shift` | `{"steps": [1, 10, 50, 100], "hold_ms": 5000, "guards": {"errors": 0.01, "p99_ms": 50}}` |
| `POST /views/V/rollback`, `.../forward` | |
| `POST /views/V/retire` | `{"version": n, "yes": true}`; `"last": true` for the only one |
| `POST /views/V/consumers` | `{"group": g, "version": n}` |

A comparison or an explanation ends when its caller disconnects.

With users, every user may look, compare and explain. Deploying and retiring need an admin, the other commands an
operator.

The history notes `"who"` of the request. With users, it notes the user instead, and the name in the header `Suiro-For`
if the user is a program that asks for others. An error is `{"error_code": status, "message": what, and what to do}`:
400 a wrong request, 403 not for this user, 404 no such view or version, 409 not in the view's position, 503 try again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import dataclasses
import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import Parameter, signature
from types import UnionType
from typing import Any, get_args, get_origin
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from suiro.errors import FatalError, SuiroError, TransientError, UsageError
from suiro.foundation.files import is_of_the_disk
from suiro.foundation.http import ROUTING_ERRORS, Guard, Origins, Role, Users, not_allowed, watching_client
from suiro.foundation.metrics import CONTENT_TYPE, family, render
from suiro.foundation.nesting import MAX_VALUES, has_too_many_values
from suiro.views.control.host import Host
from suiro.views.control.journal import MAX_CODE_BYTES
from suiro.views.serving.answers import error_answer, json_answer
from suiro.views.serving.reads import routes
from suiro.views.state import LARGEST_LAG_MS, RollbackConditions

MAX_BODY_BYTES = 2 * MAX_CODE_BYTES
LONGEST_MS = 10**15
MAX_NAME_CHARS = 200  # of a name in `Suiro-For`
DECIDING_THREADS = 8
LOOKING_THREADS = 8  # separate, because the lag of a version may come from a database that does not answer
LONG_THREADS = 8
"""For deploys, moves of consumers, and decisions that read a lag first: separate, so that a rollback never waits for
them."""
COMPARING_THREADS = 8  # for comparisons and explanations, most of which wait for their turn

logger = logging.getLogger(__name__)


def application(host: Host, users: Users | None = None) -> ASGIApp:
    """The reads and commands of a host. `users`: only they may use it."""
    # Reads come first, because a request is matched with one route after the other.
    made: ASGIApp = Starlette(routes=[*routes(host), *_Operations(host).routes()], exception_handlers=ROUTING_ERRORS)
    return Guard(
        made,
        origins=Origins(loopback_only=users is None, instead="name users with --auth-file"),
        users=users,
        max_body_bytes=MAX_BODY_BYTES,
        realm="suiro views",
        unknown="give the name and password of a user of this host: http://NAME:PASSWORD@HOST",
    )


Command = Callable[..., Any]
"""Gets the view, if the path has one. Its keyword parameters are the fields of the request's JSON object, `who`, and
`gone`, which is set once nobody waits for the answer any more. Returns the answer. A change is completed although its
caller has gone; comparisons and explanations end."""


class _Operations:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._deciding = ThreadPoolExecutor(DECIDING_THREADS, thread_name_prefix="views-decide")
        self._looking = ThreadPoolExecutor(LOOKING_THREADS, thread_name_prefix="views-look")
        self._long = ThreadPoolExecutor(LONG_THREADS, thread_name_prefix="views-long")
        self._comparing = ThreadPoolExecutor(COMPARING_THREADS, thread_name_prefix="views-compare")

    def routes(self) -> list[Route]:
        host = self._host
        looks: dict[str, Callable[[str], Any]] = {
            "/views": lambda view: host.views(),
            "/journal": lambda view: host.journal(),
            "/views/{view}": host.status,
            "/views/{view}/history": host.history,
            "/views/{view}/comparisons": host.comparing.kept,
        }
        commands: dict[str, tuple[Role, Command, ThreadPoolExecutor]] = {
            "/views": (Role.ADMIN, self._deploy, self._long),
            "/views/{view}/shift": (Role.OPERATOR, self._shift, self._long),
            "/views/{view}/rollback": (Role.OPERATOR, host.rollback, self._deciding),
            "/views/{view}/forward": (Role.OPERATOR, host.forward, self._long),
            "/views/{view}/retire": (Role.ADMIN, host.retire, self._deciding),
            "/views/{view}/throttle": (Role.OPERATOR, host.throttle, self._deciding),
            "/views/{view}/consumers": (Role.OPERATOR, host.move_consumers, self._long),
            "/views/{view}/compare": (Role.VIEWER, host.comparing.compare, self._comparing),
            "/views/{view}/explain": (Role.VIEWER, host.comparing.explain, self._comparing),
        }
        return [
            *(Route(path, self._look(look), methods=["GET"]) for path, look in looks.items()),
            Route("/metrics", self._metrics, methods=["GET"]),
            *(Route(path, self._do(*command), methods=["POST"]) for path, command in commands.items()),
        ]

    def _metrics(self, request: Request) -> Response:
        journal = self._host.journal()
        refused = family(
            "counter",
            "suiro_views_journal_refused_records",
            "Records of the topic of decisions that no host with these keys signed, since the start",
        )
        refused.add_metric([], journal["refused_records"])
        trusted = family(
            "gauge",
            "suiro_views_journal_trusted",
            "1: the topic of decisions is believed; 0: records of it are missing, and nothing is changed",
        )
        trusted.add_metric([], journal["error"] is None)
        runs = family(
            "gauge",
            "suiro_views_pipeline_runs",
            "1: the pipeline of the version runs; 0: it starts, is down, or the version cannot be opened",
            ("view", "version"),
        )
        for view, version, is_running in self._host.pipelines():
            runs.add_metric([view, str(version)], is_running)
        return Response(render([refused, trusted, runs]), media_type=CONTENT_TYPE)

    def _look(self, look: Callable[[str], Any]) -> Any:
        async def answer(request: Request) -> Response:
            view = request.path_params.get("view", "")
            return await _answer(self._looking, lambda: look(view))

        return answer

    def _do(self, role: Role, command: Command, threads: ThreadPoolExecutor) -> Any:
        async def answer(request: Request) -> Response:
            refused = not_allowed(request.scope, role)
            if refused is not None:
                return error_answer(UsageError(refused), 403)
            text = await request.body()
            user = _user(request)
            peer = request.client.host if request.client is not None else "unknown"
            gone = threading.Event()

            def run() -> Any:
                if has_too_many_values(text):
                    raise UsageError(f"the request's body has more than {MAX_VALUES} values")
                try:
                    data = json.loads(text or b"{}")
                except (ValueError, RecursionError) as error:
                    raise UsageError(f"the request's body is not JSON: {error}") from None
                if not isinstance(data, dict):
                    raise UsageError("the request's body is not a JSON object")
                said = _taken(data, "who", str)
                return command(*request.path_params.values(), **_named(command, data, user or said or peer, gone))

            async with watching_client(request.receive, gone):
                return await _answer(threads, run)

        return answer

    def _deploy(
        self,
        *,
        who: str,
        code: str,
        entry: str,
        settings: dict[str, Any] | None = None,
        registry: str | None = None,
        throttle: int | None = None,
    ) -> Any:
        try:
            archive = base64.b64decode(code, validate=True)
        except binascii.Error:
            raise UsageError("'code' is not a zip in base64") from None
        texts = {name: str(value) for name, value in (settings or {}).items()}
        return self._host.deploy(
            archive, entry, who=who, settings=texts, schema_registry_url=registry, throttle=throttle
        )

    def _shift(
        self,
        view: str,
        *,
        who: str,
        steps: list[Any],
        hold_ms: int = 0,
        guards: dict[str, Any] | None = None,
        max_lag_ms: int = LARGEST_LAG_MS,
    ) -> Any:
        shares = []
        for percent in steps:
            if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 < percent <= 100:
                raise UsageError(f"'steps' are percents, more than 0 and at most 100, not {percent!r}")
            shares.append(max(1, round(percent * 100)))
        known = [item.name for item in dataclasses.fields(RollbackConditions)]
        for name, value in (guards or {}).items():
            if (
                name not in known
                or isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 <= value <= (LONGEST_MS if name.endswith("_ms") else 1)
            ):
                raise UsageError(
                    f"guard {name!r}: {str(value)[:40]}; guards are {', '.join(known)}: times from 0 to "
                    f"{LONGEST_MS:,} ms, and shares from 0 to 1"
                )
        conditions = RollbackConditions(**(guards or {}))
        return self._host.shift(view, shares, who=who, hold_ms=hold_ms, guards=conditions, max_lag_ms=max_lag_ms)


def _named(command: Command, data: dict[str, Any], who: str, gone: threading.Event) -> dict[str, Any]:
    """Returns the arguments of a command. A field with null is as left out. Raises `UsageError` for a field that is
    missing or unknown, or has another type, and for a time out of range."""
    found: dict[str, Any] = {}
    for name, parameter in signature(command, eval_str=True).parameters.items():
        if parameter.kind is not Parameter.KEYWORD_ONLY:
            continue
        if name in ("who", "gone"):
            found[name] = who if name == "who" else gone
            continue
        kind = parameter.annotation
        kind = get_args(kind)[0] if isinstance(kind, UnionType) else kind  # of `int | None`
        value = _taken(data, name, get_origin(kind) or kind)
        if value is not None:
            found[name] = value
        elif parameter.default is Parameter.empty:
            raise UsageError(f"{name!r} is missing")
        least = 1 if name == "timeout_ms" else 0
        if name.endswith("_ms") and value is not None and not least <= value <= LONGEST_MS:
            raise UsageError(f"{name!r} is {str(value)[:40]}; expected milliseconds from {least} to {LONGEST_MS:,}")
    if data:
        raise UsageError(f"there is no field {', '.join(map(repr, sorted(data)))} in this request")
    return found


def _taken(data: dict[str, Any], name: str, kind: type) -> Any:
    value = data.pop(name, None)
    if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise UsageError(f"{name!r} is {json.dumps(value)[:80]}; expected {kind.__name__}")
    return value


def _user(request: Request) -> str | None:
    user: str | None = request.scope.get("suiro.user")
    others = unquote(request.headers.get("suiro-for", ""), errors="replace")[:MAX_NAME_CHARS]
    if user is None or not others:
        return user
    return f"{user} for {''.join(one if one.isprintable() else '?' for one in others)}"


async def _answer(threads: ThreadPoolExecutor, run: Callable[[], Any]) -> Response:
    try:
        return json_answer(await asyncio.get_running_loop().run_in_executor(threads, run))
    except SuiroError as error:
        return error_answer(error)
    except Exception as error:
        if is_of_the_disk(error) or isinstance(error, PermissionError):
            said = f"the host's disk: {error}; look how the view stands (suiro view status) before you ask again"
            return error_answer(TransientError(said))
        logger.exception("a request failed")
        return error_answer(FatalError(f"the host failed: {type(error).__name__}; its log says more"))
