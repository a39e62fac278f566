"""`suiro spark adopt`: moves a query of Spark's own Kafka connector to format "suiro"."""

from __future__ import annotations

from typing import Annotated

from suiro.cli.command_groups import Argument, Group, Option
from suiro.cli.everyday import DEFAULT_BOOTSTRAP, BootstrapServers, reporting

spark = Group("spark", "Take over queries of Spark's own Kafka connector.")


@spark.command
def adopt(
    checkpoint: Annotated[
        str, Argument(metavar="CHECKPOINT", help="checkpointLocation of the stopped query: a path or a URI.")
    ],
    application_id: Annotated[str, Option(metavar="NAME", help="Option application.id of the new query.")],
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP,
    sink_name: Annotated[str, Option(metavar="NAME", help="Option sink.name of the new query, if it has one.")] = "",
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="A setting of the client, without `kafka.`; repeatable."),
    ] = None,
    rewrite_last: Annotated[
        bool,
        Option(
            "--rewrite-last",
            help="If the old job started a micro-batch and did not complete it, write all of it again.",
        ),
    ] = False,
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
