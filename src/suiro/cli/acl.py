"""`suiro acl`: who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from suiro.cli.command_groups import Group, Option
from suiro.cli.everyday import (
    AsJson,
    Bootstrap,
    CommandConfig,
    Profile,
    Yes,
    connected,
    note,
    print_json,
    print_table,
    require_yes,
)

if TYPE_CHECKING:
    from suiro.client import Acl
    from suiro.console.security import Resource

acl = Group("acl", "Access rules: list, add, remove.")

_Topic = Annotated[list[str] | None, Option("--topic", "NAME", "Repeatable; * is every topic.")]
_Group = Annotated[list[str] | None, Option("--group", "NAME", "Repeatable; * is every group.")]
_TransactionalId = Annotated[list[str] | None, Option("--transactional-id", "ID", "Repeatable.")]
_Cluster = Annotated[bool, Option("--cluster", help="The cluster itself.")]
_Pattern = Annotated[
    str,
    Option(
        "--resource-pattern-type",
        help="prefixed: all whose names begin so.",
        choices=("literal", "prefixed"),
    ),
]
_Operation = Annotated[
    list[str] | None,
    Option(
        "--operation",
        "NAME",
        "read, write, describe, alter... as Kafka calls them; repeatable. Default: all.",
    ),
]
_Allow = Annotated[
    list[str] | None, Option("--allow-principal", "User:NAME", "Who may; repeatable. User:* is everybody.")
]
_Deny = Annotated[list[str] | None, Option("--deny-principal", "User:NAME", "Who may not; repeatable.")]
_Host = Annotated[list[str] | None, Option("--host", "ADDRESS", "From where; repeatable. Default: anywhere.")]
_Producer = Annotated[bool, Option("--producer", help="What a producer needs.")]
_Consumer = Annotated[bool, Option("--consumer", help="What a consumer needs.")]


@acl.command
def list_(
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    command_config: CommandConfig = None,
    topic: Annotated[str | None, Option("--topic", "NAME", "Rules that hold for this topic.")] = None,
    group: Annotated[str | None, Option("--group", "NAME", "Rules that hold for this group.")] = None,
    principal: Annotated[str | None, Option("--principal", "User:NAME", "Rules of this principal.")] = None,
    as_json: AsJson = False,
) -> None:
    """List access rules."""
    with connected(bootstrap, profile, command_config) as client:
        from suiro.client import AclFilter

        filters = []
        for kind, name in (("topic", topic), ("group", group)):
            if name is not None:
                filters.append(
                    AclFilter(
                        resource_type=kind, resource_name=name, pattern_type="match", principal=principal
                    )
                )
        found: list[Acl] = []
        for wanted in filters or [AclFilter(principal=principal)]:
            found += client.admin.describe_acls(wanted)
        _print(sorted(set(found)), as_json)


@acl.command
def add(
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    command_config: CommandConfig = None,
    topic: _Topic = None,
    group: _Group = None,
    transactional_id: _TransactionalId = None,
    cluster: _Cluster = False,
    resource_pattern_type: _Pattern = "literal",
    operation: _Operation = None,
    allow_principal: _Allow = None,
    deny_principal: _Deny = None,
    host: _Host = None,
    producer: _Producer = False,
    consumer: _Consumer = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show the rules.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add access rules. One that is there stays as it is."""
    with connected(bootstrap, profile, command_config) as client:
        resources = _resources(topic, group, transactional_id, cluster, resource_pattern_type)
        made = _rules(resources, operation, allow_principal, deny_principal, host, producer, consumer)
        if not dry_run:
            client.admin.create_acls(made)
        _print(made, as_json)
        if dry_run:
            note("nothing was changed")


@acl.command
def remove(
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    command_config: CommandConfig = None,
    topic: _Topic = None,
    group: _Group = None,
    transactional_id: _TransactionalId = None,
    cluster: _Cluster = False,
    resource_pattern_type: _Pattern = "literal",
    operation: _Operation = None,
    allow_principal: _Allow = None,
    deny_principal: _Deny = None,
    host: _Host = None,
    producer: _Producer = False,
    consumer: _Consumer = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove access rules: exactly those that `suiro acl add` with the same options adds."""
    with connected(bootstrap, profile, command_config) as client:
        from suiro.console.security import selecting

        resources = _resources(topic, group, transactional_id, cluster, resource_pattern_type)
        made = _rules(resources, operation, allow_principal, deny_principal, host, producer, consumer)
        filters = [selecting(one) for one in made]
        there = sorted({one for wanted in filters for one in client.admin.describe_acls(wanted)})
        if there:
            require_yes(f"Remove {len(there)} access rules?", yes)
        gone = client.admin.delete_acls(filters) if there else ()
        _print(gone, as_json)
        if not gone:
            note("there was no such rule")


def _resources(
    topic: list[str] | None,
    group: list[str] | None,
    transactional_id: list[str] | None,
    cluster: bool,
    pattern: str,
) -> list[Resource]:
    from suiro.console.security import CLUSTER_NAME, Resource

    named = (("topic", topic), ("group", group), ("transactional-id", transactional_id))
    found = [Resource(type=kind, name=name, pattern=pattern) for kind, names in named for name in names or ()]
    return found + [Resource(type="cluster", name=CLUSTER_NAME)] * cluster


def _rules(
    resources: list[Resource],
    operation: list[str] | None,
    allow: list[str] | None,
    deny: list[str] | None,
    host: list[str] | None,
    producer: bool,
    consumer: bool,
) -> list[Acl]:
    from suiro.console.security import rules_of

    made: list[Acl] = []
    for permission, principals in (("allow", allow), ("deny", deny)):
        if principals or (permission == "allow" and not deny):
            made += rules_of(
                resources,
                principals=principals or (),
                operations=[one.lower().replace("_", "-") for one in operation or ()],
                hosts=host or ("*",),
                permission=permission,
                producer=producer,
                consumer=consumer,
            )
    return made


def _print(rules: list[Acl] | tuple[Acl, ...], as_json: bool) -> None:
    if as_json:
        print_json(rules)
        return
    print_table(
        ("resource", "name", "pattern", "principal", "host", "operation", "permission"),
        (
            (
                one.resource_type,
                one.resource_name,
                one.pattern_type,
                one.principal,
                one.host,
                one.operation,
                one.permission,
            )
            for one in rules
        ),
    )
