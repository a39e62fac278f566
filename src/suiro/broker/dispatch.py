"""From request frames to handlers and back.

What is answered, and in which versions, is the table in `apis`. A handler module is imported, and its messages'
schema is loaded, when the first request needs it: that keeps the start short.

A handler is a function `handle(broker, exchange, request)`. It returns the response (a kio message, or pieces
with file regions), or `None` when the answer comes later through the exchange, or never.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from suiro.broker.apis import APIS, Api
from suiro.broker.connection import BadFrameError, Connection, Piece
from suiro.clock import stopwatch_ns
from suiro.protocol import messages
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker.broker import Broker
    from suiro.broker.security import Operation, ResourceType, Session

logger = logging.getLogger(__name__)


API_VERSIONS_KEY = 18

QuotaKind: TypeAlias = Literal["produce", "fetch", "request"]


class Quotas(Protocol):
    """What `Broker.quotas` is when clients have quotas."""

    def record(self, session: Session, client_id: str, kind: QuotaKind, amount: int) -> int:
        """Count bytes ("produce", "fetch") or nanoseconds of handler time ("request").

        Returns for how many milliseconds the client must be held back. A negative amount takes bytes back.
        """
        ...


class Exchange:
    """One request and the way back to whoever sent it."""

    __slots__ = (
        "_at_once",
        "_began_ns",
        "_dispatching",
        "_request_recorded",
        "_spent_ns",
        "_throttle_ms",
        "api_key",
        "broker",
        "client_id",
        "connection",
        "correlation_id",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        *,
        broker: Broker,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.connection = connection
        self.broker = broker
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id or ""
        self._dispatching = True
        self._at_once: list[Piece] | None = None
        self._began_ns = stopwatch_ns()
        self._spent_ns = -1  # the handler is still running
        self._throttle_ms = 0
        self._request_recorded = False

    @property
    def response_class(self) -> Any:
        return messages.response_class(self.api_key, self.version)

    def make(self, name: str, /, **fields: Any) -> Any:
        """A nested value of this version's response; fields that the version does not have are left out."""
        return build(messages.nested(self.response_class, name), **fields)

    def response(self, **fields: Any) -> Any:
        """This version's response; fields that the version does not have are left out."""
        return build(self.response_class, **fields)

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether who is at the other end of the connection may do this; a denial is written to the audit log."""
        return self.broker.authorizer.allows(self.connection.session, operation, kind, name)

    def throttle(self, ms: int) -> None:
        """The client went over a quota: the answer says so, and after it the connection rests for so long.

        The largest of several calls counts.
        """
        if ms > self._throttle_ms:
            self._throttle_ms = ms

    def record_bytes(self, kind: QuotaKind, amount: int) -> int:
        """Count bytes against the client's quota. Returns the milliseconds that this request is throttled for.

        The handler's time so far counts too, so that a fetch knows before it answers: Kafka's throttled fetch
        carries no records, and takes back what it recorded (`record_bytes("fetch", -amount)`).
        """
        quotas = self.broker.quotas
        if quotas is None:
            return 0
        self.throttle(quotas.record(self.connection.session, self.client_id, kind, amount))
        self._record_request()
        return self._throttle_ms

    def _record_request(self) -> None:
        quotas = self.broker.quotas
        if quotas is None or self._request_recorded or not self.connection.authenticated:
            return
        self._request_recorded = True
        spent = self._spent_ns if self._spent_ns >= 0 else stopwatch_ns() - self._began_ns
        self.throttle(quotas.record(self.connection.session, self.client_id, "request", spent))

    def answer(self, response: Any) -> None:
        """Send the response. Call once, unless the handler returns it."""
        self._record_request()
        self._send(encode(response, self.correlation_id, self._throttle_ms))

    def no_answer(self) -> None:
        """This request gets no response (Produce with acks=0)."""
        self._send([])

    def on_abandoned(self, callback: Callable[[], None]) -> None:
        """What to run if the connection closes before the answer."""
        self.connection.on_abandoned = callback

    def _send(self, pieces: list[Piece]) -> None:
        if self._dispatching:
            self._at_once = pieces
        else:
            if self._throttle_ms:
                self.connection.mute(self._throttle_ms)
            self.connection.answer(pieces)

    def finish_dispatch(self, response: Any) -> bool:
        """After the handler: send what is there. False: the answer is still to come."""
        self._dispatching = False
        self._spent_ns = stopwatch_ns() - self._began_ns
        if response is not None:
            self._record_request()
            self._at_once = encode(response, self.correlation_id, self._throttle_ms)
        if self._at_once is None:
            return False
        if self._throttle_ms:
            self.connection.mute(self._throttle_ms)
        self.connection.on_abandoned = None
        if self._at_once:
            self.connection.send(self._at_once)
        return True


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response body encoded by its handler, in pieces; `flexible` tells which response header it gets.

    The first four bytes of the body are throttle_time_ms, which `encode` fills in.
    """

    pieces: list[Piece]
    flexible: bool


