"""`suiro cluster` and `suiro topic`: brokers, topics and their records."""

from __future__ import annotations

from suiro.cli import topic_records
from suiro.cli.command_groups import Group, argument, option
from suiro.cli.everyday import (
    AS_JSON,
    YES,
    Connection,
    assignments,
    connected,
    print_fields,
    print_json,
    print_rows,
    print_table,
    require_yes,
    say,
    usage,
)
from suiro.numerals import whole_number

cluster = Group("cluster")


@cluster.itself
def cluster_(connection: Connection, as_json: bool = AS_JSON) -> None:
    """Show the brokers, the number of topics and groups, and current problems."""
    with connected(connection) as client:
        from suiro.console.topics import describe_cluster

        found = describe_cluster(client)
        if as_json:
            print_json(found)
            return
        print_fields("cluster=cluster_id, topics, partitions, under-replicated, without-leader, groups", found)
        print_table(
            "broker=id, address, rack, controller",
            found.brokers,
            address="{0.host}:{0.port}".format,
            controller=lambda one: one.id == found.controller,
        )


topic = Group("topic")

_NAME = argument("TOPIC")
_CONFIG = option(None, "A setting of the topic; repeatable.", "NAME=VALUE")


@topic.command
def list_(
    connection: Connection,
    internal: bool = option(False, "Include the internal topics of the brokers."),
    as_json: bool = AS_JSON,
) -> None:
    """List the topics that this user may see."""
    with connected(connection) as client:
        from suiro.console.topics import list_topics

        rows = list_topics(client, internal=internal)
        columns = "topic=name, partitions, replication=replication_factor, under-replicated, without-leader"
        print_rows(rows, as_json, columns)


@topic.command
def describe(
    connection: Connection,
    names: list[str] = argument("TOPIC..."),
    configs: bool = option(False, "Show all settings with their sources, not only those that differ from the default."),
    as_json: bool = AS_JSON,
) -> None:
    """Show partitions, offsets, sizes and settings."""
    with connected(connection) as client:
        from suiro.console.topics import describe_topic

        found = [describe_topic(client, name) for name in names]
        if as_json:
            print_json(found)
            return
        columns = "partition, leader, replicas, in-sync, first-offset, end-offset, bytes=size_bytes"
        for number, one in enumerate(found):
            if number:
                say()
            print_fields("topic=name, id=topic_id", one)
            for entry in one.configs or ():
                if configs or not entry.is_default:
                    say(f"{entry.name}={'' if entry.value is None else entry.value} ({entry.source})")
            print_table(columns, one.partitions)


@topic.command
def create(
    connection: Connection,
    name: str = _NAME,
    partitions: int = option(-1, "-1: the broker's default.", "N"),
    replication_factor: int = option(-1, "-1: the broker's default.", "N"),
    config: list[str] | None = _CONFIG,
    if_not_exists: bool = option(False, "Do nothing if the topic exists."),
) -> None:
    """Create a topic, and wait until each partition has a leader."""
    settings = assignments(config or (), "--config")
    with connected(connection) as client:
        from suiro.console.topics import create_topic

        made = create_topic(
            client,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=settings,
            if_not_exists=if_not_exists,
        )
        say(f"created topic {name}" if made else f"topic {name} exists already")


@topic.command
def alter(
    connection: Connection,
    name: str = _NAME,
    partitions: int | None = option(None, "New number of partitions; it can only grow.", "N"),
    config: list[str] | None = _CONFIG,
    delete_config: list[str] | None = option(None, "Reset a setting to the broker's default; repeatable.", "NAME"),
    dry_run: bool = option(False, "Only ask the broker whether it would accept the change."),
) -> None:
    """Change settings or add partitions. More partitions change the partition of each key."""
    changes: dict[str, str | None] = {**assignments(config or (), "--config")}
    changes |= dict.fromkeys(delete_config or ())
    if not changes and partitions is None:
        usage("give --partitions, --config or --delete-config")
    with connected(connection) as client:
        from suiro.console.topics import alter_topic

        alter_topic(client, name, partitions=partitions, configs=changes, validate_only=dry_run)
        say(f"the broker would accept this change of topic {name}" if dry_run else f"altered topic {name}")


@topic.command
def delete(
    connection: Connection,
    names: list[str] = argument("TOPIC..."),
    if_exists: bool = option(False, "Ignore topics that do not exist."),
    yes: bool = YES,
) -> None:
    """Delete topics with all their records."""
    with connected(connection) as client:
        from suiro.console.topics import delete_topics

        require_yes(f"Delete {', '.join(names)} with every record?", yes)
        delete_topics(client, names, if_exists=if_exists)
        for name in names:
            say(f"deleted topic {name}")


@topic.command
def delete_records(
    connection: Connection,
    name: str = _NAME,
    before: list[str] | None = option(
        None, "Delete records before this offset; repeatable. Default: every record.", "PARTITION=OFFSET"
    ),
    yes: bool = YES,
) -> None:
    """Delete the records before an offset, or all records. The topic stays."""
    try:
        offsets = {
            whole_number(key): whole_number(value) for key, value in assignments(before or (), "--before").items()
        }
    except ValueError:
        usage("--before: expected PARTITION=OFFSET, two whole numbers")
    with connected(connection) as client:
        from suiro.console.topics import delete_records as delete

        require_yes(f"Delete {'records' if offsets else 'every record'} of {name}?", yes)
        begins = delete(client, name, offsets or None)
        print_table("partition, first-offset", begins.items())


for _function in (topic_records.records, topic_records.produce, topic_records.consume):
    topic.command(_function)
