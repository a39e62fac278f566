"""The registry as a server: in the foreground of its own process until SIGTERM (`suiro registry` is that), or on a
thread of another.

It listens before it has read the log, so that its address is known at once; requests are answered from then on when
everything in the log was read. The ready line says that it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import uvicorn

from suiro.errors import ConfigError
from suiro.registry.app import RegistryApp
from suiro.registry.process import listen_on, url_of
from suiro.registry.storage import BROKERS_DEFAULT, DEFAULT_TIMEOUT_MS, DEFAULT_TOPIC, Storage
from suiro.registry.users import Users

__all__ = ["InProcessRegistry", "RegistryConfig", "serve"]

STOP_TIMEOUT_S = 3
KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so that they find them open
MAX_CONNECTIONS = 1_000  # beyond them, 503

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    bootstrap_servers: str
    host: str = "127.0.0.1"
    port: int = 8081
    topic: str = DEFAULT_TOPIC
    replication_factor: int = BROKERS_DEFAULT  # of the topic, where it is made
    client_settings: Mapping[str, str | int] = field(default_factory=dict)
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    users: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("TLS takes both: --tls-certificate and --tls-key")


def serve(
    config: RegistryConfig, *, listener: socket.socket | None = None, while_stdin_is_open: bool = False
) -> None:
    """Until SIGTERM or SIGINT; with `while_stdin_is_open` also until nobody holds its standard input any more.

    `listener` is a socket that listens already. Prints the ready line on stdout. Raises `ConfigError`.
    """
    users = _prepare(config)
    made = listener or listen_on(config.host, config.port)
    url = url_of(made, tls=config.tls_certificate is not None)
    storage = _storage(config)
    try:
        storage.start()
        server = _server(
            config,
            RegistryApp(storage, users),
            lambda: print(json.dumps({"event": "ready", "registry": url, "pid": os.getpid()}), flush=True),
        )
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_run(server, made, while_stdin_is_open))
    finally:
        storage.stop()
        made.close()


class InProcessRegistry:
    """A registry on a thread of this process: the quickest to start, gone with it. For tests and notebooks."""

    def __init__(self, config: RegistryConfig) -> None:
        users = _prepare(config)
        self._listener = listen_on(config.host, config.port)
        self.url = url_of(self._listener, tls=config.tls_certificate is not None)
        self._storage = _storage(config)
        started = threading.Event()
        try:
            self._storage.start()
        except BaseException:
            self._listener.close()
            raise
        self._server = _server(config, RegistryApp(self._storage, users), started.set)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],), name="registry", daemon=True
        )
        self._thread.start()
        started.wait()

    def stop(self) -> None:
        """Safe to call again."""
        self._server.should_exit = True
        self._thread.join()
        self._storage.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def _prepare(config: RegistryConfig) -> Users | None:
    """Everything that can be wrong with the configuration is found before anything is started."""
    if config.tls_certificate is not None and config.tls_key is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.tls_certificate, config.tls_key)
        except OSError as error:
            raise ConfigError(f"TLS: {config.tls_certificate}, {config.tls_key}: {error}") from None
    return Users(config.users) if config.users is not None else None


def _storage(config: RegistryConfig) -> Storage:
    return Storage(
        config.bootstrap_servers,
        topic=config.topic,
        replication_factor=config.replication_factor,
        client_settings=config.client_settings,
        timeout_ms=config.timeout_ms,
    )


def _server(config: RegistryConfig, app: RegistryApp, started: Callable[[], None]) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
            timeout_keep_alive=KEEP_ALIVE_S,
            limit_concurrency=MAX_CONNECTIONS,
            ssl_certfile=config.tls_certificate,
            ssl_keyfile=config.tls_key,
        ),
        started,
    )


async def _run(server: _Server, listener: socket.socket, while_stdin_is_open: bool) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.should_exit = True

    def stop_at_end_of_input() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())
            stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if while_stdin_is_open:
        loop.add_reader(sys.stdin.fileno(), stop_at_end_of_input)
    await server.serve(sockets=[listener])
    logger.info("stopping")


class _Server(uvicorn.Server):
    """Uvicorn's, with our signals, and a word once it serves."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._tell()


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
