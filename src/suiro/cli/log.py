"""`suiro log import`: imports topic folders of Apache Kafka into a node."""

from __future__ import annotations

import sys
from pathlib import Path

from suiro.cli.command_groups import Group, argument, option
from suiro.cli.everyday import reporting

log = Group("log", "Import topics of Apache Kafka into a stopped node.")


@log.command
def import_(
    folders: list[Path] = argument("FOLDER", "Folder of a partition, such as /kafka/flights-0."),
    data: Path = option(..., "Data directory of the node.", "DIR"),
    config: list[str] | None = option(
        None,
        "A setting of the imported topics, such as retention.ms=-1, because the folders do not contain settings; "
        "repeatable.",
        "NAME=VALUE",
    ),
) -> None:
    """Import topics that Apache Kafka wrote into the data directory of a node. Both must be stopped.

    Every batch is checked while it is copied. Either all topics are imported, or none.
    """
    from suiro.broker import import_topics
    from suiro.clock import SystemClock
    from suiro.foundation.settings import assignments

    with reporting("suiro log import"):
        configs = assignments(config or (), "--config")
        imported = import_topics(data, folders, configs=configs, clock=SystemClock())
    for topic in imported:
        print(
            f"{topic.name}: {topic.partitions} partitions, {topic.records} offsets, {topic.size} bytes "
            f"(topic id {topic.topic_id})"
        )
        for partition, producer_id, offset in topic.open_transactions:
            print(
                f"{topic.name}-{partition}: the transaction of producer {producer_id} is open since offset {offset}, "
                "and readers of committed records stop there; once the node runs, end it with kafka-transactions.sh "
                f"--bootstrap-server HOST:PORT abort --topic {topic.name} --partition {partition} "
                f"--start-offset {offset}",
                file=sys.stderr,
            )
