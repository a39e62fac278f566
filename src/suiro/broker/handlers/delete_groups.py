"""DeleteGroups: a group without members, with its committed offsets."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    results = tuple(
        exchange.make("DeletableGroupResult", group_id=name, error_code=broker.groups.delete(name))
        for name in request.groups_names
    )
    return exchange.response(throttle_time=NO_THROTTLE, results=results)
