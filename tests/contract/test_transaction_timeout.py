"""A transaction of the sink that outlasts its timeout: the broker aborts it, and no record of it is ever seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suiro.client import LATEST, Client, NewTopic
from suiro.node import NodeProcess
from suiro.protocol.records import Record, encode_batch
from suiro.spark.committer import MARKER_TOPIC, Committer, Destination, MicroBatch, Outcome
from suiro.spark.decide import Plan
from suiro.spark.staging import StagedWrites, StagingWriter
from tests.support.waiting import wait_until

TIMEOUT_MS = 500
EACH = 100


def test_it_is_written_again_right_after_a_start_and_later(tmp_path: Path) -> None:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": str(EACH)}
    slow = {0, 1}  # micro-batches
    with (
        NodeProcess.start(data=tmp_path, settings=settings) as node,
        Client(node.bootstrap_servers) as client,
    ):
        client.create_topics([NewTopic("out", 1), NewTopic(MARKER_TOPIC, 1)])

        def reach(point: str, number: int) -> None:
            if point == "after_produce" and number in slow:
                slow.remove(number)
                wait_until(lambda: is_decided(client), what="the timeout")

        destination = Destination(application_id="app", transaction_timeout_ms=TIMEOUT_MS)
        committer = Committer(client, destination, reach=reach)
        assert [committer.process(micro_batch("run", number)) for number in (0, 1)] == [Outcome.PRODUCED] * 2
        assert not slow
        assert committer.counts.fences == 2
        assert committed_values(client) == [b"0", b"1"]


def is_decided(client: Client) -> bool:
    """Nothing is open: the last stable offset is the log's end."""
    place = {("out", 0): LATEST}
    ends = [client.list_offsets(place, read_committed=only)["out", 0].offset for only in (True, False)]
    return ends[0] == ends[1]


def micro_batch(run: str, number: int) -> MicroBatch:
    with StagingWriter(None, "task") as writer:
        records = [Record(offset=0, timestamp=1, key=None, value=b"%d" % number)]
        writer.add("out", 0, encode_batch(records), 1)
        staged = writer.finish()
    plan = Plan(
        batch_id=number,
        lineage="query",
        run_id=run,
        start_digest=str(number - 1) if number else "",
        end_digest=str(number),
    )
    return MicroBatch(plan=plan, writes=StagedWrites([staged]))


def committed_values(client: Client) -> list[Any]:
    from support.spark_streams import Outputs

    return [row.value for row in Outputs(client, ["out"]).read()["out"]]
