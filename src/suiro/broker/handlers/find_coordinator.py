"""FindCoordinator: this node coordinates every group (0) and every transactional id (1)."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode

GROUP = 0
TRANSACTION = 1


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    kind = getattr(request, "key_type", GROUP)
    host, port = broker.advertised(exchange.connection)
    here = {"node_id": broker.node_id, "host": host, "port": port}
    nowhere = {"node_id": -1, "host": "", "port": -1}
    code, message = ErrorCode.none, None
    if kind not in (GROUP, TRANSACTION):
        code, message = ErrorCode.invalid_request, f"this node has no coordinator of kind {kind}"
    place = here if code is ErrorCode.none else nowhere
    if exchange.version <= 3:
        return exchange.response(throttle_time=NO_THROTTLE, error_code=code, error_message=message, **place)
    coordinators = tuple(
        exchange.make("Coordinator", key=key, error_code=code, error_message=message, **place)
        for key in request.coordinator_keys
    )
    return exchange.response(throttle_time=NO_THROTTLE, coordinators=coordinators)
