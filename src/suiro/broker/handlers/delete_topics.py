"""DeleteTopics, by name or (version 6) by id. The coordinators' own topics stay, which Kafka would delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.quotas.client_quotas import MutationQuota
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.broker.storage.topics import Topic
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as ByNameRequest
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest


class _RefusedError(RefusedError):
    """`name`: of a topic that was asked for by its id, and that the client may see."""

    def __init__(self, code: ErrorCode, message: str, *, name: str | None = None) -> None:
        super().__init__(code, message)
        self.name = name


_NO_SUCH_TOPIC = (ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
_NO_SUCH_ID = (ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
_DENIED = (ErrorCode.topic_authorization_failed, "Topic authorization failed.")


def handle(exchange: Exchange, request: DeleteTopicsRequest) -> Answer:
    wanted: list[tuple[str | None, UUID | None]]
    if exchange.version >= 6:
        wanted = [(state.name, state.topic_id) for state in request.topics]
    else:
        wanted = [(name, None) for name in cast("ByNameRequest", request).topic_names]
    times = Counter(wanted)
    session = exchange.connection.session
    quota = exchange.broker.client_quotas.mutations(session, exchange.client_id, strict=exchange.version >= 5)

    def steps() -> Generator[None, None, Any]:
        responses = []
        for name, topic_id in dict.fromkeys(wanted):
            responses.append((yield from _answer(exchange, name, topic_id, times[name, topic_id], quota)))
            yield
        exchange.throttle(quota.throttle_ms)
        return exchange.response(responses=tuple(responses))

    return exchange.in_steps(steps())


def _answer(
    exchange: Exchange,
    name: str | None,
    topic_id: UUID | None,
    times: int,
    quota: MutationQuota,
) -> Generator[None, None, Any]:
    code, message = ErrorCode.none, None
    try:
        topic = _deletable(exchange, name, topic_id, times)
        while exchange.broker.topics.is_changing(topic.name):
            yield
        topic = _deletable(exchange, name, topic_id, times)  # it may be gone by now
        name, topic_id = topic.name, topic.topic_id
        quota.record(len(topic.partitions))
        yield from exchange.broker.deleting_topic(topic)
    except (RefusedError, StorageError) as error:
        code, message = error.code, str(error)
        if name is None and isinstance(error, _RefusedError):
            name = error.name
    return exchange.make("DeletableTopicResult", name=name, topic_id=topic_id, error_code=code, error_message=message)


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
        raise _RefusedError(*_DENIED)
    topic = broker.topics.topic(name)
    if topic is None:
        raise _RefusedError(*_NO_SUCH_TOPIC)
    if not of_all and not exchange.may(Operation.DELETE, ResourceType.TOPIC, name):
        raise _RefusedError(*_DENIED, name=name)
    if topic.is_internal:
        message = f"{name} is this node's own and cannot be deleted."
        raise _RefusedError(ErrorCode.invalid_request, message, name=name)
    return topic
