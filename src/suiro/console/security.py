"""Access rules, users and quotas.

Changes are checked before the brokers are asked, because brokers may accept one of several rules and refuse the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product

from suiro.client import ACL_OPERATIONS, ACL_PATTERNS, ACL_PERMISSIONS, ACL_RESOURCES, Acl, AclFilter, Client, ScramUser
from suiro.errors import RefusedError, UsageError

CLUSTER_NAME = "kafka-cluster"
"""The name of the cluster in Kafka's rules."""
RULES_MAX = 1_000
"""The most rules of one call."""
ANYTHING = frozenset({"any", "match"})
"""Words that are valid only in filters, not in rules."""
QUOTA_ENTITIES = ("user", "client-id", "ip")
_OF_PRODUCERS = {
    "topic": ("write", "describe", "create"),
    "transactional-id": ("write", "describe"),
    "cluster": ("idempotent-write",),
}
_OF_CONSUMERS = {"topic": ("read", "describe"), "group": ("read",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """`type`: "topic", "group", "cluster", "transactional-id"."""

    type: str
    name: str
    pattern: str = "literal"


def rules_of(
    resources: Sequence[Resource],
    *,
    principals: Sequence[str],
    operations: Sequence[str] = (),
    hosts: Sequence[str] = ("*",),
    permission: str = "allow",
    producer: bool = False,
    consumer: bool = False,
) -> tuple[Acl, ...]:
    """Makes a rule for each resource, principal, host and operation. `producer` and `consumer` add the operations that
    such programs need, as with Kafka's tool. Raises `UsageError` if something is missing."""
    if not resources:
        raise UsageError("an ACL needs a topic, group, transactional id or the cluster; name one")
    if not principals:
        raise UsageError("an ACL needs a principal; name one, such as User:ada")
    for principal in principals:
        if ":" not in principal:
            raise UsageError(f"{principal!r} is not a principal; give TYPE:NAME, such as User:{principal}")
    types = {resource.type for resource in resources}
    if (producer or consumer) and "topic" not in types:
        raise UsageError("a producer or consumer needs a topic; name one")
    if consumer and "group" not in types:
        raise UsageError("a consumer needs a group; name it")
    count = len(resources) * len(principals) * max(len(hosts), 1) * max(len(operations), 1)
    if count > RULES_MAX:
        raise UsageError(f"that makes {count} rules, and {RULES_MAX} is the most; give them in parts")
    found: dict[Acl, None] = {}
    for resource in resources:
        wanted = [
            *operations,
            *(_OF_PRODUCERS.get(resource.type, ()) if producer else ()),
            *(_OF_CONSUMERS.get(resource.type, ()) if consumer else ()),
        ]
        if not (wanted or producer or consumer):
            wanted = ["all"]
        for operation, principal, host in product(wanted, principals, hosts or ("*",)):
            acl = Acl(
                resource_type=resource.type,
                resource_name=resource.name,
                pattern_type=resource.pattern,
                principal=principal,
                host=host,
                operation=operation,
                permission=permission,
            )
            _check(acl)
            found[acl] = None
    return tuple(found)


def _check(acl: Acl) -> None:
    """Raises `UsageError` for words that a rule cannot have, such as those of filters."""
    said = (
        ("resource type", acl.resource_type, ACL_RESOURCES),
        ("pattern type", acl.pattern_type, ACL_PATTERNS),
        ("operation", acl.operation, ACL_OPERATIONS),
        ("permission", acl.permission, ACL_PERMISSIONS),
    )
    for what, word, words in said:
        if word not in words or word in ANYTHING:
            known = ", ".join(one for one in words if one not in ANYTHING)
            raise UsageError(f"{word!r} is not a valid {what} of an ACL; use one of {known}")
    for what, text in (("resource", acl.resource_name), ("principal", acl.principal), ("host", acl.host)):
        if not text:
            raise UsageError(f"a rule names its {what}; this one is empty")
    if acl.resource_type == "cluster" and acl.resource_name != CLUSTER_NAME:
        raise UsageError(f"the cluster is called {CLUSTER_NAME} in rules, not {acl.resource_name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`off` tells why there are no rules, if the brokers have no authorizer."""

    acls: tuple[Acl, ...]
    off: str | None = None


def list_rules(client: Client) -> Rules:
    try:
        return Rules(acls=client.admin.describe_acls())
    except RefusedError as error:
        if error.code_name != "SECURITY_DISABLED":
            raise
        return Rules(acls=(), off=str(error))


def remove_rule(client: Client, acl: Acl) -> None:
    """Removes exactly this rule."""
    if not client.admin.delete_acls([selecting(acl)]):
        raise RefusedError("there is no such rule; nothing was removed", "RESOURCE_NOT_FOUND")


def selecting(acl: Acl) -> AclFilter:
    """The filter that matches exactly this rule."""
    _check(acl)
    return AclFilter(**asdict(acl))


def remove_user(client: Client, name: str, mechanism: str | None = None) -> ScramUser:
    """Removes all passwords of a SCRAM user, or that of one mechanism. Returns the user as it was."""
    found = client.admin.describe_scram_users([name])
    if not found:
        raise RefusedError(f"there is no SCRAM user {name!r}; `suiro user list` names all", "RESOURCE_NOT_FOUND")
    for each in [mechanism] if mechanism is not None else list(found[0].mechanisms):
        client.admin.delete_scram_user(name, mechanism=each)
    return found[0]


def check_quota_entity(entity: Mapping[str, str | None]) -> None:
    """An entity has `user`, `client-id`, both, or `ip`. None is the default for all without their own quota. Raises
    `UsageError`."""
    for kind, name in entity.items():
        if kind not in QUOTA_ENTITIES:
            raise UsageError(f"{kind!r} has no quotas; use one of {', '.join(QUOTA_ENTITIES)}")
        if name == "":
            raise UsageError(f"the name of {kind} is empty; null is the default of all")
    if not entity:
        raise UsageError(f"whose quotas? Name one of {', '.join(QUOTA_ENTITIES)}")
    if "ip" in entity and len(entity) > 1:
        raise UsageError("an address has quotas of its own; give ip alone")


def set_quotas(
    client: Client,
    entity: Mapping[str, str | None],
    values: Mapping[str, float],
    remove: Sequence[str] = (),
    *,
    validate_only: bool = False,
) -> None:
    """Sets and removes quotas in one request."""
    check_quota_entity(entity)
    if not values and not remove:
        raise UsageError("nothing is to be changed; give quotas to set or to remove")
    for name, value in values.items():
        if name in remove:
            raise UsageError(f"quota {name!r} is to be set and removed")
        if not math.isfinite(value) or value < 0:
            raise UsageError(f"quota {name!r} is {value}: expected a number from 0 on")
    client.admin.alter_quotas(entity, {**values, **dict.fromkeys(remove)}, validate_only=validate_only)
