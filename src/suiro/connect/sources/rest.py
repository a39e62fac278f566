"""Source `rest`: polls an HTTP API, page by page. The records of a page and the position behind it are one transaction.

    [source.issues]
    kind = "rest"
    url = "https://example.org/issues"
    records = "items"                # where in the answer the list is; "" if it is the answer
    paging = "cursor"                # none, page, cursor, link
    cursor = "next"                  # where in the answer the next cursor is
    cursor_parameter = "after"
    key = ["id"]
    topic = "issues"

| paging | a page is requested by | and the position has |
|---|---|---|
| `none` | the URL alone | the ETag |
| `page` | `page_parameter`, from `first_page` on, until a page is empty | the page, its size, how many were taken |
| `cursor` | the value at `cursor` in the page before | the cursor, how many records of the last page were taken |
| `link` | the `Link: <...>; rel="next"` header | the next URL, how many records of the last page were taken |

Exactly once, as long as the API answers the same request in the same way. With `only_changed = true`, a record is left
out if its key was seen with the same content (the position has a hash of each), so that polling a whole list gives its
changes. A response 304 (by ETag) has no records. After 429 and 5xx the source waits as Retry-After asks, else for
`interval_ms`, twice as long each time, but at most `longest_wait_ms`. After other errors the connector fails.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urljoin, urlsplit, urlunsplit

import httpx

from suiro.clock import sleep_s
from suiro.connect.connectors import ERROR_PREFIX, About, Polled, SourceRecord, short_reason
from suiro.connect.datasets import http_dataset
from suiro.connect.values import key_of
from suiro.errors import UsageError
from suiro.foundation.http import ask, is_temporary, retry_after_ms, summary_of
from suiro.foundation.nesting import parse_json
from suiro.foundation.settings import (
    SettingError,
    read_settings,
    require_headers,
    require_http,
    require_least,
    require_one_of,
)
from suiro.telemetry import Dataset

_log = logging.getLogger(__name__)

PAGING = ("none", "page", "cursor", "link")
POLL_S = 0.5
LEAST_WAIT_MS = 1_000
"""The shortest wait that `Retry-After` can ask for: it may be 0, or a date that is in the past."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestSettings:
    url: str
    records: str = ""
    paging: str = "none"
    page_parameter: str = "page"
    first_page: int = 1
    cursor: str = "next"
    cursor_parameter: str = "cursor"
    parameters: dict[str, str | int] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    only_changed: bool = False
    interval_ms: int = 60_000
    longest_wait_ms: int = 600_000
    timeout_ms: int = 30_000
    max_answer_bytes: int = 16 * 1024 * 1024  # decompressed

    def __post_init__(self) -> None:
        require_http(self.url)
        require_one_of("paging", self.paging, PAGING)
        require_headers(self.headers)
        if self.only_changed and not self.key:
            raise SettingError("key", "is missing: only_changed tells records apart by their key")
        require_least(self, interval_ms=1, longest_wait_ms=1, timeout_ms=1, max_answer_bytes=1)


