"""DescribeConfigs: the settings of topics, of this node, of the cluster as a whole, of groups, and log levels."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer, RawResponse
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.shared.config_changes import DENIALS, check_may, check_node_id
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation
from suiro.broker.settings import loggers
from suiro.broker.settings.configs import (
    TYPE_NUMBERS,
    DescribedConfig,
    ResourceKind,
    describe_cluster_defaults,
    describe_facts,
    describe_group_configs,
    describe_node_configs,
    describe_topic_configs,
)
from suiro.broker.storage.topics import check_topic_name
from suiro.protocol.fields import MAX_STRING_BYTES
from suiro.protocol.messages import ErrorCode, write_value

if TYPE_CHECKING:
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest


_FLEXIBLE_SINCE = 4
_KINDS = frozenset(kind.value for kind in ResourceKind)


def handle(exchange: Exchange, request: DescribeConfigsRequest) -> Answer:
    return exchange.in_steps(_describe_all(exchange, request))


def _describe_all(exchange: Exchange, request: DescribeConfigsRequest) -> Generator[None, None, RawResponse]:
    """A resource in each step, laid out at once: of the names of groups a request may have tens of thousands."""
    known = all(resource.resource_type in _KINDS for resource in request.resources)
    allowed: list[bytes] = []
    refused: list[bytes] = []
    # Each once: named thousands of times, the settings of one resource would fill the node's memory.
    for resource in {(each.resource_type, each.resource_name): each for each in request.resources}.values():
        code, message = ErrorCode.none, ""
        configs: list[DescribedConfig] = []
        try:
            if not known:
                # In Kafka too, one resource of an unknown kind refuses them all.
                raise RefusedError(ErrorCode.invalid_request, "the request asks for an unknown kind of resource")
            kind = ResourceKind(resource.resource_type)
            check_may(exchange, Operation.DESCRIBE_CONFIGS, kind, resource.resource_name)
            wanted = frozenset(resource.configuration_keys or ())
            found = _describe(exchange.broker, kind, resource.resource_name)
            configs = [config for config in found if not wanted or config.name in wanted]
            for config in configs:
                _check_room(config, request)
        except RefusedError as refusal:
            code, message, configs = refusal.code, str(refusal), []
        result = exchange.make(
            "DescribeConfigsResult",
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(_config(exchange, config, request) for config in configs),
        )
        (refused if code in DENIALS.values() else allowed).append(write_value(result))
        yield
    return RawResponse.of_results([*allowed, *refused], flexible=exchange.version >= _FLEXIBLE_SINCE)


def _describe(broker: BrokerContext, kind: ResourceKind, name: str) -> list[DescribedConfig]:
    described: dict[ResourceKind, Callable[[BrokerContext, str], list[DescribedConfig]]] = {
        ResourceKind.TOPIC: _of_topic,
        ResourceKind.BROKER: _of_broker,
        ResourceKind.BROKER_LOGGER: _of_loggers,
        ResourceKind.GROUP: _of_group,
    }
    if kind not in described:
        raise RefusedError(ErrorCode.invalid_request, "this node has no client metrics")
    return described[kind](broker, name)


def _of_topic(broker: BrokerContext, name: str) -> list[DescribedConfig]:
    check_topic_name(name)
    topic = broker.topics.topic(name)
    if topic is None:
        raise RefusedError(ErrorCode.unknown_topic_or_partition)
    return describe_topic_configs(topic.configs, broker.dynamic_settings)


def _of_broker(broker: BrokerContext, name: str) -> list[DescribedConfig]:
    if not name:
        return describe_cluster_defaults(broker.dynamic_settings)
    check_node_id(broker, name, kind="Broker", or_empty=" or empty string,")
    listeners = broker.server.listeners
    facts = describe_facts(
        node_id=broker.node_id,
        data=str(broker.data.resolve()),
        listeners=",".join(_address(at.name, at.host, at.port) for at in listeners),
        advertised_listeners=",".join(_address(at.name, *(at.advertised or (at.host, at.port))) for at in listeners),
    )
    found = {fact.name for fact in facts}
    settings = describe_node_configs(broker.dynamic_settings)
    return [*facts, *(setting for setting in settings if setting.name not in found)]


def _address(name: str, host: str, port: int) -> str:
    return f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}"


def _of_loggers(broker: BrokerContext, name: str) -> list[DescribedConfig]:
    if not name:
        raise RefusedError(ErrorCode.invalid_request, "Broker id must not be empty")
    check_node_id(broker, name, kind="Broker", or_empty="")
    return loggers.describe_levels()


def _of_group(broker: BrokerContext, name: str) -> list[DescribedConfig]:
    if not name:
        raise RefusedError(ErrorCode.invalid_request, "Group name must not be empty")
    return describe_group_configs(broker.group_configs(name), broker.dynamic_settings)


def _check_room(config: DescribedConfig, request: DescribeConfigsRequest) -> None:
    """A list that the node was started with may have any length, but clients read no longer strings."""
    values = [config.value, *(synonym.value for synonym in config.synonyms if request.include_synonyms)]
    if not config.sensitive and any(len((value or "").encode()) > MAX_STRING_BYTES for value in values):
        raise RefusedError(
            ErrorCode.invalid_config,
            f"{config.name} has more than {MAX_STRING_BYTES} bytes; ask for the other settings by their names",
        )


def _config(exchange: Exchange, config: DescribedConfig, request: DescribeConfigsRequest) -> Any:
    synonyms = config.synonyms if request.include_synonyms else ()
    return exchange.make(
        "DescribeConfigsResourceResult",
        name=config.name,
        value=None if config.sensitive else config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.sensitive,
        synonyms=tuple(
            exchange.make("DescribeConfigsSynonym", name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ),
        config_type=TYPE_NUMBERS[config.kind],
        documentation=config.doc if getattr(request, "include_documentation", False) else None,
    )
