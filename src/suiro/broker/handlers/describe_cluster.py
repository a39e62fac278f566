"""DescribeCluster: one node, and it is its own controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer, Response
from suiro.broker.exchange import OPERATIONS_NOT_ASKED, Exchange
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest


_BROKERS, _CONTROLLERS = 1, 2  # the types of endpoint that a client may mean


def handle(exchange: Exchange, request: DescribeClusterRequest) -> Answer:
    broker = exchange.broker
    wanted = getattr(request, "endpoint_type", _BROKERS)
    if wanted == _CONTROLLERS:
        return _refusal(
            exchange,
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if wanted != _BROKERS:
        return _refusal(exchange, ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {wanted}")
    host, port = broker.advertised(exchange.connection)
    me = exchange.make(
        "DescribeClusterBroker", broker_id=broker.node_id, host=host, port=port, rack=None, is_fenced=False
    )
    return exchange.response(
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=_BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=(me,),
        cluster_authorized_operations=exchange.cluster_operations(asked=request.include_cluster_authorized_operations),
    )


def _refusal(exchange: Exchange, code: ErrorCode, message: str) -> Response:
    return exchange.response(
        error_code=code,
        error_message=message,
        endpoint_type=_BROKERS,
        cluster_id="",
        controller_id=-1,
        brokers=(),
        cluster_authorized_operations=OPERATIONS_NOT_ASKED,
    )
