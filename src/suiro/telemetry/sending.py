"""Sends events from a thread of its own: to a file, one line each, or to an HTTP endpoint.

The work that is reported never waits: `put` only appends to a bounded queue, and what does not fit is dropped and
counted. While the target is away, the event in hand is tried again with growing pauses; one warning is logged until the
target is there again. An event may arrive twice, because a lost answer says nothing about the event.

The endpoint is not trusted: its answers are read up to a limit, each request has a time limit, and a redirect is an
error, because it would send the key elsewhere.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from suiro.clock import SystemClock
from suiro.errors import ConfigError
from suiro.foundation.settings import is_header_value

if TYPE_CHECKING:
    import httpx

QUEUE_MAX = 1_000
EVENT_BYTES_MAX = 4 << 20
TIMEOUT_S = 5.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
CLOSE_S = 5.0
"""How long a process that ends waits for its last events."""
ENDPOINT = "api/v1/lineage"

_log = logging.getLogger(__name__)


class UnreachableError(Exception):
    """The target does not take the event now, but may do so later."""


class RefusedError(Exception):
    """The target does not take this event."""


@dataclass(slots=True, eq=False)
class _Queued:
    make: Callable[[], bytes]
    replaces: Hashable
    sent: Callable[[], None] | None


class EventSender:
    """Thread-safe. `sent` and `dropped` count events since the start."""

    def __init__(
        self, target: FileTarget | HttpTarget, *, first_pause_s: float = FIRST_PAUSE_S, queue_max: int = QUEUE_MAX
    ) -> None:
        self._target = target
        self._queue_max = queue_max
        self._first_pause_s = first_pause_s
        self._queue: deque[_Queued] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._is_busy = False
        self._has_warned = False
        self.sent = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="telemetry-events", daemon=True)
        self._thread.start()

    def put(
        self, make: Callable[[], bytes], *, replaces: Hashable = None, sent: Callable[[], None] | None = None
    ) -> None:
        """`make` is called on the sender's thread. An event that still waits and has the same `replaces` is dropped for
        this one, and is not counted. `sent` is called when the target has the event."""
        with self._changed:
            if self._closing.is_set():
                self.dropped += 1
                return
            if replaces is not None:
                for one in self._queue:
                    if one.replaces == replaces:
                        one.make, one.sent = make, sent
                        return
            if len(self._queue) >= self._queue_max:
                self._queue.popleft()
                self._drop("the queue is full")
            self._queue.append(_Queued(make, replaces, sent))
            self._changed.notify_all()

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Waits for the queue up to the limit; what is left is dropped. Safe to call again."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue and not self._is_busy, timeout_s)
            self._closing.set()
            left = len(self._queue) + self._is_busy
            self._queue.clear()
            self.dropped += left
            self._changed.notify_all()
        if left:
            _log.warning("%s: %d events were not sent before the end", self._target.name, left)

    def abandon(self) -> None:
        """Ends at once, without the events that wait."""
        with self._changed:
            self._closing.set()
            self._queue.clear()
            self._changed.notify_all()

    # On the thread

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._queue or self._closing.is_set())
                    if self._closing.is_set():
                        return
                    one = self._queue.popleft()
                    self._is_busy = True
                self._deliver(one)
                with self._changed:
                    self._is_busy = False
                    self._changed.notify_all()
        finally:
            self._target.close()

    def _deliver(self, one: _Queued) -> None:
        try:
            event = one.make()
            if len(event) > EVENT_BYTES_MAX:
                raise RefusedError(f"an event of {len(event)} bytes is over the limit of {EVENT_BYTES_MAX}")
            if not self._send(event):
                return  # `close` has counted it
        except Exception as error:  # noqa: BLE001 - telemetry must not end with an event that cannot be made
            self._drop(str(error) if isinstance(error, RefusedError) else f"{type(error).__name__}: {error}")
            return
        self.sent += 1
        if self._has_warned:
            self._has_warned = False
            _log.info("%s takes events again", self._target.name)
        if one.sent is not None:
            one.sent()

    def _send(self, event: bytes) -> bool:
        """False: the sender was closed before the target took it."""
        pause_s = self._first_pause_s
        while True:
            try:
                self._target.send(event)
                return True
            except UnreachableError as error:
                self._warn(f"{error}; events wait, and the work goes on without them")
            if self._closing.wait(pause_s):
                return False
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _drop(self, why: str) -> None:
        self.dropped += 1
        self._warn(f"{why}; the event is dropped")

    def _warn(self, what: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s: %s", self._target.name, what)


class FileTarget:
    """Appends a line for each event. Several processes may write to one file. Like `HttpTarget`, it raises
    `UnreachableError` and `RefusedError`."""

    def __init__(self, path: Path) -> None:
        self.name = f"OpenLineage events to {path}"
        self._path = path

    def send(self, event: bytes) -> None:
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                line = (b"\n" if _is_torn(self._path) else b"") + event + b"\n"
                if os.write(handle, line) < len(line):
                    raise UnreachableError("only a part of the event could be written")
            finally:
                os.close(handle)
        except OSError as error:
            raise UnreachableError(error.strerror or str(error)) from None

    def close(self) -> None:
        pass


def _is_torn(path: Path) -> bool:
    """Whether the last line has no end: the disk was too full for it, perhaps in an earlier process."""
    try:
        if not path.is_file():  # a pipe
            return False
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # it is empty, or only for writing
        return False


class HttpTarget:
    """Posts each event, as JSON unless `headers` say otherwise. `what`: for messages."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float = TIMEOUT_S,
        what: str = "OpenLineage events",
    ) -> None:
        parts = urlsplit(url)
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
        self.name = f"{what} to {shown}"
        self._url = url
        self._headers = {"Content-Type": "application/json", **headers}
        self._timeout_s = timeout_s
        self._http: httpx.Client | None = None

    def send(self, event: bytes) -> None:
        import httpx

        from suiro.foundation.http import AnswerTooLargeError, ask, is_temporary, summary_of

        if self._http is None:
            self._http = httpx.Client(timeout=self._timeout_s, follow_redirects=False)
        try:
            answer = ask(
                self._http,
                "POST",
                self._url,
                clock=SystemClock(),
                max_bytes=None,
                headers=self._headers,
                content=event,
            )
        except httpx.TransportError as error:
            raise UnreachableError(f"{type(error).__name__}: {error}") from None
        except (httpx.DecodingError, AnswerTooLargeError):
            return  # the answer's content is of no interest
        if answer.is_redirect:
            raise RefusedError("the endpoint redirects, which is not followed; give the final URL")
        if not answer.is_success:
            kind = UnreachableError if is_temporary(answer) else RefusedError
            raise kind(f"the endpoint answered {summary_of(answer)}")

    def close(self) -> None:
        if self._http is not None:
            self._http.close()


