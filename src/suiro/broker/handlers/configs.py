"""Settings of topics, of this node, of the cluster as a whole and of groups, and log levels: described and altered.

AlterConfigs and IncrementalAlterConfigs differ in how a request gives the new content of a resource. It is checked,
stored and applied in the same way: all changes that a request makes to one resource, or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from suiro.broker.context import BrokerContext
from suiro.broker.exchange import DENIED, Answer, Exchange, RawResponse, Response
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.broker.settings.configs import (
    ROOT_LOGGER,
    TYPE_NUMBERS,
    DescribedConfig,
    LevelChange,
    ResourceKind,
    check_group_configs,
    check_level,
    describe_cluster_defaults,
    describe_facts,
    describe_group_configs,
    describe_levels,
    describe_node_configs,
    describe_topic_configs,
    set_level,
    text_of,
)
from suiro.broker.settings.dynamic_settings import Layer
from suiro.broker.settings.features import ELIGIBLE_LEADERS
from suiro.broker.settings.kafka_settings import ALTERABLE
from suiro.broker.storage.topics import check_topic_name
from suiro.config import TOPIC_SETTINGS, node_setting_names, topic_settings
from suiro.config import kind as kind_of_setting
from suiro.errors import ConfigError
from suiro.log import StorageError
from suiro.protocol.fields import MAX_STRING_BYTES
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.alter_configs.v2.request import AlterConfigsRequest
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest
    from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest
    from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest

_MakeContent = Callable[[Mapping[str, str]], dict[str, str]]
_DURABILITY = "min.insync.replicas"
_FLEXIBLE_SINCE = 4
_KINDS = frozenset(kind.value for kind in ResourceKind)
_DENIALS = frozenset(code for code, _ in DENIED.values())


def list_config_resources(exchange: Exchange, request: ListConfigResourcesRequest) -> Answer:
    """ListConfigResources: the resources that have settings. Version 0 asks for client metrics only, of which a node
    has none."""
    broker = exchange.broker
    exchange.check_on_cluster(Operation.DESCRIBE_CONFIGS)
    wanted = set(request.resource_types) if exchange.version >= 1 else {ResourceKind.CLIENT_METRICS}
    if not wanted <= set(ResourceKind):
        raise RefusedError(ErrorCode.unsupported_version)
    me = (str(broker.node_id),)
    names: dict[ResourceKind, tuple[str, ...]] = {
        ResourceKind.GROUP: broker.groups_with_configs(),
        ResourceKind.CLIENT_METRICS: (),
        ResourceKind.BROKER_LOGGER: me,
        ResourceKind.BROKER: me,
        ResourceKind.TOPIC: tuple(topic.name for topic in broker.topics),
    }
    return exchange.response(
        config_resources=[
            {"resource_name": name, "resource_type": kind}
            for kind, all_names in names.items()
            if not wanted or kind in wanted
            for name in all_names
        ]
    )


def _check_may(exchange: Exchange, operation: Operation, kind: ResourceKind, name: str) -> None:
    """Whether the client may do this to a resource's settings. Raises `RefusedError`."""
    match kind:
        case ResourceKind.TOPIC:
            exchange.check(operation, ResourceType.TOPIC, name)
        case ResourceKind.GROUP:
            exchange.check(operation, ResourceType.GROUP, name)
        case _:
            exchange.check(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def _check_node_id(broker: BrokerContext, name: str, *, kind: str = "Node", or_empty: str = ",") -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise _invalid(f"{kind} id must be an integer, but it is: {name}") from None
    if node_id != broker.node_id:
        raise _invalid(f"Unexpected broker id, expected {broker.node_id}{or_empty} but received {name}")


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_request, message)


def describe_configs(exchange: Exchange, request: DescribeConfigsRequest) -> Answer:
    """DescribeConfigs: the settings of topics, of this node, of the cluster as a whole, of groups, and log levels."""
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
                raise _invalid("the request asks for an unknown kind of resource")
            kind = ResourceKind(resource.resource_type)
            _check_may(exchange, Operation.DESCRIBE_CONFIGS, kind, resource.resource_name)
            wanted = frozenset(resource.configuration_keys or ())
            found = _describe(exchange.broker, kind, resource.resource_name)
            configs = [config for config in found if not wanted or config.name in wanted]
            for config in configs:
                _check_room(config, request)
        except RefusedError as refusal:
            code, message, configs = refusal.code, str(refusal), []
        result = {
            "error_code": code,
            "error_message": message,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": [_config(config, request) for config in configs],
        }
        (refused if code in _DENIALS else allowed).append(exchange.element("results", result))
        yield
    return RawResponse.of_results([*allowed, *refused], flexible=exchange.version >= _FLEXIBLE_SINCE)


