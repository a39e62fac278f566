"""FindCoordinator: this node coordinates every group (0) and every transactional id (1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.storage.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as OneCoordinatorRequest
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest


GROUP = 0
TRANSACTION = 1

_RESOURCES = {
    GROUP: (ResourceType.GROUP, ErrorCode.group_authorization_failed, "Group authorization failed."),
    TRANSACTION: (
        ResourceType.TRANSACTIONAL_ID,
        ErrorCode.transactional_id_authorization_failed,
        "Transactional Id authorization failed.",
    ),
}
_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
_FOUND = "NONE"  # Kafka's message of no error
_NOWHERE = {"node_id": -1, "host": "", "port": -1}
_FIRST_VERSION_WITH_BATCHES = 4


def handle(exchange: Exchange, request: FindCoordinatorRequest) -> Answer:
    kind = getattr(request, "key_type", GROUP)
    host, port = exchange.broker.advertised(exchange.connection)
    here = {"node_id": exchange.broker.node_id, "host": host, "port": port}
    if exchange.version < _FIRST_VERSION_WITH_BATCHES:
        one = cast("OneCoordinatorRequest", request)
        code, message = _check(exchange, kind, one.key)
        place = here if code is ErrorCode.none else _NOWHERE
        return exchange.response(error_code=code, error_message=message, **place)
    coordinators = []
    for key in request.coordinator_keys:
        code, _ = _check(exchange, kind, key)
        place = here if code is ErrorCode.none else _NOWHERE
        coordinators.append(exchange.make("Coordinator", key=key, error_code=code, error_message="", **place))
    return exchange.response(coordinators=tuple(coordinators))


def _check(exchange: Exchange, kind: int, key: str) -> tuple[ErrorCode, str]:
    if kind not in _RESOURCES:
        return ErrorCode.invalid_request, f"this node has no coordinator of kind {kind}"
    resource, refusal, message = _RESOURCES[kind]
    if not exchange.may(Operation.DESCRIBE, resource, key):
        return refusal, message
    try:
        exchange.broker.internal_topic(_TOPICS[kind])  # whoever looks for the coordinator finds its topic too
    except StorageError as error:
        return ErrorCode.coordinator_not_available, str(error)
    return ErrorCode.none, _FOUND
