"""`suiro quota`: limits of produce, fetch and request rates, for users, clients and addresses."""

from __future__ import annotations

from typing import Annotated

from suiro.cli.command_groups import Group, Option
from suiro.cli.everyday import (
    AsJson,
    Bootstrap,
    CommandConfig,
    Profile,
    Yes,
    connected,
    print_json,
    print_table,
    require_yes,
    say,
    usage,
)

quota = Group("quota", "Quotas of users, client ids and addresses: list, set, remove.")

_QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_User = Annotated[str | None, Option("--user", "NAME")]
_UserDefault = Annotated[bool, Option("--user-default", help="All users that have none of their own.")]
_ClientId = Annotated[str | None, Option("--client-id", "ID")]
_ClientIdDefault = Annotated[bool, Option("--client-id-default", help="All client ids that have none.")]
_Ip = Annotated[str | None, Option("--ip", "ADDRESS")]
_IpDefault = Annotated[bool, Option("--ip-default", help="All addresses that have none of their own.")]


@quota.command
def list_(
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List all quotas."""
    with connected(bootstrap, profile, command_config) as client:
        found = client.admin.describe_quotas()
        if as_json:
            print_json([{"entity": dict(one.entity), "values": one.values} for one in found])
            return
        print_table(
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
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    command_config: CommandConfig = None,
    user: _User = None,
    user_default: _UserDefault = False,
    client_id: _ClientId = None,
    client_id_default: _ClientIdDefault = False,
    ip: _Ip = None,
    ip_default: _IpDefault = False,
    producer_byte_rate: Annotated[float | None, Option("--producer-byte-rate", "BYTES", "A second.")] = None,
    consumer_byte_rate: Annotated[float | None, Option("--consumer-byte-rate", "BYTES", "A second.")] = None,
    request_percentage: Annotated[
        float | None, Option("--request-percentage", "PERCENT", "Of a thread's time.")
    ] = None,
    controller_mutation_rate: Annotated[
        float | None, Option("--controller-mutation-rate", "N", "Partitions made or deleted a second.")
    ] = None,
    connection_creation_rate: Annotated[
        float | None, Option("--connection-creation-rate", "N", "A second; of an address.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only ask the broker whether it would.")] = False,
) -> None:
    """Set quotas of a user, a client id, both together, or an address."""
    rates = (
        producer_byte_rate,
        consumer_byte_rate,
        request_percentage,
        controller_mutation_rate,
        connection_creation_rate,
    )
    changes = {name: value for name, value in zip(_QUOTAS, rates, strict=True) if value is not None}
    if not changes:
        usage("give a quota, such as --producer-byte-rate 1048576")
    entity = _entity(user, user_default, client_id, client_id_default, ip, ip_default)
    with connected(bootstrap, profile, command_config) as client:
        from suiro.console.security import set_quotas

        set_quotas(client, entity, changes, validate_only=dry_run)
        say("the quotas can be set so" if dry_run else "set")


@quota.command
def remove(
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    command_config: CommandConfig = None,
    user: _User = None,
    user_default: _UserDefault = False,
    client_id: _ClientId = None,
    client_id_default: _ClientIdDefault = False,
    ip: _Ip = None,
    ip_default: _IpDefault = False,
    quota: Annotated[
        list[str] | None,
        Option("--quota", help="Only this one; repeatable. Default: all.", choices=_QUOTAS),
    ] = None,
    yes: Yes = False,
) -> None:
    """Take quotas away."""
    entity = _entity(user, user_default, client_id, client_id_default, ip, ip_default)
    with connected(bootstrap, profile, command_config) as client:
        from suiro.console.security import set_quotas

        there = [key for one in client.admin.describe_quotas(entity) for key in one.values]
        names = [key for key in there if not quota or key in quota]
        if names:
            require_yes(f"Remove {', '.join(names)}?", yes)
            set_quotas(client, entity, {}, names)
        say(f"removed {', '.join(names)}" if names else "there was no such quota")


def _entity(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> dict[str, str | None]:
    from suiro.console.security import check_quota_entity
    from suiro.errors import UsageError

    entity: dict[str, str | None] = {}
    named = (
        ("user", user, user_default),
        ("client-id", client_id, client_id_default),
        ("ip", ip, ip_default),
    )
    for kind, name, default in named:
        if name is not None and default:
            usage(f"give --{kind} or --{kind}-default, not both")
        if name is not None or default:
            entity[kind] = name
    if not entity:
        usage("whose quota? Give --user, --client-id or --ip, or one of them with -default")
    try:
        check_quota_entity(entity)
    except UsageError as error:
        usage(str(error))
    return entity
