"""ListTransactions: the transactional ids that the client may know of and that pass every filter it gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.context import BrokerContext
from suiro.broker.coordination.transactions.state import Transaction, TransactionState
from suiro.broker.exchange import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.security import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest


_STATES = {state.title: state for state in TransactionState}


def handle(broker: BrokerContext, exchange: Exchange, request: ListTransactionsRequest) -> Answer:
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    duration_ms = getattr(request, "duration_filter", -1)
    now = broker.clock.wall_ms()
    session = exchange.connection.session
    found = [
        transaction
        for transaction in broker.transactions
        if (not request.producer_id_filters or transaction.producer_id in request.producer_id_filters)
        and (not request.state_filters or transaction.state in states)
        and (duration_ms < 0 or now - transaction.start_ms > duration_ms)
        and broker.authorizer.permits(
            session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
        )
    ]
    pattern = getattr(request, "transactional_id_pattern", None)
    if pattern:
        matching = _matching(pattern, found)
        if matching is None:
            return exchange.response(
                throttle_time=NO_THROTTLE,
                error_code=ErrorCode.invalid_regular_expression,
                unknown_state_filters=(),
                transaction_states=(),
            )
        found = matching
    return exchange.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        unknown_state_filters=tuple(name for name in request.state_filters if name not in _STATES),
        transaction_states=tuple(
            exchange.make(
                "TransactionState",
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.title,
            )
            for transaction in found
        ),
    )


def _matching(pattern: str, transactions: Iterable[Transaction]) -> list[Transaction] | None:
    """Those whose whole id matches; None where the pattern is none. The engine is loaded for it."""
    from suiro.broker.coordination.groups.refusals import GroupRefusal
    from suiro.broker.coordination.groups.regexes import check_regex, matching_topics

    try:
        check_regex(pattern)
    except GroupRefusal:
        return None
    by_id = {transaction.transactional_id: transaction for transaction in transactions}
    names = matching_topics(pattern, by_id)
    return [transaction for name, transaction in by_id.items() if name in names]
