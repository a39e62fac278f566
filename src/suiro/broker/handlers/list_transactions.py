"""ListTransactions: the transactional ids that the client may know of and that pass every filter it gives."""

from __future__ import annotations

import re
from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.security import Operation, ResourceType
from suiro.broker.transactions.state import TransactionState
from suiro.protocol.messages import ErrorCode

_STATES = {state.title: state for state in TransactionState}


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    unknown = tuple(name for name in request.state_filters if name not in _STATES)
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    duration_ms = getattr(request, "duration_filter", -1)
    try:
        pattern = re.compile(getattr(request, "transactional_id_pattern", None) or "(?s:.*)")
    except re.error:
        return exchange.response(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.invalid_regular_expression,
            unknown_state_filters=(),
            transaction_states=(),
        )
    now = broker.clock.wall_ms()
    session = exchange.connection.session
    found = tuple(
        exchange.make(
            "TransactionState",
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.title,
        )
        for transaction in broker.transactions
        if (not request.producer_id_filters or transaction.producer_id in request.producer_id_filters)
        and (not request.state_filters or transaction.state in states)
        and (duration_ms < 0 or now - transaction.start_ms > duration_ms)
        and pattern.fullmatch(transaction.transactional_id)
        and broker.authorizer.permits(
            session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
        )
    )
    return exchange.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        unknown_state_filters=unknown,
        transaction_states=found,
    )
