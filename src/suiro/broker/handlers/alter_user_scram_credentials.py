"""AlterUserScramCredentials: add, change and remove passwords of users. It takes effect at once.

The client sends the salted password, never the password; the node keeps the two keys made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer, Response
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation
from suiro.broker.security.scram import (
    HASHES,
    MAX_ITERATIONS,
    MECHANISM_NUMBERS,
    MIN_ITERATIONS,
    ScramCredential,
)
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest


_TWICE = (ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request")


def handle(exchange: Exchange, request: AlterUserScramCredentialsRequest) -> Answer:
    if not exchange.may_on_cluster(Operation.ALTER):
        refusal = (ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
        named: tuple[Any, ...] = (*request.deletions, *request.upsertions)
        names = dict.fromkeys(item.name for item in named)
        return _response(exchange, dict.fromkeys(names, refusal))
    errors: dict[str, tuple[ErrorCode, str | None]] = {}
    deletions: dict[str, Any] = {}
    upsertions: dict[str, Any] = {}

    def sort(items: tuple[Any, ...], into: dict[str, Any], problem: Callable[[Any], Any]) -> None:
        for item in items:
            name = item.name
            if name in errors:
                continue
            if deletions.pop(name, None) or upsertions.pop(name, None):
                errors[name] = _TWICE
            elif (found := problem(item)) is not None:
                errors[name] = found
            else:
                into[name] = item

    sort(request.deletions, deletions, lambda item: _problem_of_deletion(exchange.broker, item))
    sort(request.upsertions, upsertions, _problem_of_upsertion)
    outcome: tuple[ErrorCode, str | None] = (ErrorCode.none, None)
    try:
        exchange.broker.scram.change(
            remove=[(item.name, MECHANISM_NUMBERS[item.mechanism]) for item in deletions.values()],
            put={(item.name, MECHANISM_NUMBERS[item.mechanism]): _credential(item) for item in upsertions.values()},
        )
    except StorageError as error:
        outcome = (error.code, str(error))
    done = dict.fromkeys((*deletions, *upsertions), outcome)
    return _response(exchange, {**done, **errors})


def _credential(item: Any) -> ScramCredential:
    return ScramCredential.of_salted_password(
        bytes(item.salted_password),
        salt=bytes(item.salt),
        iterations=item.iterations,
        hash_name=HASHES[MECHANISM_NUMBERS[item.mechanism]],
    )


def _problem(item: Any) -> tuple[ErrorCode, str] | None:
    if not item.name:
        return ErrorCode.unacceptable_credential, "Username must not be empty"
    if item.mechanism not in MECHANISM_NUMBERS:
        return ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"
    return None


def _problem_of_deletion(broker: BrokerContext, item: Any) -> tuple[ErrorCode, str] | None:
    problem = _problem(item)
    if problem is None and MECHANISM_NUMBERS[item.mechanism] not in broker.scram.users.get(item.name, {}):
        return ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
    return problem


def _problem_of_upsertion(item: Any) -> tuple[ErrorCode, str] | None:
    problem = _problem(item)
    if problem is None and item.iterations < MIN_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too few iterations"
    if problem is None and item.iterations > MAX_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too many iterations"
    return problem


def _response(exchange: Exchange, results: dict[str, tuple[ErrorCode, str | None]]) -> Response:
    return exchange.response(
        results=tuple(
            exchange.make("AlterUserScramCredentialsResult", user=name, error_code=code, error_message=message)
            for name, (code, message) in results.items()
        ),
    )
