"""`suiro group`: consumer groups, their lag, and their offsets."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated

from suiro.cli.command_groups import Argument, Group, Option
from suiro.cli.everyday import (
    AsJson,
    Connection,
    Yes,
    connected,
    note,
    print_fields,
    print_json,
    print_rows,
    print_table,
    require_yes,
    say,
    usage,
)
from suiro.numerals import whole_number

group = Group("group", "Consumer groups: list, describe with lag, reset offsets, delete.")

_Name = Annotated[str, Argument("GROUP")]
_Topics = Annotated[
    list[str] | None, Option("--topic", "TOPIC[:P,P]", "Only this topic, or only these partitions of it; repeatable.")
]


@group.command
def list_(connection: Connection, as_json: AsJson = False) -> None:
    """List the groups that this user may see."""
    with connected(connection) as client:
        found = client.admin.list_groups()
        columns = attrgetter("group", "state", "type", "protocol_type")
        print_rows(found, as_json, ("group", "state", "type", "protocol"), map(columns, found))


@group.command
def describe(
    names: Annotated[list[str], Argument("GROUP...")],
    connection: Connection,
    time: Annotated[
        bool,
        Option(
            "--time",
            help="Also show how long the first unread record of each partition has waited; this reads the record.",
        ),
    ] = False,
    members: Annotated[
        bool, Option("--members", help="Show the members and the partitions that each of them reads.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show state, members, offsets and lag."""
    with connected(connection) as client:
        from suiro.clock import SystemClock
        from suiro.console.groups import describe_group

        now_ms = SystemClock().wall_ms() if time else None
        found = [describe_group(client, name, now_ms=now_ms) for name in names]
        if as_json:
            print_json(found)
            return
        for number, one in enumerate(found):
            if number:
                say()
            print_fields(
                {
                    "group": one.group,
                    "state": one.state,
                    "type": one.type,
                    "assignor": one.assignor,
                    "coordinator": one.coordinator,
                    "members": len(one.members),
                    "lag": one.total_lag,
                }
            )
            if members:
                print_table(
                    ("member", "instance", "client", "host", "partitions"),
                    (
                        (
                            member.member_id,
                            member.instance_id,
                            member.client_id,
                            member.host,
                            [f"{topic}-{partition}" for topic, partition in member.assignment],
                        )
                        for member in one.members
                    ),
                )
                continue
            titles = ["topic", "partition", "committed", "end-offset", "lag", "client", "host"]
            rows = [
                [row.topic, row.partition, row.committed, row.end_offset, row.lag, row.client_id, row.host]
                for row in one.partitions
            ]
            if time:
                titles.insert(5, "lag-seconds")
                for cells, row in zip(rows, one.partitions, strict=True):
                    cells.insert(5, None if row.lag_ms is None else f"{row.lag_ms / 1000:.1f}")
            print_table(titles, rows)


@group.command
def reset(
    name: _Name,
    connection: Connection,
    topic: _Topics = None,
    all_topics: Annotated[
        bool, Option("--all-topics", help="All partitions for which the group has committed an offset.")
    ] = False,
    to_earliest: Annotated[bool, Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[
        bool, Option("--to-current", help="To the committed offset, or the end if there is none.")
    ] = False,
    to_offset: Annotated[int | None, Option("--to-offset", "OFFSET")] = None,
    to_datetime: Annotated[
        str | None, Option("--to-datetime", "TIME", "To the first record at or after this time: 2013-01-01T00:00Z.")
    ] = None,
    shift_by: Annotated[
        int | None, Option("--shift-by", "N", "Move forward by N records; backward if N is negative.")
    ] = None,
    execute: Annotated[
        bool, Option("--execute", help="Apply the change. Without it, the command only shows the change.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show the change. This is the default.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reset the offsets of a group without members. An offset that a partition does not have becomes the nearest one
    that it has."""
    from suiro.console.groups import Reset
    from suiro.console.text import parse_time

    wanted: list[Reset] = []
    wanted += [Reset(to="earliest")] * to_earliest + [Reset(to="latest")] * to_latest
    wanted += [Reset(to="current")] * to_current
    if to_offset is not None:
        wanted.append(Reset(to="offset", value=to_offset))
    if shift_by is not None:
        wanted.append(Reset(to="shift", value=shift_by))
    if to_datetime is not None:
        try:
            wanted.append(Reset(to="datetime", value=parse_time(to_datetime)))
        except (ValueError, OverflowError):
            usage(f"--to-datetime {to_datetime}: expected a time such as 2013-01-01T00:00Z")
    if len(wanted) != 1:
        usage("give one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --shift-by")
    if execute and dry_run:
        usage("give --execute or --dry-run, not both")
    if bool(topic) == all_topics:
        usage("give --topic or --all-topics")
    topics = None if all_topics else parse_topics(topic or [])
    with connected(connection) as client:
        from suiro.console.groups import plan_reset, reset_offsets

        planned = plan_reset(client, name, wanted[0], topics)
        if execute:
            reset_offsets(client, name, planned)
        print_rows(
            {"executed": execute, "offsets": planned},
            as_json,
            ("topic", "partition", "committed", "new-offset"),
            map(attrgetter("topic", "partition", "committed", "offset"), planned),
        )
        if not (execute or as_json):
            note("nothing was changed; give --execute to do it")


@group.command
def delete(
    names: Annotated[list[str], Argument("GROUP...")], connection: Connection, topic: _Topics = None, yes: Yes = False
) -> None:
    """Delete groups without members, or their committed offsets of some topics."""
    topics = parse_topics(topic or [])
    with connected(connection) as client:
        from suiro.console.groups import delete_offsets

        what = "the committed offsets of those topics for" if topics else "with all committed offsets:"
        require_yes(f"Delete {what} {', '.join(names)}?", yes)
        for name in names:
            if topics:
                delete_offsets(client, name, topics)
            else:
                client.admin.delete_group(name)
            say(f"deleted {'offsets of ' if topics else ''}group {name}")


def parse_topics(texts: list[str]) -> dict[str, list[int] | None]:
    """Parses texts TOPIC or TOPIC:0,1. Partitions of a repeated topic are added."""
    found: dict[str, list[int] | None] = {}
    for text in texts:
        name, colon, numbers = text.partition(":")
        try:
            partitions = [whole_number(one) for one in numbers.split(",")] if colon else None
        except ValueError:
            usage(f"--topic {text}: expected TOPIC or TOPIC:0,1,2")
        before = found.get(name, [])
        found[name] = None if partitions is None or before is None else [*before, *partitions]
    return found
