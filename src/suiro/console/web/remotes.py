"""Other HTTP servers that the console calls for its users: hosts of views, processes of connect, applications.

Each server is called separately, within limits. A server that is down or slow appears in a list as an entry with an
error. Only the first list waits for it: until it answers again, it is called in the background, and lists show its last
error at once. It uses few of the console's threads, and none that other servers need.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

import httpx
import msgspec

from suiro.clock import Clock, SystemClock
from suiro.console.web.console import Console, Remote
from suiro.console.web.endpoint import Call, ConflictError, ForbiddenError, NotFoundError, number_of
from suiro.console.web.turns import LOOK_S, Turns
from suiro.errors import SuiroError, TransientError, UsageError
from suiro.foundation.http import AnswerTooLargeError, ask, is_temporary
from suiro.foundation.nesting import MAX_VALUES, has_too_many_values
from suiro.foundation.threads import settle

CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 10.0
LIST_TIMEOUT_S = 4.0
"""The time that a list waits for all of its servers together."""
ANSWER_BYTES_MAX = 32 * 1024 * 1024
AT_ONCE, WAITING = 2, 2
"""Requests to one server, in addition to those of lists."""
FAILURE_KEPT_MS = 15_000
"""The time after a failure before a list waits for the server again."""
LONG_AT_ONCE = 4
"""The number of requests to all servers together that may take minutes."""
MESSAGE_CHARS = 2_000
ERROR_BODY = frozenset({400, 413, 415, 422})

T = TypeVar("T")


class RemoteError(SuiroError):
    """Another server failed in a way that the user cannot fix here."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The part of one server in a list: its number, its address, and its answer or error."""

    number: int
    url: str
    answer: Any
    error: str | None


