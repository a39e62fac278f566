"""SaslHandshake: the client selects a mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.sasl_authenticate import refuse
from suiro.broker.security.logins import Login
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest


_SHORTEST_RENEWAL_MS = 1000
"""As Kafka: a client does not log in again sooner than that."""


def handle(exchange: Exchange, request: SaslHandshakeRequest) -> Answer:
    connection = exchange.connection
    login = connection.sasl
    assert login is None or isinstance(login, Login)
    now_ms = exchange.broker.clock.monotonic_ms()
    if connection.authenticated and not (login is not None and _may_renew(login, now_ms)):
        return exchange.response(error_code=ErrorCode.illegal_sasl_state, mechanisms=())
    if login is not None and login.server is not None:
        response = exchange.response(error_code=ErrorCode.illegal_sasl_state, mechanisms=())
        return refuse(exchange, response, "it chose a mechanism twice")
    logins = exchange.broker.logins.of(connection.session.listener)
    mechanisms = logins.mechanisms
    if request.mechanism not in mechanisms:
        code = ErrorCode.unsupported_sasl_mechanism
        response = exchange.response(error_code=code, mechanisms=mechanisms)
        return refuse(exchange, response, f"there is no SASL mechanism {request.mechanism!r} here")
    connection.authenticated = False
    connection.sasl = Login(
        mechanism=request.mechanism,
        server=logins.server(request.mechanism),
        began_ms=now_ms,
        bare=exchange.version == 0,
        renews=None if login is None else (login.mechanism, login.principal),
    )
    return exchange.response(error_code=ErrorCode.none, mechanisms=mechanisms)


def _may_renew(login: Login, now_ms: int) -> bool:
    return login.expires and (login.renews is None or now_ms - login.began_ms >= _SHORTEST_RENEWAL_MS)
