"""CreatePartitions: a topic can get more partitions, never fewer. The coordinators' own topics keep those they were
made with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.shared.assignments import check_replicas
from suiro.broker.quotas.client_quotas import MutationQuota
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation, ResourceType
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest


MAX_NEW_PARTITIONS = 10_000


def handle(exchange: Exchange, request: CreatePartitionsRequest) -> Answer:
    return exchange.in_steps(_grow_all(exchange, request))


def _grow_all(exchange: Exchange, request: CreatePartitionsRequest) -> Generator[None, None, Any]:
    times = Counter(entry.name for entry in request.topics)
    session = exchange.connection.session
    quota = exchange.broker.client_quotas.mutations(session, exchange.client_id, strict=exchange.version >= 3)
    results = []
    for entry in {entry.name: entry for entry in request.topics}.values():
        code, message = ErrorCode.none, None
        try:
            if times[entry.name] > 1:
                raise RefusedError(ErrorCode.invalid_request, "Duplicate topic name.")
            if not exchange.may(Operation.ALTER, ResourceType.TOPIC, entry.name):
                raise RefusedError(ErrorCode.topic_authorization_failed)
            yield from _grow(exchange.broker, entry, quota, validate_only=request.validate_only)
        except (RefusedError, StorageError) as error:
            code, message = error.code, str(error) or None
        results.append(
            exchange.make("CreatePartitionsTopicResult", name=entry.name, error_code=code, error_message=message)
        )
        yield
    exchange.throttle(quota.throttle_ms)
    return exchange.response(results=tuple(results))


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
    if new > MAX_NEW_PARTITIONS:
        message = "Excessively large number of partitions per request."
        raise RefusedError(ErrorCode.policy_violation, message)
    if entry.assignments is not None:
        if len(entry.assignments) != new:
            raise RefusedError(
                ErrorCode.invalid_replica_assignment,
                f"Attempted to add {new} additional partition(s), but only {len(entry.assignments)} "
                "assignment(s) were specified.",
            )
        for assignment in entry.assignments:
            check_replicas(assignment.broker_ids, node_id=broker.node_id)
    quota.record(new)
    if not validate_only:
        yield from broker.topics.growing(topic, count)
