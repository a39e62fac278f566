"""InitProducerId: a producer's id and epoch; for a transactional id also the end of whatever it had open."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE, whole_ms
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    expected = (getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
    if (expected[0] == -1) != (expected[1] == -1):
        code, producer_id, producer_epoch = ErrorCode.invalid_request, -1, -1
    else:
        code, producer_id, producer_epoch = broker.transactions.init_producer_id(
            request.transactional_id,
            timeout_ms=whole_ms(request.transaction_timeout),
            expected=None if expected == (-1, -1) else expected,
        )
    if code is ErrorCode.producer_fenced and exchange.version < 4:
        code = ErrorCode.invalid_producer_epoch
    return exchange.response(
        throttle_time=NO_THROTTLE, error_code=code, producer_id=producer_id, producer_epoch=producer_epoch
    )
