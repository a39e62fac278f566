"""Times that records carry over a repartition: they judge the records they came with, and nothing that comes later."""

from __future__ import annotations

from typing import Any

import pytest

from suiro.streams import (
    JoinWindows,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Origin, Record, Windowed
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES, Task
from suiro.streams.topology.nodes import Node
from suiro.streams.topology.topology import Topology


class Outputs:
    def __init__(self) -> None:
        self.found: list[tuple[Any, Any, int]] = []

    def emit(self, node: Node, record: Record) -> None:
        self.found.append((record.key, record.value, record.timestamp))

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None:
        raise AssertionError(error)


class Bucket:
    """The task behind the repartition, made anew for each micro-batch as on Spark."""

    def __init__(self, topology: Topology, *, coalesces: bool = False) -> None:
        self.topology = topology
        (self.sub,) = (sub for sub in topology.sub_topologies if sub.stores)
        self.input = self.sub.inputs[0].name
        self.maps = {name: OrderedMap() for name in (*(spec.name for spec in self.sub.stores), TIMES)}
        self.settings = TaskSettings(coalesces=coalesces)
        self.dropped: dict[str, int] = {}

    def batch(self, records: list[tuple[str, int, int]], reached: int = -1) -> list[tuple[Any, Any, int]]:
        """Records as (key, timestamp, carried time)."""
        outputs = Outputs()
        task = Task(self.topology, self.sub, partition=0, maps=self.maps, outputs=outputs, settings=self.settings)
        for key, timestamp, carried in records:
            task.process(self.input, Record(key, 1, timestamp), None, carried)
        task.pass_to({self.input: reached})
        task.end_of_batch()
        self.dropped = task.dropped
        return outputs.found


def _keyed(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key=serdes.string, value=serdes.long).repartition().group_by_key()


def _counted(stream: Any) -> None:
    stream.group_by_key().windowed_by(TimeWindows.of_size(10, grace=0)).count().to_stream().to("out")


@pytest.mark.parametrize("coalesces", [False, True])
def test_an_update_is_late_only_by_updates_before_it(coalesces: bool) -> None:
    """Not by what came after it in a micro-batch, nor by how far the input partition has come: an aggregate leaves
    records out."""
    builder = StreamsBuilder()
    _counted(_keyed(builder).count().to_stream())
    bucket = Bucket(builder.build(), coalesces=coalesces)

    def found(*records: tuple[str, int, int], reached: int = -1) -> list[tuple[int, int, int]]:
        return [(key.start, value, at) for key, value, at in bucket.batch(list(records), reached)]

    assert found(("k", 1, 1), reached=1) == [(0, 1, 1)]
    assert found(("k", 105, 105), reached=200) == [(100, 1, 105)]
    assert found(("k", 106, 200)) == [(100, 2, 106)]
    assert found(("a", 107, 210), ("b", 211, 211)) == [(100, 1, 107), (210, 1, 211)]
    assert bucket.dropped == {}
    assert found(("c", 108, 211)) == []
    assert bucket.dropped == {"late": 1}


def _final(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(10, grace=0)
    final = _keyed(builder).windowed_by(windows).count().suppress(Suppressed.until_window_closes())
    _counted(final.to_stream())


def _unmatched(builder: StreamsBuilder) -> None:
    left = builder.stream("in", key=serdes.string, value=serdes.long).repartition()
    right = builder.stream("right", key=serdes.string, value=serdes.long)
    windows = JoinWindows.of_time_difference(10, grace=0)
    _counted(left.left_join(right, lambda one, other: one, windows))


@pytest.mark.parametrize("build", [_final, _unmatched])
def test_results_that_time_let_go_are_not_late_for_the_next_operator(build: Any) -> None:
    found = []
    for carries in (False, True):
        builder = StreamsBuilder()
        build(builder)
        bucket = Bucket(builder.build())
        records = [("a", 1), ("b", 12), ("a", 25), ("a", 40), ("a", 80)]
        bucket.input = next(name for name in (node.name for node in bucket.sub.inputs) if "REPARTITION" in name)
        found.append(bucket.batch([(key, at, at if carries else -1) for key, at in records]))
        assert bucket.dropped == {}
    assert found[0] == found[1]
    assert len(found[0]) >= 3


@pytest.mark.parametrize("cut", [False, True])
def test_a_session_is_not_extended_once_its_input_partition_has_closed_it(cut: bool) -> None:
    builder = StreamsBuilder()
    windows = SessionWindows.of_gap(10, grace=990)
    _keyed(builder).windowed_by(windows).count().to_stream().to("out")
    bucket = Bucket(builder.build())
    if cut:
        found = bucket.batch([("k", 0, 0)], reached=1001) + bucket.batch([("k", 5, 1001)])
    else:
        found = bucket.batch([("k", 0, 0), ("k", 5, 1001)])
    assert [(key.start, key.end, value) for key, value, _ in found] == [(0, 0, 1), (5, 5, 1)]


@pytest.mark.parametrize("cut", [False, True])
def test_which_update_leaves_after_a_time_limit_does_not_depend_on_where_batches_end(cut: bool) -> None:
    """Between the two records of this task, its input partition came to 11 with one for another task."""
    builder = StreamsBuilder()
    counts = _keyed(builder).count()
    counts.suppress(Suppressed.until_time_limit(3)).to_stream().to("out")
    bucket = Bucket(builder.build())
    batches = [[("k", 0, 0)], [("k", 13, 13)]]
    if not cut:
        batches = [batches[0] + batches[1]]
    found = [each for records in batches for each in bucket.batch(records, reached=11)]
    assert found == [("k", 2, 13)]


def test_a_record_that_is_skipped_makes_none_late() -> None:
    """In Kafka Streams it does not come to the windows. One with this time, of another task, may be such a record."""
    found = {}
    for policy in ("fail", "skip"):
        builder = StreamsBuilder()
        stream = builder.stream("in", key=serdes.string, value=serdes.long).repartition()
        _counted(stream.map_values(lambda value: 1 // value, value=serdes.long))
        bucket = Bucket(builder.build())
        bucket.settings = TaskSettings(on_processing_error=policy)
        found[policy] = bucket.batch([("k", 5, 100)])
    assert found["skip"] == [(Windowed("k", 0, 10), 1, 5)]
    assert found["fail"] == []


@pytest.mark.parametrize("is_mapped", [False, True])
def test_windows_that_close_by_the_time_of_their_input_are_final_then(is_mapped: bool) -> None:
    """Also where records may be skipped. But windows that wait for records of their own are not final before."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.long).repartition()
    if is_mapped:
        stream = stream.map_values(lambda value: value, value=serdes.long)
    counts = stream.group_by_key().windowed_by(TimeWindows.of_size(10, grace=0)).count()
    counts.filter(lambda key, value: True).suppress(Suppressed.until_window_closes()).to_stream().to("out")
    bucket = Bucket(builder.build())
    bucket.settings = TaskSettings(on_processing_error="skip")
    final = [(Windowed("k", 0, 10), 1, 5)]
    assert bucket.batch([("k", 5, 5)], reached=100) == ([] if is_mapped else final)
    assert bucket.batch([("k", 100, 100)]) == (final if is_mapped else [])


def test_a_record_without_a_key_that_a_join_keeps_makes_none_late_for_windows_beside_it() -> None:
    builder = StreamsBuilder()
    left = builder.stream("in", key=serdes.string, value=serdes.long).repartition()
    right = builder.stream("right", key=serdes.string, value=serdes.long)
    windows = JoinWindows.of_time_difference(10, grace=0)
    left.left_join(right, lambda one, other: one, windows).to("joined")
    _counted(left)
    bucket = Bucket(builder.build())
    bucket.input = next(name for name in (node.name for node in bucket.sub.inputs) if "REPARTITION" in name)
    found = bucket.batch([("k", 5, 100)], reached=100)
    assert (Windowed("k", 0, 10), 1, 5) in found
    assert bucket.dropped == {}
