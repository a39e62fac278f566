"""How everything that answers HTTP listens: registry, connect, views, metrics; and how others are asked (`answers`).

- `listening`: sockets, addresses, TLS. `limits`: every limit, with its name.
- `server`: an ASGI application on a thread of its own. `connections`: who is kept when too many come, and for how long.
- `guard`: what each request passes before an application sees it: `origins` (what web pages may not do), `users`
  (a file of names and passwords), `bodies` (how much is held for whom).
- `page`: one page without a web framework, for metrics.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from suiro.foundation.http.listening import Tls, is_loopback, listen_on, url_of

if TYPE_CHECKING:
    from suiro.foundation.http.answers import AnswerTooLargeError, ask, is_temporary, retry_after_ms, said
    from suiro.foundation.http.guard import Guard, not_allowed
    from suiro.foundation.http.limits import HttpLimits
    from suiro.foundation.http.origins import Origins
    from suiro.foundation.http.page import MetricsPage, serve_metrics_page
    from suiro.foundation.http.server import HttpServer, warn_if_open_to_all
    from suiro.foundation.http.users import Role, Users, Verdict, hash_password

__all__ = [
    "AnswerTooLargeError",
    "Guard",
    "HttpLimits",
    "HttpServer",
    "MetricsPage",
    "Origins",
    "Role",
    "Tls",
    "Users",
    "Verdict",
    "ask",
    "hash_password",
    "is_loopback",
    "is_temporary",
    "listen_on",
    "not_allowed",
    "retry_after_ms",
    "said",
    "serve_metrics_page",
    "url_of",
    "warn_if_open_to_all",
]

# A node with a metrics page loads no web framework.
_MODULES = {
    "AnswerTooLargeError": "answers",
    "Guard": "guard",
    "HttpLimits": "limits",
    "HttpServer": "server",
    "MetricsPage": "page",
    "Origins": "origins",
    "Role": "users",
    "Users": "users",
    "Verdict": "users",
    "ask": "answers",
    "hash_password": "users",
    "is_temporary": "answers",
    "not_allowed": "guard",
    "retry_after_ms": "answers",
    "said": "answers",
    "serve_metrics_page": "page",
    "warn_if_open_to_all": "server",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
