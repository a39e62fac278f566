"""The requests of readers, and the meaning of the host's answers, for `client`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from suiro.clock import monotonic_s
from suiro.errors import SuiroError, TransientError, UsageError
from suiro.foundation.http import segment
from suiro.views.state import RefusedChangeError, UnknownViewError

DEFAULT_URL = "http://127.0.0.1:8085"
URL_VARIABLE = "SUIRO_VIEWS_URL"
READ_TIMEOUT_S = 30.0
LOOK_TIMEOUT_S, COMMAND_TIMEOUT_S = 120.0, 600.0
"""The most that a look at a view and a command wait for the host. A store's database may be silent for a minute, and
the check of the code of a deploy takes up to two."""
COMPARE_TIMEOUT_MS, LONGEST_MS = 3_600_000, 10**12  # of the host's own; that a socket takes
EVENTS = "text/event-stream"
SILENT_S = 60.0
"""A stream of changes sends something every 15 s. If it is silent for this long, the host is lost."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0
TRY_AGAIN = (502, 503)
START_ONE = "Start one: suiro view serve --bootstrap-servers HOST:PORT; or say where it is: --url or SUIRO_VIEWS_URL"

_ERRORS: Mapping[int, type[SuiroError]] = {
    404: UnknownViewError,
    409: RefusedChangeError,
    503: TransientError,
}


def host_of(url: str | None, caller: str | None) -> tuple[str, tuple[str, str] | None, dict[str, str]]:
    """Returns the host's URL without the user, for messages; the login; and the headers of every request."""
    url = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
    try:
        given = httpx.URL(url)
        given.host.encode("idna")  # or no host can have this name
        if given.scheme not in ("http", "https") or not given.host:
            raise ValueError("expected http://HOST:PORT")
    except (httpx.InvalidURL, ValueError) as error:
        named = url.rpartition("@")[2]  # without a password
        raise UsageError(f"{named[:200]!r} is no URL of a host of views: {error}") from None
    login = (given.username, given.password) if given.userinfo else None
    return str(given.copy_with(userinfo=b"")), login, {} if caller is None else {"Suiro-Caller": caller}


def row_path(view: str, key: Sequence[Any]) -> str:
    parts = (part if isinstance(part, str) else json.dumps(part) for part in key)
    return f"/views/{segment(view)}/rows/{'/'.join(map(segment, parts))}"


def params_of(options: Mapping[str, Any]) -> httpx.QueryParams:
    found: list[tuple[str, str]] = []
    for name, value in options.items():
        if value is not None:
            # `from` is a keyword of Python.
            key = "from" if name == "from_" else name
            found += [(key, str(one)) for one in (value if isinstance(value, list | tuple) else [value])]
    return httpx.QueryParams(found)  # type: ignore[arg-type]


def said(answer: httpx.Response) -> Any:
    if not answer.is_success:
        raise _error_of(answer)
    try:
        return answer.json()
    except (ValueError, RecursionError):
        raise UsageError(f"{answer.url} answered something else than JSON: is that a host of views?") from None


class Attempts:
    """The attempts of one read, which is repeated until the timeout."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._deadline = monotonic_s() + timeout_s
        self._pause_s = FIRST_PAUSE_S

    def is_last(self, answer: httpx.Response) -> bool:
        return answer.status_code not in TRY_AGAIN

    def pause_s(self, answer: httpx.Response | httpx.RequestError) -> float:
        """Returns the pause before the next attempt. Raises the error if there is no time for one."""
        if monotonic_s() + self._pause_s > self._deadline:
            if isinstance(answer, httpx.Response):
                raise _error_of(answer)
            raise TransientError(f"no answer from {self._url}: {reason_of(answer)}. {START_ONE}")
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, LONGEST_PAUSE_S)
        return pause_s


class Following:
    """The position of a reader of changes, where it continues when the connection breaks."""

    def __init__(self, view: str, options: Mapping[str, Any], after: str | int | None, timeout_s: float) -> None:
        self._request = {
            "method": "GET",
            "url": f"/views/{segment(view)}/changes",
            "params": params_of(options),
            "timeout": httpx.Timeout(timeout_s, read=SILENT_S),
        }
        self._last = None if after is None else str(after)
        self._pause_s = FIRST_PAUSE_S
        self._data: list[str] = []

    def request(self) -> dict[str, Any]:
        """Returns the arguments of `stream` of an httpx client."""
        headers = {"Accept": EVENTS} | ({} if self._last is None else {"Last-Event-ID": self._last})
        return {**self._request, "headers": headers}

    def begin(self, answer: httpx.Response) -> None:
        """Begins a new stream. Raises the error of an answer; its content must have been read."""
        if not answer.is_success:
            raise _error_of(answer)
        if not answer.headers.get("content-type", "").startswith(EVENTS):
            raise UsageError(f"{answer.url} answered something else than changes: is that a host of views?")
        self._pause_s = FIRST_PAUSE_S
        self._data, self._next = [], self._last

    def event(self, line: str) -> dict[str, Any] | None:
        """Returns the event that ends with this line of the stream, if one does."""
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            self._next = value
        elif field == "data":
            self._data.append(value)
        elif not line and self._data:
            found: dict[str, Any] = json.loads("\n".join(self._data))
            self._data, self._last = [], self._next
            return found
        return None

    def pause_s(self) -> float:
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, LONGEST_PAUSE_S)
        return pause_s


def reason_of(error: httpx.RequestError) -> str:
    """Why there was no answer, without the number that the system has for it."""
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__


def _error_of(answer: httpx.Response) -> SuiroError:
    try:
        message = answer.json()["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = f"{answer.url} answered {answer.status_code}: {answer.text[:200]}"
    kind = _ERRORS.get(answer.status_code, UsageError if answer.status_code < 500 else TransientError)
    return kind(message)
