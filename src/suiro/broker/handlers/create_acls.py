"""CreateAcls: adds ACLs; an existing one is a success."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer, Response
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.shared.acl_requests import check_known, rules_to_change
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.request import CreateAclsRequest


def handle(exchange: Exchange, request: CreateAclsRequest) -> Answer:
    for creation in request.creations:
        check_known(
            creation.resource_type,
            creation.resource_pattern_type,
            creation.operation,
            creation.permission_type,
        )
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
        rules = rules_to_change(exchange)
        if any(_is_a_filters(acl) for acl in acls):  # where one is, Kafka fails with all of them
            return _response(exchange, [(ErrorCode.unknown_server_error, None)] * len(acls))
        problems = [_problem(acl) for acl in acls]
        rules.add(acl for acl, problem in zip(acls, problems, strict=True) if problem is None)
    except (RefusedError, StorageError) as error:
        return _response(exchange, [(error.code, str(error))] * len(acls))
    return _response(
        exchange,
        [(ErrorCode.none, "") if text is None else (ErrorCode.invalid_request, text) for text in problems],
    )


def _response(exchange: Exchange, results: list[tuple[ErrorCode, str | None]]) -> Response:
    return exchange.response(
        results=tuple(
            exchange.make("AclCreationResult", error_code=code, error_message=message) for code, message in results
        ),
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
