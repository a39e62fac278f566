"""The console as its endpoints use it: settings, clients to borrow, the registry, the state of the cluster."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from suiro.client import Client
from suiro.clock import Clock, SystemClock
from suiro.console.text import printable
from suiro.console.web.masks import Masks
from suiro.console.web.model import Model
from suiro.errors import UsageError
from suiro.foundation.http import Tls

if TYPE_CHECKING:
    from suiro.console.web.oidc import OidcSettings
    from suiro.registry import RegistryClient

IDLE_CLIENTS = 4
"""The most clients kept for later requests. Others are closed when they are returned."""
AUDIT_EVENTS = 1_000
"""The number of changes kept for the page, and of refused ones."""
API_TIMEOUT_MS = 20_000

audit_logger = logging.getLogger("suiro.console.audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """Another HTTP server that the console calls for its users."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    bootstrap_servers: str
    client_settings: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8090
    users: Path | None = None
    oidc: OidcSettings | None = None
    tls: Tls | None = None
    read_only: bool = False
    masks: Masks = field(default_factory=Masks)
    registry: str | None = field(default=None, repr=False)  # it may hold a password
    connect: tuple[Remote, ...] = ()
    views: tuple[Remote, ...] = ()
    apps: tuple[Remote, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    at: int  # ms
    user: str | None
    what: str
    status: int


class Console:
    """Thread-safe. `start` starts reading the state of the cluster."""

    def __init__(self, settings: ConsoleSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.model = Model(self._new_client, clock=self.clock)
        # Refused changes have their own list, so that a user without rights cannot push out the changes of others.
        self._done: deque[tuple[int, AuditEvent]] = deque(maxlen=AUDIT_EVENTS)
        self._refused: deque[tuple[int, AuditEvent]] = deque(maxlen=AUDIT_EVENTS)
        self._numbers = count()
        self._idle: list[Client] = []
        self._lent: set[Client] = set()
        self._lock = threading.Lock()
        self.is_stopped = False

    def start(self) -> None:
        self.model.start()

    def stop(self) -> None:
        """May be called more than once. Requests that wait for the cluster fail, and streams end."""
        with self._lock:
            self.is_stopped = True
            for lent in self._lent:
                lent.abandon()
            while self._idle:
                self._idle.pop().close()
        self.model.stop()

    def note(self, user: str | None, what: str, status: int) -> None:
        """Adds to the list of changes and to the log. Characters that are not printable are escaped."""
        what = printable(what)
        events = self._refused if 400 <= status < 500 else self._done
        event = AuditEvent(at=self.clock.wall_ms(), user=user, what=what, status=status)
        events.append((next(self._numbers), event))
        audit_logger.info("%s: %s: %d", user or "-", what, status)

    def audit(self) -> list[AuditEvent]:
        """Returns the changes, the newest first, also if the clock was set back."""
        found = sorted((*self._refused, *self._done), key=itemgetter(0), reverse=True)
        return [event for _, event in found]

    def _new_client(self) -> Client:
        settings = {"default.api.timeout.ms": str(API_TIMEOUT_MS), **self.settings.client_settings}
        return Client(self.settings.bootstrap_servers, settings=settings)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Lends a client for the `with`. Its connections are kept for the next borrower."""
        with self._lock:
            client = self._idle.pop() if self._idle else self._new_client()
            self._lent.add(client)
        is_well = True
        try:
            yield client
        except BaseException as error:
            is_well = isinstance(error, UsageError)  # the request is wrong, and not the connection
            raise
        finally:
            with self._lock:
                self._lent.discard(client)
                kept = is_well and not self.is_stopped and len(self._idle) < IDLE_CLIENTS
                if kept:
                    self._idle.append(client)
            if not kept:
                client.close()

    def registry(self) -> RegistryClient:
        """Raises `UsageError` if no registry is configured."""
        if self.settings.registry is None:
            raise UsageError("no schema registry was named; start the console with --registry URL")
        from suiro.registry import registry_client

        return registry_client(self.settings.registry)
