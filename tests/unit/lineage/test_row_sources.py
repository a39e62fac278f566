"""Which input records a row of a store is made of: each kind of store, what runs for it, and its limits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from support.view_logs import MemoryLog

from suiro.clock import ManualClock
from suiro.errors import UsageError
from suiro.lineage import Bounds, InputRecord, RowSources, sources_of_row, topology_above
from suiro.streams import (
    JoinWindows,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    serdes,
)
from suiro.streams.interpreter import Interpreter
from suiro.streams.records import Windowed
from suiro.streams.topology.topology import Topology

KEYS = ("UA", "B6", "AA")


def record(topic: str, offset: int, key: str, value: Any, time: int) -> InputRecord:
    data = None if value is None else json.dumps(value).encode()
    return InputRecord(topic, 0, offset, time, key.encode(), data)


FLIGHTS = [record("flights", n, f"f{n}", {"carrier": KEYS[n % 3], "delay": n}, n * 1_000) for n in range(30)]
NAMES = [record("names", n, key, {"name": f"{key} {n}"}, n) for n, key in enumerate((*KEYS, "UA"))]
LOG = MemoryLog([*NAMES, *FLIGHTS])


def stored(name: str) -> Any:
    return Materialized.as_(name)


def by_carrier(builder: StreamsBuilder) -> Any:
    flights = builder.stream("flights", key=serdes.string, value=serdes.json)
    return flights.group_by(lambda key, flight: flight["carrier"], key=serdes.string)


def counted(builder: StreamsBuilder) -> None:
    by_carrier(builder).count(materialized=stored("rows"))


def windowed(builder: StreamsBuilder) -> None:
    by_carrier(builder).windowed_by(TimeWindows.of_size("10 seconds")).count(materialized=stored("rows"))


def sessions(builder: StreamsBuilder) -> None:
    by_carrier(builder).windowed_by(SessionWindows.of_gap("5 seconds")).count(materialized=stored("rows"))


def table(builder: StreamsBuilder) -> None:
    builder.table("names", key=serdes.string, value=serdes.json, materialized=stored("rows"))


def global_table(builder: StreamsBuilder) -> None:
    names = builder.global_table("names", key=serdes.string, value=serdes.json, materialized=stored("rows"))
    flights = builder.stream("flights", key=serdes.string, value=serdes.json)
    flights.join(names, lambda key, flight: flight["carrier"], lambda flight, name: name).to("out")


def joined(builder: StreamsBuilder) -> None:
    names = builder.table("names", key=serdes.string, value=serdes.json)
    counts = by_carrier(builder).count()
    counts.join(names, lambda count, name: [count, name["name"]], materialized=stored("rows"))


def regrouped(builder: StreamsBuilder) -> None:
    names = builder.table("names", key=serdes.string, value=serdes.json)
    names.group_by(lambda key, value: (key[:1], value), key=serdes.string, value=serdes.json).aggregate(
        list,
        lambda key, value, row: [*row, value["name"]],
        lambda key, value, row: [name for name in row if name != value["name"]],
        materialized=stored("rows"),
    )


def topology_of(build: Callable[[StreamsBuilder], None]) -> Topology:
    builder = StreamsBuilder()
    build(builder)
    return builder.build()


def traced(
    topology: Topology, key: Any, *, log: Any = LOG, bounds: Bounds | None = None, clock: Any = None
) -> RowSources:
    bare = key.key if isinstance(key, Windowed) else key
    return sources_of_row(
        topology,
        "rows",
        log,
        is_key=lambda found: found == bare,
        is_row=lambda found: found == key,
        bounds=bounds or Bounds(bytes=1 << 50),
        clock=clock or ManualClock(),
    )


def offsets(found: RowSources) -> list[tuple[str, int]]:
    return [(one.topic, one.offset) for one in found.records]


@pytest.mark.parametrize(
    ("build", "key", "expected"),
    [
        (counted, "B6", [("flights", n) for n in range(1, 30, 3)]),
        (windowed, Windowed("UA", 20_000, 30_000), [("flights", n) for n in (21, 24, 27)]),
        (sessions, Windowed("AA", 2_000, 29_000), [("flights", n) for n in range(2, 30, 3)]),
        (table, "UA", [("names", 3)]),
        (global_table, "AA", [("names", 2)]),
        (joined, "AA", [("names", 2), *(("flights", n) for n in range(2, 30, 3))]),
    ],
)
def test_a_row_of_each_kind(build: Any, key: Any, expected: list[tuple[str, int]]) -> None:
    found = traced(topology_of(build), key)
    assert sorted(offsets(found)) == sorted(expected)
    assert (found.found, found.is_proven, found.stopped) == (True, True, None)


@pytest.mark.parametrize("build", [counted, windowed, sessions, table, global_table, joined, regrouped])
def test_every_row_is_that_of_a_whole_run_and_made_of_its_records_alone(build: Any) -> None:
    topology = topology_of(build)
    whole = Interpreter(topology)
    for one in LOG.read(topology):
        whole.pipe(one.topic, one.timestamp, one.key, one.value, place=(one.partition, one.offset))
    rows = list(whole.store("rows").all())
    assert rows
    for key, value in rows:
        found = traced(topology, key)
        assert (found.value, found.is_proven) == (value, True), key


def test_a_row_that_is_not_there() -> None:
    found = traced(topology_of(counted), "HA")
    assert (found.found, found.records, found.is_proven, found.read) == (False, (), False, len(FLIGHTS))


def test_a_row_that_was_removed() -> None:
    log = MemoryLog([*NAMES, record("names", 4, "UA", None, 9)])
    assert not traced(topology_of(table), "UA", log=log).found


def test_only_what_leads_to_the_store_runs() -> None:
    def build(builder: StreamsBuilder) -> None:
        flights = builder.stream("flights", key=serdes.string, value=serdes.json)
        flights.peek(lambda key, flight: pytest.fail("this leads nowhere")).to("nowhere")
        other = builder.stream("other", key=serdes.string, value=serdes.json)
        other.join(flights, lambda left, right: left, JoinWindows.of_time_difference("1 second")).to("out")
        counted_flights = flights.group_by(lambda key, flight: flight["carrier"], key=serdes.string)
        counts = counted_flights.count(materialized=stored("rows"))
        counts.to_stream().peek(lambda key, count: pytest.fail("this is below")).to("counts")

    topology = topology_of(build)
    above = topology_above(topology, "rows")
    assert (above.source_topics, above.sink_topics) == (("flights",), ())
    assert traced(topology, "UA").is_proven
    with pytest.raises(UsageError, match="no node of the topology writes store 'nothing'"):
        topology_above(topology, "nothing")


def test_records_of_other_keys_are_left_out_before_they_are_counted() -> None:
    seen: list[str] = []

    def build(builder: StreamsBuilder) -> None:
        def add(key: str, flight: Any, row: int) -> int:
            seen.append(key)
            return row + 1

        by_carrier(builder).aggregate(lambda: 0, add, value=serdes.json, materialized=stored("rows"))

    assert traced(topology_of(build), "UA").is_proven
    assert set(seen) == {"UA"}


def test_a_function_that_depends_on_chance_is_not_proven() -> None:
    calls: list[int] = []

    def build(builder: StreamsBuilder) -> None:
        def add(key: str, flight: Any, row: int) -> int:
            calls.append(1)
            return len(calls)

        by_carrier(builder).aggregate(lambda: 0, add, value=serdes.json, materialized=stored("rows"))

    found = traced(topology_of(build), "UA")
    assert (found.found, found.is_proven) == (True, False)


# -- limits --------------------------------------------------------------------------------------------------------


class Endless:
    """A log that never ends; each record takes a while."""

    ends: Mapping[tuple[str, int], int] = {}

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def read(self, topology: Topology) -> Iterator[InputRecord]:
        offset = 0
        while True:
            self._clock.advance(10)
            yield record("flights", offset, "f", {"carrier": "UA", "delay": 1}, offset)
            offset += 1


@pytest.mark.parametrize(
    ("bounds", "read", "said"),
    [
        (Bounds(records=2_500, bytes=1 << 50), 2_500, "2,500 records were read"),
        (Bounds(seconds=45, bytes=1 << 50), 5_000, "45 s were over"),
        (Bounds(bytes=1024), 0, "0 MiB of memory were used"),
    ],
)
@pytest.mark.parametrize("build", [counted, windowed])
def test_it_stops_at_its_limits_and_says_so(build: Any, bounds: Bounds, read: int, said: str) -> None:
    clock = ManualClock()
    found = traced(topology_of(build), "UA", log=Endless(clock), bounds=bounds, clock=clock)
    assert (found.read, found.stopped) == (read, said)
    if build is counted:
        assert len(found.records) == read


def test_the_memory_of_the_parent_does_not_count() -> None:
    """A driver that once had more than the limit can still ask for the records of a row."""
    large = b"x" * (400 << 20)
    code = "from suiro.lineage.row_sources import _memory; print(_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert int(done.stdout) < len(large)
