"""DeleteAcls: deletes the ACLs that match the filters, and lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer, Response
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.shared.acl_requests import read_filter, rules_to_change
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.delete_acls.v3.request import DeleteAclsRequest


def handle(exchange: Exchange, request: DeleteAclsRequest) -> Answer:
    filters = [read_filter(item) for item in request.filters]
    try:
        rules = rules_to_change(exchange)
        found = [rules.matching(wanted) for wanted in filters]  # nothing, where a word is not known
        rules.remove(acl for acls in found for acl in acls)
    except (RefusedError, StorageError) as error:
        return _response(exchange, [_refused(exchange, error.code, str(error)) for _ in filters])
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


def _response(exchange: Exchange, results: list[Any]) -> Response:
    return exchange.response(filter_results=tuple(results))


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
