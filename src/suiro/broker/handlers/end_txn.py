"""EndTxn: when the response is NONE, the decision is written, and so are the markers of all partitions that can be
written.

Version 5 and up is transactions V2: the answer bears the identity of the next transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.coordination.transactions.state import V1, V2
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.end_txn.v5.request import EndTxnRequest


def handle(exchange: Exchange, request: EndTxnRequest) -> Answer:
    code, producer_id, producer_epoch = ErrorCode.transactional_id_authorization_failed, -1, -1
    if exchange.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        code, producer_id, producer_epoch = exchange.broker.transactions.end(
            request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            commit=request.committed,
            version=V2 if exchange.version >= 5 else V1,
        )
    if code is ErrorCode.producer_fenced and exchange.version < 2:
        code = ErrorCode.invalid_producer_epoch
    return exchange.response(error_code=code, producer_id=producer_id, producer_epoch=producer_epoch)
