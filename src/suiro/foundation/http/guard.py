"""Checks every request before the application runs: its origin, its user and the size of its body.

The application receives the complete body, which counts against the limit until the response is sent. The user's name
is in `scope["suiro.user"]` and the role in `scope["suiro.role"]`; a stream asks `is_let_in` before each part. A refusal
is `{"error_code": status, "message": text}`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suiro.foundation.http.bodies import Bodies, Body
from suiro.foundation.http.listening import HttpLimits, requests_of_one
from suiro.foundation.http.origins import Origins
from suiro.foundation.http.refusals import Refusal, error_json
from suiro.foundation.http.users import REFUSED, Role, Users, Verdict

LOGIN_THREADS = 2  # only for checking passwords: guesses delay each other, but not users who are logged in
MAX_WAITING_LOGINS = 64  # beyond it, the request that has waited longest gets a 503

_SOON = {"retry-after": "1"}
# The headers that are read here and in `origins`. Only these are decoded, because every request passes here.
_HEADERS = {
    name.encode(): name
    for name in (
        "authorization",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "origin",
        "sec-fetch-site",
        "transfer-encoding",
    )
}


class Sessions(Protocol):
    """Logins by cookie. Called on the event loop for each request without an Authorization header."""

    login_path: str
    """Where a browser logs in; part of the refusal."""

    def known(self, cookie: str) -> Verdict | None: ...


class Guard:
    """Wraps an ASGI application.

    `max_body_bytes` limits one request. `realm` and `unknown` are sent to clients that fail authentication.
    """

    def __init__(
        self,
        application: ASGIApp,
        *,
        origins: Origins | None,
        users: Users | None = None,
        sessions: Sessions | None = None,
        max_body_bytes: int,
        limits: HttpLimits | None = None,
        realm: str = "suiro",
        unknown: str = "Unauthorized",
        media_type: str = "application/json",
    ) -> None:
        self._application = application
        self._origins = origins
        self._users = users
        self._sessions = sessions
        self._max_body_bytes = max_body_bytes
        self._limits = limits or HttpLimits()
        self._in_progress: Counter[str | None] = Counter()  # by user
        self._bodies = Bodies(max(self._limits.held_body_bytes, max_body_bytes))
        self._realm = realm
        self._unknown = unknown
        self._media_type = media_type
        self._logins = ThreadPoolExecutor(LOGIN_THREADS, thread_name_prefix="http-login")
        self._logins_checked = 0  # in progress
        self._waiting_logins: deque[asyncio.Future[bool]] = deque()  # True: check yours now; False: give up

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {_HEADERS[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS}
        try:
            user = await self._user(scope, headers)
            self._in_progress[user] += 1
            try:
                if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
                    await self._application(scope, receive, send)
                else:
                    await self._with_body(headers.get("content-length", ""), scope, receive, send)
            finally:
                self._in_progress[user] -= 1
                if not self._in_progress[user]:
                    del self._in_progress[user]
        except Refusal as refusal:
            content = error_json(refusal.status, refusal.message, **refusal.more)
            answer = Response(content, status_code=refusal.status, headers=refusal.headers, media_type=self._media_type)
            await answer(scope, receive, send)

    async def _user(self, scope: Scope, headers: Mapping[str, str]) -> str | None:
        """Return who sends the request; None on a server without users. Raises `Refusal`."""
        refused = self._origins.refusal(scope["method"], headers) if self._origins is not None else None
        if refused is not None:
            raise Refusal(*refused)
        if self._users is None and self._sessions is None:
            return None
        verdict = await self._verdict(headers)
        if verdict.name is None:
            if self._sessions is not None and "authorization" not in headers:
                # Without `www-authenticate`, on which a browser would ask for a password.
                raise Refusal(401, self._unknown, login=self._sessions.login_path)
            raise Refusal(401, self._unknown, {"www-authenticate": f'Basic realm="{self._realm}"'})
        scope["suiro.user"] = verdict.name
        scope["suiro.role"] = verdict.role
        scope["suiro.is_let_in"] = partial(self._is_let_in, headers, verdict)
        if self._in_progress[verdict.name] >= requests_of_one(self._limits):
            message = f"{verdict.name} has too many requests in progress; try again when some have ended"
            raise Refusal(503, message, _SOON)
        return verdict.name

    async def _verdict(self, headers: Mapping[str, str]) -> Verdict:
        """Raises `Refusal` if too many logins are waiting."""
        if self._sessions is not None and "authorization" not in headers:
            return self._sessions.known(headers.get("cookie", "")) or REFUSED
        if self._users is None:
            return REFUSED
        header = headers.get("authorization", "")
        verdict = self._users.recall(header)
        if verdict is None:
            await self._turn_to_login()
            try:
                return await asyncio.get_running_loop().run_in_executor(self._logins, self._users.verify, header)
            finally:
                self._next_login()
        return verdict

    async def _is_let_in(self, headers: Mapping[str, str], verdict: Verdict) -> bool:
        header = headers.get("authorization", "")
        if self._users is None or (self._sessions is not None and not header):
            return await self._verdict(headers) == verdict
        found = self._users.recall(header)
        if found is None:  # the file has changed
            found = await asyncio.get_running_loop().run_in_executor(self._logins, self._users.verify, header)
        return found == verdict

    async def _turn_to_login(self) -> None:
        """The newest request goes first, so that guesses wait for each other and a real login waits only for those in
        progress. If too many wait, the oldest one gives up."""
        if self._logins_checked < LOGIN_THREADS:
            self._logins_checked += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting_logins.append(turn)
        if len(self._waiting_logins) > MAX_WAITING_LOGINS:
            self._waiting_logins.popleft().set_result(False)
        try:
            if not await turn:
                raise Refusal(503, "too many logins are being checked; try again", _SOON)
        except asyncio.CancelledError:
            if turn in self._waiting_logins:
                self._waiting_logins.remove(turn)
            elif not turn.cancelled() and turn.result():
                self._next_login()
            raise

    def _next_login(self) -> None:
        if self._waiting_logins:
            self._waiting_logins.pop().set_result(True)
        else:
            self._logins_checked -= 1

    async def _with_body(self, length: str, scope: Scope, receive: Receive, send: Send) -> None:
        if length.isdigit() and int(length) > self._max_body_bytes:
            raise Refusal(413, f"The request body has more than {self._max_body_bytes} bytes")
        body = Body(self._bodies)
        try:
            data = await body.read(receive, self._max_body_bytes)
            await self._application(scope, _first({"type": "http.request", "body": data}, receive), send)
        except ClientDisconnect:
            pass
        finally:
            body.close()


def _first(message: Message, receive: Receive) -> Receive:
    """`message`, then whatever comes."""
    waiting = [message]

    async def next_one() -> Message:
        return waiting.pop() if waiting else await receive()

    return next_one


async def is_let_in(scope: Scope) -> bool:
    """Whether the user of a request still has access. A stream may outlive the session of its reader, or the user's
    line in the file. On a server without users, everyone has."""
    still = scope.get("suiro.is_let_in")
    return still is None or await still()


def not_allowed(scope: Scope, role: Role) -> str | None:
    """Return why the user of a request lacks a role, or None. On a server without users, everyone has every role."""
    given: Role = scope.get("suiro.role", Role.ADMIN)
    if given >= role:
        return None
    return f"that is for the role {role.name.lower()}, and {scope['suiro.user']} is {given.name.lower()}"


@asynccontextmanager
async def watching_client(receive: Receive, gone: threading.Event) -> AsyncIterator[None]:
    """Tells work in threads that nobody waits for its answer any more: sets `gone` when the client of a request
    disconnects, and at the end, which also comes when the server stops. The body must have been read."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    watching = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        gone.set()
        watching.cancel()
