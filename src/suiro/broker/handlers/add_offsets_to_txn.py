"""AddOffsetsToTxn: the group's partition of `__consumer_offsets` joins the transaction (V1; V2 needs no request)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.coordination.transactions.state import V1
from suiro.broker.exchange import Exchange
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest


def handle(exchange: Exchange, request: AddOffsetsToTxnRequest) -> Answer:
    if not exchange.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        code = ErrorCode.transactional_id_authorization_failed
    elif not exchange.may(Operation.READ, ResourceType.GROUP, request.group_id):
        code = ErrorCode.group_authorization_failed
    else:
        code = _add(exchange, request)
    if code is ErrorCode.producer_fenced and exchange.version < 2:
        code = ErrorCode.invalid_producer_epoch
    return exchange.response(error_code=code)


def _add(exchange: Exchange, request: AddOffsetsToTxnRequest) -> ErrorCode:
    try:
        offsets = exchange.broker.groups.partition_of(request.group_id)
    except RefusedError as refusal:
        return refusal.code
    return exchange.broker.transactions.add_partitions(
        request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partitions=frozenset(((offsets.topic, offsets.index),)),
        version=V1,
    )
