"""`suiro acl`: who may do what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from suiro.cli.command_groups import Group, option, options
from suiro.cli.everyday import AS_JSON, YES, Connection, connected, note, print_rows, require_yes

if TYPE_CHECKING:
    from suiro.client import Acl, AclFilter, Client

acl = Group("acl")


@options
class _Rules:
    """The options that select rules: the resources, the principals, and what they may do."""

    topic: list[str] | None = option(None, "Topic; repeatable. * is every topic.", "NAME")
    group: list[str] | None = option(None, "Group; repeatable. * is every group.", "NAME")
    transactional_id: list[str] | None = option(None, "Transactional id; repeatable.", "ID")
    cluster: bool = option(False, "The cluster itself.")
    resource_pattern_type: str = option(
        "literal", "prefixed: all names that start with the given one.", choices=("literal", "prefixed")
    )
    operation: list[str] | None = option(
        None, "Operation, with Kafka's name: read, write, describe, alter...; repeatable. Default: all.", "NAME"
    )
    allow_principal: list[str] | None = option(
        None, "Principal to allow; repeatable. User:* is everybody.", "User:NAME"
    )
    deny_principal: list[str] | None = option(None, "Principal to deny; repeatable.", "User:NAME")
    host: list[str] | None = option(
        None, "Address from which the client connects; repeatable. Default: any.", "ADDRESS"
    )
    producer: bool = option(False, "All ACLs that a producer needs.")
    consumer: bool = option(False, "All ACLs that a consumer needs.")

    def made(self) -> list[Acl]:
        from suiro.console.security import CLUSTER_NAME, Resource, rules_of

        named = (("topic", self.topic), ("group", self.group), ("transactional-id", self.transactional_id))
        resources = [
            Resource(type=kind, name=name, pattern=self.resource_pattern_type)
            for kind, names in named
            for name in names or ()
        ]
        if self.cluster:
            resources.append(Resource(type="cluster", name=CLUSTER_NAME))
        made: list[Acl] = []
        for permission, principals in (("allow", self.allow_principal), ("deny", self.deny_principal)):
            if principals or (permission == "allow" and not self.deny_principal):
                made += rules_of(
                    resources,
                    principals=principals or (),
                    operations=[one.lower().replace("_", "-") for one in self.operation or ()],
                    hosts=self.host or ("*",),
                    permission=permission,
                    producer=self.producer,
                    consumer=self.consumer,
                )
        return made


@acl.command
def list_(
    connection: Connection,
    topic: str | None = option(None, "ACLs that apply to this topic.", "NAME"),
    group: str | None = option(None, "ACLs that apply to this group.", "NAME"),
    principal: str | None = option(None, "ACLs of this principal.", "User:NAME"),
    as_json: bool = AS_JSON,
) -> None:
    """List ACLs."""
    with connected(connection) as client:
        from suiro.client import AclFilter

        filters = [
            AclFilter(resource_type=kind, resource_name=name, pattern_type="match", principal=principal)
            for kind, name in (("topic", topic), ("group", group))
            if name is not None
        ]
        _print(_described(client, filters or [AclFilter(principal=principal)]), as_json)


@acl.command
def add(
    connection: Connection, rules: _Rules, dry_run: bool = option(False, "Only show the ACLs."), as_json: bool = AS_JSON
) -> None:
    """Add ACLs. Existing ACLs are not changed."""
    with connected(connection) as client:
        made = rules.made()
        if not dry_run:
            client.admin.create_acls(made)
        _print(made, as_json)
        if dry_run:
            note("nothing was changed")


@acl.command
def remove(connection: Connection, rules: _Rules, yes: bool = YES, as_json: bool = AS_JSON) -> None:
    """Remove ACLs: exactly those that `suiro acl add` with the same options adds."""
    with connected(connection) as client:
        from suiro.console.security import selecting

        made = rules.made()
        filters = [selecting(one) for one in made]
        there = _described(client, filters)
        if there:
            require_yes(f"Remove {len(there)} ACLs?", yes)
        gone = client.admin.delete_acls(filters) if there else ()
        _print(gone, as_json)
        if not gone:
            note("there was no such ACL")


def _described(client: Client, filters: Sequence[AclFilter]) -> list[Acl]:
    """Returns the rules that match any of the filters, each once."""
    return sorted({one for wanted in filters for one in client.admin.describe_acls(wanted)})


def _print(rules: Sequence[Acl], as_json: bool) -> None:
    print_rows(rules, as_json, "resource, name, pattern, principal, host, operation, permission", map(astuple, rules))
