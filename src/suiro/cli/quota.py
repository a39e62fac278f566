"""`suiro quota`: limits of produce, fetch and request rates, for users, clients and addresses."""

from __future__ import annotations

from dataclasses import asdict, fields

from suiro.cli.command_groups import Group, option, options
from suiro.cli.everyday import AS_JSON, YES, Connection, connected, print_rows, require_yes, say, usage

quota = Group("quota")


@options
class _Entity:
    """The options that select the entity of a quota."""

    user: str | None = option(None, metavar="NAME")
    user_default: bool = option(False, "All users without a quota of their own.")
    client_id: str | None = option(None, metavar="ID")
    client_id_default: bool = option(False, "All client ids without a quota of their own.")
    ip: str | None = option(None, metavar="ADDRESS")
    ip_default: bool = option(False, "All addresses without a quota of their own.")

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


@options
class _Quotas:
    """An option for each quota, by Kafka's name."""

    producer_byte_rate: float | None = option(None, "Bytes a second to write.", "BYTES")
    consumer_byte_rate: float | None = option(None, "Bytes a second to read.", "BYTES")
    request_percentage: float | None = option(None, "Share of one thread's time.", "PERCENT")
    controller_mutation_rate: float | None = option(None, "Partitions created or deleted a second.", "N")
    connection_creation_rate: float | None = option(None, "New connections a second from an address.", "N")


_NAMES = tuple(one.name for one in fields(_Quotas))


@quota.command
def list_(connection: Connection, as_json: bool = AS_JSON) -> None:
    """List all quotas."""
    with connected(connection) as client:
        found = client.admin.describe_quotas()
        print_rows(
            [{"entity": dict(one.entity), "values": one.values} for one in found],
            as_json,
            "entity, quota, value",
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
    dry_run: bool = option(False, "Only ask the broker whether it would accept the quotas."),
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
    quota: list[str] | None = option(None, "Only this quota; repeatable. Default: all.", choices=_NAMES),
    yes: bool = YES,
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
