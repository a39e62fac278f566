"""The HTTP application: the files of the page, and the API below `/api/v1`, behind logins, roles and same-site rules.

Handlers run on threads, except those that answer from memory. Streams are produced step by step on separate threads, so
a hundred of them share the time, and each ends within one step after its reader has disconnected. Every action that
changes something is logged: user, action, result.

The files of the page, about a hundred small ones, are read once: they do not change while the console runs. Browsers
revalidate them by ETag at each load, so a new version of suiro is used at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import json
import logging
import mimetypes
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from suiro.console.web.api import ENDPOINTS
from suiro.console.web.console import Console
from suiro.console.web.endpoint import Call, Download, Endpoint, Events, Router, document, names_in, status_of
from suiro.errors import SuiroError, UsageError
from suiro.foundation.http import Guard, Origins, Role, Users, error_json, is_let_in, watching_client

if TYPE_CHECKING:
    from suiro.console.web.login import Login

API = "/api/v1"
LOGOUT = "/logout"
MAX_BODY_BYTES = 1024 * 1024
MAX_QUERY_CHARS = 16 * 1024
CALL_THREADS = 16
STREAM_THREADS = 32
MAX_STREAMS = 200
MAX_STREAMS_OF_USER = 100
AUDIT_CHARS = 500
_SECRET = frozenset(
    {"password", "salt", "value", "key", "headers", "files", "settings", "registry", "reason", "group_reason"}
)
"""Fields of requests that are not logged: passwords (also in settings and URLs), the contents of records, which errors
may quote, and code."""

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

logger = logging.getLogger(__name__)


class ConsoleApplication:
    """Without `users` and `login`, every caller that uses a name of this machine is an admin. With `login`, the files
    of the page are public, and the API requires a session. `streams` is the number of open streams."""

    def __init__(self, console: Console, users: Users | None = None, login: Login | None = None) -> None:
        self._console = console
        self._login = login
        self._guard = Guard(
            self._answer,
            origins=Origins(loopback_only=users is None and login is None, instead="name users with --auth-file"),
            users=users,
            sessions=None if login is None else login.sessions,
            max_body_bytes=MAX_BODY_BYTES,
            realm="suiro console",
            unknown="log in" if login is not None else "give the name and password of a user of this console",
        )
        self._open = Guard(self._for_everybody, origins=Origins(loopback_only=False), max_body_bytes=0)
        self._router = Router(ENDPOINTS)
        self._files = PageFiles()
        self._calls = ThreadPoolExecutor(CALL_THREADS, thread_name_prefix="console-call")
        self._streaming = ThreadPoolExecutor(STREAM_THREADS, thread_name_prefix="console-stream")
        self.streams = 0
        self._streams_of: Counter[str | None] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_RAW_HEADERS]}
            await send(message)

        is_open = self._login is not None and not scope.get("path", "").startswith(("/api/", LOGOUT))
        await (self._open if is_open else self._guard)(scope, receive, send_with_headers)

    async def _for_everybody(self, scope: Scope, receive: Receive, send: Send) -> None:
        """With a login: serves the login, and the files of the page, which have no data of the cluster."""
        path = scope["path"]
        if self._login is not None and path in self._login.places:
            answer = await self._login.answer(scope)
        else:
            answer = self._page_file(scope)
        await answer(scope, receive, send)

    def _page_file(self, scope: Scope) -> Response:
        return self._files.answer(
            scope["method"],
            scope["path"],
            _header(scope, b"if-none-match"),
            _header(scope, b"accept-encoding"),
        )

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if self._login is not None and path == LOGOUT and scope["method"] == "POST":
            answer = self._login.logout(scope)
        elif not path.startswith("/api/"):
            answer = self._page_file(scope)
        elif _header(scope, b"sec-fetch-site") not in ("", "none", "same-origin"):
            answer = _error(403, "the API is not for web pages of others")
        elif path == f"{API}/openapi.json":
            answer = _json(self._document)
        else:
            await self._api(scope, receive, send)
            return
        await answer(scope, receive, send)

    @cached_property
    def _document(self) -> bytes:
        return msgspec.json.encode(document(self._router.endpoints))

    async def _api(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1").partition("?")[0]
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        methods, segments = self._router.find(raw_path.removeprefix(API)) if raw_path.startswith(API) else ({}, ())
        endpoint = methods.get(method)
        if endpoint is None:
            wrong = 405 if methods else 404
            text = f"{raw_path[:200]} takes {', '.join(methods)}" if methods else f"there is no {raw_path[:200]}"
            await _error(wrong, text)(scope, receive, send)
            return
        user, role = scope.get("suiro.user"), scope.get("suiro.role", Role.ADMIN)
        if self._console.settings.read_only:
            role = Role.VIEWER
        said = f"{method} {raw_path[:200]}"
        body = b""
        if method == "POST":
            has_body = _header(scope, b"content-length") not in ("", "0") or _header(scope, b"transfer-encoding")
            body = (await receive()).get("body", b"") if has_body else b""
            said = f"{said} {_noted(endpoint, body)}"
        if role < endpoint.role:
            text = f"that is for the role {endpoint.role.name.lower()}, and this is {role.name.lower()}"
            if self._console.settings.read_only:
                text = "this console only shows (--read-only)"
            if method == "POST":
                self._console.note(user, said, 403)
            await _error(403, text)(scope, receive, send)
            return
        gone = threading.Event()

        def run() -> Any:
            call = Call(
                console=self._console,
                path=names_in(endpoint, segments),
                query=_query(endpoint, scope["query_string"]),
                body=_body(endpoint, body),
                user=user,
                role=role,
                gone=gone,
                can_log_out=self._login is not None and not _header(scope, b"authorization"),
                action=endpoint.path.rpartition("}")[2],
            )
            return endpoint.answer_to(call)

        async with watching_client(receive, gone):
            status, answer = await self._run(run, from_memory=endpoint.from_memory)
            if method == "POST" and endpoint.role > Role.VIEWER:
                self._console.note(user, said, status)
            if isinstance(answer, Events | Download):
                if scope["method"] == "HEAD":
                    # The client does not wait for an end: it would hold the connection and a stream until it leaves.
                    answer = replace(answer, parts=iter(()))
                await self._stream(answer, scope, receive, send, gone)
            else:
                await _json(answer, status)(scope, receive, send)

    async def _run(self, run: Callable[[], Any], *, from_memory: bool) -> tuple[int, Any]:
        """Returns the status, and the response as bytes or a stream."""
        loop = asyncio.get_running_loop()

        def encoded() -> Any:
            answer = run()
            if isinstance(answer, Events | Download | bytes):
                return answer
            return msgspec.json.encode(answer)

        try:
            return 200, encoded() if from_memory else await loop.run_in_executor(self._calls, encoded)
        except SuiroError as error:
            return status_of(error), error_json(status_of(error), str(error))
        except Exception as error:
            logger.exception("a request failed")
            return 500, error_json(500, f"the console failed: {type(error).__name__}; its log says more")

    async def _stream(
        self, answer: Events | Download, scope: Scope, receive: Receive, send: Send, gone: threading.Event
    ) -> None:
        user = scope.get("suiro.user")
        is_users = user is not None and self._streams_of[user] >= MAX_STREAMS_OF_USER
        if is_users or self.streams >= MAX_STREAMS:
            count = f"{MAX_STREAMS_OF_USER} of your" if is_users else str(MAX_STREAMS)
            await _error(503, f"{count} streams are open; close some")(scope, receive, send)
            return
        self.streams += 1
        self._streams_of[user] += 1
        headers = [(b"cache-control", b"no-store")]
        if isinstance(answer, Download):
            name = "".join(one if one.isalnum() or one in "-_." else "_" for one in answer.name)
            headers += [
                (b"content-type", answer.media_type.encode()),
                (b"content-disposition", f'attachment; filename="{name}"'.encode()),
            ]
        else:
            headers += [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        parts = _steps(answer.parts, self._streaming)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"", "more_body": True})  # sends the headers now
            async with contextlib.aclosing(parts):
                async for part in parts:
                    if gone.is_set() or self._console.is_stopped or not await is_let_in(scope):
                        if isinstance(answer, Download):
                            return  # without an end, so that half a file does not look complete
                        break
                    if part:
                        await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except SuiroError as error:
            # The connection closes without an end here, too. An event stream tells its errors itself.
            logger.warning("a file for %s is cut off: %s", user or "-", error)
        finally:
            self.streams -= 1
            self._streams_of[user] -= 1
            if not self._streams_of[user]:
                del self._streams_of[user]


async def _steps(parts: Iterator[bytes] | AsyncIterator[bytes], threads: Executor) -> AsyncGenerator[bytes, None]:
    """Runs each step of an iterator on a thread, including its `finally`."""
    if isinstance(parts, AsyncIterator):
        async for part in parts:
            yield part
        return
    loop = asyncio.get_running_loop()
    iterator = parts

    def step() -> Any:
        return next(iterator, None)

    try:
        while True:
            made = await asyncio.shield(loop.run_in_executor(threads, step))
            if made is None:
                return
            yield made
    finally:
        close = getattr(parts, "close", None)
        if close is not None:
            threads.submit(_closed, close)


def _closed(close: Callable[[], None]) -> None:
    try:
        close()
    except ValueError:  # its last step is still running, and ends by itself
        logger.debug("a stream was closed within a step")
    except Exception:
        logger.exception("a stream did not end well")


def _header(scope: Scope, name: bytes) -> str:
    found: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return found.decode("latin-1")


def _query(endpoint: Endpoint, query: bytes) -> Mapping[str, str]:
    text = query.decode("latin-1")
    if len(text) > MAX_QUERY_CHARS:
        raise UsageError(f"the query has more than {MAX_QUERY_CHARS} characters")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError as error:
        raise UsageError(f"the query cannot be read: {error}") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in endpoint.query:
            known = ", ".join(endpoint.query) or "none"
            raise UsageError(f"there is no parameter {name[:80]!r} here; there is {known}")
        if name in found:
            raise UsageError(f"{name} is there twice")
        found[name] = value
    return found


def _body(endpoint: Endpoint, body: bytes) -> Any:
    if endpoint.body is None:
        return None
    try:
        return msgspec.json.decode(body or b"{}", type=endpoint.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"the body is not as it should be: {error}") from None
    except RecursionError:
        raise UsageError("the body is nested too deep") from None


def _noted(endpoint: Endpoint, body: bytes) -> str:
    """Returns the body for the list of changes, without secrets and contents of records. What is in its fields is not
    parsed, because this is done on the event loop."""
    try:
        fields = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "(no JSON object)"
    known = () if endpoint.body is None else endpoint.body.__struct_encode_fields__
    said = ""
    for name, raw in fields.items():
        value = bytes(raw)
        # A field that the endpoint refuses may be that of a password, with a wrong name.
        text = '"..."' if name not in known or _is_hidden(name, value) else value[:AUDIT_CHARS].decode(errors="replace")
        said += f"{', ' if said else ''}{json.dumps(name[:AUDIT_CHARS], ensure_ascii=False)}: {text}"
        if len(said) > AUDIT_CHARS:
            break
    return f"{{{said}}}"[:AUDIT_CHARS]


def _is_hidden(name: str, value: bytes) -> bool:
    if name not in _SECRET:
        return b'password"' in value  # somewhere in a body that the endpoint refuses
    # A number is the target of a reset; the value of a record is a text.
    return value != b"null" and not (name == "value" and value[:1] in b"-0123456789")


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status_code=status, media_type="application/json", headers={"cache-control": "no-store"})


def _error(status: int, message: str) -> Response:
    return _json(error_json(status, message), status)


_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".json": "application/json"}
_PACKED_FROM_BYTES = 512


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    packed: bool
    media_type: str
    etag: str


class PageFiles:
    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        _collect(files("suiro.console.web").joinpath("page"), "/page/", self._files)
        self._files["/"] = self._files["/page/index.html"]

    def answer(self, method: str, path: str, known: str, accepted: str) -> Response:
        """`known` is the ETag of the client (If-None-Match), `accepted` its Accept-Encoding."""
        file = self._files.get(path)
        if file is None:
            return Response("there is no such page; the console is at /\n", status_code=404, media_type="text/plain")
        if method not in ("GET", "HEAD"):
            return Response("GET only\n", status_code=405, media_type="text/plain")
        headers = {"etag": file.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if known == file.etag:
            return Response(status_code=304, headers=headers)
        content = file.content
        if file.packed:
            if _takes_gzip(accepted):
                headers["content-encoding"] = "gzip"
            else:  # all browsers accept gzip; curl and scripts may not
                content = gzip.decompress(content)
        return Response(content, headers=headers, media_type=file.media_type)


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() in ("gzip", "x-gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _collect(folder: Traversable, path: str, found: dict[str, _File]) -> None:
    for each in folder.iterdir():
        if each.is_dir():
            _collect(each, f"{path}{each.name}/", found)
            continue
        content = each.read_bytes()
        suffix = "." + each.name.rpartition(".")[2]
        kind = _TYPES.get(suffix) or mimetypes.guess_type(each.name)[0] or "application/octet-stream"
        packed = len(content) >= _PACKED_FROM_BYTES
        found[path + each.name] = _File(
            content=gzip.compress(content, mtime=0) if packed else content,
            packed=packed,
            media_type=kind,
            etag=f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        )
