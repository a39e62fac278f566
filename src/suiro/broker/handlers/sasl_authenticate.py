"""SaslAuthenticate: one message of a login, and its response.

A login that fails is answered after `connection.failed.authentication.delay.ms`, which slows guessing down, and
then the connection closes. Until then the connection waits and costs nothing.
"""

from __future__ import annotations

import logging
import weakref
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer, Later, Response
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.net.connection import BadFrameError, Connection
from suiro.broker.refusals import on_one_line
from suiro.broker.security.logins import Login
from suiro.broker.security.sasl import LoginRefusedError
from suiro.broker.security.session import Session
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest


audit = logging.getLogger("suiro.audit")


def handle(exchange: Exchange, request: SaslAuthenticateRequest) -> Answer:
    connection = exchange.connection
    if connection.authenticated:
        message = "SaslAuthenticate request received after successful authentication"
        return _response(exchange, code=ErrorCode.illegal_sasl_state, message=message)
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
        response = _response(exchange, code=ErrorCode.sasl_authentication_failed, message=told)
        return refuse(exchange, response, f"{login.mechanism}: {refusal}")
    return _response(exchange, token=token, lifetime_ms=lifetime_ms or 0)


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


def refuse(exchange: Exchange, response: Any, reason: str) -> Later:
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


def _response(
    exchange: Exchange,
    *,
    code: ErrorCode = ErrorCode.none,
    message: str | None = None,
    token: bytes = b"",
    lifetime_ms: int = 0,
) -> Response:
    return exchange.response(
        error_code=code,
        error_message=message,
        auth_bytes=token,
        session_lifetime=timedelta(milliseconds=lifetime_ms),
    )
