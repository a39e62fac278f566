"""Versions of a view on Spark, as processes that die: at its cuts the output is what the inputs make, and two versions
have cuts at equal inputs, and equal rows there."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.http_peer import Answer, HttpPeer
from support.openlineage import events_of
from support.waiting import wait_until

from suiro.client import LATEST, Client, NewTopic
from suiro.protocol import columnar
from suiro.protocol.records import Record, encode_batch
from suiro.views import Cut, CutLog, RowCodec, VersionSpec, topology_of
from suiro.views.pipeline.archive import Code, archive_of, code_id
from suiro.views.pipeline.pace import ask_throttle
from suiro.views.pipeline.process import PipelineProcess, PipelineStatus

# CI's time: three and six starts of Spark. The demo goes the same way in every CI run, its kill included.
pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1_800)]

PARTITIONS = 2
DEADLINE_S = 300.0
ENTRY = "words_app.py:words"
APP = """
from suiro.streams import serdes
from suiro.views import view

@view("{name}", key="word")
def words(builder):
    words = builder.stream("{topic}", key=serdes.string, value=serdes.string)
    counts = words.group_by(lambda key, word: word, key=serdes.string).count()
    return counts.map_values(lambda count: {{"count": count * {factor}}}, value=serdes.json)
"""


class World:
    """An input topic, what is in it, and versions that read it."""

    def __init__(self, bootstrap_servers: str, folder: Path, name: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.folder = folder
        self.name = name
        self.topic = f"{name}-words"
        self.client = Client(bootstrap_servers)
        self.client.create_topics([NewTopic(self.topic, PARTITIONS, configs={"retention.ms": "-1"})])
        self.words: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
        self.running: list[PipelineProcess] = []
        self._logs: dict[str, tuple[CutLog, list[Cut]]] = {}

    def send(self, count: int) -> None:
        for partition, words in self.words.items():
            at = len(words)
            new = [f"w{(n * 5 + partition) % 13}" for n in range(at, at + count)]
            records = [
                Record(offset=n, timestamp=1_700_000_000_000 + at + n, key=b"k", value=word.encode())
                for n, word in enumerate(new)
            ]
            self.client.produce({(self.topic, partition): encode_batch(records)})
            words += new

    def spec(self, number: int, leader: VersionSpec | None = None, **settings: str) -> tuple[VersionSpec, bytes]:
        code = self.code(number)
        named = {"max.offsets.per.trigger": "400"} | {name.replace("_", "."): text for name, text in settings.items()}
        definition = Code(code).load(ENTRY)
        return (
            VersionSpec.of(definition, number, code=code_id(code), entry=ENTRY, settings=named, leader=leader),
            code,
        )

    def code(self, number: int) -> bytes:
        path = self.folder / "words_app.py"
        path.write_text(APP.format(name=self.name, topic=self.topic, factor=number))
        return archive_of(path)

    def start(self, spec: VersionSpec, code: bytes) -> PipelineProcess:
        made = PipelineProcess.start(spec, code=code, folder=self.place(spec), bootstrap_servers=self.bootstrap_servers)
        assert (self.place(spec) / "spec.json").stat().st_mode & 0o077 == 0  # settings may be passwords
        self.running.append(made)
        return made

    def place(self, spec: VersionSpec) -> Path:
        return self.folder / f"v{spec.version}"

    def until(self, process: PipelineProcess, spec: VersionSpec, what: Callable[[PipelineStatus], bool]) -> None:
        def there() -> bool:
            status = process.status
            if what(status):
                return True
            log = self.place(spec) / "pipeline.log"
            assert process.is_alive, f"{status}\n{log.read_text(errors='replace')[-4000:]}"
            return False

        wait_until(there, what=f"version {spec.version}", deadline_s=DEADLINE_S)

    def until_ready(self, process: PipelineProcess, spec: VersionSpec) -> None:
        self.until(process, spec, lambda status: status.state == "ready")

    def until_all_is_read(self, process: PipelineProcess, spec: VersionSpec) -> None:
        ends = {(self.topic, partition): len(words) for partition, words in self.words.items()}
        self.until(process, spec, lambda status: status.state in ("running", "ready"))

        def there() -> bool:
            assert process.is_alive, process.status
            cuts = self.cuts(spec)
            return bool(cuts) and cuts[-1].inputs == ends

        wait_until(there, what=f"version {spec.version} to read all", deadline_s=DEADLINE_S)

    def cuts(self, spec: VersionSpec) -> list[Cut]:
        log, found = self._logs.setdefault(spec.cuts_topic, (CutLog(self.client, spec.cuts_topic), []))
        found += log.poll(max_wait_ms=200)
        return list(found)

    def check(self, spec: VersionSpec) -> list[Cut]:
        """At each cut at which no record waits for another partition's, the rows are a count of the inputs up to it."""
        cuts = self.cuts(spec)
        assert [cut.number for cut in cuts] == list(range(len(cuts)))
        assert not cuts[-1].behind
        rows = self.rows(spec)
        for cut in cuts:
            expected: Counter[str] = Counter()
            for partition, words in self.words.items():
                expected.update(words[: cut.inputs.get((self.topic, partition), 0)])
            if not cut.behind:
                assert rows[cut.number] == dict(expected), cut
        return cuts

    def check_together(self, one: VersionSpec, two: VersionSpec) -> None:
        """Where both have a cut, they have the same rows; the newest of each is one."""
        ours, theirs = self.check(one), self.check(two)
        met = [(old, new) for old in ours for new in theirs if new.meets(old)]
        assert (ours[-1], theirs[-1]) in met
        old_rows, new_rows = self.rows(one), self.rows(two)
        for old, new in met:
            assert old_rows[old.number] == new_rows[new.number], (old, new)

    def rows(self, spec: VersionSpec) -> dict[int, dict[str, int]]:
        """Cut -> word -> how often."""
        output = {partition: self._output(spec.output_topic, partition) for partition in range(PARTITIONS)}
        codec = RowCodec(topology_of(Code(self.code(spec.version)).load(ENTRY), spec.output_topic), spec.key)
        found = {}
        for cut in self.cuts(spec):
            rows: dict[str, int] = {}
            for partition, records in output.items():
                seen = [(key, value) for offset, key, value in records if offset < cut.outputs[partition]]
                keys, texts = codec.decode([key for key, _ in seen], [value for _, value in seen])
                for (word,), text in zip(keys, texts, strict=True):
                    rows[word], rest = divmod(json.loads(text or "null")["count"], spec.version)
                    assert rest == 0, "a row of another version"
            found[cut.number] = rows
        return found

    def _output(self, topic: str, partition: int) -> list[tuple[int, bytes, bytes | None]]:
        place, at, found = (topic, partition), 0, list[tuple[int, bytes, bytes | None]]()
        end = self.client.list_offsets({place: LATEST}, read_committed=True)[place].offset
        while at < end:
            fetched = self.client.fetch({place: at})[place]
            decoded = columnar.decode(fetched.data, start_offset=at, end_offset=end, aborted=fetched.aborted)
            columns = [decoded.batch.column(name).to_pylist() for name in ("offset", "key", "value")]
            found += zip(*columns, strict=True)
            at = decoded.next_offset
        return found