def sender_to(where: str | None, environment: Mapping[str, str] | None = None) -> EventSender | None:
    """`where`: a URL or a file's path; None: OPENLINEAGE_URL of the environment. None where nothing is to be sent, or
    where OPENLINEAGE_DISABLED is true. Raises `ConfigError`."""
    given = os.environ if environment is None else environment
    where = where or given.get("OPENLINEAGE_URL")
    if not where or given.get("OPENLINEAGE_DISABLED", "").lower() == "true":
        return None
    if "://" not in where:
        path = Path(where).absolute()
        if not path.parent.is_dir() or path.is_dir():
            raise ConfigError(f"openlineage {where}: expected a URL, or a file in a folder that exists")
        return EventSender(FileTarget(path))
    if not is_http(where):
        shown = where.rpartition("@")[2]
        raise ConfigError(f"openlineage {shown}: expected http://HOST:PORT, https://HOST:PORT or a file")
    endpoint = given.get("OPENLINEAGE_ENDPOINT", ENDPOINT).strip("/")
    key = given.get("OPENLINEAGE_API_KEY")
    if key is not None and not is_header_value(key):
        raise ConfigError("OPENLINEAGE_API_KEY has characters that an HTTP header cannot have")
    headers = {} if not key else {"Authorization": f"Bearer {key}"}
    return EventSender(HttpTarget(f"{where.rstrip('/')}/{endpoint}", headers=headers))


def is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
