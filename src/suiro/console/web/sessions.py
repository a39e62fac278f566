"""Sessions of users who logged in by a provider, in memory, and their cookies.

A session expires, and keeps the role of its login. A restart of the console ends all sessions. Only hashes of cookies
are kept, so that the contents of the memory do not allow a login.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass

from suiro.clock import Clock
from suiro.console.web.oidc import Identity
from suiro.foundation.http import Verdict

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
