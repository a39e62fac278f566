"""DeleteAcls: the access control rules that filters take are gone; the answer lists them."""

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
    for item in request.filters:
        if 0 in (  # "unknown": Kafka takes no such request apart
            item.resource_type_filter,
            item.pattern_type_filter,
            item.operation,
            item.permission_type,
        ):
            raise BadFrameError(f"a DeleteAcls request asks for what is unknown: {item}")
    filters = [
        AclFilter(
            kind=ResourceType(item.resource_type_filter),
            name=item.resource_name_filter,
            pattern=PatternType(item.pattern_type_filter),
            principal=item.principal_filter,
            host=item.host_filter,
            operation=Operation(item.operation),
            permission=Permission(item.permission_type),
        )
        for item in request.filters
    ]
    if not exchange.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        code, message = ErrorCode.cluster_authorization_failed, "Cluster authorization failed."
        return _response(exchange, [_refused(exchange, code, message) for _ in filters])
    if not isinstance(broker.authorizer, AclAuthorizer):
        code, message = ErrorCode.security_disabled, "No Authorizer is configured."
        return _response(exchange, [_refused(exchange, code, message) for _ in filters])
    store = broker.authorizer.acls
    found = [store.matching(wanted) for wanted in filters]  # nothing, where a word is not known
    store.remove(acl for acls in found for acl in acls)
    results = []
    for wanted, acls in zip(filters, found, strict=True):
        problem = _problem(wanted)
        if problem is not None:
            results.append(_refused(exchange, ErrorCode.invalid_request, problem))
        else:
            results.append(_deleted(exchange, acls))
    return _response(exchange, results)


def _problem(wanted: AclFilter) -> str | None:
    if wanted.kind is ResourceType.UNKNOWN or wanted.pattern is PatternType.UNKNOWN:
        return "Unknown patternFilter."
    if wanted.operation is Operation.UNKNOWN or wanted.permission is Permission.UNKNOWN:
        return "Unknown entryFilter."
    return None


def _response(exchange: Exchange, results: list[Any]) -> Any:
    return exchange.response(throttle_time=NO_THROTTLE, filter_results=tuple(results))


def _refused(exchange: Exchange, code: ErrorCode, message: str) -> Any:
    return exchange.make("DeleteAclsFilterResult", error_code=code, error_message=message, matching_acls=())


def _deleted(exchange: Exchange, acls: list[Acl]) -> Any:
    return exchange.make(
        "DeleteAclsFilterResult",
        error_code=ErrorCode.none,
        error_message=None,
        matching_acls=tuple(
            exchange.make(
                "DeleteAclsMatchingAcl",
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=acl.kind,
                resource_name=acl.name,
                pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ),
    )
