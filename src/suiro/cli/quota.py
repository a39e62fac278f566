"""`suiro quota`: limits of produce, fetch and request rates, for users, clients and addresses."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Annotated

from suiro.cli.command_groups import Group, Option
from suiro.cli.everyday import AsJson, Connection, Yes, connected, print_rows, require_yes, say, usage

quota = Group("quota", "Quotas of users, client ids and addresses: list, set, remove.")


@dataclass(frozen=True, slots=True)
class _Entity:
    """The options that select the entity of a quota."""

    user: Annotated[str | None, Option("--user", "NAME")] = None
    user_default: Annotated[bool, Option("--user-default", help="All users without a quota of their own.")] = False
    client_id: Annotated[str | None, Option("--client-id", "ID")] = None
    client_id_default: Annotated[
        bool, Option("--client-id-default", help="All client ids without a quota of their own.")
    ] = False
    ip: Annotated[str | None, Option("--ip", "ADDRESS")] = None
    ip_default: Annotated[bool, Option("--ip-default", help="All addresses without a quota of their own.")] = False

    def named(self) -> dict[str, str | None]:
        """Returns names by kind; None is the default."""
        from suiro.console.security import check_quota_entity
        from suiro.errors import UsageError

        entity: dict[str, str | None] = {}
        for kind, name, default in (
            ("user", self.user, self.user_default),
            ("client-id", self.client_id, self.client_id_default),
            ("ip", self.ip, self.ip_default),
        ):
            if name is not None and default:
                usage(f"give --{kind} or --{kind}-default, not both")
            if name is not None or default:
                entity[kind] = name
        if not entity:
            usage("give --user, --client-id or --ip, or one of them with -default")
        try:
            check_quota_entity(entity)
        except UsageError as error:
            usage(str(error))
        return entity


@dataclass(frozen=True, slots=True)
class _Quotas:
    """An option for each quota, by Kafka's name."""

    producer_byte_rate: Annotated[float | None, Option("--producer-byte-rate", "BYTES", "Bytes a second to write.")] = (
        None
    )
    consumer_byte_rate: Annotated[float | None, Option("--consumer-byte-rate", "BYTES", "Bytes a second to read.")] = (
        None
    )
    request_percentage: Annotated[
        float | None, Option("--request-percentage", "PERCENT", "Share of one thread's time.")
    ] = None
    controller_mutation_rate: Annotated[
        float | None, Option("--controller-mutation-rate", "N", "Partitions created or deleted a second.")
    ] = None
    connection_creation_rate: Annotated[
        float | None, Option("--connection-creation-rate", "N", "New connections a second from an address.")
    ] = None


_NAMES = tuple(one.name for one in fields(_Quotas))


@quota.command
def list_(connection: Connection, as_json: AsJson = False) -> None:
    """List all quotas."""
    with connected(connection) as client:
        found = client.admin.describe_quotas()
        print_rows(
            [{"entity": dict(one.entity), "values": one.values} for one in found],
            as_json,
            ("entity", "quota", "value"),
            (
                (
                    " ".join(f"{kind}={'(default)' if name is None else name}" for kind, name in one.entity),
                    key,
                    f"{value:.10g}",
                )
                for one in found
                for key, value in one.values.items()
            ),
        )


@quota.command
def set_(
    connection: Connection,
    entity: _Entity,
    quotas: _Quotas,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only ask the broker whether it would accept the quotas.")
    ] = False,
) -> None:
    """Set quotas of a user, a client id, both together, or an address."""
    changes = {name: value for name, value in asdict(quotas).items() if value is not None}
    if not changes:
        usage("give a quota, such as --producer-byte-rate 1048576")
    named = entity.named()
    with connected(connection) as client:
        from suiro.console.security import set_quotas

        set_quotas(client, named, changes, validate_only=dry_run)
        say("the broker would accept these quotas" if dry_run else "set the quotas")


@quota.command
def remove(
    connection: Connection,
    entity: _Entity,
    quota: Annotated[
        list[str] | None, Option("--quota", help="Only this quota; repeatable. Default: all.", choices=_NAMES)
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove quotas."""
    named = entity.named()
    with connected(connection) as client:
        from suiro.console.security import set_quotas

        there = [key for one in client.admin.describe_quotas(named) for key in one.values]
        names = [key for key in there if not quota or key in quota]
        if names:
            require_yes(f"Remove {', '.join(names)}?", yes)
            set_quotas(client, named, {}, names)
        say(f"removed {', '.join(names)}" if names else "there was no such quota")
