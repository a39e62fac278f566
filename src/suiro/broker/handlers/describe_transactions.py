"""DescribeTransactions: the state of transactional ids, with the partitions that the client may describe."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.coordination.transactions.state import Transaction
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest


_EPOCH = datetime.fromtimestamp(0, UTC)
_NEVER = _EPOCH - timedelta(milliseconds=1)  # -1 on the wire


def handle(exchange: Exchange, request: DescribeTransactionsRequest) -> Answer:
    return exchange.response(
        transaction_states=tuple(
            _describe(exchange, transactional_id)
            # Each once: a large transaction named thousands of times would fill the node's memory.
            for transactional_id in dict.fromkeys(request.transactional_ids)
        ),
    )


def _describe(exchange: Exchange, transactional_id: str) -> Any:
    transaction = None
    if not exchange.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        code = ErrorCode.transactional_id_authorization_failed
    elif not transactional_id:
        code = ErrorCode.invalid_request
    else:
        transaction = exchange.broker.transactions.find(transactional_id)
        code = ErrorCode.transactional_id_not_found if transaction is None else ErrorCode.none
    if transaction is None:
        return exchange.make(
            "TransactionState",
            error_code=code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout=timedelta(0),
            transaction_start_time=_EPOCH,
            producer_id=0,
            producer_epoch=0,
            topics=(),
        )
    start = transaction.start_ms
    return exchange.make(
        "TransactionState",
        error_code=code,
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout=timedelta(milliseconds=transaction.timeout_ms),
        transaction_start_time=_EPOCH + timedelta(milliseconds=start) if start >= 0 else _NEVER,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=_topics(exchange, transaction),
    )


def _topics(exchange: Exchange, transaction: Transaction) -> tuple[Any, ...]:
    return tuple(
        exchange.make("TopicData", topic=topic, partitions=tuple(index for _, index in places))
        for topic, places in groupby(sorted(transaction.partitions), key=lambda place: place[0])
        if exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    )
