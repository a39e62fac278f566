"""An ASGI application served from a thread of its own, under limits: uvicorn over `Connections`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn

from suiro.foundation.http.connections import Connections
from suiro.foundation.http.limits import HttpLimits
from suiro.foundation.http.listening import Tls, is_loopback, url_of
from suiro.foundation.loops import new_event_loop

__all__ = ["HttpServer", "warn_if_open_to_all"]

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class HttpServer:
    """Serves once it is made, at `url`. `loop` is the event loop of its thread. Raises `ConfigError` for TLS."""

    def __init__(
        self,
        application: Any,
        listener: socket.socket,
        *,
        name: str,
        tls: Tls | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        limits = limits or HttpLimits()
        self._listener = listener
        try:
            context = tls.context() if tls is not None else None
        except BaseException:
            listener.close()
            raise
        self.port: int = listener.getsockname()[1]
        self.url = url_of(listener, tls=tls is not None)
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,  # what a peer says of itself is not believed
            server_header=False,
            timeout_graceful_shutdown=int(STOP_TIMEOUT_S),
            timeout_keep_alive=limits.idle_timeout_ms // 1_000 + 1,  # `Connections` is there before
        )
        self._started = threading.Event()
        self._server = _Server(config, listener, limits, context, self._started)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._started.wait(START_TIMEOUT_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self._server.serve()

    def stop(self) -> None:
        """Safe to call again."""
        self._server.should_exit = True
        self._thread.join(STOP_TIMEOUT_S + 1)
        self._listener.close()


class _Server(uvicorn.Server):
    """Uvicorn's, with connections of ours and without its signals."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        limits: HttpLimits,
        tls: Any,
        started: threading.Event,
    ) -> None:
        super().__init__(config)
        self._listening = (listener, limits, tls)
        self._tell = started
        self._connections: Connections | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        self._connections = Connections(self.config, self.server_state, *self._listening)
        self.started = True
        self._tell.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        assert self._connections is not None
        self._connections.close()
        await super().shutdown()


def warn_if_open_to_all(listener: socket.socket, *, what: str, advice: str) -> None:
    """For a server without users: says so, where others than this machine can reach it."""
    host = str(listener.getsockname()[0])
    if not is_loopback(host):
        logger.warning(
            "%s listens on %s WITHOUT USERS: everybody who reaches this address may read and change all of it. %s",
            what,
            "all addresses of this machine" if host in ("0.0.0.0", "::") else host,
            advice,
        )
