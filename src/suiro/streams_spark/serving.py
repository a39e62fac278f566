"""Serves the status and store rows of a running application over HTTP. Read-only.

| request | gives |
|---|---|
| `GET /api/v1/application` | state, graph with rates, micro-batches, lag, stores |
| `GET /api/v1/application/stores/{store}?first=&limit=&contains=` | rows |
| `POST /api/v1/application/stores/{store}/explain`: `{"key": text, "window": [start, end] or null}` | input records |

An error is `{"error_code": status, "message": what, and what to do}`. Few requests for rows are worked on at once, on
threads of their own: how the application stands is told however long a copy of a store takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from suiro.errors import ConfigError, SuiroError, TransientError, UsageError
from suiro.foundation.http import (
    ROUTING_ERRORS,
    Guard,
    HttpServer,
    Origins,
    error_answer,
    is_loopback,
    listen_on,
)
from suiro.numerals import natural
from suiro.streams_spark.kafka_streams import KafkaStreams
from suiro.streams_spark.status import ApplicationStatus, UnknownStoreError

THREADS = 2
ROWS_AT_ONCE, ROWS_WAITING = 4, 4
"""Requests for rows; further ones are answered with 503."""
LARGEST_NUMBER = 1 << 40
PARAMETERS = ("first", "limit", "contains")
MAX_BODY_BYTES = 64 * 1024
EXPLAINING_THREADS = 2
"""One looks for records. Another request gets the answer that it does so."""

logger = logging.getLogger(__name__)


class _Row(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """As `ApplicationStatus.rows` names it."""

    key: str
    window: tuple[int, int] | None = None


class ApplicationServer:
    """Serves once it is made, at `url`, until `stop`; on addresses of this machine only, since it asks nobody who they
    are. Raises `ConfigError`."""

    def __init__(self, streams: KafkaStreams, host: str, port: int) -> None:
        if not is_loopback(host):
            raise ConfigError(
                f"--console {host}: it shows rows of stores to whoever asks, so it listens on 127.0.0.1 only; let a "
                "`suiro console` with users on this machine show it to others"
            )
        self._status = ApplicationStatus(streams)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="application-page")
        self._rows_threads = ThreadPoolExecutor(ROWS_AT_ONCE, thread_name_prefix="application-rows")
        self._explaining = ThreadPoolExecutor(EXPLAINING_THREADS, thread_name_prefix="application-explain")
        self._rows_asked = 0  # of the server's own thread
        application = Starlette(
            routes=[
                Route("/api/v1/application", self._application),
                Route("/api/v1/application/stores/{store}", self._rows),
                Route("/api/v1/application/stores/{store}/explain", self._explain, methods=["POST"]),
            ],
            exception_handlers=ROUTING_ERRORS,
        )
        guard = Guard(
            application,
            origins=Origins(loopback_only=True, instead="ask a `suiro console` with users"),
            max_body_bytes=MAX_BODY_BYTES,
        )
        self._server = HttpServer(guard, listen_on(host, port, name="the application"), name="application")
        self.url = self._server.url
        self._status.start()

    def stop(self) -> None:
        """Safe to call again."""
        self._server.stop()
        self._status.stop()
        for threads in (self._threads, self._rows_threads, self._explaining):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _application(self, request: Request) -> Response:
        return await self._answer(self._threads, self._status.application)

    async def _rows(self, request: Request) -> Response:
        query = request.query_params
        name = request.path_params["store"]

        def rows() -> Any:
            unknown = sorted(set(query) - set(PARAMETERS))
            if unknown:
                raise UsageError(
                    f"{unknown[0][:80]!r} is no parameter of a store's rows; those are {', '.join(PARAMETERS)}"
                )
            return self._status.rows(
                name,
                first=_number(query, "first", 0),
                limit=_number(query, "limit", 100),
                contains=query.get("contains", ""),
            )

        if self._rows_asked >= ROWS_AT_ONCE + ROWS_WAITING:
            return error_answer(503, f"{self._rows_asked} requests for rows are waiting; try again")
        self._rows_asked += 1
        try:
            return await self._answer(self._rows_threads, rows)
        finally:
            self._rows_asked -= 1

    async def _explain(self, request: Request) -> Response:
        body, name = await request.body(), request.path_params["store"]

        def explain() -> Any:
            try:
                asked = msgspec.json.decode(body, type=_Row)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise UsageError(f"the request's body is no row of a store: {error}") from None
            return self._status.explain_row(name, asked.key, asked.window)

        return await self._answer(self._explaining, explain)

    async def _answer(self, threads: ThreadPoolExecutor, make: Callable[[], Any]) -> Response:
        def made() -> Response:
            try:
                return Response(msgspec.json.encode(make()), media_type="application/json")
            except SuiroError as error:
                return error_answer(_status_of(error), str(error))
            except Exception as error:
                logger.exception("a request failed")
                return error_answer(500, f"the application's page failed: {type(error).__name__}; its log says more")

        return await asyncio.get_running_loop().run_in_executor(threads, made)


def _status_of(error: SuiroError) -> int:
    if isinstance(error, TransientError):
        return 503
    if isinstance(error, UnknownStoreError):
        return 404
    return 400 if isinstance(error, UsageError) else 500


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    number = natural(text, LARGEST_NUMBER)
    if number is None:
        raise UsageError(f"{name}={text[:80]!r}: expected a number from 0 on")
    return number
