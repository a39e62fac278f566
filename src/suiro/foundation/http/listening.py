"""Listening sockets, their addresses, and TLS. Light to import."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from suiro.errors import ConfigError

BACKLOG = 512


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
