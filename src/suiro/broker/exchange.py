"""One request and its response. A handler answers through the `Exchange`; `encode` makes a frame of the response."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from suiro.broker.metrics.request_metrics import RequestMetrics
from suiro.broker.net.connection import Connection, Piece
from suiro.broker.net.turns import Steps
from suiro.broker.security import Denials
from suiro.clock import stopwatch_ns
from suiro.protocol import messages
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker.context import BrokerContext, QuotaKind
    from suiro.broker.security import Operation, ResourceType

logger = logging.getLogger(__name__)


class Exchange:
    """One request and the way back to whoever sent it."""

    __slots__ = (
        "_answered_ns",
        "_arrived_ns",
        "_at_once",
        "_bare",
        "_began_ns",
        "_denials",
        "_dispatching",
        "_ended_ns",
        "_metrics",
        "_on_abandoned",
        "_request_recorded",
        "_throttle_ms",
        "_waited",
        "api_key",
        "broker",
        "client_id",
        "connection",
        "correlation_id",
        "takes_files",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        *,
        broker: BrokerContext,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        metrics: RequestMetrics,
        bare: bool = False,
        takes_files: bool = False,
    ) -> None:
        """`bare`: a login's message without a request around it; so is its answer. `takes_files`: of a fetch, whether
        it asks for `file_regions`."""
        self.connection = connection
        self.broker = broker
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id or ""
        self._dispatching = True
        self._at_once: list[Piece] | None = None
        self._bare = bare
        self.takes_files = takes_files
        self._metrics = metrics
        self._arrived_ns = connection.arrived_ns
        self._began_ns = stopwatch_ns()
        self._ended_ns = 0  # the handler is still running
        self._answered_ns = 0
        self._waited = False
        self._on_abandoned: Callable[[], None] | None = None
        self._throttle_ms = 0
        self._request_recorded = False
        self._denials: Denials | None = None

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
        session = self.connection.session
        rule = self.broker.authorizer.denied_by(session, operation, kind, name)
        if rule is None:
            return True
        if self._denials is None:
            self._denials = Denials(session)
        self._denials.add(operation, kind, name, rule)
        return False

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
        spent = (self._ended_ns or stopwatch_ns()) - self._began_ns
        self.throttle(quotas.record(self.connection.session, self.client_id, "request", spent))

    def answer(self, response: Any) -> None:
        """Send the response. Call once, unless the handler returns it."""
        self._send(self._encode(response))

    def no_answer(self) -> None:
        """This request gets no response (Produce with acks=0)."""
        self._send([])

    def in_steps(self, steps: Generator[None, None, Any]) -> Any:
        """Handle the request by a generator: others have their turns where it yields, and it returns the response.

        Returns the response, for the handler to return, if one turn was enough.
        """

        def fail() -> None:
            logger.exception("a request from %s failed; closing its connection", self.connection.peer)
            self.connection.close()

        return Steps(self.connection.turns, steps, answer=self.answer, fail=fail).run()

    def on_abandoned(self, callback: Callable[[], None]) -> None:
        """What to run if the connection closes before the answer."""
        self._on_abandoned = callback

    def _encode(self, response: Any) -> list[Piece]:
        raw = isinstance(response, RawResponse)
        named = response.named if raw else ()
        if named or self.connection.named_files:
            self.connection.name_files(named, self.broker.clock.monotonic_ms())
        code = ErrorCode.none if raw else getattr(response, "error_code", ErrorCode.none)
        self._metrics.answered(code)
        if self._bare:
            return [] if code is not ErrorCode.none else [_bare_token(response.auth_bytes)]
        if self.broker.quotas is not None:
            self._record_request()
        return encode(response, self.correlation_id, self._throttle_ms)

    def _send(self, pieces: list[Piece]) -> None:
        if self._dispatching:
            self._at_once = pieces
            return
        self.write_denials()
        if self._waited:
            self._waited = False
            self._metrics.waiting -= 1
        connection = self.connection
        self._answered_ns = stopwatch_ns()
        if self._throttle_ms:
            connection.mute(self._throttle_ms)
        connection.answer(pieces)
        if connection.is_open:
            connection.when_sent(self._sent)

    def _sent(self) -> None:
        self._metrics.sent(
            self._arrived_ns, self._began_ns, self._ended_ns, self._answered_ns, self._throttle_ms
        )

    def _wait(self) -> None:
        """The answer is still to come: the request is in purgatory."""
        self._waited = True
        self._metrics.waiting += 1
        self.connection.on_abandoned = self._abandoned

    def write_denials(self) -> None:
        """To the audit log, once for all of what was asked for."""
        if self._denials is not None:
            self._denials.write()

    def _abandoned(self) -> None:
        self._waited = False
        self._metrics.waiting -= 1
        self.write_denials()
        if self._on_abandoned is not None:
            self._on_abandoned()

    def finish_dispatch(self, response: Any) -> bool:
        """After the handler: send what is there. False: the answer is still to come."""
        self._dispatching = False
        self._ended_ns = self._answered_ns = stopwatch_ns()
        if response is not None:
            self._at_once = self._encode(response)
        connection = self.connection
        if self._at_once is None:
            if connection.is_open:
                self._wait()
            elif self._on_abandoned is not None:
                self._on_abandoned()
            return False
        if self._throttle_ms:
            connection.mute(self._throttle_ms)
        if self._at_once:
            connection.send(self._at_once)
        if connection.waits_for_peer:
            connection.when_sent(self._sent)
        else:
            self._sent()
        return True

    @property
    def handler_ns(self) -> int:
        """How long the handler ran."""
        return self._ended_ns - self._began_ns


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response body encoded by its handler, in pieces; `flexible` tells which response header it gets.

    The first piece is bytes; `throttle_at` is where in it throttle_time_ms stands, which `encode` fills in; None: the
    version has none. `named` are the files that it names to the client.
    """

    pieces: list[Piece]
    flexible: bool
    throttle_at: int | None = 0
    named: tuple[int, ...] = ()


def encode(response: Any, correlation_id: int, throttle_ms: int = 0) -> list[Piece]:
    """A response's frame with its length in front, and with its throttle time if it has one."""
    if isinstance(response, RawResponse):
        header = correlation_id.to_bytes(4, "big", signed=True) + (b"\0" if response.flexible else b"")
        first, *rest = response.pieces
        assert isinstance(first, bytes)
        at = response.throttle_at
        if throttle_ms and at is not None:
            first = first[:at] + throttle_ms.to_bytes(4, "big") + first[at + 4 :]
        size = len(header) + len(first)
        for piece in rest:
            size += len(piece) if isinstance(piece, bytes) else piece[2]
        # In one piece what goes out before the first file region: each piece is a call of the system.
        return [size.to_bytes(4, "big") + header + first, *rest]
    if throttle_ms and "throttle_time" in _field_names(response.__class__):
        response = replace(response, throttle_time=timedelta(milliseconds=throttle_ms))
    body = messages.write_response(response, correlation_id=correlation_id)
    return [len(body).to_bytes(4, "big") + body]


def _bare_token(token: bytes) -> bytes:
    return len(token).to_bytes(4, "big") + token


@cache
def _field_names(message_class: Any) -> frozenset[str]:
    return frozenset(message_class.__dataclass_fields__)


def build(message_class: Any, **fields: Any) -> Any:
    """An instance from those of `fields` that the class has: one handler serves every version."""
    names = _field_names(message_class)
    return message_class(**{name: value for name, value in fields.items() if name in names})
