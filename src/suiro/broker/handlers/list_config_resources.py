"""ListConfigResources: the resources that have settings. Version 0 asks for client metrics only, of which a node has
none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer, Response
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation
from suiro.broker.settings.configs import ResourceKind
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest


def handle(exchange: Exchange, request: ListConfigResourcesRequest) -> Answer:
    broker = exchange.broker
    if not exchange.may_on_cluster(Operation.DESCRIBE_CONFIGS):
        return _answer(exchange, ErrorCode.cluster_authorization_failed)
    wanted = set(request.resource_types) if exchange.version >= 1 else {ResourceKind.CLIENT_METRICS}
    if not wanted <= set(ResourceKind):
        return _answer(exchange, ErrorCode.unsupported_version)
    me = (str(broker.node_id),)
    names: dict[ResourceKind, tuple[str, ...]] = {
        ResourceKind.GROUP: broker.groups_with_configs(),
        ResourceKind.CLIENT_METRICS: (),
        ResourceKind.BROKER_LOGGER: me,
        ResourceKind.BROKER: me,
        ResourceKind.TOPIC: tuple(topic.name for topic in broker.topics),
    }
    found = tuple(
        exchange.make("ConfigResource", resource_name=name, resource_type=kind)
        for kind, all_names in names.items()
        if not wanted or kind in wanted
        for name in all_names
    )
    return _answer(exchange, ErrorCode.none, found)


def _answer(exchange: Exchange, code: ErrorCode, found: tuple[Any, ...] = ()) -> Response:
    return exchange.response(error_code=code, config_resources=found)
