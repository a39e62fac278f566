"""One cell's stage: topics of its own, a link to the broker that can fail, drivers that can be stopped, a reader.

The reader is a consumer that we did not write; what is in the log is read byte by byte beside it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, TopicPartition

from suiro.client import LATEST, Client, NewTopic
from suiro.demo.anomalies import Anomaly
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import control_type, decode_batch
from suiro.spark.committer import MARKER_TOPIC
from suiro.spark.decide import Marker
from suiro.views.cuts import Cut
from tests.matrix import checker, driver
from tests.matrix.driver import DONE, FENCED, GAVE_UP, PARTITIONS, SUPERSEDED, Checkpoint, Job
from tests.support.exactly_once import Place
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until

DEADLINE_S = 600  # of a machine that has much else to do
SETTLES_S = 60  # markers are written after the answer: what is decided may take a moment to be seen
LOOK_AGAIN_S = 0.05  # dozens of cells look at once
STARTS_MAX = 6
# A busy machine must not add a time-out to a cell: those that are about one set their own.
PATIENT = {"kafka.transaction.timeout.ms": "600000"}

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.matrix.preloaded"])


class Running:
    """A driver with its workers."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._process = _context.Process(target=driver.drive, args=(job,), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self._pid: int = self._process.pid

    def wait_stopped(self, *, beside: int = 0) -> int:
        """Until a fault has stopped one of its processes, beside so many others; its id."""

        def found() -> int | None:
            stopped = [pid for pid, state in _members(self._pid) if state == "T"]
            if not stopped and not self._process.is_alive():
                raise AssertionError(f"the driver ended ({self._process.exitcode}) before {self.job.fault}")
            return stopped[0] if len(stopped) > beside else None

        found_pid = wait_until(found, DEADLINE_S, self.job.fault, poll_s=LOOK_AGAIN_S)
        assert found_pid is not None
        return found_pid

    def kill(self) -> None:
        """kill -9 of all of it."""
        if self._process.is_alive():
            _send(self._pid, signal.SIGSTOP)  # it starts no further worker
            for pid, _ in _members(self._pid):
                _send(pid, signal.SIGKILL)
        self._process.join()

    def stop(self) -> None:
        for pid, _ in _members(self._pid):
            _send(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid, _ in _members(self._pid):
            _send(pid, signal.SIGCONT)

    def wait(self) -> int:
        self._process.join(DEADLINE_S)
        if self._process.is_alive():
            self.kill()
            raise AssertionError(f"the driver did not end within {DEADLINE_S} s")
        try:
            return int(driver.exit_file(self.job.directory, self._pid).read_text())
        except FileNotFoundError:
            assert self._process.exitcode is not None
            return self._process.exitcode

    @property
    def has_ended(self) -> bool:
        return not self._process.is_alive()


def _send(pid: int, what: signal.Signals) -> None:
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        pass


def _members(leader: int) -> list[tuple[int, str]]:
    """(pid, state) of a driver and its workers."""
    try:
        children = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
    except OSError:
        return []
    found = []
    for pid in (leader, *map(int, children)):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append((pid, state))
    return found


class Source:
    """The topic that all cells of one broker read."""

    def __init__(self, bootstrap: str, partitions: int = PARTITIONS) -> None:
        self.name = f"source-{uuid4().hex[:8]}"
        with Client(bootstrap) as client:
            client.create_topics([NewTopic(self.name, partitions), NewTopic(MARKER_TOPIC, 1)], exist_ok=True)
            topic_id = client.metadata([self.name])[self.name].topic_id
        assert topic_id is not None
        self.id = topic_id.hex


class Scene:
    def __init__(self, bootstrap: str, source: Source, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        directory.mkdir(parents=True)
        self.link = TcpProxy(bootstrap)
        name = uuid4().hex[:8]
        self.client = Client(bootstrap)
        outputs = (f"even-{name}", f"odd-{name}")
        self.client.create_topics([NewTopic(topic, PARTITIONS) for topic in outputs])
        self.job = Job(
            bootstrap=bootstrap,
            link=(self.link.target, self.link.address),
            directory=directory,
            application=f"app-{name}",
            source=source.name,
            source_id=source.id,
            outputs=outputs,
        )
        self._drivers: list[Running] = []
        self.codes: list[int] = []

    def close(self) -> None:
        for one in self._drivers:
            one.kill()
        self.link.close()
        try:
            self.client.delete_topics(self._topics, missing_ok=True)
        finally:
            self.client.close()

    @property
    def _topics(self) -> list[str]:
        return [*self.job.outputs, *([] if self.job.cuts is None else [self.job.cuts])]

    @property
    def _written(self) -> list[Place]:
        """Every partition that is written to."""
        outputs = [(topic, index) for topic in self.job.outputs for index in range(PARTITIONS)]
        return outputs if self.job.cuts is None else [*outputs, (self.job.cuts, 0)]

    # Drivers

    def start(self, fault: str = "", **changes: Any) -> Running:
        options = PATIENT | dict(changes.pop("options", {}))
        made = Running(replace(self.job, fault=fault, options=options, **changes))
        self._drivers.append(made)
        return made

    def finish(self, running: Running | None = None, **changes: Any) -> None:
        """Wait for it, and start another one as long as there is more to do, as a supervisor would."""
        for _ in range(STARTS_MAX):
            running = running or self.start(**changes)
            code = running.wait()
            self.codes.append(code)
            if code == DONE:
                return
            assert code in (FENCED, GAVE_UP, SUPERSEDED), f"the driver ended with {code}\n{self.said()}"
            running = None
        raise AssertionError(f"the drivers did not get ahead: {self.codes}\n{self.said()}")

    def said(self) -> str:
        path = self.directory / "driver.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    @property
    def speaks_v2(self) -> bool:
        """Whether the sink ended its transactions by protocol V2."""
        return any(api == "end_txn" and version >= 5 for api, version in self.link.asked)

    def write_cuts(self) -> None:
        """From now on every transaction ends with a footer."""
        cuts = f"cuts-{self.job.application}"
        self.client.create_topics([NewTopic(cuts, 1)])
        self.job = replace(self.job, cuts=cuts)

    # What can be seen

    def look(self, jobs: Sequence[Job] | None = None, *, complete: bool) -> None:
        """Fails with what is wrong. `complete`: everybody has ended, and everything must be there."""
        found: list[Anomaly] = []
        jobs = jobs or [self.job]

        def clean() -> bool:
            found[:] = checker.check(seen := self.observe(jobs, complete=complete))
            if complete and not found and seen.marker != len(seen.ends) - 1:
                found.append(Anomaly("lost write", f"all was written, the marker is at {seen.marker}"))
            return not found

        try:
            wait_until(clean, SETTLES_S, "a clean observation", poll_s=LOOK_AGAIN_S)
        except AssertionError:
            raise Violated(found, self.said()) from None

    def observe(self, jobs: Sequence[Job], *, complete: bool) -> checker.Observation:
        outputs = [(topic, index) for topic in self.job.outputs for index in range(PARTITIONS)]
        application = jobs[-1].application
        committed = self.client.offset_fetch(
            application,
            [(MARKER_TOPIC, 0), *((self.job.source, index) for index in range(PARTITIONS))],
            require_stable=complete,
        )
        marker = committed.pop((MARKER_TOPIC, 0), None)
        visible = read_committed(self.bootstrap, outputs)
        noted = max(
            (
                job.label + newest
                for job in jobs
                if (newest := Checkpoint(job.directory / job.checkpoint).newest("commits")) >= 0
            ),
            default=-1,
        )
        label = jobs[-1].label
        if marker is not None and len(jobs) > 1:
            lineage = Marker.from_metadata(marker.metadata).lineage
            for job in jobs:
                if Checkpoint(job.directory / job.checkpoint).query_id == lineage:
                    label = job.label
        return checker.Observation(
            expected=[one for job in jobs for one in job.expected()],
            ends=[job.ends(number) for job in jobs for number in range(job.batches)],
            visible=visible,
            raw={place: raw_records(self.client, place) for place in self._written},
            marker=-1 if marker is None else label + Marker.from_metadata(marker.metadata).batch_id,
            committed={place: found.offset for place, found in committed.items() if found is not None},
            noted=noted,
            stable=self.stable() if complete else {},
            footers=None if self.job.cuts is None else ((self.job.cuts, 0), self._footers(self.job.cuts)),
        )

    def _footers(self, topic: str) -> list[checker.Footer]:
        place, ends = (topic, 0), [self.job.ends(number) for number in range(self.job.batches)]
        found = []
        for offset, _, value in read_committed_values(self.bootstrap, [place])[place]:
            cut = Cut.from_json(json.loads(value))
            batch_id = ends.index(cut.inputs) if cut.inputs in ends else -1
            outputs = {(self.job.outputs[0], index): end for index, end in cut.outputs.items()}
            found.append(checker.Footer(offset, batch_id, cut.number, outputs))
        return found

    def stable(self) -> dict[Place, tuple[int, int]]:
        """(last stable offset, end) of everything that is written to."""
        wanted = dict.fromkeys(self._written, LATEST)
        stable = self.client.list_offsets(wanted, read_committed=True)
        ends = self.client.list_offsets(wanted)
        return {place: (stable[place].offset, ends[place].offset) for place in wanted}


class Violated(AssertionError):
    def __init__(self, anomalies: Sequence[Anomaly], said: str) -> None:
        words = "\n".join(f"  {one.name}: {one.words}" for one in anomalies[:12])
        super().__init__(f"{words}\n{said}")
        self.anomalies = list(anomalies)


def read_committed(bootstrap: str, places: Sequence[Place]) -> Mapping[Place, list[checker.Record]]:
    """What drivers of this folder wrote: the value ends with who wrote it."""
    found: dict[Place, list[checker.Record]] = {}
    for place, records in read_committed_values(bootstrap, places).items():
        found[place] = []
        for offset, key, text in records:
            value, _, attempt = text.rpartition(":")
            found[place].append(checker.Record(offset, key, value, attempt))
    return found


def read_committed_values(bootstrap: str, places: Sequence[Place]) -> Mapping[Place, list[tuple[int, str, str]]]:
    """(offset, key, value) up to the last stable offsets, as somebody else's consumer sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
        }
    )
    found: dict[Place, list[tuple[int, str, str]]] = {place: [] for place in places}
    at_end: set[Place] = set()

    def drained() -> bool:
        for message in consumer.consume(1000, timeout=0.2):
            place = (message.topic(), message.partition())
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(place)
            else:
                found[place].append((message.offset(), message.key().decode(), message.value().decode()))
        return len(at_end) == len(places)

    consumer.assign([TopicPartition(topic, index, 0) for topic, index in places])
    try:
        wait_until(drained, DEADLINE_S, "the end of every partition")
    finally:
        consumer.close()
    return found


def raw_records(client: Client, place: Place) -> list[checker.Raw]:
    end = client.list_offsets({place: LATEST})[place].offset
    found: list[checker.Raw] = []
    position = 0
    while position < end:
        data = client.fetch({place: position}, read_committed=False)[place].data
        for start, header in iter_headers(data):
            producer = (header.producer_id, header.producer_epoch)
            records = decode_batch(data, start)
            if header.is_control:
                found.append(checker.Raw(header.base_offset, producer, control_type(records[0])))
            else:
                found += [checker.Raw(header.base_offset + i, producer) for i in range(len(records))]
            position = header.next_offset
    return found