class RestSource:
    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._settings = read_settings(RestSettings, settings)
        self._about = about
        self._http: httpx.Client | None = None
        self._position: dict[str, Any] = {}
        self._hashes: dict[str, str] = {}
        self._not_before_ms = 0
        self._failures = 0

    def datasets(self) -> Sequence[Dataset]:
        return [http_dataset(self._settings.url)]

    def open_parts(self, parts: dict[str, Any]) -> None:
        self._hashes = parts

    def open(self, position: dict[str, Any] | None) -> None:
        if position is not None and "next" in position:
            # A role that may write positions must not get the headers by it.
            position = {**position, "next": self._next_page(self._settings.url, str(position["next"]))}
        self._position = position or {}
        self._not_before_ms = 0
        self._failures = 0
        self._http = httpx.Client(
            auth=_login(self._settings.url),
            headers=self._settings.headers,
            timeout=self._settings.timeout_ms / 1_000,
        )

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def poll(self) -> Polled | None:
        left_ms = self._not_before_ms - self._about.clock.monotonic_ms()
        if left_ms > 0:
            sleep_s(min(left_ms / 1_000, POLL_S))
            return None
        try:
            response = self._ask()
        except httpx.TransportError as error:
            self._back_off(None, f"{type(error).__name__}: {error}")
            return None
        except httpx.DecodingError as error:
            raise self._error(f"the answer of {self._shown(self._settings.url)} cannot be unpacked: {error}") from None
        if response.status_code == httpx.codes.NOT_MODIFIED:
            self._rest()
            return None
        if is_temporary(response):
            self._back_off(retry_after_ms(response, self._about.clock.wall_ms()), summary_of(response))
            return None
        if not response.is_success:
            answer = f"{self._shown(response.url)} answers {summary_of(response)}"
            raise self._error(f"{answer}; fix url, headers or parameters")
        self._failures = 0
        return self._taken(response)

    def _ask(self) -> httpx.Response:
        settings, position = self._settings, self._position
        parameters: dict[str, Any] = dict(settings.parameters)
        headers = {}
        url = settings.url
        match settings.paging:
            case "page":
                parameters[settings.page_parameter] = position.get("page", settings.first_page)
            case "cursor" if position.get("cursor") is not None:
                parameters[settings.cursor_parameter] = position["cursor"]
            case "link" if "next" in position:
                url, parameters = position["next"], {}
        if "etag" in position:
            headers["If-None-Match"] = position["etag"]
        assert self._http is not None
        return ask(
            self._http,
            "GET",
            # `params` would replace the parameters of the URL itself.
            str(httpx.URL(url).copy_merge_params(parameters)) if parameters else url,
            clock=self._about.clock,
            max_bytes=settings.max_answer_bytes,
            headers=headers,
        )

    def _next_page(self, page: str, link: str) -> str:
        """Returns the address of the next page, without a login."""
        own = self._settings.url
        try:
            after = _without_login(urljoin(page, link))
            is_own = _server(after) == _server(own)
            httpx.URL(after)
        except (ValueError, httpx.InvalidURL):
            raise self._error(f"the next page that {self._shown(page)} names has no URL that can be asked") from None
        if not is_own:
            raise self._error(
                f"the next page is {self._shown(after)}, on another host than {self._shown(own)}, which would be sent "
                "the headers"
            )
        return after

    def _error(self, text: str) -> UsageError:
        return UsageError(f"{self._about.name}: {text}")

    def _shown(self, url: object) -> str:
        """Returns the URL for messages and dead letters, without the password and `parameters`, which may be secret."""
        parts = urlsplit(str(url))
        given = parse_qsl(parts.query, keep_blank_values=True)
        query = urlencode([one for one in given if one[0] not in self._settings.parameters])
        return _without_login(urlunsplit((*parts[:3], query, "")))

    def _back_off(self, asked_ms: int | None, why: str) -> None:
        """Waits, and logs why at the first failure after a success."""
        if not self._failures:
            _log.warning(
                "%s: %s is not available and is asked again and again: %s",
                self._about.name,
                self._shown(self._settings.url),
                why,
            )
        wait_ms = min(self._settings.interval_ms * 2**self._failures, self._settings.longest_wait_ms)
        self._failures = min(self._failures + 1, 30)
        if asked_ms is not None:
            least_ms = min(self._settings.interval_ms, LEAST_WAIT_MS)
            wait_ms = min(max(asked_ms, least_ms), self._settings.longest_wait_ms)
        self._not_before_ms = self._about.clock.monotonic_ms() + wait_ms

    def _rest(self) -> None:
        self._failures = 0
        self._not_before_ms = self._about.clock.monotonic_ms() + self._settings.interval_ms

    def _taken(self, response: httpx.Response) -> Polled | None:
        settings = self._settings
        try:
            answer = parse_json(response.content)
            found = _at(answer, settings.records)
        except (ValueError, LookupError, TypeError) as error:
            raise self._error(f"{self._shown(response.url)} gives no JSON with {settings.records!r}: {error}") from None
        if not isinstance(found, list):
            raise self._error(
                f"{self._shown(response.url)} has no list at records = {settings.records!r}, but {type(found).__name__}"
            )
        position, new, more = self._next(response, answer, found)
        records: list[SourceRecord] = []
        rejected: list[SourceRecord] = []
        parts: dict[str, Any] = {}
        for item in new:
            try:
                key = key_of(item, settings.key, what="the record")
                (key or "").encode()  # also a part of the position is named by it
            except ValueError as error:
                place = (f"{ERROR_PREFIX}url", self._shown(response.url).encode())
                reason = (f"{ERROR_PREFIX}exception.message", short_reason(error).encode())
                rejected.append(SourceRecord(value=json.dumps(item), headers=(place, reason)))
                continue
            if settings.only_changed:
                digest = hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:24]
                if self._hashes.get(key or "") == digest:
                    continue
                self._hashes[key or ""] = parts[key or ""] = digest
            records.append(SourceRecord(key=key, value=item))
        if not more:
            self._rest()
        self._position = position
        if not records and not rejected:
            return None  # a position without records needs no commit
        return Polled(records=records, rejected=rejected, position=position, parts=parts)

    def _next(self, response: httpx.Response, answer: Any, found: list[Any]) -> tuple[dict[str, Any], list[Any], bool]:
        """Returns the position behind this response, its new records, and whether to request the next page now."""
        settings, position = self._settings, self._position
        match settings.paging:
            case "page":
                return self._page(position, found)
            case "cursor":
                try:
                    cursor = _at(answer, settings.cursor)
                except (LookupError, TypeError):
                    cursor = None
                if cursor is False or cursor == "":  # as some APIs mark the end
                    cursor = None
                if cursor is not None and cursor != position.get("cursor"):
                    return {"cursor": cursor}, _behind(position, found), bool(found)
                return self._last(response, position, found)
            case "link":
                link = response.links.get("next", {}).get("url")
                if link is None:
                    return self._last(response, position, found)
                return {"next": self._next_page(str(response.url), link)}, _behind(position, found), True
        etag = response.headers.get("etag")
        if etag is not None and etag == position.get("etag"):  # the API ignores If-None-Match
            return position, [], False
        return ({"etag": etag} if etag else {}), found, False

    def _page(self, position: dict[str, Any], found: list[Any]) -> tuple[dict[str, Any], list[Any], bool]:
        """Returns the same for the paging `page`. An empty page leads back to the page before, which may not have been
        full. So does a page with records, unless the page before had `size` records: it may have been filled since it
        was read. When it is read again it is full, because the next page exists."""
        page = position.get("page", self._settings.first_page)
        size = len(found) if position.get("full") else position.get("size")
        before = position.get("before")
        if before is not None and (not found or before != size):
            back = {"page": page - 1, "taken": before, "size": size, "full": bool(found)}
            return back, [], bool(found)
        if found:
            return {"page": page + 1, "before": len(found), "size": size}, _behind(position, found), True
        return position, [], False

    def _last(
        self, response: httpx.Response, position: dict[str, Any], found: list[Any]
    ) -> tuple[dict[str, Any], list[Any], bool]:
        """Returns the same for the last page. It is requested again, and records beyond its current ones are new."""
        after = {name: value for name, value in position.items() if name in ("cursor", "next")}
        after["taken"] = len(found)
        if etag := response.headers.get("etag"):
            after["etag"] = etag
        return after, _behind(position, found), False


def _login(url: str) -> tuple[str, str] | None:
    """The user and the password of a URL. The addresses of further pages need not have them."""
    parts = urlsplit(url)
    user, password = (unquote(part or "") for part in (parts.username, parts.password))
    return (user, password) if user or password else None


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _server(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _behind(position: dict[str, Any], found: list[Any]) -> list[Any]:
    taken = position.get("taken", 0)
    return found[taken:] if len(found) >= taken else found


def _at(answer: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        answer = answer[name]
    return answer
