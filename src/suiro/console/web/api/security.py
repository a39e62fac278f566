"""Access rules, SCRAM users, quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from suiro.client import Acl, Client, ScramUser
from suiro.console.security import Resource, Rules, list_rules, remove_rule, remove_user, rules_of, set_quotas
from suiro.console.web.endpoint import Body, Call, get, post, require_confirmed
from suiro.errors import UsageError
from suiro.foundation.http import Role

PASSWORD_CHARS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UserList:
    users: tuple[ScramUser, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    """In `entity`, null is the default for all without their own quota."""

    entity: dict[str, str | None]
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaList:
    quotas: tuple[QuotaRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesMade:
    acls: tuple[Acl, ...]


class ResourceBody(Body):
    type: str
    name: str
    pattern: str = "literal"


class RulesBody(Body):
    """A rule for each resource, principal, host and operation."""

    resources: list[ResourceBody]
    principals: list[str]
    operations: list[str]
    permission: str
    hosts: list[str] = msgspec.field(default_factory=lambda: ["*"])


class RuleBody(Body):
    """One rule, as the list has it."""

    resource_type: str
    resource_name: str
    principal: str
    operation: str
    permission: str
    pattern_type: str = "literal"
    host: str = "*"


class UserBody(Body):
    name: str
    mechanism: str
    password: str
    iterations: int = 4096


class DeleteUserBody(Body):
    """Without `mechanism` all that the user has."""

    name: str
    confirm: str
    mechanism: str | None = None


class QuotaBody(Body):
    entity: dict[str, str | None]
    set: dict[str, float] = msgspec.field(default_factory=dict)
    remove: list[str] = msgspec.field(default_factory=list)


@get("/acls")
def _acls(call: Call, client: Client) -> Rules:
    """All access rules; off says why there are none where the brokers ask nobody."""
    return list_rules(client)


@post("/acls", Role.ADMIN, RulesBody)
def _add_acls(call: Call, client: Client) -> RulesMade:
    """Add a rule for each resource, principal, host and operation."""
    body: RulesBody = call.body
    if not body.operations:
        raise UsageError('"operations" is empty: name what it is for; "all" is one, too')
    made = rules_of(
        [Resource(type=one.type, name=one.name, pattern=one.pattern) for one in body.resources],
        principals=body.principals,
        operations=body.operations,
        hosts=body.hosts,
        permission=body.permission,
    )
    client.admin.create_acls(made)
    return RulesMade(acls=made)


@post("/acls/delete", Role.ADMIN, RuleBody)
def _remove_acl(call: Call, client: Client) -> RulesMade:
    """Remove one rule, and none but this."""
    acl = Acl(**msgspec.structs.asdict(call.body))
    remove_rule(client, acl)
    return RulesMade(acls=(acl,))


@get("/users")
def _users(call: Call, client: Client) -> UserList:
    """SCRAM users, with the iterations of each mechanism."""
    return UserList(users=client.admin.describe_scram_users())


@post("/users", Role.ADMIN, UserBody)
def _add_user(call: Call, client: Client) -> Mapping[str, Any]:
    """Give a SCRAM user a password, a new one or another."""
    body: UserBody = call.body
    if len(body.password) > PASSWORD_CHARS_MAX:
        raise UsageError(f'"password" has more than {PASSWORD_CHARS_MAX} characters')
    client.admin.upsert_scram_user(body.name, body.password, mechanism=body.mechanism, iterations=body.iterations)
    return {"name": body.name, "mechanism": body.mechanism}


@post("/users/delete", Role.ADMIN, DeleteUserBody)
def _remove_user(call: Call, client: Client) -> Mapping[str, Any]:
    """Take a SCRAM user's passwords away."""
    body: DeleteUserBody = call.body
    require_confirmed(body.confirm, body.name)
    remove_user(client, body.name, body.mechanism)
    return {"name": body.name}


@get("/quotas")
def _quotas(call: Call, client: Client) -> QuotaList:
    """All quotas."""
    found = client.admin.describe_quotas()
    return QuotaList(quotas=tuple(QuotaRow(entity=dict(one.entity), values=one.values) for one in found))


@post("/quotas", Role.ADMIN, QuotaBody)
def _set_quotas(call: Call, client: Client) -> Mapping[str, Any]:
    """Set quotas of a user, a client id, both together or an address; take others away."""
    body: QuotaBody = call.body
    set_quotas(client, body.entity, body.set, body.remove)
    return {"entity": body.entity}
