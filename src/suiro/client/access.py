"""Access control: ACLs, SCRAM users and quotas, with the names of Kafka's tools."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from suiro.client.cluster import Cluster
from suiro.client.connection import Change
from suiro.client.error_codes import raise_for
from suiro.client.security import SCRAM_MAX_ITERATIONS, SCRAM_MIN_ITERATIONS
from suiro.errors import RefusedError, UsageError
from suiro.protocol.messages import ErrorCode

ACL_RESOURCES = {
    "any": 1,
    "topic": 2,
    "group": 3,
    "cluster": 4,
    "transactional-id": 5,
    "delegation-token": 6,
    "user": 7,
}
ACL_PATTERNS = {"any": 1, "match": 2, "literal": 3, "prefixed": 4}
ACL_OPERATIONS = {
    "any": 1, "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8,
    "cluster-action": 9, "describe-configs": 10, "alter-configs": 11, "idempotent-write": 12, "create-tokens": 13,
    "describe-tokens": 14, "two-phase-commit": 15,
}  # fmt: skip
ACL_PERMISSIONS = {"any": 1, "deny": 2, "allow": 3}
SCRAM_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_HASHES = {1: "sha256", 2: "sha512"}
_SALT_BYTES = 24
_EXACT, _DEFAULT = 0, 1  # how an entity of a quota is matched


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """One ACL. Values are those of kafka-acls: "topic", "literal", "read", "allow"."""

    resource_type: str
    resource_name: str
    pattern_type: str = "literal"
    principal: str
    host: str = "*"
    operation: str
    permission: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """A field that is None or "any" matches every ACL."""

    resource_type: str = "any"
    resource_name: str | None = None
    pattern_type: str = "any"
    principal: str | None = None
    host: str | None = None
    operation: str = "any"
    permission: str = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUser:
    """`mechanisms`: {mechanism: iterations}. Passwords cannot be read."""

    name: str
    mechanisms: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """`entity`: (("user", "ada"), ("client-id", None)); None is the default for all entities without a quota of
    their own."""

    entity: tuple[tuple[str, str | None], ...]
    values: Mapping[str, float]


class AccessRequests:
    """Access rules, SCRAM users, quotas: a part of `Admin`."""

    _cluster: Cluster

    def describe_acls(self, wanted: AclFilter | None = None) -> tuple[Acl, ...]:
        def once(deadline_ms: int) -> tuple[Acl, ...]:
            connection = self._cluster.any_broker(deadline_ms)
            request = connection.request("describe_acls", 1, 3, **_filter(wanted or AclFilter()))
            answer = connection.call(request, deadline_ms=deadline_ms)
            _raise_of_acls(answer.error_code, "list access rules", answer.error_message)
            return tuple(
                sorted(
                    _acl(resource.resource_type, resource.resource_name, resource.pattern_type, item)
                    for resource in answer.resources
                    for item in resource.acls
                )
            )

        return self._cluster.attempts("list access rules").run(once)

    def create_acls(self, acls: Sequence[Acl]) -> None:
        """Creates ACLs. One that exists already is not changed."""

        def once(deadline_ms: int) -> None:
            connection = self._cluster.controller(deadline_ms)
            creations = [
                {
                    "resource_type": _number(ACL_RESOURCES, acl.resource_type, "resource"),
                    "resource_name": acl.resource_name,
                    "resource_pattern_type": _number(ACL_PATTERNS, acl.pattern_type, "pattern"),
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": _number(ACL_OPERATIONS, acl.operation, "operation"),
                    "permission_type": _number(ACL_PERMISSIONS, acl.permission, "permission"),
                }
                for acl in acls
            ]
            request = connection.request("create_acls", 1, 3, creations=creations)
            results = enumerate(connection.call(request, deadline_ms=deadline_ms).results)
            for place, result in connection.matched("add access rules", range(len(acls)), results).items():
                acl = acls[place]
                what = f"add the rule {acl.permission} {acl.operation} on {acl.resource_type} {acl.resource_name!r}"
                _raise_of_acls(result.error_code, what, result.error_message)

        self._cluster.attempts("add access rules").run(once)

    def delete_acls(self, filters: Sequence[AclFilter]) -> tuple[Acl, ...]:
        """Deletes the matching ACLs and returns them."""
        change = Change()
        known, gone = set[Acl](), set[Acl]()
        # After a lost answer, only a list from before tells what was deleted. Who may not list gets the error below.
        with suppress(RefusedError):
            known.update(acl for wanted in filters for acl in self.describe_acls(wanted))

        def once(deadline_ms: int) -> tuple[Acl, ...]:
            connection = self._cluster.controller(deadline_ms)
            request = connection.request("delete_acls", 1, 3, filters=[_filter(wanted) for wanted in filters])
            if change.may_be_done:
                gone.update(known)
            results = enumerate(change.call(connection, request, deadline_ms=deadline_ms).filter_results)
            for result in connection.matched("remove access rules", range(len(filters)), results).values():
                change.may_be_done |= result.error_code is ErrorCode.request_timed_out
                _raise_of_acls(result.error_code, "remove access rules", result.error_message)
                for item in result.matching_acls:
                    acl = _acl(item.resource_type, item.resource_name, item.pattern_type, item)
                    _raise_of_acls(item.error_code, f"remove {acl}", item.error_message)
                    gone.add(acl)
            return tuple(sorted(gone))

        return self._cluster.attempts("remove access rules").run(once)

    def describe_scram_users(self, names: Iterable[str] | None = None) -> tuple[ScramUser, ...]:
        """Returns the named users, or all. A user that does not exist is absent."""
        asked = None if names is None else tuple(names)

        def once(deadline_ms: int) -> tuple[ScramUser, ...]:
            connection = self._cluster.controller(deadline_ms)
            users = None if asked is None else [{"name": name} for name in asked]
            request = connection.request("describe_user_scram_credentials", 0, 0, users=users)
            answer = connection.call(request, deadline_ms=deadline_ms)
            raise_for(answer.error_code, "list SCRAM users", detail=answer.error_message)
            found = []
            answers = ((item.user, item) for item in answer.results)
            for name, item in connection.matched("list SCRAM users", asked or None, answers).items():
                if item.error_code is ErrorCode.resource_not_found:
                    continue
                raise_for(item.error_code, f"describe SCRAM user {name!r}", detail=item.error_message)
                mechanisms = {_word(SCRAM_MECHANISMS, one.mechanism): one.iterations for one in item.credential_infos}
                found.append(ScramUser(name=name, mechanisms=mechanisms))
            return tuple(sorted(found, key=lambda user: user.name))

        return self._cluster.attempts("list SCRAM users").run(once)

    def upsert_scram_user(
        self, name: str, password: str, *, mechanism: str = "SCRAM-SHA-512", iterations: int = 4096
    ) -> None:
        """Creates or changes a user. The password itself does not leave this process."""
        number = _mechanism(mechanism)
        if not name or not password:
            raise UsageError("a SCRAM user has a name and a password; neither may be empty")
        if not SCRAM_MIN_ITERATIONS <= iterations <= SCRAM_MAX_ITERATIONS:
            raise UsageError(
                f"the iterations of SCRAM are {SCRAM_MIN_ITERATIONS} to {SCRAM_MAX_ITERATIONS}, got {iterations}"
            )
        salt = os.urandom(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(_HASHES[number], password.encode(), salt, iterations)
        item = {
            "name": name,
            "mechanism": number,
            "iterations": iterations,
            "salt": salt,
            "salted_password": salted,
        }
        _alter_scram(self._cluster, f"give SCRAM user {name!r} a password", upsertions=[item])

    def delete_scram_user(self, name: str, *, mechanism: str) -> None:
        item = {"name": name, "mechanism": _mechanism(mechanism)}
        _alter_scram(self._cluster, f"remove SCRAM user {name!r} ({mechanism})", deletions=[item])

    def describe_quotas(self, entity: Mapping[str, str | None] | None = None) -> tuple[Quota, ...]:
        """Returns the quotas of exactly this entity ({"user": "ada"}; None is the default), or all."""

        def once(deadline_ms: int) -> tuple[Quota, ...]:
            connection = self._cluster.any_broker(deadline_ms)
            components = [
                {"entity_type": kind, "match_type": _DEFAULT if name is None else _EXACT, "match": name}
                for kind, name in (entity or {}).items()
            ]
            request = connection.request(
                "describe_client_quotas", 0, 1, components=components, strict=entity is not None
            )
            answer = connection.call(request, deadline_ms=deadline_ms)
            raise_for(answer.error_code, "list quotas", detail=answer.error_message)
            quotas = (
                Quota(
                    entity=tuple(sorted((one.entity_type, one.entity_name) for one in item.entity)),
                    values={value.key: float(value.value) for value in item.values},
                )
                for item in answer.entries or ()
            )
            return tuple(sorted(quotas, key=lambda quota: [(kind, name or "") for kind, name in quota.entity]))

        return self._cluster.attempts("list quotas").run(once)

    def alter_quotas(
        self,
        entity: Mapping[str, str | None],
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Sets quotas by their Kafka names; None removes one."""

        def once(deadline_ms: int) -> None:
            connection = self._cluster.controller(deadline_ms)
            entry = {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in changes.items()],
            }
            request = connection.request("alter_client_quotas", 0, 1, entries=[entry], validate_only=validate_only)
            results = enumerate(connection.call(request, deadline_ms=deadline_ms).entries)
            for item in connection.matched("alter quotas", range(1), results).values():
                raise_for(item.error_code, "alter quotas", detail=item.error_message)

        self._cluster.attempts("alter quotas").run(once)


