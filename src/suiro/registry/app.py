"""The HTTP server of the registry: an ASGI application for paths, content types and errors. It knows no schemas.

Paths are split before they are decoded, because a subject can contain a slash (`orders%2Fvalue`). A path below
`/contexts/:.sandbox:/` is the same path for subjects of that context.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs, unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from suiro.clock import SystemClock
from suiro.errors import RefusedError, SuiroError, TransientError
from suiro.foundation.http import Guard, Origins, Users, error_json, not_allowed, watching_client
from suiro.foundation.nesting import MAX_VALUES, has_too_many_values
from suiro.registry.api_errors import ApiError, store_failed, timed_out
from suiro.registry.call import Call
from suiro.registry.endpoints import ROUTES, WORKING, WRITING, Endpoint, role_of
from suiro.registry.records import DEFAULT_CONTEXT, compact_json
from suiro.registry.storage import Storage
from suiro.registry.work import Work

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_TYPES = (CONTENT_TYPE, "application/vnd.schemaregistry+json", "application/json")
_REQUEST_TYPES = (*_TYPES, "application/octet-stream")
_ACCEPTED = (*_TYPES, "application/*", "*/*")
MAX_BODY_BYTES = 16 * 1024 * 1024
# No client gets it.
CLIENT_CLOSED_REQUEST = 499
READING_THREADS = 16
# Writers wait while the log is away, and those that parse take long. Each has threads of its own, so that reading goes
# on.
WRITING_THREADS = 16
WORKING_THREADS = 8
MAX_AT_WORK = 3
"""The number of requests of a process that parse or compare at the same time. More would only slow each other down."""
WORK_TIMEOUT_MS = 30_000
"""The time in which one request may parse and compare, including the wait for its turn."""
TURN_POLL_S = 0.1
REFRESH_TIMEOUT_MS = 3_000

logger = logging.getLogger(__name__)


class _ClientDisconnected(Exception):
    """The client has disconnected."""


class RegistryApp:
    """`loopback_only`: requests must use a name of this machine (`suiro.foundation.http.origins`)."""

    def __init__(self, storage: Storage, users: Users | None = None, *, loopback_only: bool = False) -> None:
        self._storage = storage
        self._clock = SystemClock()
        # A body without a type is accepted, as in Confluent's registry. A web page sends an Origin with it.
        origins = Origins(
            loopback_only=loopback_only, instead="name users with --auth-file", body_types=(*_REQUEST_TYPES, "")
        )
        self._guard = Guard(
            self._answer,
            origins=origins,
            users=users,
            max_body_bytes=MAX_BODY_BYTES,
            realm="schema-registry",
            media_type=CONTENT_TYPE,
        )
        self._at_work = threading.BoundedSemaphore(MAX_AT_WORK)
        self._working = ThreadPoolExecutor(WORKING_THREADS, thread_name_prefix="registry-work")
        self._reading = ThreadPoolExecutor(READING_THREADS, thread_name_prefix="registry-read")
        self._writing = ThreadPoolExecutor(WRITING_THREADS, thread_name_prefix="registry-write")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guard(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except Exception as error:
            if not isinstance(error, ApiError):
                logger.exception("%s %s", request.method, request.url.path)
                error = ApiError(500, f"Internal server error: {type(error).__name__}")
            response = Response(error_json(error.code, error.message), error.status, media_type=CONTENT_TYPE)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        disconnected = threading.Event()
        endpoint, call = await self._call(request, self._work(disconnected))
        threads = self._writing if endpoint in WRITING else self._reading
        if endpoint in WORKING or call.text("format"):
            threads = self._working if endpoint not in WRITING else self._writing
        try:
            async with watching_client(request.receive, disconnected):
                result = await loop.run_in_executor(threads, self._run, endpoint, call)
        except _ClientDisconnected:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        if result is None:
            return Response(status_code=204)
        text = result if isinstance(result, str) else compact_json(result)
        return Response(text, media_type=_answer_type(request))

    def _work(self, disconnected: threading.Event) -> Work:
        deadline_ms = self._clock.monotonic_ms() + WORK_TIMEOUT_MS

        def pause() -> None:
            if disconnected.is_set():
                raise _ClientDisconnected
            if self._clock.monotonic_ms() > deadline_ms:
                raise timed_out(
                    f"Parsing and comparing took more than {WORK_TIMEOUT_MS} ms; nothing was written. Try again, or "
                    "send a smaller schema"
                )

        return Work(pause, lambda: self._turn(pause))

    @contextlib.contextmanager
    def _turn(self, pause: Callable[[], None]) -> Iterator[None]:
        while not self._at_work.acquire(timeout=TURN_POLL_S):
            pause()
        try:
            yield
        finally:
            self._at_work.release()

    async def _call(self, request: Request, work: Work) -> tuple[Endpoint, Call]:
        raw_path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        try:
            path_parts = raw_path.partition(b"?")[0].decode().strip("/").split("/")
            parts = [unquote(part, errors="strict") for part in path_parts]
            query = parse_qs(request.scope["query_string"].decode(), keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            raise ApiError(400, "HTTP 400 Bad Request: the path or the query is not UTF-8") from None
        context = DEFAULT_CONTEXT
        if parts[0] == "contexts" and len(parts) > 2:  # :.sandbox:, .sandbox or sandbox
            context, parts = f".{parts[1].strip(':').removeprefix('.')}", parts[2:]
        methods, path = _route(parts)
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = methods.get(method)
        if endpoint is None:
            raise ApiError(405, f"HTTP 405 Method Not Allowed: {request.method}")
        denied = not_allowed(request.scope, role_of(method, endpoint))
        if denied is not None:
            raise ApiError(40301, f"User is denied: {denied}")
        _answer_type(request)
        body = await _body(request)
        return endpoint, Call(path=path, query=query, body=body, context=context, work=work)

    def _run(self, endpoint: Endpoint, call: Call) -> Any:
        try:
            try:
                return endpoint(self._storage, call)
            except ApiError as error:
                if error.status != 404 or endpoint in WRITING:
                    raise
                # Another registry may have just written it: read the log to its end, then look again.
                self._storage.catch_up(REFRESH_TIMEOUT_MS)
                return endpoint(self._storage, call)
        except RefusedError as error:
            if error.code_name in ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"):
                raise ApiError(42209, f"Schema is too large: {error}") from error
            raise store_failed(str(error)) from error
        except TransientError as error:
            raise timed_out(str(error)) from error
        except ApiError:
            raise
        except SuiroError as error:
            raise store_failed(str(error)) from error


def _route(parts: list[str]) -> tuple[dict[str, Endpoint], dict[str, str]]:
    for pattern, methods in ROUTES.items():
        names = pattern.split("/")
        if len(names) == len(parts) and all(
            name.startswith("{") or name == part for name, part in zip(names, parts, strict=True)
        ):
            path = {name[1:-1]: part for name, part in zip(names, parts, strict=True) if name.startswith("{")}
            if all(path.values()):
                return methods, path
    raise ApiError(404, "HTTP 404 Not Found")


async def _body(request: Request) -> Any:
    data = await request.body()
    if not data:
        return None
    if has_too_many_values(data):
        raise ApiError(413, f"The request has more than {MAX_VALUES} values")
    try:
        # Given bytes, `json` accepts half of a surrogate pair.
        body = json.loads(data.decode("utf-8-sig"))
        if b"\\u" in data:
            compact_json(body).encode()
    except UnicodeEncodeError:
        raise ApiError(422, "The request holds half of a surrogate pair, which is no character") from None
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"The request's body is not JSON: {error}") from None
    return body


def _answer_type(request: Request) -> str:
    """Returns the first media type that the client accepts. Raises `ApiError` 406."""
    accept = request.headers.get("accept", "*/*")
    for one in accept.split(","):
        name = one.partition(";")[0].strip().lower()
        if name in _TYPES:
            return name
        if name in _ACCEPTED:
            return CONTENT_TYPE
    raise ApiError(406, f"HTTP 406 Not Acceptable: {accept}; answers are {CONTENT_TYPE}")
