"""Windows of any records in any order are what their definition says, and a task may be reloaded between any two."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.share import examples

from suiro.streams.topology.nodes import (
    Aggregation,
    Suppress,
    TableSource,
)
from suiro.streams.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows
from tests.support.stream_operators import COUNT, Operators, store, windowed

KEYS = ("a", "b")
GATHER = Aggregation(
    kind="aggregate", initializer=list, aggregators=(lambda key, value, aggregate: [*aggregate, value],)
)
EVENTS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 60)), min_size=1, max_size=25)
EMITS = st.sampled_from(EmitStrategy)

Event = tuple[str, int]
Window = tuple[str, int, int]


def run_of(windows: Any, emit: EmitStrategy, aggregation: Aggregation = GATHER, retention_ms: int = 0) -> Operators:
    retention = max(windows.retention_ms, retention_ms)
    return windowed(windows, aggregation, emit, merger=lambda key, left, right: left + right, retention_ms=retention)


def last_results(run: Operators) -> dict[Window, tuple[list[int], int]]:
    """Contents (sorted) and timestamp of the windows that came out and were not removed after."""
    found: dict[Window, tuple[list[int], int]] = {}
    for key, start, end, value, timestamp in run.drain():
        if value is None:
            del found[key, start, end]
        else:
            found[key, start, end] = (sorted(value), timestamp)
    return found


def closing(run: Operators, emit: EmitStrategy) -> dict[Window, tuple[list[int], int]]:
    """The results once everything is closed by a record of long after; each only once where they are final."""
    if emit is EmitStrategy.ON_WINDOW_CLOSE:
        run.send("z", 10**6)
        rows = [row[:3] for row in map(tuple, map(_row, run.out))]
        assert len(rows) == len(set(rows))
    return last_results(run)


def _row(record: Any) -> Window:
    return record.key.key, record.key.start, record.key.end


@given(EVENTS, st.integers(1, 12), st.integers(1, 12), st.integers(0, 15), EMITS)
@settings(max_examples=examples(200), deadline=None)
def test_time_windows(events: list[Event], size: int, advance: int, grace: int, emit: EmitStrategy) -> None:
    windows = TimeWindows.of_size(max(size, advance), advance=min(size, advance), grace=grace)
    run = run_of(windows, emit)
    wanted: dict[Window, list[int]] = {}
    time, late = -1, 0
    for number, (key, timestamp) in enumerate(events):
        run.send(key, timestamp, timestamp)
        time = max(time, timestamp)
        for start in range(0, timestamp + 1, windows.advance_ms):
            end = start + windows.size_ms
            if timestamp < end:
                if end + grace > time:
                    wanted.setdefault((key, start, end), []).append(timestamp)
                else:
                    late += 1
        if number % 3 == 0:
            run.reload()
    assert run.dropped_total == late
    assert closing(run, emit) == {window: (sorted(v), max(v)) for window, v in wanted.items()}


@given(EVENTS, st.integers(0, 12), st.integers(0, 60), EMITS)
@settings(max_examples=examples(300), deadline=None)
def test_sliding_windows(events: list[Event], difference: int, grace: int, emit: EmitStrategy) -> None:
    """Records that come too late for the window that ends at them are left out of the input."""
    run = run_of(SlidingWindows.of_difference(difference, grace=grace), emit)
    taken: list[Event] = []
    time = -1
    for number, (key, timestamp) in enumerate(events):
        if max(timestamp, difference) < time - grace:
            continue
        time = max(time, timestamp)
        taken.append((key, timestamp))
        run.send(key, timestamp, timestamp)
        if number % 3 == 0:
            run.reload()
    assert run.dropped_total == 0
    wanted: dict[Window, tuple[list[int], int]] = {}
    for key in KEYS:
        times = sorted(timestamp for name, timestamp in taken if name == key)
        starts = {max(0, t - difference) for t in times} | {t + 1 for t in times}
        for start in starts:
            inside = [t for t in times if start <= t <= start + difference]
            if inside:
                wanted[key, start, start + difference] = (inside, inside[-1])
    assert closing(run, emit) == wanted


@given(EVENTS, st.integers(0, 12), st.integers(0, 10), EMITS)
@settings(max_examples=examples(200), deadline=None)
def test_sliding_windows_hold_what_is_in_them(
    events: list[Event], difference: int, grace: int, emit: EmitStrategy
) -> None:
    """Whatever comes late: a record is in no window twice, nor in one that it does not belong to, and those that hold
    it were open. Nothing is missing in a window that came before all of its records."""
    windows = SlidingWindows.of_difference(difference, grace=grace)
    run = run_of(windows, emit)
    time = -1
    for number, (key, timestamp) in enumerate(events):
        time = max(time, timestamp)
        for name, start, end, value, latest in run.send(key, timestamp, number):
            if value is not None and emit is EmitStrategy.ON_WINDOW_UPDATE:
                assert name == key
                assert not windows.is_closed(end, time)
                assert len(set(value)) == len(value)
                inside = [events[n][1] for n in value]
                assert all(events[n][0] == key for n in value)
                assert start <= min(inside)
                assert max(inside) == latest <= end
        if number % 4 == 0:
            run.reload()


@given(EVENTS, st.integers(1, 12), st.integers(0, 20), EMITS)
@settings(max_examples=examples(300), deadline=None)
def test_sessions(events: list[Event], gap: int, grace: int, emit: EmitStrategy) -> None:
    """Against a list of sessions, merged as the rule in words says: only those that time has not passed."""
    run = run_of(SessionWindows.of_gap(gap, grace=grace), emit)
    sessions: list[tuple[str, list[int]]] = []
    time, late = -1, 0
    for number, (key, timestamp) in enumerate(events):
        run.send(key, timestamp, timestamp)
        near = [
            session
            for session in sessions
            if session[0] == key
            and min(session[1]) - gap <= timestamp <= max(session[1]) + gap
            and max(session[1]) + gap + grace > time
        ]
        time = max(time, timestamp)
        merged = sorted([timestamp, *(t for _, times in near for t in times)])
        if merged[-1] + gap + grace < time:
            late += 1
        else:
            sessions = [session for session in sessions if session not in near] + [(key, merged)]
        if number % 3 == 0:
            run.reload()
    assert run.dropped_total == late
    wanted: dict[Window, list[list[int]]] = {}
    for key, times in sessions:
        wanted.setdefault((key, times[0], times[-1]), []).append(times)
    found = closing(run, emit)
    assert {w: contents for w, (contents, _) in found.items()} == {w: all_of[-1] for w, all_of in wanted.items()}
    assert all(timestamp == end for (_, _, end), (_, timestamp) in found.items())


@given(EVENTS, st.integers(1, 12), st.integers(0, 20))
@settings(max_examples=examples(100), deadline=None)
def test_sessions_in_time_are_the_runs_of_records(events: list[Event], gap: int, grace: int) -> None:
    """With enough grace for any order, the sessions are what is left when the times are cut at longer gaps."""
    run = run_of(SessionWindows.of_gap(gap, grace=grace + 60), EmitStrategy.ON_WINDOW_UPDATE)
    for key, timestamp in events:
        run.send(key, timestamp, timestamp)
    wanted = {}
    for key in KEYS:
        times = sorted(timestamp for name, timestamp in events if name == key)
        cuts = [0, *(i for i in range(1, len(times)) if times[i] - times[i - 1] > gap), len(times)]
        for first, last in pairwise(cuts):
            if first < last:
                part = times[first:last]
                wanted[key, part[0], part[-1]] = (part, part[-1])
    assert last_results(run) == wanted


WINDOWS = st.one_of(
    st.builds(
        lambda size, hops, grace: TimeWindows.of_size(size * hops, advance=size, grace=grace),
        st.integers(1, 8),
        st.integers(1, 3),
        st.integers(0, 8),
    ),
    st.builds(lambda d, grace: SlidingWindows.of_difference(d, grace=grace), st.integers(0, 12), st.integers(0, 8)),
    st.builds(lambda gap, grace: SessionWindows.of_gap(gap, grace=grace), st.integers(1, 12), st.integers(0, 8)),
)


@given(EVENTS, WINDOWS, EMITS, st.integers(0, 100), st.booleans(), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_reloading_between_any_two_records_changes_nothing(
    events: list[Event],
    windows: Any,
    emit: EmitStrategy,
    retention: int,
    suppresses: bool,
    data: st.DataObject,
) -> None:
    def run() -> Operators:
        made = run_of(windows, emit, COUNT, retention)
        if not suppresses:
            return made
        suppress = Suppress(
            store="buffer",
            closing_delay_ms=windows.closing_delay_ms,
            inclusive_end=not isinstance(windows, TimeWindows),
        )
        operator = made.topology.node("operator-0").operator
        return Operators([operator, suppress], [made.topology.store("store"), store("buffer", "buffer")])

    whole, cut = run(), run()
    for key, timestamp in events:
        assert whole.send(key, timestamp) == cut.send(key, timestamp)
        if data.draw(st.booleans()):
            cut.reload()
    whole.reload()
    cut.reload()
    assert whole.saved == cut.saved
    assert whole.dropped_total == cut.dropped_total


@given(EVENTS, WINDOWS)
@settings(max_examples=examples(200), deadline=None)
def test_suppressed_results_are_the_final_ones(events: list[Event], windows: Any) -> None:
    """`suppress` until windows close gives what emit-final gives, but for the order inside one moment."""
    final = run_of(windows, EmitStrategy.ON_WINDOW_CLOSE, COUNT)
    made = run_of(windows, EmitStrategy.ON_WINDOW_UPDATE, COUNT)
    suppress = Suppress(
        store="buffer",
        closing_delay_ms=windows.closing_delay_ms,
        inclusive_end=not isinstance(windows, TimeWindows),
    )
    suppressed = Operators(
        [made.topology.node("operator-0").operator, suppress],
        [made.topology.store("store"), store("buffer", "buffer")],
    )
    for key, timestamp in [*events, ("z", 10**6)]:
        assert sorted(final.send(key, timestamp)) == sorted(suppressed.send(key, timestamp))


UPDATES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 40), st.none() | st.integers(0, 9)), max_size=30)


@given(UPDATES, st.none() | st.integers(0, 15), st.none() | st.integers(0, 3), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_suppress_by_limits(
    updates: list[tuple[str, int, Any]], limit: int | None, most: int | None, data: st.DataObject
) -> None:
    specs = [store("key-value", "rows"), store("buffer", "buffer")]
    suppress = Suppress(store="buffer", time_limit_ms=limit, max_records=most)
    run = Operators([TableSource(store="rows"), suppress], specs)
    waiting: dict[str, tuple[int, Any, int]] = {}
    time = -1
    for key, timestamp, value in updates:
        time = max(time, timestamp)
        waiting[key] = (waiting[key][0] if key in waiting else timestamp, value, timestamp)
        wanted = []
        for first, name in sorted((entry[0], name) for name, entry in waiting.items()):
            if (limit is not None and first <= time - limit) or (most is not None and len(waiting) > most):
                wanted.append((name, *waiting.pop(name)[1:]))
        assert run.send(key, timestamp, value) == wanted
        if data.draw(st.booleans()):
            run.reload()