@pytest.fixture
def world(suiro_node: Any, tmp_path: Path, unique: str) -> Iterator[World]:
    made = World(suiro_node.bootstrap_servers, tmp_path, unique.replace("-", "_"))
    yield made
    for process in made.running:
        process.kill()
    made.client.close()


def test_two_versions_meet_at_equal_offsets_and_a_kill_in_a_transaction_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.send(500)
    one, code = world.spec(1)
    monkeypatch.setenv("SUIRO_FAULT", "after_trailing_record@batch=1:kill-session")  # its cut is written, not committed
    first = world.start(one, code)
    wait_until(lambda: not first.is_alive, what="version 1 to be killed", deadline_s=DEADLINE_S)
    assert "signal 9" in str(first.kill().error)
    monkeypatch.delenv("SUIRO_FAULT")
    assert [cut.number for cut in world.cuts(one)] == [0]
    first = world.start(one, code)
    world.until_ready(first, one)

    two, code = world.spec(2, leader=one)
    second = world.start(two, code)
    world.send(37)
    world.until_ready(second, two)
    world.send(41)
    for process, spec in ((first, one), (second, two)):
        world.until_all_is_read(process, spec)
    world.check_together(one, two)
    for process in (second, first):
        assert process.stop().state == "ended"


def test_lost_state_a_throttle_and_a_leader_that_is_gone(world: World) -> None:
    world.send(500)
    one, code = world.spec(1)
    first = world.start(one, code)
    world.until_all_is_read(first, one)
    first.kill()
    before = world.cuts(one)
    shutil.rmtree(world.place(one))  # its machine is gone
    world.send(60)
    first = world.start(one, code)
    world.until_all_is_read(first, one)
    cuts = world.check(one)
    assert cuts[: len(before)] == before

    two, code = world.spec(2, leader=one)
    world.place(two).mkdir()
    ask_throttle(world.place(two), 0)
    second = world.start(two, code)
    world.until(second, two, lambda status: status.progress is not None)
    assert not [cut for cut in world.cuts(two) if any(cut.inputs.values())], "it pauses"
    ask_throttle(world.place(two), None)
    world.until_ready(second, two)

    # The leader stands still though there is more: the other one goes on alone, and is met again.
    first.kill()
    world.send(50)
    world.until_all_is_read(second, two)
    first = world.start(one, world.code(1))
    world.until_all_is_read(first, one)
    world.send(20)
    for process, spec in ((first, one), (second, two)):
        world.until_all_is_read(process, spec)
    world.check_together(one, two)

    # It is retired: nobody leads any more.
    first.stop()
    world.client.delete_topics([one.output_topic, one.cuts_topic])
    world.send(30)
    world.until_all_is_read(second, two)
    world.check(two)
    assert second.stop().state == "ended"


