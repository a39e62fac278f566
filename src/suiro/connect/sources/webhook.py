"""Source `webhook`: each POST becomes a record. The response is 200 only once that record is committed.

    [source.payments]
    kind = "webhook"
    listen = "0.0.0.0:8090"
    path = "/payments"
    secret = "${env:PAYMENTS_SECRET}"
    id_header = "X-Event-Id"
    topic = "payments"

Posts that arrive at the same time share a transaction. With `id_header`, the source is exactly once: the last
`dedup_window` ids are parts of its position, committed with their records. A post with a known id is answered with 200
and not written again, so a sender may repeat a post that got no response (within that window). Without an id, a
repeated post becomes a second record: at least once.

| answer | means |
|---|---|
| 200 | committed, now or before |
| 400, 401, 413 | no JSON, no id, a long id, or not of the schema (no dead letter topic); wrong signature; too large |
| 503 with Retry-After | too many waiting, stopping, or the commit failed or is unknown: send it again |
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import queue
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from suiro.connect.connectors import About, Headers, Polled, SourceRecord
from suiro.connect.values import key_of
from suiro.foundation.http import Guard, HttpLimits, HttpServer, Tls, listen_on
from suiro.foundation.nesting import parse_json
from suiro.foundation.settings import SettingError, host_and_port, read_settings, require_least
from suiro.telemetry import TRACEPARENT

POLL_S = 0.5
_LATER = 503
MAX_ID_CHARS = 1_000
"""Of an id: `dedup_window` ids are kept in memory and in the topic of positions."""
WAITING_BYTES = 64 * 1024 * 1024  # of posts, also of unsigned ones, from their first byte on


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    listen: str = "127.0.0.1:8090"
    path: str = "/"
    secret: str | None = None
    unsigned: bool = False  # everybody who can connect may write
    signature_header: str = "X-Hub-Signature-256"
    signature_prefix: str = "sha256="
    id_header: str | None = None
    dedup_window: int = 10_000
    key: tuple[str, ...] = ()  # fields of the body
    headers: tuple[str, ...] = ()  # of the request, that the record gets
    require_json: bool = True
    max_body_bytes: int = 900_000
    max_waiting: int = 1_000
    max_records: int = 500  # in a transaction
    certificate: Path | None = None
    certificate_key: Path | None = None

    @property
    def address(self) -> tuple[str, int]:
        return host_and_port(self.listen) or ("", 0)

    def __post_init__(self) -> None:
        if not self.address[0]:
            raise SettingError("listen", f"expected HOST:PORT, got {self.listen!r}")
        if not self.path.startswith("/") or "{" in self.path or "}" in self.path:
            raise SettingError("path", f"begins with / and has no braces, not {self.path!r}")
        if not self.secret and not self.unsigned:
            raise SettingError("secret", "is missing: anybody could write; unsigned = true says that this is meant")
        if self.key and not self.require_json:
            raise SettingError("key", "is taken from JSON, so require_json must be true")
        if (self.certificate is None) != (self.certificate_key is None):
            raise SettingError("certificate_key", "certificate and certificate_key go together")
        require_least(self, dedup_window=1, max_body_bytes=1, max_waiting=1, max_records=1)


@dataclass(eq=False, slots=True, kw_only=True)
class _Post:
    id: str | None
    record: SourceRecord
    done: Future[bool | str]  # true: committed; false: unknown, to be sent again; a text: why it is refused


class WebhookSource:
    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._settings = read_settings(WebhookSettings, settings)
        self._about = about
        self._server: HttpServer | None = None
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._waiting: queue.SimpleQueue[_Post] = queue.SimpleQueue()
        self._posts: set[_Post] = set()  # not answered yet
        self._pending: dict[str, _Post] = {}  # those with an id
        self._polled: list[_Post] = []
        self._slots: dict[int, str] = {}  # the last ids, in a ring
        self._moved: dict[str, str | None] = {}  # slots that a new size of the ring changes, until a commit
        self._seen: set[str] = set()
        self._next = 0
        self._closing = False

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.port

    # Called by the runtime

    def open_parts(self, parts: dict[str, Any]) -> None:
        self._forget()
        self._slots = {int(slot): id_ for slot, id_ in parts.items()}

    def open(self, position: dict[str, Any] | None) -> None:
        self._next = 0 if position is None else position["next"]
        self._resize((position or {}).get("window"))
        settings = self._settings
        tls = None
        if settings.certificate is not None and settings.certificate_key is not None:
            folder = self._about.folder
            tls = Tls(folder / settings.certificate, folder / settings.certificate_key)
        application = Starlette(routes=[Route(settings.path, self._receive, methods=["POST"])])
        # Senders may be anywhere: a post is checked by its signature, not by its origin.
        guard = Guard(
            application,
            origins=None,
            max_body_bytes=settings.max_body_bytes,
            limits=HttpLimits(held_body_bytes=WAITING_BYTES),
        )
        name = f"webhook-{self._about.name}"
        listener = listen_on(*settings.address, name=self._about.name)
        self._server = HttpServer(guard, listener, name=name, tls=tls)

    def _resize(self, before: int | None) -> None:
        """Moves the newest ids to their slots if the ring had another size, `before`. None: an earlier release has
        written the position. Then the slots beyond this size may have the newest ids or very old ones, and all of them
        are known until the next start."""
        window = self._settings.dedup_window
        self._seen = set(self._slots.values())
        if before is None:
            self._moved = {str(slot): None for slot in self._slots if slot >= window}
            self._slots = {slot: id_ for slot, id_ in self._slots.items() if slot < window}
        elif before != window:
            last = self._next - 1
            numbers = {last - (last - slot) % before: id_ for slot, id_ in self._slots.items()}
            kept = {number % window: numbers[number] for number in sorted(numbers)[-window:]}
            self._moved = {str(slot): kept.get(slot) for slot in self._slots.keys() | kept.keys()}
            self._slots = kept
            self._seen = set(kept.values())

    def poll(self) -> Polled | None:
        posts: list[_Post] = []
        try:
            posts.append(self._waiting.get(timeout=POLL_S))
            while len(posts) < self._settings.max_records:
                posts.append(self._waiting.get_nowait())
        except queue.Empty:
            pass
        return self._of(posts) if posts else None

    def refuse(self, reasons: Mapping[int, str]) -> Polled | None:
        """Answers the refused posts. Their senders would only repeat them, and others must not wait for that."""
        posts = self._polled
        with self._lock:
            for place in reasons:
                self._posts.discard(posts[place])
                self._pending.pop(posts[place].id or "", None)
        for place, reason in reasons.items():
            posts[place].done.set_result(f"the body {reason}")
        left = [post for place, post in enumerate(posts) if place not in reasons]
        return self._of(left) if left else None

    def _of(self, posts: list[_Post]) -> Polled:
        self._polled = posts
        window, number = self._settings.dedup_window, self._next
        parts = dict(self._moved)
        for post in posts:
            if post.id is not None:
                parts[str(number % window)] = post.id
                number += 1
        position = {"next": number, "window": window}
        return Polled(records=[post.record for post in posts], position=position, parts=parts)

    def committed(self) -> None:
        with self._lock:
            for post in self._polled:
                if post.id is not None:
                    slot = self._next % self._settings.dedup_window
                    self._seen.discard(self._slots.get(slot, ""))
                    self._slots[slot] = post.id
                    self._seen.add(post.id)
                    self._pending.pop(post.id, None)
                    self._next += 1
            self._posts.difference_update(self._polled)
        self._moved = {}
        for post in self._polled:
            post.done.set_result(True)
        self._polled = []

    def close(self) -> None:
        with self._lock:
            self._closing = True
            posts, self._posts = list(self._posts), set()
        for post in posts:
            post.done.set_result(False)
        if self._server is not None:
            self._server.stop()
            self._server = None

    def lag(self) -> int:
        """Posts that wait for their commit."""
        return len(self._posts)

    # Called for senders

    async def _receive(self, request: Request) -> Response:
        settings = self._settings
        data = await request.body()
        if not self._signed(request, data):
            return _answer(401, f"{settings.signature_header} does not sign this body")
        id_ = None
        if settings.id_header is not None:
            id_ = request.headers.get(settings.id_header)
            if not id_ or len(id_) > MAX_ID_CHARS:
                return _answer(400, f"header {settings.id_header} has 1 to {MAX_ID_CHARS:,} characters")
        try:
            record = self._record(request, data)
        except ValueError as error:
            return _answer(400, str(error))
        post = self._take(id_, record)
        if isinstance(post, Response):
            return post
        # A sender that disconnects must not cancel the future: others may wait for it with the same id.
        done = await asyncio.shield(asyncio.wrap_future(post.done))
        if isinstance(done, str):
            return _answer(400, done)
        return _answer(200, "committed") if done else _answer(_LATER, "the commit is unknown")

    def _signed(self, request: Request, data: bytes) -> bool:
        settings = self._settings
        if not settings.secret:
            return True
        right = settings.signature_prefix + hmac.new(settings.secret.encode(), data, hashlib.sha256).hexdigest()
        given = request.headers.get(settings.signature_header, "")
        return hmac.compare_digest(given.encode("latin-1", "replace"), right.encode())

    def _record(self, request: Request, data: bytes) -> SourceRecord:
        settings = self._settings
        key: str | None = None
        if settings.require_json:
            try:
                value = parse_json(data, allow_nan=False, allow_half_pairs=False)
            except ValueError as error:
                raise ValueError(f"the body {error}") from None
            key = key_of(value, settings.key, what="the body")
        headers: Headers = tuple(
            (name, request.headers[name].encode("latin-1"))
            for name in dict.fromkeys((*settings.headers, TRACEPARENT))
            if name in request.headers
        )
        return SourceRecord(key=key, value=data, headers=headers)

    def _take(self, id_: str | None, record: SourceRecord) -> _Post | Response:
        with self._lock:
            if self._closing:
                return _answer(_LATER, "stopping")
            if id_ is not None:
                if id_ in self._seen:
                    return _answer(200, "committed before")
                if id_ in self._pending:
                    return self._pending[id_]
            if len(self._posts) >= self._settings.max_waiting:
                return _answer(_LATER, "too many are waiting")
            post = _Post(id=id_, record=record, done=Future())
            self._posts.add(post)
            if id_ is not None:
                self._pending[id_] = post
            self._waiting.put(post)
            return post


def _answer(status: int, message: str) -> Response:
    headers = {"Retry-After": "1"} if status == _LATER else None
    return JSONResponse({"message": message}, status_code=status, headers=headers)
