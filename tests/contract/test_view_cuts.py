"""Cuts in transactions, on the node and on Apache Kafka: whatever dies, each micro-batch has one cut, numbered without
a gap, and below its outputs a reader finds the records of all micro-batches up to it and no other. And consumers that
change versions at a cut."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.admin import ask
from support.waiting import wait_until
from support.wire import Wire

from suiro.client import LATEST, Client, NewTopic
from suiro.errors import FatalError, FencedError, TransientError, UnknownTopicError, UsageError
from suiro.protocol import columnar
from suiro.protocol.records import Record, encode_batch
from suiro.spark import MARKER_TOPIC, Destination, PlannedOffsets, Positions, TrailingRecord
from suiro.spark.committer import Committer, MicroBatch, Outcome
from suiro.spark.decide import Plan
from suiro.streams import serdes
from suiro.views import Cut, CutLog, VersionSpec, view
from suiro.views.control.consumers import move_group
from suiro.views.cuts import CutWriter, last_cut
from suiro.views.pipeline.run import make_topics
from suiro.views.settings import RunSettings

PARTITIONS = 3
HOW = ("old_cut", "new_cut", "is_exact")


class Rows:
    """A micro-batch writes one record each to some partitions."""

    def __init__(self, topic: str, number: int, partitions: tuple[int, ...]) -> None:
        self._topic, self._number = topic, number
        self.partitions = [(topic, partition) for partition in partitions]

    def batches(self) -> Iterator[tuple[str, int, bytes, int]]:
        for topic, partition in self.partitions:
            record = Record(offset=0, timestamp=1_700_000_000_000, key=b"k", value=str(self._number).encode())
            yield topic, partition, encode_batch([record]), 1


class Version:
    """Commits micro-batches as a version's pipeline does: number n reads up to 10 (n + 1), and writes
    to partitions n and n + 1."""

    def __init__(self, client: Client, spec: VersionSpec) -> None:
        self._client = client
        self.spec = spec
        make_topics(client, spec, RunSettings.parse({"output.partitions": str(PARTITIONS)}))
        client.create_topics([NewTopic(MARKER_TOPIC, 1)], exist_ok=True)

    def driver(self, fails_at: str | None = None) -> Callable[..., Outcome]:
        """A process of its own, as far as Kafka can tell."""
        due = [fails_at]

        def reach(point: str, batch_id: int) -> None:
            if point == due[0]:
                due[0] = None
                raise TransientError(f"at {point}")

        destination = Destination(application_id=self.spec.application_id)
        committer = Committer(self._client, destination, reach=reach)
        writer = CutWriter(self._client, output_topic=self.spec.output_topic, cuts_topic=self.spec.cuts_topic)

        def commit(number: int, *, run: str = "run-1", replayed: bool = False) -> Outcome:
            plan = Plan(
                batch_id=number,
                lineage="q",
                run_id=run,
                start_digest=f"end-{number - 1}" if number else "",
                end_digest=f"end-{number}",
            )
            positions = Positions(offsets={("in", 0): 10 * (number + 1)}, topic_ids={"in": "ab"}, replayed=replayed)
            trailing_record: TrailingRecord | None = writer(
                PlannedOffsets(sources=(json.dumps(positions.to_json()),), digest=f"end-{number}")
            )
            partitions = () if replayed else tuple({number % PARTITIONS, (number + 1) % PARTITIONS})
            rows = Rows(self.spec.output_topic, number, partitions)
            return committer.process(MicroBatch(plan=plan, writes=rows, trailing_record=trailing_record))

        return commit

    def cuts(self) -> list[Cut]:
        self.settle()
        return CutLog(self._client, self.spec.cuts_topic).poll()

    def settle(self) -> None:
        """Until readers see the last transaction: in V2 its producer does not wait for the markers."""
        places = {(self.spec.output_topic, partition): LATEST for partition in range(PARTITIONS)}
        places[self.spec.cuts_topic, 0] = LATEST
        ask = self._client.list_offsets
        wait_until(lambda: ask(places) == ask(places, read_committed=True), what="the last transaction to be seen")

    def below(self, cut: Cut) -> list[int]:
        """The micro-batches whose records are below its outputs, sorted."""
        return sorted(
            int(value)
            for partition in range(PARTITIONS)
            for offset, value in self.records(partition)
            if offset < cut.outputs[partition]
        )

    def records(self, partition: int) -> list[tuple[int, bytes]]:
        """(offset, value) of what a reader sees."""
        place, at, found = (self.spec.output_topic, partition), 0, list[tuple[int, bytes]]()
        end = self._client.list_offsets({place: LATEST}, read_committed=True)[place].offset
        while at < end:
            fetched = self._client.fetch({place: at})[place]
            decoded = columnar.decode(fetched.data, start_offset=at, end_offset=end, aborted=fetched.aborted)
            columns = [decoded.batch.column(name).to_pylist() for name in ("offset", "value")]
            found += zip(*columns, strict=True)
            at = decoded.next_offset
        return found


@view("counts", key="word")
def counts(builder: Any) -> Any:
    return builder.stream("in", key=serdes.string, value=serdes.json).group_by_key().count()


@pytest.fixture
def version(client: Client, unique: str) -> Callable[[int], Version]:
    def make(number: int) -> Version:
        spec = VersionSpec.of(counts.definition, number, code="", entry="app.py:counts")  # type: ignore[attr-defined]
        own = {name: f"{unique}-{getattr(spec, name)}" for name in ("application_id", "output_topic", "cuts_topic")}
        return Version(client, dataclasses.replace(spec, **own))

    return make


def check(version: Version, micro_batches: int) -> None:
    cuts = version.cuts()
    assert [cut.number for cut in cuts] == list(range(micro_batches))
    assert [cut.inputs for cut in cuts] == [{("in", 0): 10 * (n + 1)} for n in range(micro_batches)]
    for cut in cuts:
        assert version.below(cut) == sorted(n for n in range(cut.number + 1) for _ in range(2))


@pytest.mark.parametrize("name", ["output_topic", "cuts_topic"])
def test_a_topic_that_was_deleted_is_not_made_anew(
    client: Client, version: Callable[[int], Version], name: str
) -> None:
    """Its numbers began at 0 again, so the store ignored all cuts, and the view stood still without an error."""
    made = version(1)
    made.driver()(0)
    made.settle()
    topic = getattr(made.spec, name)
    client.delete_topics([topic])
    wait_until(lambda: topic not in client.metadata([topic]), what="the end of the topic")
    with pytest.raises(FatalError, match=f"topic '{topic}' of version 1 of view 'counts' was deleted"):
        make_topics(client, made.spec, RunSettings.parse({}))
    assert topic not in client.metadata([topic])


@pytest.fixture(params=[1, 2])
def transactions(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[None]:
    """The brokers' side of transactions: V1, and V2 (KIP-890), which they have unless told otherwise."""

    def set_level(level: int, kind: int) -> None:
        change = {"feature": "transaction.version", "max_version_level": level, "upgrade_type": kind}
        with Wire(bootstrap) as wire:
            answer = ask(wire, "update_features", 1, timeout=10_000, feature_updates=[change], validate_only=False)
        assert answer["error_code"] == "none", answer

    if request.param == 1:
        set_level(1, kind=2)  # a downgrade
    yield
    if request.param == 1:
        set_level(2, kind=1)


