"""InitProducerId: the id and epoch of a producer; for a transactional id, it also ends the open transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.handlers import whole_ms
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest


def handle(exchange: Exchange, request: InitProducerIdRequest) -> Answer:
    code, producer_id, producer_epoch = _answer(exchange, request)
    if code is ErrorCode.producer_fenced and exchange.version < 4:
        code = ErrorCode.invalid_producer_epoch
    return exchange.response(error_code=code, producer_id=producer_id, producer_epoch=producer_epoch)


def _answer(exchange: Exchange, request: InitProducerIdRequest) -> tuple[ErrorCode, int, int]:
    transactional_id = request.transactional_id
    if transactional_id is None:
        if not _may_be_idempotent(exchange):
            return ErrorCode.cluster_authorization_failed, -1, -1
    elif not exchange.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.transactional_id_authorization_failed, -1, -1
    expected = (getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
    if (expected[0] == -1) != (expected[1] == -1):
        return ErrorCode.invalid_request, -1, -1
    return exchange.broker.transactions.init_producer_id(
        transactional_id,
        timeout_ms=whole_ms(request.transaction_timeout),
        expected=None if expected == (-1, -1) else expected,
    )


def _may_be_idempotent(exchange: Exchange) -> bool:
    """A client that may write to any topic may also be an idempotent producer (KIP-679)."""
    if exchange.permits(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME):
        return True
    return exchange.broker.authorizer.allows_any(exchange.connection.session, Operation.WRITE, ResourceType.TOPIC)
