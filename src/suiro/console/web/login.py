"""Logins by a provider: `/login` redirects a browser to it, `/login/callback` receives it back, `/logout` logs out.

The state of a login in progress (state, nonce, PKCE verifier, target page) is in a cookie that this process signs. So
a million logins that are started but not completed use no memory, and a login that was started in another browser
fails. A state is valid once: used states are remembered until their cookies expire.

That cookie is `SameSite=Lax`, because the browser comes back from another site. The session cookie is
`SameSite=Strict`: the files of the page are public, and the page's own requests come from this site.

Sessions are in memory. A session expires, and keeps the role of its login. A restart of the console ends all sessions.
Only hashes of cookies are kept, so that the contents of the memory do not allow a login.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import html
import logging
import os
import re
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qs, quote, urlsplit

import msgspec
from starlette.responses import Response
from starlette.types import Scope

from suiro.clock import Clock
from suiro.console.web.oidc import Identity, LoginRefusedError, NoRoleError, OidcSettings, Provider
from suiro.errors import SuiroError, TransientError
from suiro.foundation.http import Verdict

LOGIN, CALLBACK, LOGOUT = "/login", "/login/callback", "/logout"
LOGIN_LASTS_S = 600
THREADS = 4
LOGINS_AT_ONCE = 32
LOGINS_OF_ADDRESS_AT_ONCE = 8
USED_STATES_MAX = 10_000
"""Above it the oldest is forgotten. The provider accepts a code only once, too."""
PLACE_CHARS_MAX = 1_000
QUERY_CHARS_MAX = 8_192
_PLACE = re.compile(r"#/[!-~]*")  # visible ASCII: a place in the page, never another site

logger = logging.getLogger(__name__)
_Made = TypeVar("_Made")


class _Begun(msgspec.Struct, frozen=True):
    state: str
    nonce: str
    verifier: str
    place: str
    ends_ms: int


class _BusyError(SuiroError):
    pass


class Login:
    """`url` is the address of the console for browsers. `noted(user, what, status)` adds to the list of changes.
    Everything except `sessions` must run on the thread of the event loop. Raises `ConfigError`."""

    places = (LOGIN, CALLBACK)

    def __init__(
        self, settings: OidcSettings, *, url: str, clock: Clock, noted: Callable[[str | None, str, int], None]
    ) -> None:
        self._url = (settings.url or url).rstrip("/")
        parts = urlsplit(self._url)
        self._is_https = parts.scheme == "https"
        # Other hosts cannot set a cookie with this prefix. Without TLS, the port distinguishes servers of this host.
        prefix = "__Host-suiro" if self._is_https else f"suiro-{parts.port or 80}"
        self._session_cookie, self._login_cookie = f"{prefix}-session", f"{prefix}-login"
        self._clock = clock
        self._noted = noted
        self._provider = Provider(settings, redirect_uri=f"{self._url}{CALLBACK}", clock=clock)
        self._lasts_s = settings.session_minutes * 60
        self.sessions = LoginSessions(
            cookie=self._session_cookie, login_path=LOGIN, lasts_ms=self._lasts_s * 1_000, clock=clock
        )
        self._secret = os.urandom(32)
        self._used: OrderedDict[bytes, int] = OrderedDict()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="console-login")
        self._at_once: Counter[str] = Counter()

    def close(self) -> None:
        self._provider.close()

    async def answer(self, scope: Scope) -> Response:
        """Answers `/login` and `/login/callback`."""
        if scope["method"] != "GET":
            return _page(405, "GET only", "")
        said = _said(scope["query_string"])
        client = scope.get("client") or ("", 0)
        try:
            if scope["path"] == LOGIN:
                return await self._begin(said.get("to", ""), client[0])
            return await self._end(said, _cookies(scope), client[0])
        except _BusyError:
            return _page(503, "Too many logins are under way.", "Try again in a moment.")
        except NoRoleError as error:
            logger.warning("a login has no role: %s", error)
            return _page(403, "You have no role here.", f"{error}. Whoever runs this console can give you one.")
        except TransientError as error:
            logger.warning("a login failed: %s", error)
            return _page(503, "The login provider does not answer.", str(error))
        except LoginRefusedError as error:
            logger.warning("a login failed: %s", error)
            return _page(400, "The login could not be verified.", "The console's log says why.")

    async def _begin(self, place: str, address: str) -> Response:
        begun = _Begun(
            state=secrets.token_urlsafe(24),
            nonce=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            place=place if len(place) <= PLACE_CHARS_MAX and _PLACE.fullmatch(place) else "#/",
            ends_ms=self._clock.wall_ms() + LOGIN_LASTS_S * 1_000,
        )
        url = await self._run(
            address,
            lambda: self._provider.login_url(state=begun.state, nonce=begun.nonce, verifier=begun.verifier),
        )
        answer = _redirect(url)
        payload = base64.urlsafe_b64encode(msgspec.json.encode(begun))
        sealed = f"{payload.decode()}.{self._seal(payload)}"
        self._set(answer, self._login_cookie, sealed, LOGIN_LASTS_S, same_site="Lax")
        return answer

    async def _end(self, said: dict[str, str], cookies: str, address: str) -> Response:
        begun = self._opened(cookie_of(cookies, self._login_cookie) or "")
        if begun is None or not hmac.compare_digest(begun.state.encode(), said.get("state", "").encode()):
            return _page(
                400,
                "This login was not begun in this browser, or too long ago.",
                f"Log in at {self._url}",
            )
        if not self._use(begun):
            return _page(400, "This login was used already.", f"Log in at {self._url}")
        if "error" in said or not said.get("code"):
            answer = _page(403, "The login provider refuses.", said.get("error", "it gave no code")[:200])
        else:
            code = said["code"]
            identity: Identity = await self._run(
                address,
                lambda: self._provider.identify(code=code, nonce=begun.nonce, verifier=begun.verifier),
            )
            self._noted(identity.user, f"login as {identity.role.name.lower()}", 200)
            answer = _redirect(f"/{begun.place}")
            self._set(answer, self._session_cookie, self.sessions.begin(identity), self._lasts_s, same_site="Strict")
        self._set(answer, self._login_cookie, "", 0, same_site="Lax")
        return answer

    def logout(self, scope: Scope) -> Response:
        """The guard has checked that the request comes from this page. The response has the provider's logout
        address."""
        identity = self.sessions.end(_cookies(scope))
        url = None
        if identity is not None:
            self._noted(identity.user, "logout", 200)
            url = self._provider.logout_url(identity.id_token, back_to=f"{self._url}/")
        answer = Response(msgspec.json.encode({"url": url}), media_type="application/json")
        answer.headers["cache-control"] = "no-store"
        self._set(answer, self._session_cookie, "", 0, same_site="Strict")
        return answer

    async def _run(self, address: str, work: Callable[[], _Made]) -> _Made:
        """Runs on a thread. Raises `_BusyError` if too many logins run, in total or from one address."""
        mine = self._at_once[address] >= LOGINS_OF_ADDRESS_AT_ONCE
        if mine or self._at_once.total() >= LOGINS_AT_ONCE:
            raise _BusyError("too many logins")
        self._at_once[address] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._at_once[address] -= 1
            if not self._at_once[address]:
                del self._at_once[address]

    def _set(self, answer: Response, name: str, value: str, lasts_s: int, *, same_site: str) -> None:
        secure = "; Secure" if self._is_https else ""
        answer.headers.append(
            "set-cookie", f"{name}={value}; Max-Age={lasts_s}; Path=/; HttpOnly; SameSite={same_site}{secure}"
        )

    def _seal(self, payload: bytes) -> str:
        return hmac.digest(self._secret, payload, "sha256").hex()

    def _opened(self, cookie: str) -> _Begun | None:
        payload, _, seal = cookie.partition(".")
        if not hmac.compare_digest(self._seal(payload.encode()).encode(), seal.encode()):
            return None
        try:
            begun = msgspec.json.decode(base64.urlsafe_b64decode(payload), type=_Begun)
        except (msgspec.MsgspecError, binascii.Error):
            return None
        return begun if begun.ends_ms > self._clock.wall_ms() else None

    def _use(self, begun: _Begun) -> bool:
        now_ms = self._clock.wall_ms()
        while self._used and (next(iter(self._used.values())) <= now_ms or len(self._used) >= USED_STATES_MAX):
            self._used.popitem(last=False)
        key = hashlib.sha256(begun.state.encode()).digest()
        if key in self._used:
            return False
        self._used[key] = begun.ends_ms
        return True


def _said(query: bytes) -> dict[str, str]:
    """Returns the parameters that occur exactly once."""
    try:
        found = parse_qs(query[:QUERY_CHARS_MAX].decode("latin-1"), keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return {}
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _cookies(scope: Scope) -> str:
    return "; ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")


def _redirect(url: str) -> Response:
    # Quoting keeps other characters out of the header.
    target = quote(url, safe=":/?#[]@!$&'()*+,;=%~")
    return Response(status_code=303, headers={"location": target, "cache-control": "no-store"})


def _page(status: int, title: str, text: str) -> Response:
    content = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>suiro</title>'
        '<link rel="stylesheet" href="/page/style.css"></head><body><div class="empty">'
        f'<p class="empty-title">{html.escape(title)}</p><p>{html.escape(text)}</p>'
        f'<p><a href="{LOGIN}">Log in again</a></p></div></body></html>'
    )
    return Response(content, status_code=status, media_type="text/html", headers={"cache-control": "no-store"})


SESSIONS_MAX = 2_000
SESSIONS_OF_USER_MAX = 20
COOKIES_CHARS_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class _Session:
    identity: Identity
    ends_ms: int  # monotonic time


class LoginSessions:
    """Thread-safe. If a user, or the console, has too many sessions, the oldest ends. Only users with a role have
    sessions."""

    def __init__(self, *, cookie: str, login_path: str, lasts_ms: int, clock: Clock) -> None:
        self.login_path = login_path
        self._cookie = cookie
        self._lasts_ms = lasts_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def begin(self, identity: Identity) -> str:
        """Starts a session and returns the value of its cookie."""
        secret = secrets.token_urlsafe(32)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            for key in [key for key, one in self._sessions.items() if one.ends_ms <= now_ms]:
                del self._sessions[key]
            mine = [key for key, one in self._sessions.items() if one.identity.user == identity.user]
            for key in mine[: max(len(mine) - SESSIONS_OF_USER_MAX + 1, 0)]:
                del self._sessions[key]
            if len(self._sessions) >= SESSIONS_MAX:
                self._sessions.popitem(last=False)
            self._sessions[_hash(secret)] = _Session(identity, now_ms + self._lasts_ms)
        return secret

    def known(self, cookie: str) -> Verdict | None:
        """Returns the user of a session. `cookie` is the header of a request."""
        with self._lock:
            found = self._sessions.get(_hash(cookie_of(cookie, self._cookie) or ""))
        if found is None or found.ends_ms <= self._clock.monotonic_ms():
            return None
        return Verdict(found.identity.user, found.identity.role)

    def end(self, cookie: str) -> Identity | None:
        """Ends a session and returns its user."""
        with self._lock:
            found = self._sessions.pop(_hash(cookie_of(cookie, self._cookie) or ""), None)
        return None if found is None else found.identity

    def __len__(self) -> int:
        return len(self._sessions)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("latin-1", "replace")).digest()


def cookie_of(header: str, name: str) -> str | None:
    """Returns the value of a cookie. None also if it is there twice, because another site has set one of them."""
    found = []
    for part in header[:COOKIES_CHARS_MAX].split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            found.append(value)
    return found[0] if len(found) == 1 else None
