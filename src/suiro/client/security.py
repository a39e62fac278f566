"""TLS by the standard library, and SASL PLAIN and SCRAM (RFC 5802).

`security.protocol` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. User and password are `sasl.username` and
`sasl.password`, or part of `sasl.jaas.config` in the syntax of Java clients.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import ssl
from typing import Any, Protocol

from suiro.client.error_codes import raise_for
from suiro.client.settings import ClientSettings
from suiro.errors import ConfigError, RefusedError
from suiro.foundation.jaas import parse_jaas
from suiro.protocol.messages import API_KEYS, ErrorCode, request_class

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM_MIN_ITERATIONS = 4_096
SCRAM_MAX_ITERATIONS = 1_000_000


def check(settings: ClientSettings) -> None:
    """Raises `ConfigError` for a protocol or mechanism that this client does not speak."""
    if settings.security_protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol is one of {', '.join(PROTOCOLS)}, got {settings.security_protocol!r}")
    if settings.security_protocol.startswith("SASL"):
        if settings.sasl_mechanism not in MECHANISMS:
            raise ConfigError(
                f"sasl.mechanism {settings.sasl_mechanism!r} is not supported; use one of {', '.join(MECHANISMS)}"
            )
        _credentials(settings)


def tls_context(settings: ClientSettings) -> ssl.SSLContext | None:
    """None where the protocol has no TLS."""
    if not settings.security_protocol.endswith("SSL"):
        return None
    files = f"ssl.ca.location {settings.ssl_ca_location}"
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca_location or None)
        if settings.ssl_certificate_location:
            files = (
                f"ssl.certificate.location {settings.ssl_certificate_location} with "
                f"ssl.key.location {settings.ssl_key_location or settings.ssl_certificate_location}"
            )
            context.load_cert_chain(
                settings.ssl_certificate_location,
                settings.ssl_key_location or None,
                settings.ssl_key_password or None,
            )
    except OSError as error:
        raise ConfigError(f"{files}: {error}") from error
    context.check_hostname = settings.ssl_endpoint_identification_algorithm.lower() == "https"
    return context


class _Connection(Protocol):
    @property
    def address(self) -> str: ...

    def call(self, request: Any, *, deadline_ms: int) -> Any: ...


def authenticate(connection: _Connection, settings: ClientSettings, deadline_ms: int) -> None:
    """SaslHandshake and SaslAuthenticate; nothing without SASL. Raises `RefusedError` on a wrong password."""
    if not settings.security_protocol.startswith("SASL"):
        return
    mechanism = settings.sasl_mechanism
    user, password = _credentials(settings)
    handshake = request_class(API_KEYS["sasl_handshake"], 1)(mechanism=mechanism)
    response = connection.call(handshake, deadline_ms=deadline_ms)
    if response.error_code is ErrorCode.unsupported_sasl_mechanism:
        raise ConfigError(
            f"{connection.address} does not take sasl.mechanism {mechanism}; it takes {', '.join(response.mechanisms)}"
        )
    if response.error_code is ErrorCode.illegal_sasl_state:
        raise ConfigError(
            f"{connection.address} takes no login there; is security.protocol ({settings.security_protocol}) "
            "that port's?"
        )
    raise_for(response.error_code, f"SASL handshake with {connection.address}")

    def exchange(message: bytes) -> bytes:
        request = request_class(API_KEYS["sasl_authenticate"], 1)(auth_bytes=message)
        answer = connection.call(request, deadline_ms=deadline_ms)
        raise_for(answer.error_code, f"log in to {connection.address} as {user!r}", detail=answer.error_message)
        return bytes(answer.auth_bytes)

    if mechanism == "PLAIN":
        exchange(b"\0" + user.encode() + b"\0" + password.encode())
        return
    scram = _Scram(user, password, hash_name="sha256" if mechanism.endswith("256") else "sha512")
    try:
        scram.check_final(exchange(scram.final(exchange(scram.first()))))
    except (ValueError, KeyError) as error:
        raise RefusedError(
            f"{connection.address} answered the SCRAM login with a message that cannot be read",
            "SASL_AUTHENTICATION_FAILED",
        ) from error


class _Scram:
    """The client's half of SCRAM without channel binding."""

    def __init__(self, user: str, password: str, *, hash_name: str) -> None:
        self._hash_name = hash_name
        self._password = password.encode()
        self._nonce = base64.b64encode(os.urandom(24)).decode()
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
        if not nonce.startswith(self._nonce) or not SCRAM_MIN_ITERATIONS <= iterations <= SCRAM_MAX_ITERATIONS:
            raise RefusedError("the broker's SCRAM answer is not for this client", "SASL_AUTHENTICATION_FAILED")
        salted = hashlib.pbkdf2_hmac(self._hash_name, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash_name)
        without_proof = f"c=biws,r={nonce}"
        signed = ",".join((self._first_bare, server_first.decode(), without_proof)).encode()
        stored_key = hashlib.new(self._hash_name, client_key).digest()
        signature = hmac.digest(stored_key, signed, self._hash_name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash_name)
        self._server_signature = hmac.digest(server_key, signed, self._hash_name)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check_final(self, server_final: bytes) -> None:
        fields = dict(part.split("=", 1) for part in server_final.decode().split(","))
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), self._server_signature):
            raise RefusedError("the broker does not know the password either", "SASL_AUTHENTICATION_FAILED")


def _credentials(settings: ClientSettings) -> tuple[str, str]:
    user, password = settings.sasl_username, settings.sasl_password
    if settings.sasl_jaas_config and not user:
        modules = parse_jaas(settings.sasl_jaas_config, source="sasl.jaas.config")
        if len(modules) > 1:
            raise ConfigError(f"sasl.jaas.config: it has {len(modules)} login modules, and a client has one")
        user, password = (modules[0].options.get(name, "") for name in ("username", "password"))
    if not user:
        raise ConfigError("SASL needs sasl.username and sasl.password (or sasl.jaas.config)")
    return user, password
