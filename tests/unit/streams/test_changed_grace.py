"""A topology that goes on with another grace than the one that its state was written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from suiro.streams import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)
from suiro.streams.interpreter import Interpreter
from suiro.streams.topology.topology import Topology

Windows = TimeWindows | SlidingWindows | SessionWindows

KINDS: list[Windows] = [
    TimeWindows.of_size(10),
    SlidingWindows.of_difference(10),
    SessionWindows.of_gap(10),
]


def emitted_on_close(windows: Windows, grace: int) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    counts = grouped.windowed_by(windows.grace(grace)).emit_strategy(EmitStrategy.on_window_close()).count()
    counts.to_stream().to("out")
    return builder.build()


def suppressed(windows: Windows, grace: int) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    counts = grouped.windowed_by(windows.grace(grace)).count()
    counts.suppress(Suppressed.until_window_closes()).to_stream().to("out")
    return builder.build()


class Runs:
    """One application, started again and again."""

    def __init__(self) -> None:
        self._maps: Any = None

    def of(self, topology: Topology, records: list[tuple[str, str, int]]) -> list[tuple[Any, Any, int]]:
        run = Interpreter(topology, maps=self._maps)
        for key, value, timestamp in records:
            run.pipe("in", timestamp, key.encode(), value.encode())
        run.end_of_batch()
        self._maps = run.maps
        return [(item.record.key.key, item.record.value, item.record.key.start) for item in run.outputs]


@pytest.mark.parametrize("build", [emitted_on_close, suppressed])
@pytest.mark.parametrize("windows", KINDS, ids=lambda windows: type(windows).__name__)
def test_a_shorter_grace_loses_no_final_result(build: Callable[[Windows, int], Topology], windows: Windows) -> None:
    runs = Runs()
    assert runs.of(build(windows, 1_000), [("k", "v", 100), ("k", "v", 300)]) == []
    found = runs.of(build(windows, 0), [("z", "v", 2_000)])
    assert [key for key, _, _ in found] == ["k"] * len(found)
    starts = {start for _, _, start in found}
    assert any(start <= 100 <= start + 10 for start in starts)
    assert any(start <= 300 <= start + 10 for start in starts)


@pytest.mark.parametrize("build", [emitted_on_close, suppressed])
@pytest.mark.parametrize("windows", KINDS, ids=lambda windows: type(windows).__name__)
def test_a_longer_grace_opens_no_window_that_had_its_final_result(
    build: Callable[[Windows, int], Topology], windows: Windows
) -> None:
    runs = Runs()
    first = runs.of(build(windows, 0), [("k", "v", 100), ("k", "v", 101), ("z", "v", 300)])
    assert first
    later = runs.of(build(windows, 1_000), [("k", "v", 102), ("z", "v", 5_000)])
    assert not {(key, start) for key, _, start in first} & {(key, start) for key, _, start in later}
    assert "z" in {key for key, _, _ in later}


def joined(kind: str, grace: int) -> Topology:
    builder = StreamsBuilder(key=serdes.string, value=serdes.string)
    windows = JoinWindows.of(before=50, after=10).grace(grace)
    join = getattr(builder.stream("in"), kind)
    join(builder.stream("other"), lambda left, right: f"{left}|{right}", windows).to("out")
    return builder.build()


@pytest.mark.parametrize("kind", ["left_join", "outer_join"])
@pytest.mark.parametrize(("before", "after"), [(100, 0), (0, 100), (100, 40)])
def test_a_record_that_waits_for_a_match_keeps_its_time_and_finds_it(kind: str, before: int, after: int) -> None:
    run = Interpreter(joined(kind, before))
    run.pipe("in", 1_000, b"k", b"A")
    run.pipe("in", 1_000, b"l", b"B")
    run.end_of_batch()
    assert not run.outputs
    run = Interpreter(joined(kind, after), maps=run.maps)
    run.pipe("other", 1_005, b"k", b"a")
    run.pipe("in", 3_000, b"z", b"Z")
    run.end_of_batch()
    found = [(item.key, item.value, item.record.timestamp) for item in run.outputs]
    assert found == [(b"k", b"A|a", 1_005), (b"l", b"B|None", 1_000)]
