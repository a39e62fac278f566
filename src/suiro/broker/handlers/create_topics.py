"""CreateTopics. One node holds every partition, so a replication factor of 1 (or -1, the default) is the only one."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.configs import describe_topic_configs
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.topics import InvalidTopicError, Topic, check_topic_name
from suiro.errors import ConfigError
from suiro.protocol.messages import ErrorCode

MAX_PARTITIONS = 10_000


class _RefusedError(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    names = [entry.name for entry in request.topics]
    results = []
    for entry in request.topics:
        try:
            if names.count(entry.name) > 1:
                raise _RefusedError(
                    ErrorCode.invalid_request, f"topic {entry.name} is named twice in the request"
                )
            partitions, configs = _check(broker, entry)
            topic = None
            if not request.validate_only:
                topic = broker.create_topic(entry.name, partitions=partitions, configs=configs)
            results.append(_created(broker, exchange, entry.name, partitions, configs, topic))
        except _RefusedError as refusal:
            results.append(
                exchange.make(
                    "CreatableTopicResult",
                    name=entry.name,
                    topic_id=None,
                    error_code=refusal.code,
                    error_message=str(refusal),
                    configs=None,
                )
            )
    return exchange.response(throttle_time=NO_THROTTLE, topics=tuple(results))


def _check(broker: Broker, entry: Any) -> tuple[int, dict[str, str]]:
    """(partitions, configs) of one topic to create."""
    try:
        check_topic_name(entry.name)
    except InvalidTopicError as error:
        raise _RefusedError(ErrorCode.invalid_topic_exception, str(error)) from None
    if entry.name in broker.topics:
        raise _RefusedError(ErrorCode.topic_already_exists, f"Topic '{entry.name}' already exists.")
    partitions = _assigned(entry) if entry.assignments else entry.num_partitions
    if partitions == -1:
        partitions = broker.settings.num_partitions
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise _RefusedError(
            ErrorCode.invalid_partitions, f"{partitions} partitions: must be between 1 and {MAX_PARTITIONS}"
        )
    if not entry.assignments and entry.replication_factor not in (-1, 1):
        raise _RefusedError(
            ErrorCode.invalid_replication_factor,
            f"replication factor {entry.replication_factor}: a suiro node is one machine, use 1 or -1",
        )
    configs = {config.name: config.value for config in entry.configs if config.value is not None}
    try:
        broker.topics.log_config(configs)
    except ConfigError as error:
        raise _RefusedError(ErrorCode.invalid_config, str(error)) from None
    return partitions, configs


def _assigned(entry: Any) -> int:
    indexes = sorted(assignment.partition_index for assignment in entry.assignments)
    if entry.num_partitions != -1 or entry.replication_factor != -1:
        raise _RefusedError(
            ErrorCode.invalid_request, "with an assignment, partitions and replication factor must be -1"
        )
    if indexes != list(range(len(indexes))) or any(len(a.broker_ids) != 1 for a in entry.assignments):
        raise _RefusedError(
            ErrorCode.invalid_replica_assignment, "partitions must be 0, 1, 2... with one replica each"
        )
    return len(indexes)


def _created(
    broker: Broker,
    exchange: Exchange,
    name: str,
    partitions: int,
    configs: dict[str, str],
    topic: Topic | None,
) -> Any:
    return exchange.make(
        "CreatableTopicResult",
        name=name,
        topic_id=topic.topic_id if topic else None,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=tuple(
            exchange.make(
                "CreatableTopicConfigs",
                name=config.name,
                value=config.value,
                read_only=False,
                config_source=config.source,
                is_sensitive=False,
            )
            for config in describe_topic_configs(configs, broker.settings)
        )
        if exchange.version >= 5
        else None,
    )
