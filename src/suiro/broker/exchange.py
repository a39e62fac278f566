"""One request and its response: `finish` sends what the handler answered; `encode` makes a frame of a response.

A handler answers with the response, one that comes `Later`, or `NOTHING`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from suiro.broker.metrics.request_metrics import RequestMetrics
from suiro.broker.net.connection import Connection, Piece
from suiro.broker.net.turns import Steps
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.broker.security.authorizer import Denials, authorized_operations
from suiro.clock import stopwatch_ns
from suiro.protocol import messages
from suiro.protocol.fields import array_length
from suiro.protocol.frame_check import layout
from suiro.protocol.messages import ErrorCode, ResponsePayload

if TYPE_CHECKING:
    from suiro.broker.context import BrokerContext
    from suiro.broker.quotas.client_quotas import QuotaKind


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response body encoded by its handler, in pieces; `flexible` tells which response header it gets.

    The first piece is bytes; `throttle_at` is the position of throttle_time_ms in it, which `encode` fills in; None:
    the version has none. `named` are the files that the response names to the client.
    """

    pieces: list[Piece]
    flexible: bool
    throttle_at: int | None = 0
    named: tuple[int, ...] = ()

    @classmethod
    def of_results(cls, results: Collection[bytes], *, flexible: bool) -> RawResponse:
        """A response that is its throttle time and an array, of which the elements are laid out already."""
        body = b"".join((bytes(4), array_length(len(results), flexible=flexible), *results))
        return cls([body + b"\0" if flexible else body], flexible)


Response: TypeAlias = ResponsePayload | RawResponse


class _Nothing(Enum):
    NOTHING = 0


Nothing: TypeAlias = Literal[_Nothing.NOTHING]
NOTHING: Final = _Nothing.NOTHING
"""The request gets no response (Produce with acks=0)."""


class Later:
    """The response comes when there is one: `give` it, once. `abandoned` runs if the connection closes before."""

    __slots__ = ("_deliver", "abandoned", "given")

    def __init__(self, abandoned: Callable[[], object] | None = None) -> None:
        self.abandoned = abandoned
        self.given: Response | Nothing | None = None
        """A response that was given while the handler was still running."""
        self._deliver: Callable[[Response | Nothing], None] | None = None

    def give(self, response: Response | Nothing) -> None:
        if self._deliver is None:
            self.given = response
        else:
            self._deliver(response)

    def deliver_to(self, deliver: Callable[[Response | Nothing], None]) -> None:
        self._deliver = deliver
        if self.given is not None:
            deliver(self.given)

    def follow(self, answer: Answer) -> None:
        """Give what another handler answers, now or later."""
        if isinstance(answer, Later):
            self.abandoned = answer.abandoned
            answer.deliver_to(self.give)
        else:
            self.give(answer)

    def abandon(self) -> None:
        if self.abandoned is not None:
            self.abandoned()


Answer: TypeAlias = Response | Later | Nothing


logger = logging.getLogger(__name__)

_MESSAGE_CHARACTERS = 8000
"""Of an error for the client. With names from its request it may have more bytes than a string on the wire can."""
OPERATIONS_NOT_ASKED = -(2**31)
"""The authorized operations in an answer to a request that does not ask for them."""
DENIED = {
    ResourceType.TOPIC: (ErrorCode.topic_authorization_failed, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.group_authorization_failed, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.cluster_authorization_failed, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.transactional_id_authorization_failed,
        "Transactional Id authorization failed.",
    ),
}
"""Kafka's error for a client that may not do something, by the type of the resource."""


