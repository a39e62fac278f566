"""`suiro view serve`: a host and its HTTP server, until SIGTERM, SIGINT, or another host takes over.

It listens before it has read the log, so that its address is known at once; until then it answers 503, and clients ask
again. Beyond the loopback address it wants users: whoever may deploy runs code here.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from suiro.connect import BackgroundServer
from suiro.errors import ConfigError
from suiro.registry import Users
from suiro.views.browsers import is_loopback
from suiro.views.cpus import keep_for_reads
from suiro.views.host import Host, HostConfig
from suiro.views.operations import application

__all__ = ["Listen", "serve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    host: str = "127.0.0.1"
    port: int = 8085
    users: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    read_cpus: int = 0
    """CPUs that the host keeps to; pipelines and all else that it starts run on the others."""

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("TLS takes both: --tls-certificate and --tls-key")
        if self.users is None and not is_loopback(self.host):
            raise ConfigError(
                f"--listen {self.host}: a deploy runs code on this machine, so beyond 127.0.0.1 the host answers users "
                "only; name them with --auth-file (lines of name:password)"
            )


def serve(config: HostConfig, listen: Listen, *, while_stdin_is_open: bool = False) -> str | None:
    """Prints the ready line on stdout; returns why it ended, None after a signal. Raises `ConfigError`."""
    users = Users(listen.users) if listen.users is not None else None
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    front = _Front()
    keep_for_reads(listen.read_cpus)
    certificate = (
        None if listen.tls_certificate is None else (str(listen.tls_certificate), str(listen.tls_key))
    )
    server = BackgroundServer(front, listen.host, listen.port, name="views", certificate=certificate)
    address = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(listen.host, listen.host)
    address = f"[{address}]" if ":" in address and not address.startswith("[") else address
    url = f"http{'s' if certificate else ''}://{address}:{server.port}"
    try:
        host = Host(config, url=url)
        try:
            host.start()
            front.inner = application(host, users)
            print(json.dumps({"event": "ready", "url": url, "pid": os.getpid()}), flush=True)
            if while_stdin_is_open:
                threading.Thread(target=_wait_for_end_of_input, args=(ending,), daemon=True).start()
            while not ending.is_set() and not host.ended.wait(0.1):
                pass
            return host.why_ended
        finally:
            host.stop()
    finally:
        server.stop()


class _Front:
    """Answers that the host is starting, until there is something behind it."""

    def __init__(self) -> None:
        self.inner: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner = self.inner
        if inner is None:
            message = "the host is starting; try again in a moment"
            inner = JSONResponse({"error_code": 503, "message": message}, status_code=503)
        await inner(scope, receive, send)


def _wait_for_end_of_input(ending: threading.Event) -> None:
    while not ending.is_set():
        if select.select([sys.stdin], [], [], 0.5)[0] and not os.read(sys.stdin.fileno(), 4096):
            ending.set()
