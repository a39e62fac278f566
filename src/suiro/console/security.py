"""Access rules as one speaks of them: who may do what with which topics and groups.

Users and quotas need no more than the client has: `Client.admin`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suiro.client import Acl, AclFilter, Client, ScramUser
from suiro.errors import RefusedError, UsageError

__all__ = ["Resource", "remove_user", "rules_of", "selecting"]

CLUSTER_NAME = "kafka-cluster"
"""What Kafka calls the cluster in its rules."""


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
    """A rule for each resource, principal, host and operation. `producer` and `consumer` are the operations that such
    programs need, as with Kafka's tool. Raises `UsageError` where nothing or not enough is named."""
    if not resources:
        raise UsageError("a rule is for a topic, group, transactional id or the cluster; name one")
    if not principals:
        raise UsageError("a rule is for somebody; name a principal, such as User:ada")
    for principal in principals:
        if ":" not in principal:
            raise UsageError(f"{principal!r} is no principal; give TYPE:NAME, such as User:{principal}")
    types = {resource.type for resource in resources}
    if (producer or consumer) and "topic" not in types:
        raise UsageError("what produces or consumes does it with a topic; name one")
    if consumer and "group" not in types:
        raise UsageError("what consumes has a group; name it")
    found: dict[Acl, None] = {}
    for resource in resources:
        wanted = list(operations)
        if producer:
            by_type = {
                "topic": ("write", "describe", "create"),
                "transactional-id": ("write", "describe"),
                "cluster": ("idempotent-write",),
            }
            wanted += by_type.get(resource.type, ())
        if consumer:
            wanted += {"topic": ("read", "describe"), "group": ("read",)}.get(resource.type, ())
        for operation in wanted or (["all"] if not (producer or consumer) else []):
            for principal in principals:
                for host in hosts or ("*",):
                    acl = Acl(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        pattern_type=resource.pattern,
                        principal=principal,
                        host=host,
                        operation=operation,
                        permission=permission,
                    )
                    found[acl] = None
    return tuple(found)


def selecting(acl: Acl) -> AclFilter:
    """The filter that matches exactly this rule."""
    return AclFilter(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )


def remove_user(client: Client, name: str, mechanism: str | None = None) -> ScramUser:
    """All passwords of a SCRAM user, or that of one mechanism; returns what it had."""
    found = client.admin.describe_scram_users([name])
    if not found:
        raise RefusedError(
            f"there is no SCRAM user {name!r}; `suiro user list` names all", "RESOURCE_NOT_FOUND"
        )
    for each in [mechanism] if mechanism is not None else list(found[0].mechanisms):
        client.admin.delete_scram_user(name, mechanism=each)
    return found[0]