def _describe(broker: BrokerContext, kind: ResourceKind, name: str) -> list[DescribedConfig]:
    match kind:
        case ResourceKind.TOPIC:
            check_topic_name(name)
            topic = broker.topics.topic(name)
            if topic is None:
                raise RefusedError(ErrorCode.unknown_topic_or_partition)
            return describe_topic_configs(topic.configs, broker.dynamic_settings)
        case ResourceKind.BROKER if not name:
            return describe_cluster_defaults(broker.dynamic_settings)
        case ResourceKind.BROKER:
            return _describe_node(broker, name)
        case ResourceKind.BROKER_LOGGER:
            if not name:
                raise _invalid("Broker id must not be empty")
            _check_node_id(broker, name, kind="Broker", or_empty="")
            return describe_levels()
        case ResourceKind.GROUP:
            if not name:
                raise _invalid("Group name must not be empty")
            return describe_group_configs(broker.group_configs(name), broker.dynamic_settings)
    raise _invalid("this node has no client metrics")


def _describe_node(broker: BrokerContext, name: str) -> list[DescribedConfig]:
    _check_node_id(broker, name, kind="Broker", or_empty=" or empty string,")
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


def _check_room(config: DescribedConfig, request: DescribeConfigsRequest) -> None:
    """A list that the node was started with may have any length, but clients read no longer strings."""
    values = [config.value, *(synonym.value for synonym in config.synonyms if request.include_synonyms)]
    if not config.sensitive and any(len((value or "").encode()) > MAX_STRING_BYTES for value in values):
        raise RefusedError(
            ErrorCode.invalid_config,
            f"{config.name} has more than {MAX_STRING_BYTES} bytes; ask for the other settings by their names",
        )


def _config(config: DescribedConfig, request: DescribeConfigsRequest) -> dict[str, Any]:
    synonyms = config.synonyms if request.include_synonyms else ()
    return {
        "name": config.name,
        "value": None if config.sensitive else config.value,
        "read_only": config.read_only,
        "config_source": config.source,
        "is_sensitive": config.sensitive,
        "synonyms": [{"name": one.name, "value": one.value, "source": one.source} for one in synonyms],
        "config_type": TYPE_NUMBERS[config.kind],
        "documentation": config.doc if getattr(request, "include_documentation", False) else None,
    }


def alter_configs(exchange: Exchange, request: AlterConfigsRequest) -> Answer:
    """AlterConfigs: replaces the settings of a resource; settings that are not named get their defaults."""

    def alter(resource: Any) -> None:
        _refuse_nulls(config.name for config in resource.configs if config.value is None)
        kind, name = _kind_of(resource.resource_type), resource.resource_name
        if kind is ResourceKind.BROKER_LOGGER:
            raise _invalid(f"Unknown resource type {kind.value}")
        _check_may(exchange, Operation.ALTER_CONFIGS, kind, name)
        content = {config.name: config.value for config in resource.configs}
        _alter(exchange.broker, kind, name, lambda _: content, validate_only=request.validate_only)

    return exchange.in_steps(_answer_each(exchange, request.resources, alter))


