"""What a web page may not do: have the browser of somebody at this machine give commands to a server.

On the loopback address nobody is asked who they are; but a page from anywhere can make a browser send requests there,
and a page whose name is made to point here (DNS rebinding) can read the answers too. So where no users are asked for, a
request must call the server by a name of the loopback address, which no page has. And nowhere is anything done for a
request from a page of another origin (Origin, Sec-Fetch-Site), or with a body of a type that a page can send unasked.
Pages that the server itself serves are of its own origin. No HTTP library here: every server has this one rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from suiro.foundation.http.listening import is_loopback

__all__ = ["Origins"]

_READS = ("GET", "HEAD", "OPTIONS")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    loopback_only: bool
    """Without users on the loopback address: it must be called by a name of that address."""
    instead: str = "name users"
    """What lets others call it."""
    body_types: tuple[str, ...] = ("application/json",)
    """Of bodies that change something; "" for a body whose type is not said."""

    def refusal(self, method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Status and message, or None. `headers` have names in lower case."""
        host = headers.get("host")  # every browser sends it
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
