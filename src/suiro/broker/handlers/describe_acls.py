"""DescribeAcls: the access control rules that a filter takes, by resource."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.connection import BadFrameError
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.security import CLUSTER_NAME, AclAuthorizer, Operation, ResourceType
from suiro.broker.security.acl import Acl, AclFilter, PatternType, Permission
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    if 0 in (  # "unknown": Kafka takes no such request apart
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    ):
        raise BadFrameError(f"a DescribeAcls request asks for what is unknown: {request}")
    wanted = AclFilter(
        kind=ResourceType(request.resource_type_filter),
        name=request.resource_name_filter,
        pattern=PatternType(request.pattern_type_filter),
        principal=request.principal_filter,
        host=request.host_filter,
        operation=Operation(request.operation),
        permission=Permission(request.permission_type),
    )
    if not exchange.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return _refusal(exchange, ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
    if not isinstance(broker.authorizer, AclAuthorizer):
        return _refusal(exchange, ErrorCode.security_disabled, "No Authorizer is configured on the broker")
    by_resource: dict[tuple[ResourceType, str, PatternType], list[Acl]] = {}
    for acl in broker.authorizer.acls.matching(wanted):
        by_resource.setdefault((acl.kind, acl.name, acl.pattern), []).append(acl)
    resources = tuple(
        exchange.make(
            "DescribeAclsResource",
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern,
            acls=tuple(
                exchange.make(
                    "AclDescription",
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in acls
            ),
        )
        for (kind, name, pattern), acls in by_resource.items()
    )
    return exchange.response(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message="", resources=resources
    )


def _refusal(exchange: Exchange, code: ErrorCode, message: str) -> Any:
    return exchange.response(throttle_time=NO_THROTTLE, error_code=code, error_message=message, resources=())
