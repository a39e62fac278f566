"""Listening sockets, their addresses, and TLS; the limits of a server, and how the servers of a process share its
connections. Light to import."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import weakref
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from suiro import descriptors
from suiro.errors import ConfigError

BACKLOG = 512
MIN_CONNECTIONS = 8

SERVERS: weakref.WeakSet[object] = weakref.WeakSet()
"""The servers of this process that accept connections."""


def listen_on(host: str, port: int, *, name: str) -> socket.socket:
    """Bind and listen. Raises `ConfigError` with `name`, the service that cannot listen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"{name} cannot listen on {host}:{port}: {error.strerror or error}; choose another address, or port 0 for "
            "a free one"
        ) from None
    return listener


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{'https' if tls else 'http'}://{host}:{port}"


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Whether a host name or an address is a loopback address."""
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: a certificate with its chain, and its key."""

    certificate: Path
    key: Path

    @classmethod
    def of(cls, certificate: Path | None, key: Path | None, *, options: str) -> Tls | None:
        """Return None if neither is given. Raises `ConfigError` if only one is; `options` are the names of both."""
        if certificate is None and key is None:
            return None
        if certificate is None or key is None:
            raise ConfigError(f"TLS needs both {options}")
        return cls(certificate, key)

    def context(self) -> ssl.SSLContext:
        """Load the files. Raises `ConfigError` if that fails."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # includes ssl.SSLError
            raise ConfigError(f"TLS: {self.certificate}, {self.key}: {error}") from None
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Each limit is at least 1. Raises `ConfigError`."""

    max_connections: int = 1_000
    """Per server. Lower if the process may open few files (`connection_share`). One user may have requests in progress
    on three quarters of them (`requests_of_one`)."""
    head_timeout_ms: int = 10_000
    """From the connection, or the first byte of a further request, to the end of the head. Also for a TLS handshake."""
    max_head_bytes: int = 64 * 1024
    body_timeout_ms: int = 20_000
    """For a request body, plus one millisecond for every `body_bytes_per_ms` bytes received."""
    body_bytes_per_ms: int = 2
    write_timeout_ms: int = 30_000
    """A client that reads nothing of its response for this long is disconnected."""
    idle_timeout_ms: int = 75_000
    """Between two requests of a connection. Longer than clients keep idle connections, so that they close first."""
    held_body_bytes: int = 64 * 1024 * 1024
    """For all requests together, from the first byte until the response."""
    held_answer_bytes: int = 256 * 1024 * 1024
    """For all responses together, of what their clients have not taken yet. Above it, the clients that have been behind
    for longest are disconnected."""

    def __post_init__(self) -> None:
        for one in fields(self):
            if getattr(self, one.name) < 1:
                raise ConfigError(f"{one.name} must be at least 1, got {getattr(self, one.name)}")


def connection_share() -> int:
    """Return how many connections a server may have. The servers of this process have equal shares of the file
    descriptors that `descriptors` reserves for connections."""
    return max(MIN_CONNECTIONS, descriptors.for_connections() // max(1, len(SERVERS)))


def requests_of_one(limits: HttpLimits) -> int:
    """Return how many requests of one user may be in progress, so that others get an answer, too."""
    return min(limits.max_connections, connection_share()) * 3 // 4
