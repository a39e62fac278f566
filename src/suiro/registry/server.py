"""The registry as a server: in the foreground until SIGTERM (`suiro registry`), or on a thread.

It listens before it has read the log, so that its address is known early; requests wait until the log was read. The
ready line is printed then. `suiro.foundation.http` has listening, users and TLS.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from suiro.foundation.http import HttpServer, Tls, Users, is_loopback, listen_on, url_of, warn_if_open_to_all
from suiro.foundation.readiness import say_ready
from suiro.foundation.stopping import Stopping
from suiro.registry.app import RegistryApp
from suiro.registry.storage import DEFAULT_TIMEOUT_MS, DEFAULT_TOPIC, Storage
from suiro.topic_table import BROKERS_DEFAULT

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    bootstrap_servers: str
    host: str = "127.0.0.1"
    port: int = 8081
    topic: str = DEFAULT_TOPIC
    replication_factor: int = BROKERS_DEFAULT  # used if the topic is created
    client_settings: Mapping[str, str | int] = field(default_factory=dict)
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    users: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None

    def __post_init__(self) -> None:
        self.tls()

    def tls(self) -> Tls | None:
        return Tls.of(self.tls_certificate, self.tls_key, options="--tls-certificate and --tls-key")


def serve(config: RegistryConfig, *, listener: socket.socket | None = None, while_stdin_is_open: bool = False) -> None:
    """Runs until SIGTERM or SIGINT; with `while_stdin_is_open` also until its standard input closes.

    `listener` is a socket that already listens. Prints the ready line on stdout. Raises `ConfigError`.
    """
    with InProcessRegistry(config, listener) as serving:
        stopping = Stopping(while_stdin_is_open=while_stdin_is_open)
        say_ready({"registry": serving.url, "pid": os.getpid()})
        stopping.wait()
        logger.info("stopping")


class InProcessRegistry:
    """A registry on threads of this process, for tests and notebooks. It starts faster than a child process and ends
    with this one. It validates its configuration before it listens.

    `listener` is a socket that already listens.
    """

    def __init__(self, config: RegistryConfig, listener: socket.socket | None = None) -> None:
        tls = config.tls()
        if tls is not None:
            tls.context()
        users = Users(config.users) if config.users is not None else None
        listener = listener or listen_on(config.host, config.port, name="the registry")
        self.url = url_of(listener, tls=tls is not None)
        if users is None:
            warn_if_open_to_all(
                listener, what="the registry", advice="Name users with --auth-file, or let it listen on 127.0.0.1"
            )
        self._storage = Storage(
            config.bootstrap_servers,
            topic=config.topic,
            replication_factor=config.replication_factor,
            client_settings=config.client_settings,
            timeout_ms=config.timeout_ms,
        )
        try:
            self._storage.start()
            loopback_only = users is None and is_loopback(str(listener.getsockname()[0]))
            application = RegistryApp(self._storage, users, loopback_only=loopback_only)
            self._server = HttpServer(application, listener, name="registry", tls=tls)
        except BaseException:
            listener.close()
            self._storage.stop()
            raise

    def stop(self) -> None:
        """May be called more than once."""
        self._server.stop()
        self._storage.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
