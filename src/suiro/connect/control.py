"""Status, pause, resume and restart over HTTP: paths of Kafka Connect's REST API, and `/metrics` for Prometheus.

After a 202, the state changes later. An error is `{"error_code": status, "message": what happened and what to do}`.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from suiro.connect.postgres.status import capture_families
from suiro.connect.runtime import Runtime, UnknownConnectorError
from suiro.foundation.http import (
    ROUTING_ERRORS,
    Guard,
    HttpServer,
    Origins,
    Role,
    Tls,
    Users,
    error_answer,
    listen_on,
    not_allowed,
)
from suiro.foundation.metrics import CONTENT_TYPE, Kind, family, render
from suiro.telemetry import MetricsPush, push_metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MAX_BODY_BYTES = 64 * 1024  # requests need no body
STATES = ("RUNNING", "PAUSED", "RESTARTING", "FAILED")
METRICS: tuple[tuple[str, str, Kind, str], ...] = (
    ("records", "suiro_connect_records_total", "counter", "Records written by a source or taken by a sink."),
    ("rejected", "suiro_connect_rejected_total", "counter", "Records put aside."),
    ("commits", "suiro_connect_commits_total", "counter", "Batches committed."),
    ("restarts", "suiro_connect_restarts_total", "counter", "Starts after a failure."),
    ("lag", "suiro_connect_lag", "gauge", "What is not stored yet: records of a sink, a source's own units."),
)
STATE_METRIC: tuple[str, str, Kind, str] = (
    "state", "suiro_connect_state", "gauge", "1 for the state that a connector is in."
)  # fmt: skip


def serve_control(
    runtime: Runtime,
    host: str,
    port: int,
    *,
    token: str | None = None,
    users: Users | None = None,
    tls: Tls | None = None,
) -> HttpServer:
    """Serves until `stop`. With a token, requests must have `Authorization: Bearer TOKEN`. With users, all of them may
    read, and operators may change states. Raises `ConfigError`."""

    async def names(request: Request) -> Response:
        status = runtime.status()
        if request.query_params.get("expand") == "status":
            return JSONResponse({item["name"]: {"status": item} for item in status})
        return JSONResponse([item["name"] for item in status])

    async def one(request: Request) -> Response:
        return JSONResponse(runtime.status(request.path_params["name"])[0])

    async def change(request: Request) -> Response:
        name, action = request.path_params["name"], request.url.path.rpartition("/")[2]
        {"pause": runtime.pause, "resume": runtime.resume, "restart": runtime.restart}[action](name)
        return Response(status_code=202)

    async def metrics(request: Request) -> Response:
        return Response(render(_metrics(runtime)), media_type=CONTENT_TYPE)

    def guarded(endpoint: Any, role: Role = Role.VIEWER) -> Any:
        async def checked(request: Request) -> Response:
            denied = not_allowed(request.scope, role)
            if denied is not None:
                return error_answer(403, denied)
            given = request.headers.get("authorization", "")
            if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                return error_answer(401, "give the token of section [connect] as: Authorization: Bearer TOKEN")
            try:
                answer: Response = await endpoint(request)
            except UnknownConnectorError as error:
                return error_answer(404, str(error))
            return answer

        return checked

    application = Starlette(
        routes=[
            Route("/connectors", guarded(names)),
            Route("/connectors/{name}/status", guarded(one)),
            Route("/connectors/{name}/pause", guarded(change, Role.OPERATOR), methods=["PUT"]),
            Route("/connectors/{name}/resume", guarded(change, Role.OPERATOR), methods=["PUT"]),
            Route("/connectors/{name}/restart", guarded(change, Role.OPERATOR), methods=["POST"]),
            Route("/metrics", guarded(metrics)),
        ],
        exception_handlers=ROUTING_ERRORS,
    )
    origins = Origins(
        loopback_only=token is None and users is None, instead="set token or auth_file in section [connect]"
    )
    guard = Guard(
        application,
        origins=origins,
        users=users,
        max_body_bytes=MAX_BODY_BYTES,
        realm="suiro connect",
        unknown="give the name and password of a user of auth_file: http://NAME:PASSWORD@HOST",
    )
    return HttpServer(guard, listen_on(host, port, name="connect"), name="connect-control", tls=tls)


def push_connect_metrics(runtime: Runtime, otlp: str | None) -> MetricsPush | None:
    """Pushes the metrics by OTLP. Returns None if no endpoint is configured."""
    return push_metrics(lambda: _metrics(runtime), otlp, "suiro-connect")


def _metrics(runtime: Runtime) -> Iterator[Metric]:
    status = runtime.status()
    for key, name, kind, text in METRICS:
        metric = family(kind, name, text, ["connector"])
        for item in status:
            if item[key] is not None:
                metric.add_metric([item["name"]], item[key])
        yield metric
    _, name, kind, text = STATE_METRIC
    states = family(kind, name, text, ["connector", "state"])
    for item in status:
        for state in STATES:
            states.add_metric([item["name"], state], item["state"] == state)
    yield states
    yield from capture_families(runtime.capture_metrics())
