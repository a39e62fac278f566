"""From request frames to handlers.

The table in `apis` has the APIs and their versions. A handler module is imported, and its messages'
schema is loaded, when the first request needs it: that keeps the start short.

A handler is a function of an exchange and a request that has its API's name. It returns an `exchange.Answer`: the
response (a kio message, or pieces with file regions), one that comes `Later`, or `NOTHING`. One that raises
`RefusedError` refuses the whole request.
"""

from __future__ import annotations

import logging
import struct
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from suiro.broker.apis import API_VERSIONS_KEY, APIS, MAY_TAKE_LONG, Api
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Answer, Exchange, Handler, encode
from suiro.broker.metrics.request_metrics import StageMetrics
from suiro.broker.net.connection import BadFrameError, Connection
from suiro.broker.refusals import RefusedError
from suiro.broker.security.session import ANONYMOUS
from suiro.protocol import messages
from suiro.protocol.file_regions import take_question
from suiro.protocol.frame_check import TooManyElementsError

if TYPE_CHECKING:
    from suiro.broker.faults import Faults

logger = logging.getLogger(__name__)

FETCH_KEY = 1
SASL_HANDSHAKE_KEY = 17
SASL_AUTHENTICATE_KEY = 36
_LOGIN_KEYS = frozenset((API_VERSIONS_KEY, SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY))
_SHORTEST_REQUEST = 8
_FLEXIBLE_FETCH_SINCE = 12
_KEY_AND_VERSION = struct.Struct(">hh")


class DispatchContext(BrokerContext, Protocol):
    """The handlers' node, with the faults that a test has set."""

    faults: Faults | None


class Dispatcher:
    """Reads a frame's header, finds the handler, calls it. Implements `connection.RequestSink`."""

    def __init__(self, broker: DispatchContext) -> None:
        self._broker = broker
        self._handlers: dict[int, Handler] = {}
        self._stages = StageMetrics(broker.metrics)

    def may_take_long(self, frame: memoryview) -> bool:
        return int.from_bytes(frame[:2], "big") in MAY_TAKE_LONG

    def handle(self, connection: Connection, frame: memoryview) -> bool:
        connection.last_active_ms = self._broker.clock.monotonic_ms()
        if not connection.authenticated:
            bare = self._check_login(connection, frame)
            if bare is not None:
                return self._run(*bare, len(frame))
        api_key, version = _KEY_AND_VERSION.unpack_from(frame)
        api = APIS.get(api_key)
        if api is None:
            raise BadFrameError(f"no API has the key {api_key}, or this node does not have it")
        if not api.min_version <= version <= api.max_version:
            if api_key == API_VERSIONS_KEY:
                return self._answer_unknown_api_versions(connection, frame)
            raise BadFrameError(f"{api.name} version {version} is outside {api.min_version}..{api.max_version}")
        plain: bytes | memoryview = frame
        takes_files = False
        if api_key == FETCH_KEY and version >= _FLEXIBLE_FETCH_SINCE:
            asked = take_question(frame)
            if asked is not None:
                plain, is_ours = asked
                is_near = is_ours and connection.host == connection.local_address[0]
                takes_files = is_near and connection.may_name_files
        most = self._broker.settings.socket_request_max_elements
        try:
            header, request = messages.read_request(plain, api_key, version, max_elements=most)  # type: ignore[arg-type]
        except TooManyElementsError:
            raise BadFrameError(
                f"{api.name} version {version} in {len(frame)} bytes has more than "
                f"socket.request.max.elements = {most} topics, partitions and the like"
            ) from None
        except Exception as error:  # noqa: BLE001 - the codec raises many kinds for bad bytes
            raise BadFrameError(
                f"{api.name} version {version} in {len(frame)} bytes does not parse: {error!r}"
            ) from None
        client_id = getattr(header, "client_id", None) or ""
        exchange = self._exchange(connection, api, version, header.correlation_id, client_id, takes_files=takes_files)
        return self._run(exchange, request, len(frame))

    def _exchange(
        self,
        connection: Connection,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: str,
        *,
        bare: bool = False,
        takes_files: bool = False,
    ) -> Exchange:
        return Exchange(
            connection=connection,
            broker=self._broker,
            api_key=api.key,
            version=version,
            correlation_id=correlation_id,
            client_id=client_id,
            metrics=self._stages.of(api.name),
            arrived_ns=connection.arrived_ns,
            bare=bare,
            takes_files=takes_files,
        )

    def _run(self, exchange: Exchange, request: Any, size: int) -> bool:
        connection, api = exchange.connection, APIS[exchange.api_key]
        try:
            handler = self._handlers.get(api.key) or self._handler(api)
            if self._broker.faults is not None:
                handler = self._broker.faults.around(api.name, handler)
            answer = handler(exchange, request)
            exchange.write_denials()  # before the client knows of them
            done = exchange.finish(answer)
        except BadFrameError:  # what the handler found makes no sense: the connection says so and closes
            raise
        except Exception:
            logger.exception(
                "%s version %d from %s failed; closing its connection",
                api.name,
                exchange.version,
                connection.peer,
            )
            connection.close()
            return True
        finally:
            exchange.write_denials()
        self._stages.busy_ns += exchange.handler_ns
        exchange.metrics.count(exchange.version, size)
        return done

    def _check_login(self, connection: Connection, frame: memoryview) -> tuple[Exchange, Any] | None:
        """Before a login only logging in is answered. Returns the exchange of a message without a request."""
        from suiro.broker.security.logins import Login

        login = connection.sasl
        if isinstance(login, Login) and login.bare and login.server is not None:
            exchange = self._exchange(connection, APIS[SASL_AUTHENTICATE_KEY], 0, 0, "", bare=True)
            return exchange, messages.request_class(SASL_AUTHENTICATE_KEY, 0)(auth_bytes=bytes(frame))
        if len(frame) < _SHORTEST_REQUEST:
            raise BadFrameError(f"a frame of {len(frame)} bytes cannot be a Kafka request")
        api_key, _ = _KEY_AND_VERSION.unpack_from(frame)
        if api_key not in _LOGIN_KEYS:
            if connection.session.principal == ANONYMOUS:
                raise BadFrameError(f"a request with API key {api_key} came before the client has logged in")
            self._broker.server.killed_when_expired += 1
            raise BadFrameError("its login is over, and it goes on without a new one")
        return None

    def _handler(self, api: Api) -> Handler:
        module = import_module(f"suiro.broker.handlers.{api.module}")
        self._handlers[api.key] = handler = answering(getattr(module, api.name))
        return handler

    def _answer_unknown_api_versions(self, connection: Connection, frame: memoryview) -> bool:
        """KIP-511: a client may ask in a version we do not know; it gets version 0, the error and the list."""
        from suiro.broker.handlers.cluster import unsupported_version

        response = unsupported_version()
        connection.send(encode(response, int.from_bytes(frame[4:8], "big", signed=True)))
        return True


def answering(handler: Handler) -> Handler:
    """The handler, which answers a request that it refuses as a whole, too."""

    def handle(exchange: Exchange, request: Any) -> Answer:
        try:
            return handler(exchange, request)
        except RefusedError as refusal:
            return exchange.refused(refusal)

    return handle
