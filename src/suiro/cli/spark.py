"""`suiro spark adopt`: moves a query of Spark's own Kafka connector to format "suiro"."""

from __future__ import annotations

from typing import Annotated

from suiro.cli.command_groups import Argument, Group, Option
from suiro.cli.everyday import reporting

spark = Group("spark", "Queries of Spark Structured Streaming.")


@spark.command
def adopt(
    checkpoint: Annotated[
        str,
        Argument(metavar="CHECKPOINT", help="The stopped query's checkpointLocation: a path or a URI."),
    ],
    application_id: Annotated[
        str, Option(metavar="NAME", help="The option application.id that the query will have.")
    ],
    bootstrap_servers: Annotated[
        str, Option(metavar="HOST:PORT", help="The cluster that the query reads and writes.")
    ] = "127.0.0.1:9092",
    sink_name: Annotated[
        str, Option(metavar="NAME", help="The option sink.name, where it will have one.")
    ] = "",
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="A setting of the client, without `kafka.`."),
    ] = None,
    rewrite_last: Annotated[
        bool,
        Option(
            "--rewrite-last",
            help="The old job began a micro-batch and did not finish it: write all of it again.",
        ),
    ] = False,
) -> None:
    """Make a checkpoint of Spark's own Kafka connector one that format "suiro" goes on from.

    The checkpoint is only read. Afterwards start the query with it, with format "suiro" in both places.
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
        print(f"{topic}-{partition}: goes on at offset {offset}")
    print(f"query {adopted.query_id}: micro-batch {adopted.micro_batch + 1} is the first of format suiro")