def _filter(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": _number(ACL_RESOURCES, wanted.resource_type, "resource"),
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": _number(ACL_PATTERNS, wanted.pattern_type, "pattern"),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": _number(ACL_OPERATIONS, wanted.operation, "operation"),
        "permission_type": _number(ACL_PERMISSIONS, wanted.permission, "permission"),
    }


def _acl(resource_type: int, resource_name: str, pattern_type: int, item: Any) -> Acl:
    return Acl(
        resource_type=_word(ACL_RESOURCES, resource_type),
        resource_name=resource_name,
        pattern_type=_word(ACL_PATTERNS, pattern_type),
        principal=item.principal,
        host=item.host,
        operation=_word(ACL_OPERATIONS, item.operation),
        permission=_word(ACL_PERMISSIONS, item.permission_type),
    )


def _number(words: Mapping[str, int], word: str, what: str) -> int:
    try:
        return words[word]
    except KeyError:
        raise UsageError(f"{word!r} is not a valid {what} of an ACL; use one of {', '.join(words)}") from None


def _word(words: Mapping[str, int], number: int) -> str:
    return next((word for word, value in words.items() if value == number), f"unknown ({number})")


def _raise_of_acls(code: ErrorCode, what: str, detail: str | None) -> None:
    if code is ErrorCode.security_disabled:
        raise RefusedError(
            f"{what}: the brokers have no authorizer, so everybody may do everything; set authorizer.class.name on "
            "them first",
            code.name.upper(),
        )
    raise_for(code, what, detail=detail)


def _mechanism(mechanism: str) -> int:
    try:
        return SCRAM_MECHANISMS[mechanism]
    except KeyError:
        raise UsageError(f"{mechanism!r} is no mechanism of SCRAM; use one of {', '.join(SCRAM_MECHANISMS)}") from None


def _alter_scram(cluster: Cluster, what: str, *, deletions: Sequence[Any] = (), upsertions: Sequence[Any] = ()) -> None:
    change = Change()

    def once(deadline_ms: int) -> None:
        connection = cluster.controller(deadline_ms)
        request = connection.request("alter_user_scram_credentials", 0, 0, deletions=deletions, upsertions=upsertions)
        results = enumerate(change.call(connection, request, deadline_ms=deadline_ms).results)
        for item in connection.matched(what, range(1), results).values():
            if item.error_code is ErrorCode.resource_not_found:
                if change.may_be_done:
                    continue
                raise RefusedError(f"{what}: there is no such user with this mechanism", "RESOURCE_NOT_FOUND")
            change.may_be_done |= item.error_code is ErrorCode.request_timed_out
            raise_for(item.error_code, what, detail=item.error_message)

    cluster.attempts(what).run(once)