def test_lost_state_is_not_rebuilt_from_inputs_without_their_beginning(world: World) -> None:
    """The counts began at what was left, and the wrong rows replaced the right ones."""
    world.send(50)
    spec, code = world.spec(1)
    first = world.start(spec, code)
    world.until_all_is_read(first, spec)
    first.kill()
    before = world.cuts(spec)
    shutil.rmtree(world.place(spec))
    world.client.admin.delete_records({(world.topic, 1): 20})
    world.send(50)
    second = world.start(spec, code)
    wait_until(lambda: second.status.state != "starting", what="its failure", deadline_s=DEADLINE_S)
    status = second.kill()
    assert status.state == "failed"
    assert f"{world.topic}-1 begins at offset 20" in str(status.error)
    assert not status.is_transient
    assert world.cuts(spec) == before


STATELESS = """
from suiro.streams import serdes
from suiro.views import view

@view("{name}", key="word")
def words(builder):
    words = builder.stream("{topic}", key=serdes.string, value=serdes.string)
    keyed = words.map(lambda key, word: (word, {{"last": word}}), key=serdes.string, value=serdes.json)
    return keyed.to_table()
"""


def test_a_version_without_state_goes_on_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no record again that it has processed, so retention may have removed them."""
    monkeypatch.setattr(sys.modules[__name__], "APP", STATELESS)
    world.send(50)
    spec, code = world.spec(1)
    first = world.start(spec, code)
    world.until_all_is_read(first, spec)
    first.kill()
    before = world.cuts(spec)
    shutil.rmtree(world.place(spec))
    world.client.admin.delete_records({(world.topic, 1): 20})
    world.send(50)
    second = world.start(spec, code)
    world.until_all_is_read(second, spec)
    assert world.cuts(spec)[: len(before)] == before
    assert second.stop().state == "ended"


def test_runs_and_records_of_a_version_are_reported(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", str(tmp_path / "events"))
    with HttpPeer(lambda asked: Answer(200, b"")) as peer:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{peer.url}/v1/traces")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_on")
        _a_run_that_is_killed_and_one_that_is_not(world, tmp_path)
        requests = [ExportTraceServiceRequest.FromString(one.body) for one in peer.asked]
    spans = [span for one in requests for span in one.resource_spans[0].scope_spans[0].spans]
    assert {span.name for span in spans} == {f"process {world.topic}"}
    # Those of the first process may be lost: it was killed, and spans are sent once the records are committed.
    assert len({span.span_id for span in spans}) >= 50 * PARTITIONS


def _a_run_that_is_killed_and_one_that_is_not(world: World, tmp_path: Path) -> None:
    world.send(50)
    spec, code = world.spec(1)
    first = world.start(spec, code)
    world.until_ready(first, spec)
    first.kill()
    second = world.start(spec, code)
    world.until_ready(second, spec)
    world.send(50)
    world.until_all_is_read(second, spec)
    second.stop()
    events = events_of((tmp_path / "events").read_text())
    ends = [one for one in events if one["eventType"] != "RUNNING"]
    assert [one["eventType"] for one in ends] == ["START", "ABORT", "START", "COMPLETE"]
    assert ends[0]["run"]["runId"] == ends[1]["run"]["runId"] != ends[3]["run"]["runId"]
    assert {one["job"]["name"] for one in events} == {world.name}
    assert [one["name"] for one in ends[3]["inputs"]] == [world.topic]
    table, topic = ends[3]["outputs"]
    assert (table["namespace"], table["name"]) == ("suiro-views", world.name)
    assert [one["name"] for one in table["facets"]["schema"]["fields"]] == ["word"]
    assert topic["name"] == spec.output_topic


def test_a_record_that_cannot_be_processed_is_named_alike_each_time(world: World) -> None:
    """So the host knows that another start would fail, too."""
    world.send(50)
    bad = Record(offset=0, timestamp=1_700_000_000_000, key=b"k", value=b"\xff")
    world.client.produce({(world.topic, 0): encode_batch([bad])})
    spec, code = world.spec(1)
    said = []
    for _ in range(2):
        process = world.start(spec, code)
        wait_until(lambda process=process: not process.is_alive, what="its end", deadline_s=DEADLINE_S)
        status = process.kill()
        assert (status.is_of_record, status.is_transient) == (True, False), status
        said.append(status.error)
    assert said[0] == said[1]
    assert f"{world.topic}-0" in said[0] or "partition 0" in said[0]
    assert "50" in said[0]
