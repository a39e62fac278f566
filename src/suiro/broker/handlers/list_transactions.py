"""ListTransactions: the transactional ids that match the filters and that the client may describe."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from suiro.broker.answers import Answer, Response
from suiro.broker.coordination.transactions.state import Transaction, TransactionState
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest


_STATES = {state.title: state for state in TransactionState}


def handle(exchange: Exchange, request: ListTransactionsRequest) -> Answer:
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    producer_ids = frozenset(request.producer_id_filters)
    duration_ms = getattr(request, "duration_filter", -1)
    now = exchange.broker.clock.wall_ms()
    found = [
        transaction
        for transaction in exchange.broker.transactions
        if (not producer_ids or transaction.producer_id in producer_ids)
        and (not request.state_filters or transaction.state in states)
        and (duration_ms < 0 or now - transaction.start_ms > duration_ms)
        and exchange.permits(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
    ]
    pattern = getattr(request, "transactional_id_pattern", None)
    if not pattern:
        return _answer(exchange, request, found)
    return exchange.in_task(_answer_matching(exchange, request, pattern, found))


async def _answer_matching(
    exchange: Exchange,
    request: ListTransactionsRequest,
    pattern: str,
    transactions: Iterable[Transaction],
) -> Response:
    """With those whose whole id matches. The engine is loaded for it."""
    from suiro.broker.coordination.groups.regexes import check_regex, matching_topics
    from suiro.broker.refusals import RefusedError

    try:
        check_regex(pattern)
    except RefusedError:
        return exchange.response(
            error_code=ErrorCode.invalid_regular_expression,
            unknown_state_filters=(),
            transaction_states=(),
        )
    by_id = {transaction.transactional_id: transaction for transaction in transactions}
    names = await exchange.broker.matchers.run(partial(matching_topics, pattern, list(by_id)))
    return _answer(exchange, request, [found for name, found in by_id.items() if name in names])


def _answer(exchange: Exchange, request: ListTransactionsRequest, transactions: Iterable[Transaction]) -> Response:
    return exchange.response(
        error_code=ErrorCode.none,
        unknown_state_filters=tuple(name for name in request.state_filters if name not in _STATES),
        transaction_states=tuple(
            exchange.make(
                "TransactionState",
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.title,
            )
            for transaction in transactions
        ),
    )
