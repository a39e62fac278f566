"""Users and their quotas: SCRAM credentials and client quotas, described and altered.

For a SCRAM credential, the client sends the salted password, never the password; the node keeps the two keys made from
it. A change takes effect at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from suiro.broker.context import BrokerContext
from suiro.broker.exchange import DENIED, Answer, Exchange, Response
from suiro.broker.quotas.store import CLIENT_ID, IP, USER, Alteration, QuotaEntity
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.security.scram import HASHES, MAX_ITERATIONS, MECHANISM_NUMBERS, MIN_ITERATIONS, ScramCredential
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
    from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest
    from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
    from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest

_Outcome: TypeAlias = tuple[ErrorCode, str | None]

_EXACT, _DEFAULT, _ANY_NAME = 0, 1, 2
_WORDS = {_EXACT: "MATCH_TYPE_EXACT", _DEFAULT: "MATCH_TYPE_DEFAULT", _ANY_NAME: "MATCH_TYPE_SPECIFIED"}
_DONE: _Outcome = (ErrorCode.none, None)
_TWICE = (ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request")


def describe_client_quotas(exchange: Exchange, request: DescribeClientQuotasRequest) -> Answer:
    """DescribeClientQuotas: the quotas that are set for the entities of a filter."""
    if not exchange.may_on_cluster(Operation.DESCRIBE_CONFIGS):
        raise RefusedError(ErrorCode.cluster_authorization_failed)
    exact: dict[str, str | None] = {}
    of_type: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in exact or kind in of_type:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise RefusedError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        _check_match(component.match_type, component.match)
        if component.match_type == _ANY_NAME:
            of_type.add(kind)
        else:
            exact[kind] = component.match
    asked = exact.keys() | of_type
    if IP in asked and len(asked) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    found = exchange.broker.client_quotas.store.matching(exact, of_type, strict=request.strict)
    return exchange.response(
        error_message="",
        entries=[
            {"entity": _entity(entity), "values": [{"key": key, "value": value} for key, value in values.items()]}
            for entity, values in found.items()
        ],
    )


def _check_match(match_type: int, match: str | None) -> None:
    if match_type not in _WORDS:
        raise _invalid(f"Unknown match type {match_type}")
    if match_type == _EXACT and match is None:
        raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match_type != _EXACT and match is not None:
        raise _invalid(f"Request specified {_WORDS[match_type]}, but also specified a match string.")


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_request, message)


def _entity(entity: QuotaEntity) -> list[dict[str, str | None]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity.parts]


def alter_client_quotas(exchange: Exchange, request: AlterClientQuotasRequest) -> Answer:
    """AlterClientQuotas: set and remove quotas."""
    alterations = [
        Alteration(
            QuotaEntity.of({part.entity_type: part.entity_name for part in entry.entity}),
            tuple((op.key, None if op.remove else float(op.value)) for op in entry.ops),
        )
        for entry in request.entries
    ]
    results: Mapping[QuotaEntity, tuple[ErrorCode, str] | None]
    try:
        exchange.check_on_cluster(Operation.ALTER_CONFIGS)
        results = exchange.broker.client_quotas.store.alter(alterations, validate_only=request.validate_only)
    except (RefusedError, StorageError) as error:
        results = {alteration.entity: (error.code, str(error)) for alteration in alterations}
    entries = []
    for entity, problem in results.items():
        code, message = problem or _DONE
        entries.append({"error_code": code, "error_message": message, "entity": _entity(entity)})
    return exchange.response(entries=entries)


def describe_user_scram_credentials(exchange: Exchange, request: DescribeUserScramCredentialsRequest) -> Answer:
    """DescribeUserScramCredentials: the mechanisms of a user, and their iterations."""
    if not exchange.may_on_cluster(Operation.DESCRIBE):
        code = ErrorCode.cluster_authorization_failed
        results = [{"error_code": code}] * len(request.users or ())  # Kafka's, once for each name that was asked for
        return exchange.response(error_code=code, results=results)
    names = [user.name for user in request.users] if request.users else list(exchange.broker.scram.users)
    return exchange.response(
        error_message="", results=[_user(exchange.broker, name, times) for name, times in Counter(names).items()]
    )


def _user(broker: BrokerContext, name: str, times: int) -> dict[str, Any]:
    code, message = ErrorCode.none, ""
    credentials = broker.scram.users.get(name, {})
    if times > 1:
        code, credentials = ErrorCode.duplicate_resource, {}
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif not credentials:
        code = ErrorCode.resource_not_found
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return {
        "user": name,
        "error_code": code,
        "error_message": message,
        "credential_infos": [
            {"mechanism": number, "iterations": credentials[mechanism].iterations}
            for number, mechanism in MECHANISM_NUMBERS.items()
            if mechanism in credentials
        ],
    }


def alter_user_scram_credentials(exchange: Exchange, request: AlterUserScramCredentialsRequest) -> Answer:
    """AlterUserScramCredentials: add, change and remove passwords of users. It takes effect at once."""
    if not exchange.may_on_cluster(Operation.ALTER):
        named: tuple[Any, ...] = (*request.deletions, *request.upsertions)
        return _altered(exchange, dict.fromkeys((item.name for item in named), DENIED[ResourceType.CLUSTER]))
    errors: dict[str, _Outcome] = {}
    deletions: dict[str, Any] = {}
    upsertions: dict[str, Any] = {}

    def sort(items: tuple[Any, ...], into: dict[str, Any], problem: Callable[[Any], _Outcome | None]) -> None:
        for item in items:
            name = item.name
            if name in errors:
                continue
            if deletions.pop(name, None) or upsertions.pop(name, None):
                errors[name] = _TWICE
            elif (found := _problem(item) or problem(item)) is not None:
                errors[name] = found
            else:
                into[name] = item

    users = exchange.broker.scram.users
    sort(request.deletions, deletions, lambda item: _problem_of_deletion(users, item))
    sort(request.upsertions, upsertions, _problem_of_upsertion)
    outcome = _DONE
    try:
        exchange.broker.scram.change(
            remove=[(item.name, MECHANISM_NUMBERS[item.mechanism]) for item in deletions.values()],
            put={(item.name, MECHANISM_NUMBERS[item.mechanism]): _credential(item) for item in upsertions.values()},
        )
    except StorageError as error:
        outcome = (error.code, str(error))
    return _altered(exchange, dict.fromkeys((*deletions, *upsertions), outcome) | errors)


def _altered(exchange: Exchange, results: Mapping[str, _Outcome]) -> Response:
    return exchange.response(
        results=[
            {"user": name, "error_code": code, "error_message": message} for name, (code, message) in results.items()
        ]
    )


def _credential(item: Any) -> ScramCredential:
    return ScramCredential.of_salted_password(
        bytes(item.salted_password),
        salt=bytes(item.salt),
        iterations=item.iterations,
        hash_name=HASHES[MECHANISM_NUMBERS[item.mechanism]],
    )


def _problem(item: Any) -> _Outcome | None:
    if not item.name:
        return ErrorCode.unacceptable_credential, "Username must not be empty"
    if item.mechanism not in MECHANISM_NUMBERS:
        return ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"
    return None


def _problem_of_deletion(users: Mapping[str, Mapping[str, Any]], item: Any) -> _Outcome | None:
    if MECHANISM_NUMBERS[item.mechanism] not in users.get(item.name, {}):
        return ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
    return None


def _problem_of_upsertion(item: Any) -> _Outcome | None:
    if item.iterations < MIN_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too few iterations"
    if item.iterations > MAX_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too many iterations"
    return None
