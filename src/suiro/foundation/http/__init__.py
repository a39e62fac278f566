"""HTTP for all services: registry, connect, views, console and metrics.

- `listening`: sockets, addresses, TLS; every limit, with its name.
- `server`: runs an ASGI application on its own thread. `connections`: accepts connections and closes them at limits.
- `guard`: checks every request before the application runs: `origins` (requests from web pages), `users` (a file of
  names and passwords), `bodies` (memory for request bodies). Tells work in threads that its client has gone.
- `page`: the metrics page, without a web framework.
- `refusals`: errors as JSON.
- `answers`: requests to other servers, with limits on the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.extras import on_first_use
from suiro.foundation.http.listening import HttpLimits, Tls, is_loopback, listen_on, requests_of_one, url_of

if TYPE_CHECKING:
    from suiro.foundation.http.answers import (
        AnswerTooLargeError,
        ask,
        is_temporary,
        retry_after_ms,
        segment,
        summary_of,
    )
    from suiro.foundation.http.guard import Guard, is_let_in, not_allowed, watching_client
    from suiro.foundation.http.origins import Origins
    from suiro.foundation.http.page import MetricsPage, serve_metrics_page
    from suiro.foundation.http.refusals import ROUTING_ERRORS, error_answer, error_json
    from suiro.foundation.http.server import HttpServer, warn_if_open_to_all
    from suiro.foundation.http.users import Role, Users, Verdict, hash_password

__all__ = [
    "ROUTING_ERRORS",
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
    "error_answer",
    "error_json",
    "hash_password",
    "is_let_in",
    "is_loopback",
    "is_temporary",
    "listen_on",
    "not_allowed",
    "requests_of_one",
    "retry_after_ms",
    "segment",
    "serve_metrics_page",
    "summary_of",
    "url_of",
    "warn_if_open_to_all",
    "watching_client",
]

# A node with a metrics page loads no web framework.
__getattr__ = on_first_use(
    __name__,
    {
        "answers": "AnswerTooLargeError ask is_temporary retry_after_ms segment summary_of",
        "guard": "Guard is_let_in not_allowed watching_client",
        "origins": "Origins",
        "page": "MetricsPage serve_metrics_page",
        "refusals": "ROUTING_ERRORS error_answer error_json",
        "server": "HttpServer warn_if_open_to_all",
        "users": "Role Users Verdict hash_password",
    },
)
