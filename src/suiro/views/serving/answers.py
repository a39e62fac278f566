"""Answers of a host over HTTP: JSON, and errors with their status codes."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from suiro.errors import SuiroError, TransientError, UsageError
from suiro.foundation.http import error_answer as http_error
from suiro.views.state import ConcurrentChangeError, RefusedChangeError, UnknownViewError
from suiro.views.store.json_text import encodable, servable
from suiro.views.store.rows import CutGoneError


class WaitedError(TransientError):
    """The view did not reach the offsets that the reader named within the timeout."""


_STATUS: tuple[tuple[type[SuiroError], int], ...] = (
    (UnknownViewError, 404),
    (RefusedChangeError, 409),
    (ConcurrentChangeError, 409),
    (CutGoneError, 410),
    (UsageError, 400),
    (WaitedError, 504),
    (TransientError, 503),
)
"""The first class that an error belongs to counts. Other errors have status 500."""


def json_answer(found: Any) -> Response:
    text = servable(json.dumps(found, ensure_ascii=False, separators=(",", ":")))
    return Response(encodable(text), media_type="application/json")


def error_answer(error: SuiroError, status: int | None = None) -> Response:
    """`status`: of the error's class, unless given."""
    if status is None:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
    return http_error(status, str(error))
