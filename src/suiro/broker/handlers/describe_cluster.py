"""DescribeCluster: one node, and it is its own controller."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    host, port = broker.advertised(exchange.connection)
    me = exchange.make(
        "DescribeClusterBroker", broker_id=broker.node_id, host=host, port=port, rack=None, is_fenced=False
    )
    return exchange.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=1,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=(me,),
    )