def encode(response: Any, correlation_id: int, throttle_ms: int = 0) -> list[Piece]:
    """A response's frame with its length in front, and with its throttle time if it has one."""
    if isinstance(response, RawResponse):
        header = correlation_id.to_bytes(4, "big") + (b"\0" if response.flexible else b"")
        size = len(header) + sum(len(p) if isinstance(p, bytes) else p[2] for p in response.pieces)
        pieces = response.pieces
        if throttle_ms:
            first = pieces[0]
            assert isinstance(first, bytes)
            pieces = [throttle_ms.to_bytes(4, "big") + first[4:], *pieces[1:]]
        return [size.to_bytes(4, "big") + header, *pieces]
    if throttle_ms and "throttle_time" in _field_names(response.__class__):
        response = replace(response, throttle_time=timedelta(milliseconds=throttle_ms))
    body = messages.write_response(response, correlation_id=correlation_id)
    return [len(body).to_bytes(4, "big") + body]


@cache
def _field_names(message_class: Any) -> frozenset[str]:
    return frozenset(message_class.__dataclass_fields__)


def build(message_class: Any, **fields: Any) -> Any:
    """An instance from those of `fields` that the class has: one handler serves every version."""
    names = _field_names(message_class)
    return message_class(**{name: value for name, value in fields.items() if name in names})


class Dispatcher:
    """Reads a frame's header, finds the handler, calls it. Implements `connection.RequestSink`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._handlers: dict[int, Callable[[Broker, Exchange, Any], Any]] = {}

    def handle(self, connection: Connection, frame: memoryview) -> bool:
        api_key = int.from_bytes(frame[0:2], "big", signed=True)
        version = int.from_bytes(frame[2:4], "big", signed=True)
        connection.last_active_ms = self._broker.clock.monotonic_ms()
        api = APIS.get(api_key)
        if api is None:
            raise BadFrameError(f"no API has the key {api_key}, or this node does not have it")
        if not api.min_version <= version <= api.max_version:
            if api_key == API_VERSIONS_KEY:
                return self._answer_unknown_api_versions(connection, frame)
            raise BadFrameError(
                f"{api.name} version {version} is outside {api.min_version}..{api.max_version}"
            )
        try:
            header, request = messages.read_request(frame, api_key, version)  # type: ignore[arg-type]
        except Exception as error:
            raise BadFrameError(
                f"{api.name} version {version} in {len(frame)} bytes does not parse: {error!r}"
            ) from None
        exchange = Exchange(
            connection,
            broker=self._broker,
            api_key=api_key,
            version=version,
            correlation_id=header.correlation_id,
            client_id=getattr(header, "client_id", None),
        )
        try:
            handler = self._handler(api)
            if self._broker.faults is not None:
                handler = self._broker.faults.around(api.name, handler)
            response = handler(self._broker, exchange, request)
            return exchange.finish_dispatch(response)
        except BadFrameError:  # what the handler found makes no sense: the connection says so and closes
            raise
        except Exception:
            logger.exception(
                "%s version %d from %s failed; closing its connection", api.name, version, connection.peer
            )
            connection.close()
            return True

    def _handler(self, api: Api) -> Callable[[Broker, Exchange, Any], Any]:
        handler = self._handlers.get(api.key)
        if handler is None:
            handler = import_module(f"suiro.broker.handlers.{api.name}").handle
            self._handlers[api.key] = handler
        return handler

    def _answer_unknown_api_versions(self, connection: Connection, frame: memoryview) -> bool:
        """KIP-511: a client may ask in a version we do not know; it gets version 0, the error and the list."""
        response = api_versions_response(version=0, error_code=ErrorCode.unsupported_version)
        connection.send(encode(response, int.from_bytes(frame[4:8], "big", signed=True)))
        return True


def api_versions_response(*, version: int, error_code: ErrorCode) -> Any:
    response_class = messages.response_class(API_VERSIONS_KEY, version)
    entry = messages.nested(response_class, "ApiVersion")
    return build(
        response_class,
        error_code=error_code,
        api_keys=tuple(
            entry(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in APIS.values()
        ),
        throttle_time=timedelta(0),
    )
