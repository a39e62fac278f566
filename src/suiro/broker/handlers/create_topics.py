"""CreateTopics. One node holds every partition, so a replication factor of 1 (or -1, the default) is the only one."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from suiro.broker.answers import Answer, RawResponse
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.shared.assignments import check_new_topic
from suiro.broker.quotas.client_quotas import MutationQuota
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.broker.settings.configs import describe_topic_configs
from suiro.broker.storage.topics import METADATA_TOPIC
from suiro.errors import ConfigError
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode, write_value

if TYPE_CHECKING:
    from kio.schema.create_topics.v7.request import CreateTopicsRequest


MAX_PARTITIONS_A_REQUEST = 10_000
PARTITIONS_A_STEP = 20
"""Partitions of topics that are created and synced together before other clients have their turn. A topic with more is
created by itself, a partition in each step."""
_FLEXIBLE_SINCE = 5


def handle(exchange: Exchange, request: CreateTopicsRequest) -> Answer:
    broker = exchange.broker
    named = Counter(entry.name for entry in request.topics)
    refused: dict[str, RefusedError] = {}
    wanted = []
    session = exchange.connection.session
    create_any = exchange.permits(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    quota = broker.client_quotas.mutations(session, exchange.client_id, strict=exchange.version >= 6)
    for entry in request.topics:
        name = entry.name
        if named[name] > 1:
            refused[name] = RefusedError(ErrorCode.invalid_request, "Duplicate topic name.")
        elif name == METADATA_TOPIC:
            message = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            refused[name] = RefusedError(ErrorCode.invalid_request, message)
        elif not create_any and not exchange.may(Operation.CREATE, ResourceType.TOPIC, name):
            refused[name] = RefusedError(ErrorCode.topic_authorization_failed, "Authorization failed.")
        else:
            wanted.append(entry)
    if sum(_partitions_asked(broker, entry) for entry in wanted) > MAX_PARTITIONS_A_REQUEST:
        message = "Excessively large number of partitions per request."
        refused |= {entry.name: RefusedError(ErrorCode.policy_violation, message) for entry in wanted}
        wanted = []
    # All names are checked before a topic is made: two names of one request may collide, in Kafka too.
    for entry in wanted:
        try:
            _check_name(broker, entry.name)
        except RefusedError as refusal:
            refused[entry.name] = refusal
    results = [write_value(_refusal(exchange, name, refusal)) for name, refusal in refused.items()]
    left = [entry for entry in wanted if entry.name not in refused]
    return exchange.in_steps(_create_all(exchange, request, left, quota, results))


def _create_all(
    exchange: Exchange,
    request: CreateTopicsRequest,
    wanted: Sequence[Any],
    quota: MutationQuota,
    results: list[bytes],
) -> Generator[None, None, RawResponse]:
    """Create a share of the topics in each step. Each result is encoded at once: with its settings it is long."""
    broker = exchange.broker
    for some in _shares(broker, wanted):
        while any(broker.topics.is_changing(entry.name) for entry in some):
            yield
        if len(some) == 1 and _partitions_asked(broker, some[0]) > PARTITIONS_A_STEP:
            made = [(yield from _create_large(exchange, some[0], quota, request.validate_only))]
        else:
            made = _create_together(exchange, some, quota, validate_only=request.validate_only)
        results += [write_value(result) for result in made]
        yield
    exchange.throttle(quota.throttle_ms)
    return RawResponse.of_results(results, flexible=exchange.version >= _FLEXIBLE_SINCE)


def _shares(broker: BrokerContext, wanted: Sequence[Any]) -> Iterator[list[Any]]:
    share: list[Any] = []
    partitions = 0
    for entry in wanted:
        asked = _partitions_asked(broker, entry)
        if share and asked > PARTITIONS_A_STEP:
            yield share
            share, partitions = [], 0
        share.append(entry)
        partitions += asked
        if partitions >= PARTITIONS_A_STEP:
            yield share
            share, partitions = [], 0
    if share:
        yield share


def _create_together(
    exchange: Exchange,
    wanted: Iterable[Any],
    quota: MutationQuota,
    *,
    validate_only: bool,
) -> list[Any]:
    made: list[Any] = []
    try:
        with exchange.broker.topics.together():
            for entry in wanted:
                try:
                    made.append(_create(exchange, entry, quota, validate_only=validate_only))
                except (RefusedError, StorageError) as error:
                    made.append(_refusal(exchange, entry.name, error))
    except StorageError as error:  # none of them is surely on the disk
        made = [_take_back(exchange, result, error) for result in made]
    return made


def _partitions_asked(broker: BrokerContext, entry: Any) -> int:
    if entry.assignments:
        return len(entry.assignments)
    return broker.settings.num_partitions if entry.num_partitions == -1 else max(entry.num_partitions, 0)


def _already_exists(name: str) -> RefusedError:
    return RefusedError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")


def _check_name(broker: BrokerContext, name: str) -> None:
    if name in broker.topics:
        raise _already_exists(name)
    broker.topics.check_new_name(name)


def _create_large(
    exchange: Exchange, entry: Any, quota: MutationQuota, validate_only: bool
) -> Generator[None, None, Any]:
    try:
        partitions, configs = _checked(exchange.broker, entry, quota)
        if validate_only:
            return _created(exchange, entry.name, uuid4(), partitions, configs)
        topic = yield from exchange.broker.creating_topic(entry.name, partitions=partitions, configs=configs)
    except (RefusedError, StorageError) as error:
        return _refusal(exchange, entry.name, error)
    return _created(exchange, topic.name, topic.topic_id, len(topic.partitions), topic.configs)


def _create(exchange: Exchange, entry: Any, quota: MutationQuota, *, validate_only: bool) -> Any:
    partitions, configs = _checked(exchange.broker, entry, quota)
    topic_id = uuid4()
    if not validate_only:
        topic = exchange.broker.create_topic(entry.name, partitions=partitions, configs=configs)
        topic_id, partitions, configs = topic.topic_id, len(topic.partitions), topic.configs
    return _created(exchange, entry.name, topic_id, partitions, configs)


def _checked(broker: BrokerContext, entry: Any, quota: MutationQuota) -> tuple[int, dict[str, str]]:
    """The number of partitions, and the settings. Raises `RefusedError`."""
    if entry.name in broker.topics:  # another client was faster
        raise _already_exists(entry.name)
    nulls = [config.name for config in entry.configs if config.value is None]
    if nulls:
        message = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise RefusedError(ErrorCode.invalid_config, message)
    configs = {config.name: config.value for config in entry.configs}
    try:
        broker.topics.check_configs(configs)
    except ConfigError as error:
        raise RefusedError(ErrorCode.invalid_config, str(error)) from None
    partitions = _checked_partitions(broker, entry)
    quota.record(partitions)
    return partitions, configs


def _take_back(exchange: Exchange, result: Any, error: StorageError) -> Any:
    """Delete the topic again if this request created it."""
    topic = exchange.broker.topics.topic(result.name)
    if result.error_code is not ErrorCode.none or topic is None or topic.topic_id != result.topic_id:
        return result
    with contextlib.suppress(StorageError):
        exchange.broker.delete_topic(topic)
    return _refusal(exchange, result.name, error)


def _checked_partitions(broker: BrokerContext, entry: Any) -> int:
    if entry.assignments:
        return _assigned_partitions(broker, entry)
    factor, partitions = entry.replication_factor, entry.num_partitions
    if factor < -1 or factor == 0:
        raise RefusedError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions < -1 or partitions == 0:
        raise RefusedError(
            ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
        )
    if factor > 1:
        raise RefusedError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
            "cannot be reached because only 1 broker(s) are registered: a suiro node is one.",
        )
    return broker.settings.num_partitions if partitions == -1 else int(partitions)


def _assigned_partitions(broker: BrokerContext, entry: Any) -> int:
    for value, words in (
        (entry.replication_factor, "replication factor"),
        (entry.num_partitions, "numPartitions"),
    ):
        if value != -1:
            raise RefusedError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {words} was not set to -1.",
            )
    assignments = [(assignment.partition_index, assignment.broker_ids) for assignment in entry.assignments]
    return check_new_topic(assignments, node_id=broker.node_id)


def _refusal(exchange: Exchange, name: str, refusal: RefusedError | StorageError) -> Any:
    return exchange.make(
        "CreatableTopicResult",
        name=name,
        topic_id=None,
        error_code=refusal.code,
        error_message=str(refusal),
        configs=(),
    )


def _created(exchange: Exchange, name: str, topic_id: UUID, partitions: int, configs: dict[str, str]) -> Any:
    made: dict[str, Any] = {
        "name": name,
        "topic_id": topic_id,
        "error_code": ErrorCode.none,
        "error_message": None,
        "configs": (),
    }
    if exchange.version < 5:
        return exchange.make("CreatableTopicResult", **made)
    if not exchange.permits(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        hidden = ErrorCode.topic_authorization_failed.value
        return exchange.make("CreatableTopicResult", **made, topic_config_error_code=hidden)
    made["configs"] = tuple(
        exchange.make(
            "CreatableTopicConfigs",
            name=config.name,
            value=config.value,
            read_only=config.read_only,
            config_source=config.source,
            is_sensitive=config.sensitive,
        )
        for config in describe_topic_configs(configs, exchange.broker.dynamic_settings)
    )
    return exchange.make("CreatableTopicResult", **made, num_partitions=partitions, replication_factor=1)
