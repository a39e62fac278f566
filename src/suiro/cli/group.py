"""`suiro group`: consumer groups, their lag, and their offsets."""

from __future__ import annotations

from suiro.cli.command_groups import Group, argument, option
from suiro.cli.everyday import (
    AS_JSON,
    YES,
    Connection,
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

group = Group("group")

_TOPICS = option(None, "Only this topic, or only these partitions of it; repeatable.", "TOPIC[:P,P]")


@group.command
def list_(connection: Connection, as_json: bool = AS_JSON) -> None:
    """List the groups that this user may see."""
    with connected(connection) as client:
        found = client.admin.list_groups()
        print_rows(found, as_json, "group, state, type, protocol=protocol_type")


@group.command
def describe(
    connection: Connection,
    names: list[str] = argument("GROUP..."),
    time: bool = option(
        False, "Also show how long the first unread record of each partition has waited; this reads the record."
    ),
    members: bool = option(False, "Show the members and the partitions that each of them reads."),
    as_json: bool = AS_JSON,
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
            columns = "group, state, type, assignor, coordinator, members, lag=total_lag"
            print_fields(columns, one, members=lambda one: len(one.members))
            if members:
                print_table(
                    "member=member_id, instance=instance_id, client=client_id, host, partitions",
                    one.members,
                    partitions=lambda one: [f"{topic}-{partition}" for topic, partition in one.assignment],
                )
                continue
            print_table(
                f"topic, partition, committed, end-offset, lag{', lag-seconds' * time}, client=client_id, host",
                one.partitions,
                lag_seconds=lambda row: None if row.lag_ms is None else f"{row.lag_ms / 1000:.1f}",
            )


@group.command
def reset(
    connection: Connection,
    name: str = argument("GROUP"),
    topic: list[str] | None = _TOPICS,
    all_topics: bool = option(False, "All partitions for which the group has committed an offset."),
    to_earliest: bool = option(False, "To the first record."),
    to_latest: bool = option(False, "To the end."),
    to_current: bool = option(False, "To the committed offset, or the end if there is none."),
    to_offset: int | None = option(None, metavar="OFFSET"),
    to_datetime: str | None = option(None, "To the first record at or after this time: 2013-01-01T00:00Z.", "TIME"),
    shift_by: int | None = option(None, "Move forward by N records; backward if N is negative.", "N"),
    execute: bool = option(False, "Apply the change. Without it, the command only shows the change."),
    dry_run: bool = option(False, "Only show the change. This is the default."),
    as_json: bool = AS_JSON,
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
        shown = {"executed": execute, "offsets": planned}
        print_rows(shown, as_json, "topic, partition, committed, new-offset=offset", planned)
        if not (execute or as_json):
            note("nothing was changed; give --execute to do it")


@group.command
def delete(
    connection: Connection, names: list[str] = argument("GROUP..."), topic: list[str] | None = _TOPICS, yes: bool = YES
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