@pytest.mark.usefixtures("transactions")
def test_each_micro_batch_has_one_cut_whatever_dies_and_comes_back(version: Callable[[int], Version]) -> None:
    made = version(1)
    first = made.driver()
    assert first(0) is first(1) is Outcome.PRODUCED
    assert made.driver()(1, run="run-2") is Outcome.SUPPRESSED
    for number, point in enumerate(["after_produce", "after_trailing_record", "after_commit_offsets", "after_end"], 2):
        made.driver(fails_at=point)(number, run=f"run-{number}")
    check(made, 6)
    with pytest.raises(FencedError):
        first(2)
    check(made, 6)


def test_what_an_aborted_attempt_left_is_below_no_cut(client: Client, version: Callable[[int], Version]) -> None:
    made = version(1)
    made.driver()(0)
    transactions = client.transaction(Destination(application_id=made.spec.application_id).transactional_id)
    transactions.init()
    places = [(made.spec.output_topic, 0), (made.spec.cuts_topic, 0)]
    transactions.add_partitions(places)
    transactions.produce([*Rows(made.spec.output_topic, 99, (0,)).batches()])
    stray = Cut(number=1, inputs={("in", 0): 999}, outputs={}, time_ms=1)
    record = Record(offset=0, timestamp=1, key=stray.key, value=stray.to_bytes())
    transactions.produce([(made.spec.cuts_topic, 0, encode_batch([record]), 1)])
    commit = made.driver()  # fences, and what was open is aborted
    commit(1, run="run-2")
    commit(2, run="run-2")
    check(made, 3)
    newest = last_cut(client, made.spec.cuts_topic)
    assert newest is not None
    assert newest.number == 2


