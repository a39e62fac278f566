"""A running application over HTTP: how it stands, and rows of its stores. It changes nothing.

| request | gives |
|---|---|
| `GET /api/v1/application` | state, graph with rates, micro-batches, lag, stores |
| `GET /api/v1/application/stores/{store}?first=&limit=&contains=` | rows |

An error is `{"error_code": status, "message": what, and what to do}`.
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
from suiro.foundation.http import Guard, HttpServer, Origins, is_loopback, listen_on
from suiro.streams_spark.kafka_streams import KafkaStreams
from suiro.streams_spark.status import ApplicationStatus

__all__ = ["ApplicationServer"]

THREADS = 4
LARGEST_NUMBER = 1 << 40

logger = logging.getLogger(__name__)


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
        application = Starlette(
            routes=[
                Route("/api/v1/application", self._application),
                Route("/api/v1/application/stores/{store}", self._rows),
            ]
        )
        guard = Guard(
            application,
            origins=Origins(loopback_only=True, instead="ask a `suiro console` with users"),
            max_body_bytes=1_024,
        )
        self._server = HttpServer(guard, listen_on(host, port, name="the application"), name="application")
        self.url = self._server.url
        self._status.start()

    def stop(self) -> None:
        """Safe to call again."""
        self._server.stop()
        self._status.stop()

    async def _application(self, request: Request) -> Response:
        return await self._answer(self._status.application)

    async def _rows(self, request: Request) -> Response:
        query = request.query_params
        name = request.path_params["store"]
        return await self._answer(
            lambda: self._status.rows(
                name,
                first=_number(query, "first", 0),
                limit=_number(query, "limit", 100),
                contains=query.get("contains", ""),
            )
        )

    async def _answer(self, make: Callable[[], Any]) -> Response:
        def made() -> tuple[int, Any]:
            try:
                return 200, make()
            except SuiroError as error:
                status = (
                    503
                    if isinstance(error, TransientError)
                    else 400
                    if isinstance(error, UsageError)
                    else 500
                )
                return status, {"error_code": status, "message": str(error)}
            except Exception as error:
                logger.exception("a request failed")
                message = f"the application's page failed: {type(error).__name__}; its log says more"
                return 500, {"error_code": 500, "message": message}

        status, answer = await asyncio.get_running_loop().run_in_executor(self._threads, made)
        return Response(msgspec.json.encode(answer), status_code=status, media_type="application/json")


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= LARGEST_NUMBER):
        raise UsageError(f"{name}={text[:80]!r}: expected a number from 0 on")
    return int(text)
