"""DescribeConfigs of topics (2) and of this node (4)."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.configs import DescribedConfig, describe_node_configs, describe_topic_configs
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode

TOPIC = 2
BROKER = 4


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    results = []
    for resource in request.resources:
        code, message, configs = _describe(broker, resource.resource_type, resource.resource_name)
        wanted = resource.configuration_keys
        results.append(
            exchange.make(
                "DescribeConfigsResult",
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(
                    _config(exchange, config, request)
                    for config in configs
                    if not wanted or config.name in wanted
                ),
            )
        )
    return exchange.response(throttle_time=NO_THROTTLE, results=tuple(results))


def _describe(broker: Broker, kind: int, name: str) -> tuple[ErrorCode, str | None, list[DescribedConfig]]:
    if kind == TOPIC:
        topic = broker.topics.topic(name)
        if topic is None:
            return ErrorCode.unknown_topic_or_partition, f"there is no topic {name}", []
        return ErrorCode.none, None, describe_topic_configs(topic.configs, broker.settings)
    if kind == BROKER:
        if name not in ("", str(broker.node_id)):
            return ErrorCode.invalid_request, f"this is node {broker.node_id}, not {name}", []
        return ErrorCode.none, None, describe_node_configs(broker.settings)
    return ErrorCode.invalid_request, f"resources of type {kind} have no settings here", []


def _config(exchange: Exchange, config: DescribedConfig, request: Any) -> Any:
    return exchange.make(
        "DescribeConfigsResourceResult",
        name=config.name,
        value=config.value,
        read_only=config.source == 4,
        config_source=config.source,
        is_sensitive=False,
        synonyms=(),
        config_type=config.kind,
        documentation=config.doc if getattr(request, "include_documentation", False) else None,
    )
