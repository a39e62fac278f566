"""DescribeAcls: the ACLs that match a filter, by resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer, Response
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.shared.acl_requests import read_filter
from suiro.broker.security.acl import Acl, Operation, PatternType, ResourceType
from suiro.broker.security.authorizer import AclAuthorizer
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest


def handle(exchange: Exchange, request: DescribeAclsRequest) -> Answer:
    wanted = read_filter(request)
    if not exchange.may_on_cluster(Operation.DESCRIBE):
        return _refusal(exchange, ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
    if not isinstance(exchange.broker.authorizer, AclAuthorizer):
        return _refusal(exchange, ErrorCode.security_disabled, "No Authorizer is configured on the broker")
    by_resource: dict[tuple[ResourceType, str, PatternType], list[Acl]] = {}
    for acl in exchange.broker.authorizer.acls.matching(wanted):
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
    return exchange.response(error_code=ErrorCode.none, error_message="", resources=resources)


def _refusal(exchange: Exchange, code: ErrorCode, message: str) -> Response:
    return exchange.response(error_code=code, error_message=message, resources=())
