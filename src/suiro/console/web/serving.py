"""`suiro console`: runs the server until SIGTERM or SIGINT.

Without users it listens only on the loopback address, because everyone who can connect may delete topics.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from suiro.console.web.application import ConsoleApplication
from suiro.console.web.console import Console, ConsoleSettings
from suiro.errors import ConfigError
from suiro.foundation.http import HttpServer, Users, is_loopback, listen_on, url_of
from suiro.foundation.readiness import say_ready
from suiro.foundation.stopping import Stopping

if TYPE_CHECKING:
    from suiro.console.web.login import Login


class ConsoleServer:
    """Serves at `url` from its creation until `stop`. `listener` replaces host and port of the settings. Raises
    `ConfigError`."""

    def __init__(self, settings: ConsoleSettings, listener: socket.socket | None = None) -> None:
        if listener is not None:
            host, port = listener.getsockname()[:2]
            settings = replace(settings, host=host, port=port)
        is_local = is_loopback(settings.host)
        if settings.users is None and settings.oidc is None and not is_local:
            raise ConfigError(
                f"--listen {settings.host}: whoever reaches the console may change the cluster, so beyond 127.0.0.1 it "
                "answers users only; name them with --auth-file (lines of name:password), or --oidc-issuer"
            )
        if settings.tls is None and not is_local:
            raise ConfigError(
                f"--listen {settings.host}: passwords and records would travel in the clear; beyond 127.0.0.1 give "
                "--tls-certificate and --tls-key"
            )
        users = Users(settings.users) if settings.users is not None else None
        self.console = Console(settings)
        listener = listener or listen_on(settings.host, settings.port, name="the console")
        try:
            self._login = self._login_by(settings, listener)
        except BaseException:
            listener.close()
            raise
        self._application = ConsoleApplication(self.console, users, self._login)
        self._server = HttpServer(self._application, listener, name="console", tls=settings.tls)
        self.url = self._server.url
        self.console.start()

    def _login_by(self, settings: ConsoleSettings, listener: socket.socket) -> Login | None:
        if settings.oidc is None:
            return None
        from suiro.console.web.login import Login  # imports authlib

        url = url_of(listener, tls=settings.tls is not None)
        return Login(settings.oidc, url=url, clock=self.console.clock, noted=self.console.note)

    @property
    def open_streams(self) -> int:
        return self._application.streams

    def stop(self) -> None:
        """May be called more than once."""
        self.console.stop()
        self._server.stop()
        if self._login is not None:
            self._login.close()


def serve(
    settings: ConsoleSettings, *, listener: socket.socket | None = None, while_stdin_is_open: bool = False
) -> None:
    """Runs until SIGTERM or SIGINT. Prints the ready line on stdout."""
    stopping = Stopping(while_stdin_is_open=while_stdin_is_open)
    server = ConsoleServer(settings, listener)
    try:
        say_ready({"url": server.url, "pid": os.getpid()})
        stopping.wait(None)
    finally:
        server.stop()
