"""What a web page may not do: have the browser of somebody at this machine speak to the host of views.

A deploy runs code, and on the loopback address nobody is asked who they are; but a page from anywhere can make a
browser send requests there, and a page whose name is made to point here (DNS rebinding) can read the answers too. So
where no users are asked for, a request must call the host by a name of the loopback address, which no page has; and
nowhere is anything done for a request that says it comes from a page, or whose body is not said to be JSON, as a page
can send it unasked.
"""

from __future__ import annotations

import contextlib
import ipaddress
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["NotForPages", "is_loopback"]


class NotForPages:
    """`loopback_only`: requests must call this server by a name of the loopback address."""

    def __init__(self, inner: ASGIApp, *, loopback_only: bool) -> None:
        self._inner = inner
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := self._refused(scope["method"], Headers(scope=scope))):
            status, message = refused
            answer = JSONResponse({"error_code": status, "message": message}, status_code=status)
            await answer(scope, receive, send)
            return
        await self._inner(scope, receive, send)

    def _refused(self, method: str, headers: Headers) -> tuple[int, str] | None:
        name = _without_port(headers.get("host", ""))
        if self._loopback_only and not is_loopback(name):
            return 403, (
                f"a host of views without users answers under the names of this machine only (localhost, 127.0.0.1), "
                f"not as {name[:200]!r}; name users with --auth-file"
            )
        if method in ("GET", "HEAD"):
            return None
        if "origin" in headers:
            return 403, f"commands are not taken from web pages, such as those of {headers['origin'][:200]!r}"
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if has_body and kind != "application/json":
            return (
                415,
                f"the body is said to be {kind or 'nothing'}: send it with Content-Type: application/json",
            )
        return None


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
