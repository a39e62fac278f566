"""EndTxn: when the answer is NONE, the decision and all markers are written."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    code = broker.transactions.end(
        request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        commit=request.committed,
    )
    if code is ErrorCode.producer_fenced and exchange.version < 2:
        code = ErrorCode.invalid_producer_epoch
    return exchange.response(throttle_time=NO_THROTTLE, error_code=code)
