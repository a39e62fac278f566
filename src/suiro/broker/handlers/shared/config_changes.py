"""The common part of AlterConfigs and IncrementalAlterConfigs: a resource's settings get a new content, or a refusal.

The two differ in how a request gives the new content. It is checked, stored and applied in the same way: all changes
that a request makes to one resource, or none. DescribeConfigs uses `check_may` too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Response
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.broker.settings.configs import ResourceKind, check_group_configs, text_of
from suiro.broker.settings.dynamic_settings import Layer
from suiro.broker.settings.features import ELIGIBLE_LEADERS
from suiro.broker.settings.kafka_settings import ALTERABLE
from suiro.broker.storage.topics import check_topic_name
from suiro.config import TOPIC_SETTINGS, node_setting_names, topic_settings
from suiro.config import kind as kind_of_setting
from suiro.errors import ConfigError
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker.context import BrokerContext
    from suiro.broker.exchange import Exchange

MakeContent = Callable[[Mapping[str, str]], dict[str, str]]
_DURABILITY = "min.insync.replicas"
DENIALS = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
}


def answer_each(
    exchange: Exchange, resources: Iterable[Any], alter: Callable[[Any], None]
) -> Generator[None, None, Response]:
    """One result for each resource of a request: `alter` raises `RefusedError` or `StorageError` for those that stay as
    they are. Each is synced to disk by itself, in a step of its own."""
    resources = tuple(resources)
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results = []
    for resource in resources:
        code, message = ErrorCode.none, None
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise RefusedError(ErrorCode.invalid_request, "Each resource must appear at most once.")
            if max(Counter(config.name for config in resource.configs).values(), default=0) > 1:
                raise RefusedError(ErrorCode.invalid_request, "Error due to duplicate config keys")
            alter(resource)
        except (RefusedError, StorageError) as error:
            code, message = error.code, str(error)
        results.append(
            exchange.make(
                "AlterConfigsResourceResponse",
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
        yield
    return exchange.response(responses=tuple(results))


def refuse_nulls(names: Iterable[str]) -> None:
    found = ", ".join(names)
    if found:
        raise RefusedError(ErrorCode.invalid_request, f"Null value not supported for : {found}")


def kind_of(number: int) -> ResourceKind:
    if number == ResourceKind.CLIENT_METRICS:
        raise RefusedError(ErrorCode.invalid_request, "This node does not support client metrics (KIP-714)")
    if number not in (
        ResourceKind.TOPIC,
        ResourceKind.BROKER,
        ResourceKind.BROKER_LOGGER,
        ResourceKind.GROUP,
    ):
        raise RefusedError(ErrorCode.invalid_request, f"Unknown resource type {number}")
    return ResourceKind(number)


def check_may(exchange: Exchange, operation: Operation, kind: ResourceKind, name: str) -> None:
    """Whether the client may do this to a resource's settings. Raises `RefusedError` with one of `DENIALS`."""
    match kind:
        case ResourceKind.TOPIC:
            guarded, named = ResourceType.TOPIC, name
        case ResourceKind.GROUP:
            guarded, named = ResourceType.GROUP, name
        case _:
            guarded, named = ResourceType.CLUSTER, CLUSTER_NAME
    if not exchange.may(operation, guarded, named):
        raise RefusedError(DENIALS[guarded], f"{guarded.name.capitalize()} authorization failed.")


def check_node_id(broker: BrokerContext, name: str, *, kind: str = "Node", or_empty: str = ",") -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise RefusedError(ErrorCode.invalid_request, f"{kind} id must be an integer, but it is: {name}") from None
    if node_id != broker.node_id:
        raise RefusedError(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {broker.node_id}{or_empty} but received {name}",
        )


def alter_settings(
    broker: BrokerContext, kind: ResourceKind, name: str, make_content: MakeContent, *, validate_only: bool
) -> None:
    """Give a topic, the node, the cluster's default or a group the content that `make_content` makes of the one it
    has. Raises `RefusedError` and `StorageError`, and then nothing has changed."""
    match kind:
        case ResourceKind.TOPIC:
            _alter_topic(broker, name, make_content, validate_only=validate_only)
        case ResourceKind.BROKER:
            _alter_node(broker, name, make_content, validate_only=validate_only)
        case ResourceKind.GROUP:
            _alter_group(broker, name, make_content, validate_only=validate_only)
        case _:
            raise RefusedError(ErrorCode.invalid_request, f"Unknown resource type {kind.value}")


def list_default(broker: BrokerContext, kind: ResourceKind, name: str) -> str | None:
    """The list that an unset setting adds to. None: this setting is not a list."""
    settings = broker.dynamic_settings.static
    match kind:
        case ResourceKind.TOPIC:
            if name in TOPIC_SETTINGS and TOPIC_SETTINGS[name].type == "LIST":
                node_name = topic_settings().get(name)
                return text_of(settings.value(node_name)) if node_name else TOPIC_SETTINGS[name].default
        case ResourceKind.BROKER:
            if name in node_setting_names() and kind_of_setting(name) == "LIST":
                return text_of(settings.value(name))
            if name in ALTERABLE and ALTERABLE[name].kind == "LIST":
                return ALTERABLE[name].default or ""
    return None


def _alter_topic(broker: BrokerContext, name: str, make_content: MakeContent, *, validate_only: bool) -> None:
    if not name:
        raise RefusedError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
    check_topic_name(name)
    topic = broker.topics.topic(name)
    content = make_content(topic.configs if topic else {})
    try:
        broker.topics.check_configs(content, topic)
    except ConfigError as error:
        raise RefusedError(ErrorCode.invalid_config, str(error)) from None
    if topic is None:
        raise RefusedError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
    if not validate_only:
        broker.topics.alter_configs(topic, content)


def _alter_node(broker: BrokerContext, name: str, make_content: MakeContent, *, validate_only: bool) -> None:
    layer: Layer = "default"
    if name:
        check_node_id(broker, name)
        layer = "broker"
    before = broker.dynamic_settings.layer(layer)
    content = make_content(before)
    try:
        broker.check_settings(broker.dynamic_settings.checked(layer, content))
    except ConfigError as error:
        raise RefusedError(ErrorCode.invalid_request, str(error)) from None
    if broker.features.finalized[ELIGIBLE_LEADERS] > 0:
        _check_durability(layer, before, content)
    if not validate_only:
        broker.replace_settings(content, layer=layer)


def _check_durability(layer: Layer, before: Mapping[str, str], content: Mapping[str, str]) -> None:
    """KIP-966: `min.insync.replicas` is set for the whole cluster, and always set."""
    if layer == "broker" and content.get(_DURABILITY) != before.get(_DURABILITY):
        raise RefusedError(
            ErrorCode.invalid_config, f"Broker-level {_DURABILITY} cannot be altered while ELR is enabled."
        )
    if layer == "default" and _DURABILITY not in content:
        raise RefusedError(
            ErrorCode.invalid_config, f"Cluster-level {_DURABILITY} cannot be removed while ELR is enabled."
        )


def _alter_group(broker: BrokerContext, name: str, make_content: MakeContent, *, validate_only: bool) -> None:
    if not name:
        raise RefusedError(ErrorCode.invalid_request, "Default group resources are not allowed.")
    content = {key: text.strip() for key, text in make_content(broker.group_configs(name)).items()}
    try:
        check_group_configs(content, broker.settings)
    except ConfigError as error:
        raise RefusedError(ErrorCode.invalid_config, str(error)) from None
    if not validate_only:
        broker.replace_group_configs(name, content)
