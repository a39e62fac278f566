"""UnregisterBroker: is refused, because the node is the only broker (Apache Kafka removes its only broker until its
next start)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest


def handle(exchange: Exchange, request: UnregisterBrokerRequest) -> Answer:
    if not exchange.may_on_cluster(Operation.ALTER):
        code, message = ErrorCode.cluster_authorization_failed, "Cluster authorization failed."
    elif request.broker_id == exchange.broker.node_id:
        code = ErrorCode.invalid_request
        message = f"Node {request.broker_id} is this cluster's only one."
    else:
        code = ErrorCode.broker_id_not_registered
        message = f"Broker ID {request.broker_id} is not currently registered"
    return exchange.response(error_code=code, error_message=message)
