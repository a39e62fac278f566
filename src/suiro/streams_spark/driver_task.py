"""Runs a small micro-batch of a stateless topology in the driver's Python instead of in a Spark task.

For some thousand records, Spark takes longer to plan a job, send its one task to a worker and collect the report than
the work itself takes: half of the time from a record's arrival to its results. So on one machine the driver does the
work of that task, by the same code over the same planned offsets, with the same results. Spark still plans the
micro-batch, writes it down before and notes it afterwards.
"""

from __future__ import annotations

import json

from suiro.spark import MicroBatchIdentity, given_up_when_stopped, read_planned
from suiro.streams_spark.program import Program
from suiro.streams_spark.shuffle_message import STAGED, Work
from suiro.streams_spark.source import TopologyReader


class DriverTask:
    """One for a run of a query."""

    def __init__(self, program: Program, text: str, *, master: str) -> None:
        self._program = program
        self._master = master
        self._reader = TopologyReader(text)

    @classmethod
    def where_it_serves(cls, program: Program, text: str, *, master: str) -> DriverTask | None:
        """None where state is kept, for that is Spark's, and where tasks run on other machines or in other JVMs."""
        is_here = master.startswith("local") and not master.startswith("local-cluster")
        return cls(program, text, master=master) if is_here and program.plan.levels == 0 else None

    def reports(self, identity: MicroBatchIdentity) -> list[bytes] | None:
        """The messages of sub `STAGED`, once the micro-batch is worked on: its rows are no others. None where there is
        enough of it for more tasks than one, or where its beginning is not known here: so it is for the first one."""
        from suiro.streams_spark.source_task import work_rows

        work = self._work(identity)
        if work is None:
            return None
        properties = {
            "spark.master": self._master,
            "sql.streaming.queryId": identity.query_id,
            "spark.jobGroup.id": identity.run_id,
            "streaming.sql.batchId": str(identity.batch_id),
            "task": "driver",
            "task index": "0",
        }
        found = work_rows(self._program, work, in_driver=properties)
        return [message for rows in found for sub, _, message in rows if sub == STAGED]

    def _work(self, identity: MicroBatchIdentity) -> Work | None:
        checkpoint = self._program.sink.checkpoint_location
        assert checkpoint is not None
        plans = [read_planned(checkpoint, identity.batch_id + step) for step in (-1, 0)]
        ends = [json.loads(plan.sources[0]) for plan in plans if plan is not None and plan.sources[0]]
        if len(ends) < 2:
            return None
        with given_up_when_stopped(identity.query_id, self._reader.give_up):
            partitions = self._reader.partitions(*ends)
        return partitions[0].value if len(partitions) == 1 else None
