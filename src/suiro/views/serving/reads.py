"""Reads over HTTP.

| request | answers |
|---|---|
| `GET /views/V/rows/UA/2013-07-04` | `row`: the row of a key, null where there is none |
| `GET /views/V/rows` | `rows`: a page by key, and `next` where there are more: give it back as `after` |
| `GET /views/V/changes` | server-sent events: what each new cut changed |
| `GET /views/V/topic` | `topic`: the output topic of the version that answers; the view's name is its alias |

Parameters of rows: `from`, `to` (both included), `prefix` (the first parts of a key and optionally the beginning of the
next; parts are quoted as in a path), `where` (several, `column:operator:value`), `search` (words), `limit`, `after`.

Parameters of a row and of rows: `as_of` (a time, `cut:N`, or `topic:partition:offset,...`), `min_offset`
(`topic:partition:offset,...`: waits until the view reflects these records, at most `timeout_ms`, then answers 504),
`version`, and who reads: the header `Suiro-Caller`, or `caller`, or the address. A topic has `version` and `caller`.

Every answer begins with the version that gave it, its cut, and the input offsets it reflects. It shows the state of
that cut. The `next` of a page has the version and the cut, so pages that follow each other show one state.

`subscriptions` explains the events.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from suiro.clock import stopwatch_ns
from suiro.errors import FatalError, SuiroError, TransientError, UsageError
from suiro.foundation.http import HttpLimits, is_let_in, requests_of_one
from suiro.numerals import natural
from suiro.views.cuts import Cut
from suiro.views.serving.answers import (
    PageToken,
    WaitedError,
    as_of,
    error_answer,
    head_text,
    json_answer,
    offsets_of,
    row_text,
    rows_text,
)
from suiro.views.serving.served import Served, waking
from suiro.views.serving.subscriptions import changes_of, event_id
from suiro.views.state import UnknownViewError
from suiro.views.store.conditions import DEFAULT_LIMIT
from suiro.views.store.keys import key_of, parts_of
from suiro.views.store.tables import Store

READING_THREADS = 8
SCANNING_THREADS = 4  # separate, so that look-ups do not wait for scans
SUBSCRIPTION_THREADS = 4  # separate, because a cut wakes all subscribers at once
DEFAULT_WAIT_MS = 10_000
MAX_WAIT_MS = 60_000

CALLER_HEADER = "suiro-caller"
_COMMON = frozenset({"as_of", "min_offset", "timeout_ms", "version", "caller"})
_OF_ROWS = _COMMON | {"from", "to", "prefix", "where", "search", "limit", "after"}
_LONG = ("where", "search", "as_of")
"""A read with one of these may scan many rows or cuts."""
_OF_CHANGES = frozenset({"after", "version", "caller"})
_OF_TOPIC = frozenset({"version", "caller"})

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Router(Protocol):
    """Both raise `UnknownViewError`, and `TransientError` if the version cannot be read yet."""

    def serving(self, view: str, caller: str) -> Served: ...
    def version(self, view: str, number: int) -> Served: ...


def routes(router: Router) -> list[Route]:
    reads = _Reads(router)
    return [
        Route("/views/{view}/rows", reads.rows),
        Route("/views/{view}/rows/{key:path}", reads.row),
        Route("/views/{view}/changes", reads.changes),
        Route("/views/{view}/topic", reads.topic),
    ]


class _Question:
    """The parameters of a request. Raises `UsageError` for an unknown one, and for a second one except `where`."""

    def __init__(self, request: Request, known: frozenset[str]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in parse_qsl(_query(request), keep_blank_values=True):
            self._values.setdefault(name, []).append(value)
        for name, values in self._values.items():
            if name not in known:
                raise UsageError(f"unknown parameter {name!r}; there are {', '.join(sorted(known))}")
            if len(values) > 1 and name != "where":
                raise UsageError(f"{name} is given {len(values)} times, and counts once")

    def text(self, name: str) -> str | None:
        values = self._values.get(name)
        return values[0] if values else None

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        number = default if text is None else natural(text)
        if number is None:
            raise UsageError(f"{name}={text}: expected a whole number")
        return number


class _Events(StreamingResponse):
    """Calls `ended` once, even if the reader has gone before the first event."""

    def __init__(self, events: AsyncIterator[str], ended: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


class _Reads:
    def __init__(self, router: Router) -> None:
        self._router = router
        self._lookups = ThreadPoolExecutor(READING_THREADS, thread_name_prefix="views-read")
        self._scans = ThreadPoolExecutor(SCANNING_THREADS, thread_name_prefix="views-scan")
        self._subscription_threads = ThreadPoolExecutor(SUBSCRIPTION_THREADS, thread_name_prefix="views-subscription")
        self._subscribers = 0

    async def row(self, request: Request) -> Response:
        return await self._answered(request, _COMMON, None, _look_up)

    async def rows(self, request: Request) -> Response:
        return await self._answered(request, _OF_ROWS, self._lookups, _page)

    async def changes(self, request: Request) -> Response:
        try:
            question = _Question(request, _OF_CHANGES)
            caller = _caller(request, question)
            served = self._served(request, question, caller)
            last = request.headers.get("last-event-id") or question.text("after")
            after = None if last is None else event_id(last, served)
            most = requests_of_one(HttpLimits())  # so that look-ups and commands get an answer, too
            if self._subscribers >= most:
                raise TransientError(f"{most:,} subscribers are connected, which is the most; try again")
        except SuiroError as error:
            return error_answer(error)
        if request.method == "HEAD":  # which has no events: the client does not wait for an end
            return Response(media_type="text/event-stream")
        self._subscribers += 1  # before the wait, during which others come
        try:
            await self._for_subscription(served.store.newest)  # the reader gets its error at once
        except BaseException as error:
            self._subscribers -= 1
            if isinstance(error, SuiroError):
                return error_answer(error)
            raise
        is_pinned = question.text("version") is not None

        def follows() -> Served:
            if is_pinned:
                return self._router.version(served.spec.view, served.spec.version)
            return self._router.serving(served.spec.view, caller)

        def ended() -> None:
            self._subscribers -= 1

        events = changes_of(served, after, follows, self._for_subscription)
        return _Events(_while_let_in(request.scope, events), ended)

    async def topic(self, request: Request) -> Response:
        try:
            question = _Question(request, _OF_TOPIC)
            served = self._served(request, question, _caller(request, question))
        except SuiroError as error:
            return error_answer(error)
        spec = served.spec
        return json_answer({"view": spec.view, "version": spec.version, "topic": spec.output_topic})

    async def _answered(
        self,
        request: Request,
        known: frozenset[str],
        threads: ThreadPoolExecutor | None,
        answer: Callable[[Served, Request, _Question, PageToken | None], str],
    ) -> Response:
        """`threads`: None for a look-up, which runs in this thread if the store `looks_up_at_once`."""
        served: Served | None = None
        try:
            question = _Question(request, known)
            if any(question.all(name) for name in _LONG):
                threads = self._scans
            after = question.text("after")
            token = None if after is None else PageToken.parse(after)
            served = self._served(request, question, _caller(request, question), token)
            if question.text("min_offset") is not None:
                await _reach(served, question)
            begun = stopwatch_ns()
            try:
                if threads is None and served.store.looks_up_at_once:
                    text = answer(served, request, question, token)
                else:
                    loop, threads = asyncio.get_running_loop(), threads or self._lookups
                    text = await loop.run_in_executor(threads, answer, served, request, question, token)
            except SuiroError as error:
                # What failed before is the reader's own, or a wait for offsets that may never come.
                if not isinstance(error, UsageError):
                    served.metrics.failed()
                raise
        except SuiroError as error:
            return error_answer(error)
        except Exception as error:
            logger.exception("%s %s", request.method, request.url.path)
            if served is not None:
                served.metrics.failed()
            return error_answer(FatalError(f"the read failed: {type(error).__name__}; the host's log says more"))
        served.metrics.answered((stopwatch_ns() - begun) / 1e6)
        return Response(text, media_type="application/json")

    def _served(self, request: Request, question: _Question, caller: str, token: PageToken | None = None) -> Served:
        view = request.path_params["view"]
        number = question.number("version", -1)
        if token is not None:
            if number not in (-1, token.version):
                raise UsageError(f"after= goes on in version {token.version}, and version={number} is asked for")
            number = token.version
        try:
            return self._router.serving(view, caller) if number < 0 else self._router.version(view, number)
        except UnknownViewError as error:
            if token is None:
                raise
            raise UnknownViewError(f"{error}; begin again at the first page, without after=") from None

    async def _for_subscription(self, question: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._subscription_threads, question, *arguments)


async def _while_let_in(scope: Scope, events: AsyncGenerator[str, None]) -> AsyncIterator[str]:
    async with aclosing(events):
        async for event in events:
            if not await is_let_in(scope):
                return
            yield event


def _look_up(served: Served, request: Request, question: _Question, token: PageToken | None) -> str:
    store = served.store
    columns = served.spec.key
    parts = parts_of(_raw_key(request))
    if len(parts) != len(columns):
        raise UsageError(f"a key of view {served.spec.view!r} is {'/'.join(columns)}; {len(parts)} parts were given")
    with store.held():
        cut = _asked_cut(store, question)
        key = key_of(parts, columns, store.key_types())
        found = store.get(key, as_of=None if cut is None else cut.number)
    row = "null" if found.row is None else row_text(columns, found.row)
    return f'{head_text(served.spec, found.cut)},"row":{row}}}'


def _page(served: Served, request: Request, question: _Question, token: PageToken | None) -> str:
    store = served.store
    columns = served.spec.key
    cut = _asked_cut(store, question) if token is None else store.cut_at(number=token.cut)
    types = store.key_types()

    def key(name: str) -> tuple[Any, ...] | None:
        text = question.text(name)
        return None if text is None else key_of(parts_of(text), columns, types, is_prefix=name == "prefix")

    page = store.rows(
        first=key("from"),
        last=key("to"),
        prefix=key("prefix"),
        where=question.all("where"),
        search=question.text("search"),
        limit=question.number("limit", DEFAULT_LIMIT),
        after=None if token is None else token.place,
        as_of=None if cut is None else cut.number,
    )
    following = "null"
    if page.next is not None:
        following = json.dumps(str(PageToken(served.spec.version, page.cut.number, page.next)))
    head = head_text(served.spec, page.cut)
    return f'{head},"rows":{rows_text(columns, page.rows)},"next":{following}}}'


def _asked_cut(store: Store, question: _Question) -> Cut | None:
    text = question.text("as_of")
    return None if text is None else as_of(text, store)


async def _reach(served: Served, question: _Question) -> None:
    """Waits until the version reflects the records of `min_offset`."""
    wanted = offsets_of(question.text("min_offset") or "", "min_offset")
    timeout_ms = question.number("timeout_ms", DEFAULT_WAIT_MS)
    if timeout_ms > MAX_WAIT_MS:
        raise UsageError(f"timeout_ms={timeout_ms}: the most is {MAX_WAIT_MS:,}")
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    stop_listening = served.follower.listen(waking(changed))
    ends = loop.time() + timeout_ms / 1000
    try:
        while True:
            changed.clear()
            cut = served.follower.cut
            if cut is not None:
                unknown = {topic for topic, _ in wanted} - cut.topics
                if unknown:
                    names = ", ".join(sorted(cut.topics))
                    raise UsageError(
                        f"min_offset: view {served.spec.view!r} does not read {min(unknown)!r}; it reads {names}"
                    )
                if served.follower.reflects(wanted):
                    return
            try:
                await asyncio.wait_for(changed.wait(), max(0.0, ends - loop.time()))
            except TimeoutError:
                at = "no cut yet" if cut is None else f"cut {cut.number}"
                raise WaitedError(
                    f"version {served.spec.version} of view {served.spec.view!r} does not reflect "
                    f"{question.text('min_offset')} after {timeout_ms} ms; it is at {at}. Is its pipeline running? "
                    "(suiro view status)"
                ) from None
    finally:
        stop_listening()


def _query(request: Request) -> str:
    text: bytes = request.scope["query_string"]
    return text.decode("ascii", "replace")


def _raw_key(request: Request) -> str:
    """Returns the key still quoted, because a part of it may contain a slash."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    _, *before, key = raw.partition(b"?")[0].decode("ascii", "replace").split("/", 4)
    if before[2:] != ["rows"]:
        raise UsageError("a slash before the key is quoted; the path of a row is /views/VIEW/rows/KEY")
    return key


def _caller(request: Request, question: _Question) -> str:
    given = request.headers.get(CALLER_HEADER) or question.text("caller")
    return given or (request.client.host if request.client is not None else "")
