"""Access control: DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.exchange import Answer, Exchange
from suiro.broker.net.connection import BadFrameError
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from suiro.broker.security.authorizer import AclAuthorizer, AclStore
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.request import CreateAclsRequest
    from kio.schema.delete_acls.v3.request import DeleteAclsRequest
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest

_UNKNOWN = 0


def describe_acls(exchange: Exchange, request: DescribeAclsRequest) -> Answer:
    """DescribeAcls: the ACLs that match a filter, by resource."""
    wanted = _filter(request)
    exchange.check_on_cluster(Operation.DESCRIBE)
    by_resource: dict[tuple[ResourceType, str, PatternType], list[Any]] = {}
    for acl in _rules(exchange, "No Authorizer is configured on the broker").matching(wanted):
        by_resource.setdefault((acl.kind, acl.name, acl.pattern), []).append(_entry(acl))
    return exchange.response(
        error_message="",
        resources=[
            {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": acls}
            for (kind, name, pattern), acls in by_resource.items()
        ],
    )


def _entry(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def create_acls(exchange: Exchange, request: CreateAclsRequest) -> Answer:
    """CreateAcls: adds ACLs; an existing one is a success."""
    for item in request.creations:
        _check_known(item.resource_type, item.resource_pattern_type, item.operation, item.permission_type)
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
    try:
        rules = _rules_to_change(exchange)
        if any(_is_a_filters(acl) for acl in acls):  # where one is, Kafka fails with all of them
            return exchange.response(results=[{"error_code": ErrorCode.unknown_server_error}] * len(acls))
        problems = [_problem(acl) for acl in acls]
        rules.add(acl for acl, problem in zip(acls, problems, strict=True) if problem is None)
    except (RefusedError, StorageError) as error:
        return exchange.response(results=[{"error_code": error.code, "error_message": str(error)}] * len(acls))
    return exchange.response(
        results=[
            {"error_message": ""}
            if problem is None
            else {"error_code": ErrorCode.invalid_request, "error_message": problem}
            for problem in problems
        ]
    )


def _is_a_filters(acl: Acl) -> bool:
    """Whether it uses a word that only filters may use."""
    return (
        acl.kind is ResourceType.ANY
        or acl.pattern in (PatternType.ANY, PatternType.MATCH)
        or acl.operation is Operation.ANY
        or acl.permission is Permission.ANY
    )


def _problem(acl: Acl) -> str | None:
    if acl.kind is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    for what, word in (
        ("resourceType", acl.kind),
        ("patternType", acl.pattern),
        ("operation", acl.operation),
        ("permissionType", acl.permission),
    ):
        if word.name == "UNKNOWN":
            return f"Invalid {what} UNKNOWN"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    return None


def delete_acls(exchange: Exchange, request: DeleteAclsRequest) -> Answer:
    """DeleteAcls: deletes the ACLs that match the filters, and lists them."""
    filters = [_filter(item) for item in request.filters]
    try:
        rules = _rules_to_change(exchange)
        found = [rules.matching(wanted) for wanted in filters]  # nothing, where a word is not known
        rules.remove(acl for acls in found for acl in acls)
    except (RefusedError, StorageError) as error:
        refused = {"error_code": error.code, "error_message": str(error)}
        return exchange.response(filter_results=[refused] * len(filters))
    return exchange.response(
        filter_results=[_deleted(wanted, acls) for wanted, acls in zip(filters, found, strict=True)]
    )


def _deleted(wanted: AclFilter, acls: list[Acl]) -> dict[str, Any]:
    if wanted.kind is ResourceType.UNKNOWN or wanted.pattern is PatternType.UNKNOWN:
        return {"error_code": ErrorCode.invalid_request, "error_message": "Unknown patternFilter."}
    if wanted.operation is Operation.UNKNOWN or wanted.permission is Permission.UNKNOWN:
        return {"error_code": ErrorCode.invalid_request, "error_message": "Unknown entryFilter."}
    resources = [
        {"resource_type": acl.kind, "resource_name": acl.name, "pattern_type": acl.pattern, **_entry(acl)}
        for acl in acls
    ]
    return {"matching_acls": resources}


def _check_known(*words: int) -> None:
    """Raises `BadFrameError` if a word is UNKNOWN: Kafka does not parse such a request."""
    if _UNKNOWN in words:
        raise BadFrameError("a request about access control rules has a word that is not known")


def _filter(message: Any) -> AclFilter:
    """The filter of a DeleteAcls or DescribeAcls request."""
    kind, pattern = message.resource_type_filter, message.pattern_type_filter
    _check_known(kind, pattern, message.operation, message.permission_type)
    return AclFilter(
        kind=ResourceType(kind),
        name=message.resource_name_filter,
        pattern=PatternType(pattern),
        principal=message.principal_filter,
        host=message.host_filter,
        operation=Operation(message.operation),
        permission=Permission(message.permission_type),
    )


def _rules_to_change(exchange: Exchange) -> AclStore:
    """The node's rules, if this client may change them and there are any to change. Raises `RefusedError`."""
    exchange.check_on_cluster(Operation.ALTER)
    return _rules(exchange, "No Authorizer is configured.")


def _rules(exchange: Exchange, without: str) -> AclStore:
    if not isinstance(exchange.broker.authorizer, AclAuthorizer):
        raise RefusedError(ErrorCode.security_disabled, without)
    return exchange.broker.authorizer.acls
