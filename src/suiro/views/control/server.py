"""`suiro view serve`: a host and its HTTP server, until SIGTERM, SIGINT, or until another host takes over.

It listens before it has read the log, so that its address is known at once. Until then it answers 503, and clients ask
again. Beyond the loopback address it requires users, because a deploy runs code.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from suiro.errors import ConfigError, TransientError
from suiro.foundation.http import HttpServer, Tls, Users, is_loopback, listen_on
from suiro.foundation.readiness import say_ready
from suiro.foundation.stopping import Stopping
from suiro.views.control.host import Host, HostConfig
from suiro.views.control.operations import application
from suiro.views.cpus import keep_for_reads
from suiro.views.serving.answers import error_answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    host: str = "127.0.0.1"
    port: int = 8085
    users: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    read_cpus: int = 0
    """The number of CPUs that the host keeps for itself. Its children run on the others."""

    def __post_init__(self) -> None:
        self.tls()
        if self.users is None and not is_loopback(self.host):
            raise ConfigError(
                f"--listen {self.host}: a deploy runs code on this machine, so beyond 127.0.0.1 the host answers users "
                "only; name them with --auth-file (lines of name:password)"
            )

    def tls(self) -> Tls | None:
        return Tls.of(self.tls_certificate, self.tls_key, options="--tls-certificate and --tls-key")


def serve(config: HostConfig, listen: Listen, *, while_stdin_is_open: bool = False) -> str | None:
    """Prints the ready line on stdout. Returns why it ended, None after a signal. Raises `ConfigError`."""
    users = Users(listen.users) if listen.users is not None else None
    stopping = Stopping(while_stdin_is_open=while_stdin_is_open)
    front = _Front()
    keep_for_reads(listen.read_cpus)
    listener = listen_on(listen.host, listen.port, name="the host of views")
    server = HttpServer(front, listener, name="views", tls=listen.tls())
    url = server.url
    try:
        host = Host(config, url=url)
        try:
            host.start()
            front.inner = application(host, users)
            say_ready({"url": url, "pid": os.getpid()})
            while not host.ended.is_set() and not stopping.wait(0.1):
                pass
            return host.why_ended
        finally:
            host.stop()
    finally:
        server.stop()


class _Front:
    """Answers that the host is starting, until `inner` is set."""

    def __init__(self) -> None:
        self.inner: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        starting = TransientError("the host is starting; try again in a moment")
        await (self.inner or error_answer(starting))(scope, receive, send)
