"""The TLS context of a listener, which follows its settings and their files, and the TLS stream of a connection.

Keys and certificates are PEM, in files or in the settings themselves. Python's `ssl` reads neither JKS nor PKCS#12; the
error says how to convert them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import ssl
import tempfile
from dataclasses import fields
from pathlib import Path

from suiro.broker.net.listeners import Listener, SecurityProtocol
from suiro.config import NodeSettings
from suiro.errors import ConfigError
from suiro.foundation.files import stamp_of

logger = logging.getLogger(__name__)

_CHUNK = 64 << 10  # what is read from a log file and encrypted at once
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_CONVERT = (
    "Convert it: `keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12`, then "
    "`openssl pkcs12 -in STORE.p12 -nodes -out STORE.pem`"
)


class ListenerTls:
    """The TLS of one listener. `context` is for connections that come from now on."""

    def __init__(self, listener: Listener, settings: NodeSettings) -> None:
        self._listener = listener
        self._made_of = _made_of(listener, settings)
        self.context = make_context(listener, settings)

    def check(self, settings: NodeSettings) -> None:
        """Raises `ConfigError` where these settings are others than now, and do not work."""
        if _made_of(self._listener, settings) != self._made_of:
            make_context(self._listener, settings)

    def refresh(self, settings: NodeSettings) -> None:
        """Apply a change of the settings or of their files. A change that does not work is logged and not applied."""
        made_of = _made_of(self._listener, settings)
        if made_of == self._made_of:
            return
        self._made_of = made_of
        try:
            self.context = make_context(self._listener, settings)
        except ConfigError as error:
            logger.error("%s; the listener keeps its certificate as it was", error)
        else:
            logger.info("listener %s has new certificates", self._listener.name)


def make_context(listener: Listener, settings: NodeSettings) -> ssl.SSLContext:
    """The server's side of TLS as the settings say it. Raises `ConfigError` naming the listener and the setting."""
    own = settings.for_listener(listener.name)
    where = f"listener {listener.name}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    versions = [version for version in own.ssl_enabled_protocols.split(",") if version]
    if not versions or not set(versions) <= _VERSIONS.keys():
        raise ConfigError(
            f"{where}: ssl.enabled.protocols = {own.ssl_enabled_protocols}: expected {', '.join(_VERSIONS)}"
        )
    context.minimum_version = min(_VERSIONS[version] for version in versions)
    context.maximum_version = max(_VERSIONS[version] for version in versions)
    chain = _pem(
        own.ssl_keystore_certificate_chain,
        own.ssl_keystore_location,
        own.ssl_keystore_type,
        where,
        "ssl.keystore",
    )
    key = own.ssl_keystore_key and _pem(own.ssl_keystore_key, "", own.ssl_keystore_type, where, "ssl.keystore")
    if not chain and not key:
        raise ConfigError(
            f"{where} speaks {listener.protocol}: set ssl.keystore.location to a PEM file with the node's private "
            "key and certificates, or ssl.keystore.key and ssl.keystore.certificate.chain to them"
        )
    _load_chain(context, chain + key, own.ssl_key_password, where)
    trusted = _pem(
        own.ssl_truststore_certificates,
        own.ssl_truststore_location,
        own.ssl_truststore_type,
        where,
        "ssl.truststore",
    )
    if trusted:
        try:
            context.load_verify_locations(cadata=trusted)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"{where}: ssl.truststore: no certificates can be read from it: {error}") from error
    context.verify_mode = _CLIENT_AUTH[_client_auth(listener, settings)]
    if context.verify_mode is not ssl.CERT_NONE and not trusted:
        raise ConfigError(
            f"{where}: ssl.client.auth needs ssl.truststore.location (or ssl.truststore.certificates): the "
            "certificates by which clients' certificates are signed"
        )
    return context


def asks_who(listener: Listener, settings: NodeSettings) -> bool:
    """Whether its clients must log in, or show a certificate."""
    if listener.protocol.sasl:
        return True
    return listener.protocol.tls and _CLIENT_AUTH[_client_auth(listener, settings)] is ssl.CERT_REQUIRED


def _client_auth(listener: Listener, settings: NodeSettings) -> str:
    """With SASL the client's name comes from SASL; as in Kafka (KIP-684) only the listener's own setting asks."""
    own = settings.for_listener(listener.name).ssl_client_auth
    if listener.protocol is SecurityProtocol.SASL_SSL:
        name = f"listener.name.{listener.name.lower()}.ssl.client.auth"
        return own if any(known == name for known, _ in settings.listener_settings) else "none"
    return own


