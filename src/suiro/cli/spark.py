"""`suiro spark adopt`: moves a query of Spark's own Kafka connector to format "suiro"."""

from __future__ import annotations

from suiro.cli.command_groups import Group, argument, option
from suiro.cli.everyday import BOOTSTRAP_SERVERS, reporting

spark = Group("spark")


@spark.command
def adopt(
    checkpoint: str = argument("CHECKPOINT", "checkpointLocation of the stopped query: a path or a URI."),
    application_id: str = option(..., "Option application.id of the new query.", "NAME"),
    bootstrap_servers: str = BOOTSTRAP_SERVERS,
    sink_name: str = option("", "Option sink.name of the new query, if it has one.", "NAME"),
    set_: list[str] | None = option(None, "A setting of the client, without `kafka.`; repeatable.", "NAME=VALUE"),
    rewrite_last: bool = option(
        False, "If the old job started a micro-batch and did not complete it, write all of it again."
    ),
) -> None:
    """Let a query with format "suiro" continue from a checkpoint of Spark's own Kafka connector.

    The command only reads the checkpoint, and writes a marker to Kafka. Then start the query with this checkpoint, and
    with format "suiro" in its source and its sink.
    """
    from suiro.foundation.settings import assignments
    from suiro.spark import adopt as adopt_checkpoint

    with reporting("suiro spark adopt"):
        adopted = adopt_checkpoint(
            checkpoint,
            application_id=application_id,
            bootstrap_servers=bootstrap_servers,
            sink_name=sink_name,
            settings=assignments(set_ or (), "--set"),
            rewrite_last=rewrite_last,
        )
    for (topic, partition), offset in sorted(adopted.offsets.items()):
        print(f"{topic}-{partition}: continues at offset {offset}")
    print(f"query {adopted.query_id}: micro-batch {adopted.micro_batch + 1} is the first of format suiro")
