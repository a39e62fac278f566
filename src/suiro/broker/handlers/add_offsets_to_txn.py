"""AddOffsetsToTxn: the group's partition of `__consumer_offsets` joins the transaction."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    if not request.group_id:
        code = ErrorCode.invalid_group_id
    else:
        offsets = broker.groups.partition_of(request.group_id)
        code = broker.transactions.add_partitions(
            request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=frozenset(((offsets.topic, offsets.index),)),
        )
    if code is ErrorCode.producer_fenced and exchange.version < 2:
        code = ErrorCode.invalid_producer_epoch
    return exchange.response(throttle_time=NO_THROTTLE, error_code=code)