def _made_of(listener: Listener, settings: NodeSettings) -> tuple[object, ...]:
    """All that a context depends on."""
    own = settings.for_listener(listener.name)
    set_here = tuple(getattr(own, field.name) for field in fields(own) if field.name.startswith("ssl_"))
    return (*set_here, _client_auth(listener, settings), *_stamps(own))


def _stamps(own: NodeSettings) -> tuple[tuple[str, tuple[int, ...]], ...]:
    stamps = []
    for path in (own.ssl_keystore_location, own.ssl_truststore_location):
        with contextlib.suppress(OSError):
            if path:
                stamps.append((path, stamp_of(path)))
    return tuple(stamps)


def _pem(inline: str, location: str, kind: str, where: str, setting: str) -> str:
    """PEM blocks from a setting or a file, each on lines of its own; empty if there are none given."""
    if kind.upper() != "PEM":
        raise ConfigError(f"{where}: {setting}.type = {kind}: a node reads PEM only. {_CONVERT}")
    text = inline
    if not text and location:
        try:
            content = Path(location).read_bytes()
        except OSError as error:
            raise ConfigError(f"{where}: {setting}.location = {location}: {error.strerror}") from error
        text = content.decode("ascii", errors="replace")
        if not _PEM_BLOCK.search(text):
            raise ConfigError(f"{where}: {setting}.location = {location} is no PEM file. {_CONVERT}")
    if not text:
        return ""
    blocks = [_block(match[1], match[2]) for match in _PEM_BLOCK.finditer(text)]
    if not blocks:
        raise ConfigError(f"{where}: {setting}: there is no -----BEGIN ...----- in it; it must be PEM")
    return "".join(blocks)


def _block(label: str, content: str) -> str:
    """One block as OpenSSL wants it, in lines of 64. A setting may have its lines joined, or `\\n` in them."""
    if ":" in content:  # an old encrypted key, with headers
        return f"-----BEGIN {label}-----{content}-----END {label}-----\n"
    text = re.sub(r"\\n|\s", "", content)
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def _load_chain(context: ssl.SSLContext, pem: str, password: str, where: str) -> None:
    """Python reads key and chain from a file only. This one is readable by this user only, and removed at once."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=lambda: password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError(
                f"{where}: ssl.keystore: the key and its certificates cannot be used: {error}. Expected: a private "
                "key in PKCS#8, the certificate made for it, then those that signed it; ssl.key.password if the "
                "key has one"
            ) from error


class TlsStream:
    """One connection's TLS over its non-blocking socket. Every method raises `BlockingIOError` to be called again.

    A call that could not be finished must be made again with the same bytes: OpenSSL has begun to send them.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._ssl = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self.wants_write = False
        """Whether the last `BlockingIOError` was because the peer takes nothing."""

    def fileno(self) -> int:
        return self._ssl.fileno()

    def handshake(self) -> None:
        """Raises `ssl.SSLError` or another `OSError` when it failed."""
        try:
            self._ssl.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self.wants_write = isinstance(error, ssl.SSLWantWriteError)
            raise BlockingIOError from None

    def peer_certificate(self) -> bytes | None:
        """The client's certificate (DER), if it showed one."""
        return self._ssl.getpeercert(binary_form=True) or None

    def recv_into(self, buffer: memoryview) -> int:
        """Bytes received; 0 when the peer has closed. Takes as many TLS records as there are and as fit."""
        received = 0
        self.wants_write = False
        while received < len(buffer):
            try:
                size = self._ssl.recv_into(buffer[received:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                self.wants_write = isinstance(error, ssl.SSLWantWriteError)
                if received:
                    break
                raise BlockingIOError from None
            if size == 0:
                break
            received += size
        return received

    @property
    def pending(self) -> bool:
        """Whether more can be received although the socket has nothing: the rest of a TLS record."""
        return self._ssl.pending() > 0

    def send(self, data: memoryview | bytes, flags: int) -> int:
        """Bytes sent; `flags` are for plain sockets."""
        try:
            return self._ssl.send(data if len(data) <= _CHUNK else memoryview(data)[:_CHUNK])
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def send_file(self, fd: int, position: int, length: int) -> int:
        """As `os.sendfile`, a bounded piece at a time: TLS needs the bytes in memory."""
        data = os.pread(fd, min(length, _CHUNK), position)
        return self.send(data, 0) if data else 0

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._ssl.unwrap()  # tells the peer; its answer is not waited for
        self._ssl.close()
