"""The cells for which Spark itself is needed: its own retries, its executors, its commit worker.

One query on Spark's `local-cluster` (a master, a worker and executor JVMs of their own) walks through all cells of one
who dies, a micro-batch each, and is started again whenever it dies. What it wrote is held against the same checker. Two
more queries are a topology whose tasks have state, and read their records themselves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import uuid4

from confluent_kafka import Producer

from suiro.client import Client, NewTopic
from suiro.demo.anomalies import Anomaly
from suiro.spark.checkpoint import read_planned
from suiro.spark.committer import MARKER_TOPIC
from suiro.spark.decide import Marker
from tests.matrix import cells, checker
from tests.matrix.brokers import Broker
from tests.matrix.campaign import Result, Tell
from tests.matrix.cells import Cell
from tests.matrix.scene import raw_records, read_committed_values
from tests.support.exactly_once import Place
from tests.support.spark_cluster import kill_session

MASTER = "local-cluster[1,2,1024]"
PARTITIONS = 3
RECORDS = 30  # a micro-batch
FINISH_S = 3600  # of a machine that has much else to do
Action = Literal["kill", "kill-executor", "kill-session"]
WHO: dict[Action, str] = {
    "kill": cells.SPARK_WORKER,
    "kill-executor": cells.EXECUTOR,
    "kill-session": cells.SPARK_DRIVER,
}
DRIVER_POINTS = ("task_staged", "after_first_produce", "after_commit_offsets", "after_end")
STATE_POINTS = (*cells.TASKS, "after_produce", *cells.DECIDED)


class Planned(NamedTuple):
    cell: Cell
    action: Action
    point: str
    kind: Literal["format", "state"] = "format"

    def fault(self, batch: int) -> str:
        return f"{self.point}@batch={batch}:{self.action}"


def schedule() -> list[Planned]:
    points = (*cells.FENCING, *cells.TASKS, *cells.OPEN, *cells.DECIDED)
    wanted: list[tuple[Action, str]] = [("kill-executor", point) for point in points]
    wanted += [("kill", point) for point in points]
    wanted += [("kill-session", point) for point in DRIVER_POINTS]
    found = [Planned(Cell(who=WHO[action], when=point, run=_together), action, point) for action, point in wanted]
    actions: list[Action] = ["kill-executor", "kill-session"]
    for action in actions:
        who = WHO[action].replace("Spark", cells.WITH_STATE)
        found += [Planned(Cell(who=who, when=point, run=_together), action, point, "state") for point in STATE_POINTS]
    return found


def _together() -> None:
    raise NotImplementedError("Spark's cells run together: run_spark")


def run_spark(
    broker: Broker, directory: Path, tell: Tell, wanted: Callable[[Cell], bool] = lambda cell: True
) -> list[Result]:
    results: list[Result] = []
    queries: dict[str, list[Planned]] = {}
    for one in schedule():
        if wanted(one.cell):
            queries.setdefault(f"{one.kind}-{one.action}", []).append(one)
    for name, chosen in queries.items():
        results += _run_query(broker, directory / name, tell, chosen)
    return results


def _run_query(broker: Broker, directory: Path, tell: Tell, chosen: Sequence[Planned]) -> list[Result]:
    """A query begins with a fence, in micro-batch 0; each other step has a micro-batch of its own."""
    directory.mkdir(parents=True)
    begin = [one for one in chosen if one.point in cells.FENCING]
    others = [one for one in chosen if one.point not in cells.FENCING]
    planned = [(one.cell, one.fault(0)) for one in begin]
    planned += [(one.cell, one.fault(number)) for number, one in enumerate(others, 1)]
    batches = 2 + len(others)
    (directory / "faults").mkdir()
    name = uuid4().hex[:8]
    source, outputs = f"source-{name}", (f"even-{name}", f"odd-{name}")
    with Client(broker.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic, PARTITIONS) for topic in (source, *outputs)])
    _fill(broker.bootstrap_servers, source, batches * RECORDS)
    failure = ""
    anomalies: list[str] = []
    try:
        _drive(broker, directory, source, outputs, [fault for _, fault in planned], chosen[0].kind)
        found = checker.check(seen := _observe(broker, directory, source, outputs))
        if len(seen.expected) != batches * RECORDS:  # the checker knows only what was planned
            words = f"{len(seen.expected)} of {batches * RECORDS} records of the source were planned"
            found.append(Anomaly("lost write", words))
        anomalies = [one.name for one in found]
        failure = "\n".join(f"  {one.name}: {one.words}" for one in found)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    results = []
    for cell, fault in planned:
        happened = (directory / "faults" / fault.replace("@batch=", "-").replace(":", "-")).exists()
        missed = "" if happened else f"the fault {fault} never happened"
        results.append(Result(cell=cell, failure=failure or missed, anomalies=anomalies))
        tell(results[-1])
        failure = failure and "as before"
    return results


def _drive(
    broker: Broker, directory: Path, source: str, outputs: tuple[str, str], faults: list[str], kind: str
) -> None:
    application = f"copy-{source}"
    arguments = [
        broker.bootstrap_servers,
        str(directory / application),
        source,
        *outputs,
        str(RECORDS),
        MASTER,
        application,
        kind,
    ]
    environment = {
        "SUIRO_FAULT": ",".join(faults),
        "SUIRO_FAULT_ONCE": str(directory / "faults"),
    }
    for _ in range(2 * len(STATE_POINTS) + 2):
        with (directory / "driver.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.exactly_once_driver", *arguments],
                env=os.environ | environment,
                cwd=Path(__file__).parents[2],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            code = process.wait(FINISH_S)
        finally:
            kill_session(process.pid)
        if code == 0:
            return
        said = (directory / "driver.log").read_text(errors="replace")[-3000:]
        assert code == -signal.SIGKILL, f"the driver ended with {code}\n{said}"
    raise AssertionError("the driver died more often than it was killed")


def _fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, key=str(number), value=str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def _observe(broker: Broker, directory: Path, source: str, outputs: tuple[str, str]) -> checker.Observation:
    """Record n stands at offset n / 3 of source partition n % 3; the checkpoint says which micro-batch read it."""
    ends: list[dict[Place, int]] = []
    batch_of: dict[tuple[int, int], int] = {}
    while (planned := read_planned(str(directory / f"copy-{source}"), len(ends))) is not None:
        number = len(ends)
        ends.append(dict(planned.positions[0].offsets))
        for partition in range(PARTITIONS):
            first = ends[number - 1].get((source, partition), 0) if number else 0
            for offset in range(first, ends[number].get((source, partition), 0)):
                batch_of[partition, offset] = number
    places = [(topic, index) for topic in outputs for index in range(PARTITIONS)]
    visible: dict[Place, list[checker.Record]] = {}
    for place, records in read_committed_values(broker.bootstrap_servers, places).items():
        visible[place] = []
        for offset, _, value in records:
            partition, at = int(value) % PARTITIONS, int(value) // PARTITIONS
            text = f"{batch_of.get((partition, at), -1)}:{partition}:{at}"
            visible[place].append(checker.Record(offset, str(partition), text))
    expected = sorted(
        (batch, outputs[offset % 2], str(partition), f"{batch}:{partition}:{offset}")
        for (partition, offset), batch in batch_of.items()
    )
    with Client(broker.bootstrap_servers) as client:
        committed = client.offset_fetch(
            f"copy-{source}", [(MARKER_TOPIC, 0), *((source, index) for index in range(PARTITIONS))]
        )
        marker = committed.pop((MARKER_TOPIC, 0), None)
        stable = client.list_offsets(dict.fromkeys(places, -1), read_committed=True)
        end = client.list_offsets(dict.fromkeys(places, -1))
        return checker.Observation(
            expected=expected,
            ends=ends,
            visible=visible,
            raw={place: raw_records(client, place) for place in places},
            marker=-1 if marker is None else Marker.from_metadata(marker.metadata).batch_id,
            committed={place: found.offset for place, found in committed.items() if found is not None},
            noted=len(ends) - 1,
            stable={place: (stable[place].offset, end[place].offset) for place in places},
        )