class _Op(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def incremental_alter_configs(exchange: Exchange, request: IncrementalAlterConfigsRequest) -> Answer:
    """IncrementalAlterConfigs: sets or resets single settings of a resource, or adds items to lists and removes
    them."""
    broker, validate_only = exchange.broker, request.validate_only

    def alter(resource: Any) -> None:
        changes, name = resource.configs, resource.resource_name
        _refuse_nulls(c.name for c in changes if c.config_operation != _Op.DELETE and c.value is None)
        kind = _kind_of(resource.resource_type)
        for change in changes:
            if change.config_operation not in tuple(_Op):
                raise _invalid(f"Unknown operations type {change.config_operation}")
        _check_may(exchange, Operation.ALTER_CONFIGS, kind, name)
        if kind is ResourceKind.BROKER_LOGGER:
            _alter_levels(broker, name, changes, validate_only=validate_only)
        else:
            _alter(broker, kind, name, lambda had: _changed(broker, kind, had, changes), validate_only=validate_only)

    return exchange.in_steps(_answer_each(exchange, request.resources, alter))


def _answer_each(
    exchange: Exchange, resources: Iterable[Any], alter: Callable[[Any], None]
) -> Generator[None, None, Response]:
    """One result for each resource of a request: `alter` raises `RefusedError` or `StorageError` for those that stay as
    they are. Each is synced to disk by itself, in a step of its own."""
    resources = tuple(resources)
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results = []
    for resource in resources:
        result = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise _invalid("Each resource must appear at most once.")
            if max(Counter(config.name for config in resource.configs).values(), default=0) > 1:
                raise _invalid("Error due to duplicate config keys")
            alter(resource)
        except (RefusedError, StorageError) as error:
            result |= {"error_code": error.code, "error_message": str(error)}
        results.append(result)
        yield
    return exchange.response(responses=results)


def _refuse_nulls(names: Iterable[str]) -> None:
    found = ", ".join(names)
    if found:
        raise _invalid(f"Null value not supported for : {found}")


def _kind_of(number: int) -> ResourceKind:
    if number == ResourceKind.CLIENT_METRICS:
        raise _invalid("This node does not support client metrics (KIP-714)")
    if number not in _KINDS:
        raise _invalid(f"Unknown resource type {number}")
    return ResourceKind(number)


def _changed(broker: BrokerContext, kind: ResourceKind, content: Mapping[str, str], changes: Any) -> dict[str, str]:
    changed = dict(content)
    for change in changes:
        match change.config_operation:
            case _Op.SET:
                changed[change.name] = change.value
            case _Op.DELETE:
                changed.pop(change.name, None)
            case operation:
                default = _list_default(broker, kind, change.name)
                if default is None:
                    raise RefusedError(
                        ErrorCode.invalid_config,
                        f"Can't {_Op(operation).name} to key {change.name} because its type is not LIST.",
                    )
                before = [part for part in _parts(changed.get(change.name, default)) if part]
                given = _parts(change.value)
                if operation == _Op.APPEND:
                    known = set(before)
                    after = [*before, *(part for part in given if part not in known)]
                else:
                    gone = set(given)
                    after = [part for part in before if part not in gone]
                changed[change.name] = text = ",".join(after)
                # No answer of DescribeConfigs could hold it. What an earlier build has stored may become shorter.
                if operation == _Op.APPEND and len(text.encode()) > MAX_STRING_BYTES:
                    raise RefusedError(
                        ErrorCode.invalid_config, f"{change.name} has more than {MAX_STRING_BYTES} bytes then"
                    )
    return changed


def _parts(text: str) -> list[str]:
    """As Java splits: a last comma adds nothing, but an empty text is one empty part, which no list takes."""
    parts = [part.strip() for part in text.split(",")]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _list_default(broker: BrokerContext, kind: ResourceKind, name: str) -> str | None:
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


def _alter_levels(broker: BrokerContext, name: str, changes: Any, *, validate_only: bool) -> None:
    _check_node_id(broker, name)
    checked: list[tuple[str, LevelChange, str | None]] = []
    for change in changes:
        match change.config_operation:
            case _Op.SET:
                checked.append((change.name, "set", change.value))
            case _Op.DELETE:
                if change.name == ROOT_LOGGER:
                    raise _invalid("Removing the log level of the root logger is not allowed")
                checked.append((change.name, "delete", None))
            case operation:
                raise _invalid(f"{_Op(operation).name} operation is not allowed for the BROKER_LOGGER resource")
    try:
        for one in checked:
            check_level(*one)
    except ConfigError as error:
        raise RefusedError(ErrorCode.invalid_config, str(error)) from None
    if not validate_only:
        for one in checked:
            set_level(*one)


def _alter(
    broker: BrokerContext, kind: ResourceKind, name: str, make_content: _MakeContent, *, validate_only: bool
) -> None:
    """Give a topic, the node, the cluster's default or a group the content that `make_content` makes of the one it
    has. Raises `RefusedError` and `StorageError`, and then nothing has changed."""
    alter = {ResourceKind.TOPIC: _alter_topic, ResourceKind.BROKER: _alter_node, ResourceKind.GROUP: _alter_group}
    alter[kind](broker, name, make_content, validate_only=validate_only)


def _alter_topic(broker: BrokerContext, name: str, make_content: _MakeContent, *, validate_only: bool) -> None:
    if not name:
        raise _invalid("Default topic resources are not allowed.")
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


def _alter_node(broker: BrokerContext, name: str, make_content: _MakeContent, *, validate_only: bool) -> None:
    layer: Layer = "default"
    if name:
        _check_node_id(broker, name)
        layer = "broker"
    before = broker.dynamic_settings.layer(layer)
    content = make_content(before)
    try:
        broker.check_settings(broker.dynamic_settings.checked(layer, content))
    except ConfigError as error:
        raise _invalid(str(error)) from None
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


def _alter_group(broker: BrokerContext, name: str, make_content: _MakeContent, *, validate_only: bool) -> None:
    if not name:
        raise _invalid("Default group resources are not allowed.")
    content = {key: text.strip() for key, text in make_content(broker.group_configs(name)).items()}
    try:
        check_group_configs(content, broker.settings)
    except ConfigError as error:
        raise RefusedError(ErrorCode.invalid_config, str(error)) from None
    if not validate_only:
        broker.replace_group_configs(name, content)
