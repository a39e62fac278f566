"""DescribeClientQuotas: the quotas that are set for the entities of a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer, Response
from suiro.broker.exchange import Exchange
from suiro.broker.quotas.store import CLIENT_ID, IP, USER
from suiro.broker.security.acl import Operation
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest


_EXACT, _DEFAULT, _ANY_NAME = 0, 1, 2
_WORDS = {_EXACT: "MATCH_TYPE_EXACT", _DEFAULT: "MATCH_TYPE_DEFAULT", _ANY_NAME: "MATCH_TYPE_SPECIFIED"}


def handle(exchange: Exchange, request: DescribeClientQuotasRequest) -> Answer:
    if not exchange.may_on_cluster(Operation.DESCRIBE_CONFIGS):
        return _refusal(exchange, ErrorCode.cluster_authorization_failed, None)
    exact: dict[str, str | None] = {}
    of_type: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if not kind:
            return _refusal(exchange, ErrorCode.invalid_request, "Invalid empty entity type.")
        if kind in exact or kind in of_type:
            message = f"Entity type {kind} cannot appear more than once in the filter."
            return _refusal(exchange, ErrorCode.invalid_request, message)
        if kind not in (USER, CLIENT_ID, IP):
            return _refusal(exchange, ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        problem = _problem(component.match_type, component.match)
        if problem is not None:
            return _refusal(exchange, ErrorCode.invalid_request, problem)
        if component.match_type == _ANY_NAME:
            of_type.add(kind)
        else:
            exact[kind] = component.match
    asked = exact.keys() | of_type
    if IP in asked and len(asked) > 1:
        message = (
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
        return _refusal(exchange, ErrorCode.invalid_request, message)
    found = exchange.broker.client_quotas.store.matching(exact, of_type, strict=request.strict)
    entries = tuple(
        exchange.make(
            "EntryData",
            entity=tuple(
                exchange.make("EntityData", entity_type=kind, entity_name=name) for kind, name in entity.parts
            ),
            values=tuple(exchange.make("ValueData", key=key, value=value) for key, value in values.items()),
        )
        for entity, values in found.items()
    )
    return exchange.response(error_code=ErrorCode.none, error_message="", entries=entries)


def _problem(match_type: int, match: str | None) -> str | None:
    if match_type not in _WORDS:
        return f"Unknown match type {match_type}"
    if match_type == _EXACT:
        return None if match is not None else "Request specified MATCH_TYPE_EXACT, but set match string to null."
    return None if match is None else f"Request specified {_WORDS[match_type]}, but also specified a match string."


def _refusal(exchange: Exchange, code: ErrorCode, message: str | None) -> Response:
    return exchange.response(error_code=code, error_message=message, entries=None)
