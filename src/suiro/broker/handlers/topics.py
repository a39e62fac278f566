"""Topics made, grown and deleted: CreateTopics, CreatePartitions and DeleteTopics.

One node holds every partition, so a replication factor of 1 (or -1, the default) is the only one. The coordinators' own
topics keep the partitions they were made with, and stay, although Kafka would delete them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4

from suiro.broker.context import BrokerContext
from suiro.broker.exchange import DENIED, Answer, Exchange, RawResponse
from suiro.broker.handlers.replicas import check_replicas, invalid_assignment
from suiro.broker.quotas.client_quotas import MutationQuota
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.broker.settings.configs import describe_topic_configs
from suiro.broker.storage.topics import METADATA_TOPIC, Topic
from suiro.errors import ConfigError
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
    from kio.schema.create_topics.v7.request import CreateTopicsRequest
    from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as ByNameRequest
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest

MAX_PARTITIONS_A_REQUEST = 10_000
"""New partitions of CreateTopics together, and of each topic in CreatePartitions."""
PARTITIONS_A_STEP = 20
"""Partitions of topics that are created and synced together before other clients have their turn. A topic with more is
created by itself, a partition in each step."""
_TOO_MANY = (ErrorCode.policy_violation, "Excessively large number of partitions per request.")
_FLEXIBLE_SINCE = 5


def _quota(exchange: Exchange, *, strict_since: int) -> MutationQuota:
    quotas, session = exchange.broker.client_quotas, exchange.connection.session
    return quotas.mutations(session, exchange.client_id, strict=exchange.version >= strict_since)


def create_topics(exchange: Exchange, request: CreateTopicsRequest) -> Answer:
    """CreateTopics. One node holds every partition, so a replication factor of 1 (or -1, the default) is the only
    one."""
    broker = exchange.broker
    named = Counter(entry.name for entry in request.topics)
    refused: dict[str, RefusedError] = {}
    wanted = []
    create_any = exchange.permits(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
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
        refused |= {entry.name: RefusedError(*_TOO_MANY) for entry in wanted}
        wanted = []
    # All names are checked before a topic is made: two names of one request may collide, in Kafka too.
    for entry in wanted:
        try:
            _check_name(broker, entry.name)
        except RefusedError as refusal:
            refused[entry.name] = refusal
    results = [exchange.element("topics", _refusal(name, refusal)) for name, refusal in refused.items()]
    left = [entry for entry in wanted if entry.name not in refused]
    return exchange.in_steps(_create_all(exchange, request, left, results))


def _create_all(
    exchange: Exchange, request: CreateTopicsRequest, wanted: Sequence[Any], results: list[bytes]
) -> Generator[None, None, RawResponse]:
    """Create a share of the topics in each step. Each result is encoded at once: with its settings it is long."""
    broker, quota = exchange.broker, _quota(exchange, strict_since=6)
    for some in _shares(broker, wanted):
        while any(broker.topics.is_changing(entry.name) for entry in some):
            yield
        if len(some) == 1 and _partitions_asked(broker, some[0]) > PARTITIONS_A_STEP:
            made = [(yield from _create_large(exchange, some[0], quota, request.validate_only))]
        else:
            made = _create_together(exchange, some, quota, validate_only=request.validate_only)
        results += [exchange.element("topics", result) for result in made]
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
    exchange: Exchange, wanted: Iterable[Any], quota: MutationQuota, *, validate_only: bool
) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    try:
        with exchange.broker.topics.together():
            for entry in wanted:
                try:
                    made.append(_create(exchange, entry, quota, validate_only=validate_only))
                except (RefusedError, StorageError) as error:
                    made.append(_refusal(entry.name, error))
    except StorageError as error:  # none of them is surely on the disk
        made = [_take_back(exchange.broker, result, error) for result in made]
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
) -> Generator[None, None, dict[str, Any]]:
    try:
        partitions, configs = _checked(exchange.broker, entry, quota)
        if validate_only:
            return _created(exchange, entry.name, uuid4(), partitions, configs)
        topic = yield from exchange.broker.creating_topic(entry.name, partitions=partitions, configs=configs)
    except (RefusedError, StorageError) as error:
        return _refusal(entry.name, error)
    return _created(exchange, topic.name, topic.topic_id, len(topic.partitions), topic.configs)


def _create(exchange: Exchange, entry: Any, quota: MutationQuota, *, validate_only: bool) -> dict[str, Any]:
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


def _take_back(broker: BrokerContext, result: dict[str, Any], error: StorageError) -> dict[str, Any]:
    """Delete the topic again if this request created it."""
    name = result["name"]
    topic = broker.topics.topic(name)
    if "error_code" in result or topic is None or topic.topic_id != result["topic_id"]:
        return result
    with contextlib.suppress(StorageError):
        broker.delete_topic(topic)
    return _refusal(name, error)


def _checked_partitions(broker: BrokerContext, entry: Any) -> int:
    factor, partitions = entry.replication_factor, entry.num_partitions
    if entry.assignments:
        return _assigned_partitions(broker, entry)
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
    for value, words in ((entry.replication_factor, "replication factor"), (entry.num_partitions, "numPartitions")):
        if value != -1:
            raise RefusedError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {words} was not set to -1.",
            )
    seen: set[int] = set()
    for assignment in entry.assignments:
        partition = assignment.partition_index
        if partition in seen:
            raise invalid_assignment(f"Found multiple manual partition assignments for partition {partition}")
        check_replicas(assignment.broker_ids, node_id=broker.node_id)
        seen.add(partition)
    if seen != set(range(len(seen))):
        raise invalid_assignment("partitions should be a consecutive 0-based integer sequence")
    return len(seen)


def _refusal(name: str, refusal: RefusedError | StorageError) -> dict[str, Any]:
    return {"name": name, "error_code": refusal.code, "error_message": str(refusal), "configs": ()}


def _created(exchange: Exchange, name: str, topic_id: UUID, partitions: int, configs: dict[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "topic_id": topic_id, "configs": ()}
    if exchange.version < 5:
        return made
    if not exchange.permits(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        return {**made, "topic_config_error_code": ErrorCode.topic_authorization_failed.value}
    described = [
        {
            "name": config.name,
            "value": config.value,
            "read_only": config.read_only,
            "config_source": config.source,
            "is_sensitive": config.sensitive,
        }
        for config in describe_topic_configs(configs, exchange.broker.dynamic_settings)
    ]
    return {**made, "configs": described, "num_partitions": partitions, "replication_factor": 1}


def create_partitions(exchange: Exchange, request: CreatePartitionsRequest) -> Answer:
    """CreatePartitions: a topic can get more partitions, never fewer. The coordinators' own topics keep those they were
    made with."""
    return exchange.in_steps(_grow_all(exchange, request))


def _grow_all(exchange: Exchange, request: CreatePartitionsRequest) -> Generator[None, None, Any]:
    times = Counter(entry.name for entry in request.topics)
    quota = _quota(exchange, strict_since=3)
    results = []
    for entry in {entry.name: entry for entry in request.topics}.values():
        result: dict[str, Any] = {"name": entry.name}
        try:
            if times[entry.name] > 1:
                raise RefusedError(ErrorCode.invalid_request, "Duplicate topic name.")
            if not exchange.may(Operation.ALTER, ResourceType.TOPIC, entry.name):
                raise RefusedError(ErrorCode.topic_authorization_failed)
            yield from _grow(exchange.broker, entry, quota, validate_only=request.validate_only)
        except (RefusedError, StorageError) as error:
            result |= {"error_code": error.code, "error_message": str(error) or None}
        results.append(result)
        yield
    exchange.throttle(quota.throttle_ms)
    return exchange.response(results=results)


def _grow(
    broker: BrokerContext, entry: Any, quota: MutationQuota, *, validate_only: bool
) -> Generator[None, None, None]:
    while broker.topics.is_changing(entry.name):
        yield
    name, count = entry.name, entry.count
    topic = broker.topics.topic(name)
    if topic is None:
        raise RefusedError(ErrorCode.unknown_topic_or_partition)
    have = len(topic.partitions)
    if count == have:
        raise RefusedError(ErrorCode.invalid_partitions, f"Topic already has {have} partition(s).")
    if count < have:
        raise RefusedError(
            ErrorCode.invalid_partitions,
            f"The topic {name} currently has {have} partition(s); {count} would not be an increase.",
        )
    if topic.is_internal:
        raise RefusedError(ErrorCode.invalid_request, f"{name} keeps the partitions it was made with.")
    new = count - have
    if new > MAX_PARTITIONS_A_REQUEST:
        raise RefusedError(*_TOO_MANY)
    if entry.assignments is not None:
        if len(entry.assignments) != new:
            raise invalid_assignment(
                f"Attempted to add {new} additional partition(s), but only {len(entry.assignments)} "
                "assignment(s) were specified."
            )
        for assignment in entry.assignments:
            check_replicas(assignment.broker_ids, node_id=broker.node_id)
    quota.record(new)
    if not validate_only:
        yield from broker.topics.growing(topic, count)


class _RefusedError(RefusedError):
    """`name`: of a topic that was asked for by its id, and that the client may see."""

    def __init__(self, code: ErrorCode, message: str, *, name: str | None = None) -> None:
        super().__init__(code, message)
        self.name = name


_NO_SUCH_TOPIC = (ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
_NO_SUCH_ID = (ErrorCode.unknown_topic_id, "This server does not host this topic ID.")


def delete_topics(exchange: Exchange, request: DeleteTopicsRequest) -> Answer:
    """DeleteTopics, by name or (version 6) by id. The coordinators' own topics stay, which Kafka would delete."""
    wanted: list[tuple[str | None, UUID | None]]
    if exchange.version >= 6:
        wanted = [(state.name, state.topic_id) for state in request.topics]
    else:
        wanted = [(name, None) for name in cast("ByNameRequest", request).topic_names]
    times = Counter(wanted)
    quota = _quota(exchange, strict_since=5)

    def steps() -> Generator[None, None, Any]:
        responses = []
        for name, topic_id in dict.fromkeys(wanted):
            responses.append((yield from _delete(exchange, name, topic_id, times[name, topic_id], quota)))
            yield
        exchange.throttle(quota.throttle_ms)
        return exchange.response(responses=responses)

    return exchange.in_steps(steps())


