"""Runs an ASGI application on its own thread, with limits: uvicorn with connections of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import uvicorn

from suiro.foundation.http.connections import Server
from suiro.foundation.http.listening import HttpLimits, Tls, is_loopback, url_of
from suiro.foundation.threads import new_event_loop

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class HttpServer:
    """Serves at `url` from construction on. `loop` is its event loop. Raises `ConfigError` for unusable TLS files."""

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
            log_level="warning",  # below, it tells of its own start and end, as if they were errors
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,  # X-Forwarded-* headers can be forged
            server_header=False,
            timeout_graceful_shutdown=int(STOP_TIMEOUT_S),
            timeout_keep_alive=limits.idle_timeout_ms // 1_000 + 1,  # `Server` closes it first
        )
        self._started = threading.Event()
        self._server = Server(config, listener, limits, context, self._started)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._started.wait(START_TIMEOUT_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            self.loop = runner.get_loop()
            runner.run(self._server.serve())

    def stop(self) -> None:
        """Stop serving. May be called more than once."""
        self._server.should_exit = True
        self._thread.join(STOP_TIMEOUT_S + 1)
        self._listener.close()


def warn_if_open_to_all(listener: socket.socket, *, what: str, advice: str) -> None:
    """Log a warning if a server without users listens beyond the loopback address."""
    host = str(listener.getsockname()[0])
    if not is_loopback(host):
        logger.warning(
            "%s listens on %s WITHOUT USERS: everyone who can reach this address can read and change everything. %s",
            what,
            "all addresses of this machine" if host in ("0.0.0.0", "::") else host,
            advice,
        )
