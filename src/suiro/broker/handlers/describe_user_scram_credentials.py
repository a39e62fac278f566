"""DescribeUserScramCredentials: the mechanisms of a user, and their iterations."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation
from suiro.broker.security.scram import MECHANISM_NUMBERS
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest


def handle(exchange: Exchange, request: DescribeUserScramCredentialsRequest) -> Answer:
    if not exchange.may_on_cluster(Operation.DESCRIBE):
        code = ErrorCode.cluster_authorization_failed
        refused = exchange.make(  # Kafka's, once for each name that was asked for
            "DescribeUserScramCredentialsResult",
            user="",
            error_code=code,
            error_message=None,
            credential_infos=(),
        )
        results = (refused,) * len(request.users or ())
        return exchange.response(error_code=code, error_message=None, results=results)
    names = [user.name for user in request.users] if request.users else list(exchange.broker.scram.users)
    results = tuple(_describe(exchange, name, times) for name, times in Counter(names).items())
    return exchange.response(error_code=ErrorCode.none, error_message="", results=results)


def _describe(exchange: Exchange, name: str, times: int) -> Any:
    code, message = ErrorCode.none, ""
    credentials = exchange.broker.scram.users.get(name, {})
    if times > 1:
        code, credentials = ErrorCode.duplicate_resource, {}
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif not credentials:
        code = ErrorCode.resource_not_found
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return exchange.make(
        "DescribeUserScramCredentialsResult",
        user=name,
        error_code=code,
        error_message=message,
        credential_infos=tuple(
            exchange.make("CredentialInfo", mechanism=number, iterations=credentials[mechanism].iterations)
            for number, mechanism in MECHANISM_NUMBERS.items()
            if mechanism in credentials
        ),
    )
