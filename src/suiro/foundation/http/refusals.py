"""Errors as JSON, the same for all services: `{"error_code": code, "message": text}`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response


class Refusal(Exception):
    """A request that the application does not get. `more` are members of the answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None, **more: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.headers = headers
        self.more = more


def error_json(code: int, message: str, **more: str) -> bytes:
    """Return the body of an error. In the message, half of a surrogate pair, which UTF-8 cannot have, is written as
    `\\udcff`: as an escape of JSON, many readers refuse it."""
    text = message.encode(errors="backslashreplace").decode()
    content = {"error_code": code, "message": text, **more}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def error_answer(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error whose code is the status."""
    return Response(error_json(status, message), status_code=status, headers=headers, media_type="application/json")


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_answer(error.status_code, error.detail, error.headers)


ROUTING_ERRORS = {HTTPException: _no_route}
"""The `exception_handlers` of a Starlette application, for a path or a method that it does not have."""
