"""An ASGI application served from a thread of its own, for the control endpoint and webhook sources."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import uvicorn

from suiro.errors import ConfigError

__all__ = ["BackgroundServer"]

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0


class BackgroundServer:
    """Listens once it is made; `port` is the one it got. `loop` is the event loop of its thread."""

    def __init__(
        self,
        application: Any,
        host: str,
        port: int,
        *,
        name: str,
        certificate: tuple[str, str] | None = None,
    ) -> None:
        try:
            self._socket = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512
            )
        except OSError as error:
            raise ConfigError(f"{name} cannot listen on {host}:{port}: {error.strerror or error}") from error
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=int(STOP_TIMEOUT_S),
            ssl_certfile=certificate[0] if certificate else None,
            ssl_keyfile=certificate[1] if certificate else None,
        )
        self._server = uvicorn.Server(config)
        self._started = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._started.wait(START_TIMEOUT_S)

    def _run(self) -> None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._started.set()
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(STOP_TIMEOUT_S + 1)
        self._socket.close()