@dataclass(slots=True, kw_only=True, eq=False)
class Exchange:
    """One request, and the way to its response."""

    connection: Connection
    broker: BrokerContext
    api_key: int
    version: int
    correlation_id: int
    client_id: str
    metrics: RequestMetrics
    arrived_ns: int
    bare: bool = False
    """A login's message without a request around it; so is its answer."""
    takes_files: bool = False
    """Of a fetch, whether it asks for `file_regions`."""
    _began_ns: int = field(default_factory=stopwatch_ns)
    _ended_ns: int = 0  # the handler is still running
    _answered_ns: int = 0
    _waited: bool = False
    _throttle_ms: int = 0
    _request_recorded: bool = False
    _steps: Steps | None = None
    _denials: Denials | None = None

    @property
    def response_class(self) -> Any:
        return messages.response_class(self.api_key, self.version)

    def response(self, **fields: Any) -> ResponsePayload:
        """This version's response, made as `build` says. `encode` sets the throttle time of a client that went over a
        quota."""
        response: ResponsePayload = build(self.response_class, fields)
        return response

    def refused(self, refusal: RefusedError) -> ResponsePayload:
        """The response that refuses the whole request."""
        assert "error_code" in _field_names(self.response_class)
        return self.response(error_code=refusal.code, error_message=str(refusal) or None)

    def element(self, array: str, fields: Mapping[str, Any]) -> bytes:
        """An element of one of the response's arrays, laid out already (`RawResponse.of_results`)."""
        nested = next(each.nested for each in layout(self.response_class) if each.name == array)
        return messages.write_value(build(nested, fields))

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the client may do this; a denial is written to the audit log."""
        session = self.connection.session
        rule = self.broker.authorizer.denied_by(session, operation, kind, name)
        if rule is None:
            return True
        if self._denials is None:
            self._denials = Denials(session)
        self._denials.add(operation, kind, name, rule)
        return False

    def may_on_cluster(self, operation: Operation) -> bool:
        """The same for the cluster as a whole."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def check(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raises `RefusedError` if the client may not do this."""
        if not self.may(operation, kind, name):
            raise RefusedError(*DENIED[kind])

    def check_on_cluster(self, operation: Operation) -> None:
        """The same for the cluster as a whole."""
        self.check(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def permits(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """The same without the audit log: for what the answer leaves out, or what another permission allows too."""
        return self.broker.authorizer.denied_by(self.connection.session, operation, kind, name) is None

    def operations(self, kind: ResourceType, name: str, *, asked: bool) -> int:
        """The operations that the client may do on a resource (KIP-430), if the request asks for them."""
        if not asked:
            return OPERATIONS_NOT_ASKED
        return authorized_operations(self.broker.authorizer, self.connection.session, kind, name)

    def cluster_operations(self, *, asked: bool) -> int:
        """The same for the cluster. A client that may not describe it gets none."""
        if asked and not self.may_on_cluster(Operation.DESCRIBE):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME, asked=asked)

    def throttle(self, ms: int) -> None:
        """The client exceeded a quota: the answer says so, and then the connection is muted for so long.

        The largest of several calls counts.
        """
        self._throttle_ms = max(self._throttle_ms, ms)

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
        if self._steps is not None:
            spent += self._steps.later_ns
        self.throttle(quotas.record(self.connection.session, self.client_id, "request", spent))

    def in_steps(self, steps: Generator[None, None, Response]) -> Response | Later:
        """Handle the request by a generator that returns the response. Other clients have their turn when it yields."""
        later = Later()
        self._steps = Steps(self.connection.turns, steps, answer=later.give, fail=self._fail)
        first = self._steps.run()
        return later if first is None else first

    def in_task(self, work: Coroutine[Any, Any, Response | Nothing], *, until_abandoned: bool = True) -> Later:
        """Handle the request by a coroutine that returns the response. It is cancelled when the client is gone, unless
        it is there for more than the response."""

        async def run() -> None:
            try:
                later.give(await work)
            except Exception:  # noqa: BLE001 - `_fail` logs it and closes the connection
                self._fail()

        task = self.broker.loop.create_task(run())
        task.add_done_callback(lambda _: work.close())  # Cancelled before it begins, it is never awaited.
        later = Later(task.cancel if until_abandoned else None)
        return later

    def _fail(self) -> None:
        logger.exception("a request from %s failed; closing its connection", self.connection.peer)
        self.connection.close()
        self.connection.let_go_of_request()

    def _encode(self, response: Response | Nothing) -> list[Piece]:
        if response is NOTHING:
            return []
        named: tuple[int, ...] = ()
        code = ErrorCode.none
        if isinstance(response, RawResponse):
            named = response.named
        else:
            code = getattr(response, "error_code", ErrorCode.none)
        if named or self.connection.named_files:
            self.connection.name_files(named, self.broker.clock.monotonic_ms())
        self.metrics.answered(code)
        if self.bare:
            return [] if code is not ErrorCode.none else [_bare_token(response.auth_bytes)]  # type: ignore[union-attr]
        if self.broker.quotas is not None:
            self._record_request()
        return encode(response, self.correlation_id, self._throttle_ms)

    def _deliver(self, response: Response | Nothing) -> None:
        """Send a response that was given after the handler returned. The caller answers other requests too."""
        try:
            pieces = self._encode(response)
        except Exception:  # noqa: BLE001 - `_fail` logs it and closes the connection
            self._fail()
            return
        self.write_denials()
        if self._waited:
            self._waited = False
            self.metrics.waiting -= 1
        connection = self.connection
        self._answered_ns = stopwatch_ns()
        if self._throttle_ms:
            connection.mute(self._throttle_ms)
        connection.answer(pieces)
        if connection.is_open:
            connection.when_sent(self._sent)

    def _sent(self) -> None:
        self.metrics.sent(self.arrived_ns, self._began_ns, self._ended_ns, self._answered_ns, self._throttle_ms)

    def _wait(self, answer: Later) -> None:
        """The answer is still to come: the request is in purgatory."""

        def abandoned() -> None:
            self._waited = False
            self.metrics.waiting -= 1
            self.write_denials()
            self._abandon(answer)

        self._waited = True
        self.metrics.waiting += 1
        self.connection.on_abandoned = abandoned

    def _abandon(self, answer: Later) -> None:
        """The client is gone. Work that nobody can stop keeps what it holds until it is done."""
        answer.abandon()
        if answer.abandoned is not None:
            self.connection.let_go_of_request()

    def write_denials(self) -> None:
        """Write the denials of the request to the audit log, together."""
        if self._denials is not None:
            self._denials.write()

    def finish(self, answer: Answer) -> bool:
        """After the handler: send the answer. False: it comes later."""
        self._ended_ns = self._answered_ns = stopwatch_ns()
        connection = self.connection
        if isinstance(answer, Later):
            given = answer.given
            if given is None:
                answer.deliver_to(self._deliver)
                if connection.is_open:
                    self._wait(answer)
                else:
                    self._abandon(answer)
                return False
            answer = given
        pieces = self._encode(answer)
        if self._throttle_ms:
            connection.mute(self._throttle_ms)
        if pieces:
            connection.send(pieces)
        connection.when_sent(self._sent)
        return True

    @property
    def handler_ns(self) -> int:
        """The run time of the handler."""
        return self._ended_ns - self._began_ns


Handler: TypeAlias = Callable[[Exchange, Any], Answer]


def encode(response: Response, correlation_id: int, throttle_ms: int = 0) -> list[Piece]:
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
        # All bytes before the first file region make one piece: each piece is a system call.
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


ZEROS: dict[str, Any] = {
    "string": "",
    "bool": False,
    "bytes": b"",
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": datetime.fromtimestamp(0, UTC),
}
_GIVEN_BY_KIO = object()


@cache
def _shape(message_class: Any) -> tuple[tuple[str, Any, bool, Any], ...]:
    """The name, the class of structures, whether it is an array, and the default, of each field."""
    found = []
    for each in layout(message_class):
        default: Any = _GIVEN_BY_KIO
        if each.required and each.optional:
            default = None
        elif each.required:
            default = () if each.many else ZEROS.get(each.metadata.get("kafka_type", ""), 0)
        found.append((each.name, each.nested, each.many, default))
    return tuple(found)


def build(message_class: Any, fields: Mapping[str, Any]) -> Any:
    """An instance from those of `fields` that the class has: one handler serves every version. Structures in them are
    mappings too, and a field that is not given has Kafka's default: null, empty or zero."""
    values = {}
    for name, nested, many, default in _shape(message_class):
        value = fields.get(name, default)
        if value is _GIVEN_BY_KIO:
            continue
        if value is not None:
            if nested is not None:
                value = tuple([build(nested, one) for one in value]) if many else build(nested, value)
            elif many:
                value = tuple(value)
            elif name == "error_message" and len(value) > _MESSAGE_CHARACTERS:
                value = f"{value[:_MESSAGE_CHARACTERS]}..."
        values[name] = value
    return message_class(**values)
