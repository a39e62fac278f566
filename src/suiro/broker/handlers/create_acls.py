"""CreateAcls: new access control rules; one that is there already is a success."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.connection import BadFrameError
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.security import CLUSTER_NAME, AclAuthorizer, Operation, ResourceType
from suiro.broker.security.acl import Acl, PatternType, Permission
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    acls = [
        Acl(
            kind=ResourceType(creation.resource_type),
            name=creation.resource_name,
            pattern=PatternType(creation.resource_pattern_type),
            principal=creation.principal,
            host=creation.host,
            operation=Operation(creation.operation),
            permission=Permission(creation.permission_type),
        )
        for creation in request.creations
    ]
    for acl in acls:
        if 0 in (acl.kind, acl.pattern, acl.operation, acl.permission):  # Kafka cannot parse it either
            raise BadFrameError(f"a CreateAcls request uses numbers that mean nothing: {acl}")
    if not exchange.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        refusal = ErrorCode.cluster_authorization_failed, "Cluster authorization failed."
        return _response(exchange, [refusal] * len(acls))
    if not isinstance(broker.authorizer, AclAuthorizer):
        refusal = ErrorCode.security_disabled, "No Authorizer is configured."
        return _response(exchange, [refusal] * len(acls))
    problems = [_problem(acl) for acl in acls]
    broker.authorizer.acls.add(acl for acl, problem in zip(acls, problems, strict=True) if problem is None)
    return _response(
        exchange,
        [(ErrorCode.none, None) if text is None else (ErrorCode.invalid_request, text) for text in problems],
    )


def _response(exchange: Exchange, results: list[tuple[ErrorCode, str | None]]) -> Any:
    return exchange.response(
        throttle_time=NO_THROTTLE,
        results=tuple(
            exchange.make("AclCreationResult", error_code=code, error_message=message)
            for code, message in results
        ),
    )


def _problem(acl: Acl) -> str | None:
    if acl.kind is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    if acl.kind is ResourceType.ANY:
        return f"Invalid resourceType {acl.kind.name}"
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern.name}"
    if acl.operation is Operation.ANY:
        return f"Invalid operation {acl.operation.name}"
    if acl.permission is Permission.ANY:
        return f"Invalid permissionType {acl.permission.name}"
    return None