def test_the_output_is_stamped_by_its_log_so_that_records_of_years_ago_are_not_compacted_at_once(
    client: Client, version: Callable[[int], Version]
) -> None:
    """`min.compaction.lag.ms` counts from a record's timestamp, and older cuts are read as long as it says."""
    made = version(1)
    made.driver()(0)
    cut = made.cuts()[0]
    place = (made.spec.output_topic, 0)
    fetched = client.fetch({place: 0}, read_committed=True)[place]
    decoded = columnar.decode(fetched.data, start_offset=0, end_offset=cut.outputs[0], aborted=fetched.aborted)
    stamped = decoded.batch.column("timestamp").to_pylist()
    assert stamped
    assert all(abs(timestamp - cut.time_ms) < 600_000 for timestamp in stamped)  # the records say 2023


def test_a_rebuild_has_no_cuts_and_goes_on_with_the_next_number(version: Callable[[int], Version]) -> None:
    made = version(1)
    commit = made.driver()
    commit(0)
    commit(1)
    commit(2, replayed=True)
    assert len(made.cuts()) == 2
    commit(3)
    cuts = made.cuts()
    assert [cut.number for cut in cuts] == [0, 1, 2]
    assert made.below(cuts[2]) == [0, 0, 1, 1, 3, 3]


def test_cuts_are_followed_as_they_come(client: Client, version: Callable[[int], Version]) -> None:
    with pytest.raises(UnknownTopicError, match="has not started"):
        CutLog(client, "no-such-topic").poll()
    made = version(1)
    assert last_cut(client, made.spec.cuts_topic) is None
    log, commit = CutLog(client, made.spec.cuts_topic), made.driver()
    assert log.poll() == []
    commit(0)
    made.settle()
    cuts = log.poll()
    assert [cut.number for cut in cuts] == [0]
    commit(1)
    commit(2)
    made.settle()
    cuts += log.poll(max_wait_ms=1_000)
    assert [cut.number for cut in cuts] == [0, 1, 2]
    times = [cut.time_ms for cut in cuts]
    assert times == sorted(times)


def test_a_group_goes_on_in_the_other_version_where_it_left_off_and_back(
    client: Client, version: Callable[[int], Version], unique: str
) -> None:
    one, two = version(1), version(2)
    first, second = one.driver(), two.driver()
    for number in range(4):
        first(number)
    for number in range(3):
        second(number)
    group = f"{unique}-readers"
    with pytest.raises(UsageError, match="no place to move it from"):
        move_group(client, group, one.spec, two.spec)

    # As a consumer commits: the offset after the last record of each partition, whatever control records follow.
    third = one.cuts()[2]
    consumed = {
        partition: max((at + 1 for at, _ in one.records(partition) if at < third.outputs[partition]), default=0)
        for partition in range(PARTITIONS)
    }
    client.offset_commit(group, {(one.spec.output_topic, p): (at, "") for p, at in consumed.items()})
    moved = move_group(client, group, one.spec, two.spec)
    assert [moved[name] for name in HOW] == [2, 2, True]
    committed = client.offset_fetch(group, [(two.spec.output_topic, p) for p in range(PARTITIONS)])
    assert {p: item.offset for (_, p), item in committed.items() if item} == two.cuts()[2].outputs

    ends = one.cuts()[3].outputs
    client.offset_commit(group, {(one.spec.output_topic, p): (at, "") for p, at in ends.items()})
    moved = move_group(client, group, one.spec, two.spec)
    assert [moved[name] for name in HOW] == [2, 2, False], "the newest both have; 3 comes again"
    back = move_group(client, group, two.spec, one.spec)
    assert [back[name] for name in HOW] == [2, 2, True]
    assert {int(p): offset for p, offset in back["offsets"].items()} == one.cuts()[2].outputs
