"""Waits for schemas of a registry that may not answer, so that it holds up neither a page nor the others for long.

Schemas, with those that they refer to, are fetched on threads of their own and stay in memory. If one does not come in
time, all requests do without the registry for a while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial

from suiro.clock import Clock, SystemClock
from suiro.errors import RegistryError, RegistryUnavailableError, SchemaNotFoundError
from suiro.foundation.threads import settle

WAIT_S = 2.0
"""The time that a request waits. The client itself waits for up to a minute."""
PAUSE_MS = 10_000
"""The pause after a failed request to a registry."""
ASKING_MAX = 64
"""The most schemas that are fetched at once: more than the console has threads, each of which waits for one."""
READY_MAX = 10_000


class SchemaWaits:
    """The waits for one registry, by all requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asking: dict[int, Future[None]] = {}
        self._ready: set[int] = set()
        self._failures: dict[int | None, tuple[RegistryError, int]] = {}
        """Why schemas cannot be fetched, and since when: a schema that the registry refuses; None: all schemas."""

    def wait(self, schema_id: int, decode: Callable[[], object]) -> None:
        """`decode` decodes a record of the schema, which fetches all that it needs. Returns when one was decoded, or is
        not of the schema. Raises `RegistryError`."""
        if schema_id in self._ready:
            return
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            for failure, since_ms in filter(None, map(self._failures.get, (None, schema_id))):
                if now_ms - since_ms < PAUSE_MS:
                    # Of its kind: whoever waits for a registry does not wait for a schema that it refuses.
                    raise _again(failure)
            asked = self._asking.get(schema_id)
            if asked is None:
                if len(self._asking) >= ASKING_MAX:
                    raise RegistryUnavailableError("the registry is slow to answer", 0, 0)
                asked = Future()
                work = partial(self._asked, schema_id, decode)
                threading.Thread(target=settle, args=(asked, work), name="console-schema", daemon=True).start()
                self._asking[schema_id] = asked  # not if there can be no more threads
        try:
            asked.result(WAIT_S)
        except TimeoutError:
            error = RegistryUnavailableError(f"the registry does not answer within {WAIT_S:g} s", 0, 0)
            with self._lock:
                self._failures[None] = _again(error), self._clock.monotonic_ms()
            raise error from None

    def _asked(self, schema_id: int, decode: Callable[[], object]) -> None:
        failure: BaseException | None = None
        try:
            with suppress(ValueError, RecursionError):  # of this record; the others may be of the schema
                decode()
        except BaseException as error:
            failure = error
            raise
        finally:
            with self._lock:
                del self._asking[schema_id]
                self._failures.pop(None, None)
                if failure is None:
                    if len(self._ready) >= READY_MAX:
                        self._ready.clear()
                    self._ready.add(schema_id)
                elif isinstance(failure, RegistryError) and not isinstance(failure, SchemaNotFoundError):
                    if len(self._failures) >= READY_MAX:
                        self._failures.clear()
                    of = None if isinstance(failure, RegistryUnavailableError) else schema_id
                    self._failures[of] = _again(failure), self._clock.monotonic_ms()


def _again(error: RegistryError) -> RegistryError:
    """Without the traceback, which holds what the frames of the first one have."""
    return type(error)(str(error), error.status, 0)


@cache
def schema_waits(registry: str) -> SchemaWaits:
    """Returns the waits for the registry at this address."""
    return SchemaWaits(SystemClock())
