"""`registry_client(url)`: one client per process and address. `mock://NAME` is a registry in the memory of this
process.

The registry in memory has all rules of the real one, over a list instead of a topic. It is empty at first, shared by
all users of its name in the process, and lost with the process. Use it in tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from suiro.extras import require
from suiro.registry.client import RegistryClient
from suiro.registry.records import Key, compact_json
from suiro.registry.schemas import MOCK_SCHEME

if TYPE_CHECKING:
    from suiro.registry.state import Decision, State

T = TypeVar("T")

_lock = threading.Lock()
_clients: dict[tuple[int, str], RegistryClient] = {}


def registry_client(url: str) -> RegistryClient:
    """Returns the client of this process. Connections do not survive a fork."""
    key = (os.getpid(), url)
    with _lock:
        found = _clients.get(key)
        if found is None:
            if url.startswith(MOCK_SCHEME):
                found = RegistryClient("http://registry.in.memory", transport=_InMemory())
            else:
                found = RegistryClient(url)
            _clients[key] = found
        return found


def use_registry_client(url: str, client: RegistryClient) -> None:
    """From now on this process uses this client for the registry at this address: one with a user, for example."""
    with _lock:
        _clients[os.getpid(), url] = client


class MemoryStorage:
    """A `Storage` whose log is a list. Every record is encoded and decoded, as it would be on the wire."""

    topic = "_schemas"

    def __init__(self) -> None:
        from suiro.registry.state import State

        self.log: list[tuple[bytes, bytes | None]] = []
        self._state = State()
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def state(self) -> Iterator[State]:
        with self._lock:
            yield self._state

    def catch_up(self, timeout_ms: int = 0) -> None:
        """Does nothing: nobody else writes."""

    def write(self, decide: Callable[[State], Decision[T]]) -> T:
        with self._lock:
            decision = decide(self._state)
            for change in decision.changes:
                value = None if change.value is None else compact_json(change.value).encode()
                self.append(self._state.raw_key(change.key), value)
            return decision.result

    def append(self, key: bytes, value: bytes | None) -> None:
        parsed = Key.parse(key)
        assert parsed is not None
        self._state.apply(parsed, None if value is None else json.loads(value), raw_key=key, timestamp=1)
        self.log.append((key, value))


@cache
def _loop(pid: int) -> asyncio.AbstractEventLoop:
    """The event loop of all registries in memory of this process. It has its own thread, because callers may run in a
    loop too. The thread does not survive a fork."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="registry-in-memory", daemon=True).start()
    return loop


class _InMemory(httpx.BaseTransport):
    """Passes requests to the application directly."""

    def __init__(self) -> None:
        require("registry")
        from suiro.registry.app import RegistryApp

        storage: Any = MemoryStorage()
        self._transport = httpx.ASGITransport(app=RegistryApp(storage))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run_coroutine_threadsafe(self._answer(request), _loop(os.getpid())).result()

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        asked = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
        answer = await self._transport.handle_async_request(asked)
        return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())