class Peer:
    """One of the servers. Thread-safe."""

    def __init__(self, remote: Remote, clock: Clock) -> None:
        self.url = remote.url.rstrip("/")
        self._clock = clock
        self._has_login = remote.user is not None
        self._headers = {} if remote.token is None else {"Authorization": f"Bearer {remote.token}"}
        self._auth = None if remote.user is None else (remote.user, remote.password or "")
        self._http = self._client(READ_TIMEOUT_S)
        self._turns = Turns(f"questions to {self.url}", at_once=AT_ONCE, waiting=WAITING)
        self._lock = threading.Lock()
        self._asking: dict[str, Future[bytes]] = {}
        self._failures: dict[str, tuple[str, int]] = {}

    def _client(self, read_timeout_s: float) -> httpx.Client:
        return httpx.Client(
            auth=self._auth,
            headers=self._headers,
            timeout=httpx.Timeout(CONNECT_TIMEOUT_S, read=read_timeout_s),
        )

    def get(self, path: str, gone: threading.Event) -> bytes:
        """Returns JSON as the server sent it. Raises an error of `endpoint`, `TransientError` or `RemoteError`."""
        with self._turns.taken(gone):
            return _json(self, self._ask(self._http, "GET", path))

    def change(
        self,
        method: str,
        path: str,
        body: Any,
        gone: threading.Event,
        *,
        user: str | None = None,
    ) -> bytes:
        """`user` is named to a server at which the console has its own login. The request is sent once, because it may
        have been executed without an answer. It is not cancelled when the caller disconnects."""
        with self._turns.taken(gone):
            return _json(self, self._ask(self._http, method, path, body, self._for(user)))

    def long(self, path: str, body: Any, gone: threading.Event, *, user: str | None, timeout_s: float) -> bytes:
        """Sends a POST that may take minutes. When the caller disconnects, it closes the connection, which tells the
        server."""
        sockets: list[socket.socket] = []

        def trace(event: str, info: Mapping[str, Any]) -> None:
            if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
                found = info["return_value"].get_extra_info("socket")
                if found is not None:
                    sockets.append(found)
                    if gone.is_set():  # the caller left before the connection was made
                        close()

        def close() -> None:
            for one in sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

        answer: Future[httpx.Response] = Future()

        def work() -> httpx.Response:
            with self._client(timeout_s) as http:
                return self._ask(http, "POST", path, body, self._for(user), extensions={"trace": trace})

        with _LONG.taken(gone):
            threading.Thread(target=settle, args=(answer, work), name="console-long", daemon=True).start()
            while True:
                with contextlib.suppress(TimeoutError):
                    return _json(self, answer.result(LOOK_S))
                if gone.is_set() and not answer.done():
                    close()
                    raise TransientError("whoever asked has gone")

    def _for(self, user: str | None) -> dict[str, str]:
        return {"Suiro-For": quote(user, safe=" @")} if user is not None and self._has_login else {}

    def _ask(
        self,
        http: httpx.Client,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> httpx.Response:
        content = None if body is None else msgspec.json.encode(body)
        sent = {**(headers or {}), **({} if content is None else {"Content-Type": "application/json"})}
        try:
            response = ask(
                http,
                method,
                self.url + path,
                clock=self._clock,
                max_bytes=ANSWER_BYTES_MAX,
                headers=sent,
                content=content,
                **more,
            )
        except (AnswerTooLargeError, httpx.DecodingError) as error:
            raise RemoteError(f"{self.url}: {error}") from None
        except httpx.TransportError as error:
            said = str(error) or type(error).__name__
            hint = "is it running?" if method == "GET" else "look whether it was done before you ask again"
            raise TransientError(f"no answer from {self.url}: {said}; {hint}") from None
        except (httpx.InvalidURL, ValueError) as error:
            raise RemoteError(f"{self.url} is no address: {error}") from None
        if not response.is_success:
            raise _error(self.url, response)
        return response

    def asking(self, path: str) -> tuple[Future[bytes], str | None]:
        """Returns the pending answer, and the error of the last request if it failed."""
        with self._lock:
            found = self._asking.get(path)
            failure, at_ms = self._failures.get(path, (None, 0))
            if found is not None:
                return found, failure
            if self._clock.monotonic_ms() - at_ms >= FAILURE_KEPT_MS:
                failure = None
            found = self._asking[path] = Future()
        threading.Thread(target=self._answer, args=(path, found), name="console-list", daemon=True).start()
        return found, failure

    def _answer(self, path: str, future: Future[bytes]) -> None:
        content, failure = b"", None
        try:
            content = _json(self, self._ask(self._http, "GET", path))
            require_few_values(self.url, content)
        except BaseException as error:  # noqa: BLE001 - the callers that wait get it
            failure = error
        with self._lock:
            self._asking.pop(path, None)
            self._failures.pop(path, None)
            if isinstance(failure, TransientError):
                self._failures[path] = str(failure), self._clock.monotonic_ms()
        if failure is None:
            future.set_result(content)
        else:
            future.set_exception(failure)

    def note_failure(self, path: str, error: str) -> None:
        with self._lock:
            if path in self._asking:
                self._failures[path] = error, self._clock.monotonic_ms()


_LONG = Turns("comparisons, explanations and deploys", at_once=LONG_AT_ONCE, waiting=0)
_peers: WeakKeyDictionary[Console, dict[Remote, Peer]] = WeakKeyDictionary()
_peers_lock = threading.Lock()


def peer_of(call: Call, remotes: Sequence[Remote], what: str, *, named: str = "host") -> Peer:
    """Returns the server with the number in the path, whose name there is `named`. Raises `NotFoundError`."""
    number = number_of(named, call.path[named])
    if number >= len(remotes):
        raise NotFoundError(f"there is no {what} {number}; the console was given {len(remotes)}")
    return _peer(call.console, remotes[number])


def _peer(console: Console, remote: Remote) -> Peer:
    with _peers_lock:
        mine = _peers.setdefault(console, {})
        if remote not in mine:
            mine[remote] = Peer(remote, console.clock)
        return mine[remote]


def listed(call: Call, remotes: Sequence[Remote], path: str, read: Callable[[bytes], Any]) -> list[Listed]:
    """Asks all servers at the same time and returns their answers."""
    clock = SystemClock()  # the waits are real
    peers = [_peer(call.console, remote) for remote in remotes]
    begun = [peer.asking(path) for peer in peers]
    ends_ms = clock.monotonic_ms() + int(LIST_TIMEOUT_S * 1_000)
    found = []
    for number, (peer, (future, failure)) in enumerate(zip(peers, begun, strict=True)):
        wait_s = max(ends_ms - clock.monotonic_ms(), 0) / 1_000 if failure is None else 0.0
        answer: Any = None
        error: str | None = None
        try:
            answer = read(future.result(wait_s))
        except TimeoutError:
            error = failure or f"no answer from {peer.url} within {LIST_TIMEOUT_S:g} s"
            peer.note_failure(path, error)
        except SuiroError as refused:
            error = str(refused)
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError) as wrong:
            error = f"{peer.url} answers with something else than what was asked for: {wrong}"
        found.append(Listed(number, remotes[number].url, answer, error))
    return found


def require_few_values(url: str, content: bytes) -> None:
    """For answers that are parsed. Raises `RemoteError`."""
    if has_too_many_values(content):
        raise RemoteError(f"{url} answers with more than {MAX_VALUES} values")


def _json(peer: Peer, response: httpx.Response) -> bytes:
    content = response.content
    if not content:
        return b"{}"
    try:
        content.decode()
        msgspec.json.decode(content, type=msgspec.Raw)  # makes no objects, and does not look into texts
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RemoteError(f"{peer.url} answers with what is no JSON; is it the address of such a server?") from None
    return content


class _Refusal(msgspec.Struct):
    """The part of an answer that is shown. The rest becomes no objects."""

    message: str


def _error(url: str, response: httpx.Response) -> SuiroError:
    said = response.reason_phrase
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = msgspec.json.decode(response.content, type=_Refusal).message[:MESSAGE_CHARS]
    status = response.status_code
    if status == 401:
        return RemoteError(f"{url} does not take the console's login: {said}")
    if status == 403:
        return ForbiddenError(f"{url} refuses: {said}")
    if status == 404:
        return NotFoundError(said)
    if status == 409:
        return ConflictError(said)
    if status in ERROR_BODY:
        return UsageError(said)
    if is_temporary(response) and status != 500:
        return TransientError(f"{url}: {said}")
    return RemoteError(f"{url} answers {status}: {said}")
