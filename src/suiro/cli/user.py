"""`suiro user`: SCRAM users."""

from __future__ import annotations

from suiro.cli.command_groups import Group, argument, option
from suiro.cli.everyday import AS_JSON, YES, Connection, ask_password, connected, print_rows, require_yes, say

user = Group("user")

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_NAME = argument("USER")


@user.command
def list_(connection: Connection, as_json: bool = AS_JSON) -> None:
    """List SCRAM users, without their passwords."""
    with connected(connection) as client:
        found = client.admin.describe_scram_users()
        print_rows(
            found,
            as_json,
            "user=name, mechanisms, iterations",
            mechanisms=lambda one: list(one.mechanisms),
            iterations=lambda one: list(one.mechanisms.values()),
        )


@user.command
def add(
    connection: Connection,
    name: str = _NAME,
    mechanism: str = option("SCRAM-SHA-512", choices=_MECHANISMS),
    iterations: int = option(8192, "Hash iterations. More iterations make guessing passwords slower.", "N"),
) -> None:
    """Set the password of a new or existing user.

    On a terminal, the command asks for the password. Otherwise it reads the first line of the standard input. The
    password does not leave this machine: the brokers get a salted hash.
    """
    with connected(connection) as client:
        client.admin.upsert_scram_user(name, ask_password(f" of {name}"), mechanism=mechanism, iterations=iterations)
        say(f"user {name} can log in by {mechanism}")


@user.command
def remove(
    connection: Connection,
    name: str = _NAME,
    mechanism: str | None = option(None, "Only this mechanism. Default: all.", choices=_MECHANISMS),
    yes: bool = YES,
) -> None:
    """Remove the passwords of a user."""
    with connected(connection) as client:
        from suiro.console.security import remove_user

        require_yes(f"Remove user {name}?", yes)
        remove_user(client, name, mechanism)
        say(f"user {name} cannot log in by {mechanism or 'SCRAM'} any more")
