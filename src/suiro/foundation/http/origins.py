"""Protection against requests that a web page of another site makes a browser send.

A server on a loopback address needs no login. But any web page can make a browser send requests to that address, and a
page whose host name resolves to it (DNS rebinding) can also read the responses. Therefore:

- Without users, the Host header must name a loopback address.
- Changing requests from a page of another origin (Origin, Sec-Fetch-Site) are refused.
- Changing requests need a body type that a page cannot send without a CORS preflight.

The module uses no HTTP library, so that every server follows the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from suiro.foundation.http.listening import is_loopback

_READS = ("GET", "HEAD", "OPTIONS")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    loopback_only: bool
    """The server has no users: the Host header must name a loopback address."""
    instead: str = "name users"
    """What the administrator can do to let others call the server; part of the message."""
    body_types: tuple[str, ...] = ("application/json",)
    """Allowed Content-Types of changing requests; "" allows a missing one."""

    def refusal(self, method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return the status and message of a refusal, or None. Names in `headers` are lower-case."""
        host = headers.get("host")  # every browser sends one
        if self.loopback_only and host is not None and not is_loopback(_name(host)):
            return 403, (
                "without users this server answers under the names of this machine only (localhost, 127.0.0.1), not as "
                f"{host[:200]!r}; {self.instead}"
            )
        if method in _READS:
            return None
        site = headers.get("sec-fetch-site", "none")
        origin = headers.get("origin")
        if site not in ("same-origin", "none") or (origin is not None and not _is_same(origin, host or "")):
            page = origin if origin is not None else "another site"
            return 403, f"commands are not taken from web pages of others, such as those of {page[:200]!r}"
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if has_body and kind not in self.body_types:
            return 415, (
                f"the body is said to be {kind[:200] or 'nothing'}: send it with Content-Type: {self.body_types[0]}"
            )
        return None


def _is_same(origin: str, host: str) -> bool:
    try:
        page, here = urlsplit(origin), urlsplit(f"{origin.partition(':')[0]}://{host}")
        return page.scheme in _DEFAULT_PORTS and _place(page) == _place(here)
    except ValueError:
        return False


def _place(url: SplitResult) -> tuple[str | None, int]:
    return url.hostname, url.port or _DEFAULT_PORTS[url.scheme]


def _name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