def _delete(
    exchange: Exchange, name: str | None, topic_id: UUID | None, times: int, quota: MutationQuota
) -> Generator[None, None, dict[str, Any]]:
    refusal: dict[str, Any] = {}
    try:
        topic = _deletable(exchange, name, topic_id, times)
        while exchange.broker.topics.is_changing(topic.name):
            yield
        topic = _deletable(exchange, name, topic_id, times)  # it may be gone by now
        name, topic_id = topic.name, topic.topic_id
        quota.record(len(topic.partitions))
        yield from exchange.broker.deleting_topic(topic)
    except (RefusedError, StorageError) as error:
        refusal = {"error_code": error.code, "error_message": str(error)}
        if name is None and isinstance(error, _RefusedError):
            name = error.name
    return {"name": name, "topic_id": topic_id, **refusal}


def _deletable(exchange: Exchange, name: str | None, topic_id: UUID | None, times: int) -> Topic:
    broker = exchange.broker
    if not broker.settings.delete_topic_enable:
        code = ErrorCode.topic_deletion_disabled if exchange.version >= 3 else ErrorCode.invalid_request
        raise _RefusedError(code, "Topic deletion is disabled.")
    if name is None and topic_id is None:
        raise _RefusedError(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    if name is not None and topic_id is not None:
        raise _RefusedError(ErrorCode.invalid_request, "You may not specify both topic name and topic id.")
    if times > 1:
        what = "name" if name is not None else "id"
        raise _RefusedError(ErrorCode.invalid_request, f"Duplicate topic {what}.")
    if name is None:
        topic = broker.topics.topic_by_id(topic_id)
        if topic is None:
            raise _RefusedError(*_NO_SUCH_ID)
        name = topic.name
    of_all = exchange.permits(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME)
    if not of_all and not exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
        raise _RefusedError(*DENIED[ResourceType.TOPIC])
    topic = broker.topics.topic(name)
    if topic is None:
        raise _RefusedError(*_NO_SUCH_TOPIC)
    if not of_all and not exchange.may(Operation.DELETE, ResourceType.TOPIC, name):
        raise _RefusedError(*DENIED[ResourceType.TOPIC], name=name)
    if topic.is_internal:
        message = f"{name} is this node's own and cannot be deleted."
        raise _RefusedError(ErrorCode.invalid_request, message, name=name)
    return topic
