"""Logins: SaslHandshake selects a mechanism, SaslAuthenticate carries one message of a login, and its response.

A login that fails is answered after `connection.failed.authentication.delay.ms`, which slows guessing down, and
then the connection closes. Until then the connection waits and costs nothing.
"""

from __future__ import annotations

import logging
import weakref
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Answer, Exchange, Later
from suiro.broker.net.connection import BadFrameError, Connection
from suiro.broker.refusals import RefusedError, on_one_line
from suiro.broker.security.logins import Login
from suiro.broker.security.sasl import LoginRefusedError
from suiro.broker.security.session import Session
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

audit = logging.getLogger("suiro.audit")

_SHORTEST_RENEWAL_MS = 1000
"""As Kafka: a client does not log in again sooner than that."""


def sasl_handshake(exchange: Exchange, request: SaslHandshakeRequest) -> Answer:
    """SaslHandshake: the client selects a mechanism."""
    connection = exchange.connection
    login = connection.sasl
    assert login is None or isinstance(login, Login)
    now_ms = exchange.broker.clock.monotonic_ms()
    if connection.authenticated and not (login is not None and _may_renew(login, now_ms)):
        raise RefusedError(ErrorCode.illegal_sasl_state)
    if login is not None and login.server is not None:
        response = exchange.response(error_code=ErrorCode.illegal_sasl_state)
        return _refuse(exchange, response, "it chose a mechanism twice")
    logins = exchange.broker.logins.of(connection.session.listener)
    mechanisms = logins.mechanisms
    if request.mechanism not in mechanisms:
        response = exchange.response(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=mechanisms)
        return _refuse(exchange, response, f"there is no SASL mechanism {request.mechanism!r} here")
    connection.authenticated = False
    connection.sasl = Login(
        mechanism=request.mechanism,
        server=logins.server(request.mechanism),
        began_ms=now_ms,
        bare=exchange.version == 0,
        renews=None if login is None else (login.mechanism, login.principal),
    )
    return exchange.response(mechanisms=mechanisms)


def _may_renew(login: Login, now_ms: int) -> bool:
    return login.expires and (login.renews is None or now_ms - login.began_ms >= _SHORTEST_RENEWAL_MS)


def sasl_authenticate(exchange: Exchange, request: SaslAuthenticateRequest) -> Answer:
    """SaslAuthenticate: one message of a login, and its response."""
    connection = exchange.connection
    if connection.authenticated:
        message = "SaslAuthenticate request received after successful authentication"
        raise RefusedError(ErrorCode.illegal_sasl_state, message)
    login = connection.sasl
    if not isinstance(login, Login) or login.server is None:
        raise BadFrameError("a SaslAuthenticate request came before the mechanism was chosen")
    if login.renews is not None and login.renews[0] != login.mechanism:
        raise BadFrameError(f"a login by {login.renews[0]} cannot be renewed by {login.mechanism}")
    try:
        token = login.server.evaluate(bytes(request.auth_bytes))
        lifetime_ms = _finish(exchange.broker, connection, login)
    except LoginRefusedError as refusal:
        which = "re-authentication" if login.renews is not None else "authentication"
        told = refusal.told or (
            f"Authentication failed during {which} due to invalid credentials with SASL mechanism {login.mechanism}"
        )
        response = exchange.response(error_code=ErrorCode.sasl_authentication_failed, error_message=told)
        return _refuse(exchange, response, f"{login.mechanism}: {refusal}")
    return exchange.response(auth_bytes=token, session_lifetime=timedelta(milliseconds=lifetime_ms or 0))


def _finish(broker: BrokerContext, connection: Connection, login: Login) -> int | None:
    """If that was the last message: the connection has its user from now on. Returns the login's lifetime."""
    server = login.server
    if server is None or server.user is None:
        return None
    principal = f"User:{server.user}"
    if login.renews is not None and login.renews[1] != principal:
        told = (
            "Cannot change principals during re-authentication from "
            f"{login.renews[1].replace(':', '.', 1)}: {principal.replace(':', '.', 1)}"
        )
        raise LoginRefusedError(told, told=told)
    listener = connection.session.listener
    lifetime_ms = broker.logins.of(listener).lifetime_ms(
        login.mechanism, expires_at_ms=server.expires_at_ms, now_ms=broker.clock.wall_ms()
    )
    login.server = None
    login.principal = principal
    login.expires = lifetime_ms is not None
    connection.session = Session(principal=principal, host=connection.session.host, listener=listener)
    connection.authenticated = True
    broker.server.login_ended(connection, again=login.renews is not None, failed=False)
    if lifetime_ms is not None:
        _end_later(broker, connection, login, lifetime_ms)
    return lifetime_ms


def _end_later(broker: BrokerContext, connection: Connection, login: Login, lifetime_ms: int) -> None:
    """Once the lifetime is over only a new login is answered. The timer holds on to no closed connection."""
    held = weakref.ref(connection)

    def end() -> None:
        connection = held()
        if connection is not None and connection.sasl is login:
            connection.authenticated = False

    broker.loop.call_later(lifetime_ms / 1000, end)


def _refuse(exchange: Exchange, response: Any, reason: str) -> Later:
    """Answer a login that failed, after the delay, and close."""
    broker = exchange.broker
    later = Later()
    connection = exchange.connection
    audit.info("Failed authentication with %s (%s)", connection.peer, on_one_line(reason))
    login = connection.sasl
    again = isinstance(login, Login) and login.renews is not None
    broker.server.login_ended(connection, again=again, failed=True)

    def answer() -> None:
        later.give(response)
        connection.close()

    delay_ms = broker.settings.connection_failed_authentication_delay_ms
    broker.loop.call_later(delay_ms / 1000, answer)
    return later
