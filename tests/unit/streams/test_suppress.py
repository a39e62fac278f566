"""`suppress`: until windows close, until a time limit, and what a full buffer does."""

from __future__ import annotations

from typing import Any

import pytest

from suiro.streams import serdes
from suiro.streams.errors import ProcessingError
from suiro.streams.records import Change
from suiro.streams.topology.nodes import (
    SessionAggregate,
    SlidingAggregate,
    StoreSpec,
    Suppress,
    TableSource,
    TimeWindowAggregate,
    ToStream,
)
from suiro.streams.windows import SessionWindows, SlidingWindows, TimeWindows
from tests.support.stream_operators import COUNT, Operators, store


def table(**settings: Any) -> Operators:
    """A table whose updates are suppressed."""
    specs = [store("key-value", "rows"), store("buffer", "buffer")]
    return Operators([TableSource(store="rows"), Suppress(store="buffer", **settings)], specs)


def finals(windows: Any, **settings: Any) -> Operators:
    spec = store("session" if isinstance(windows, SessionWindows) else "window", retention_ms=windows.retention_ms)
    operator = {
        TimeWindows: TimeWindowAggregate,
        SlidingWindows: SlidingAggregate,
        SessionWindows: SessionAggregate,
    }[type(windows)]
    suppress = Suppress(
        store="buffer",
        closing_delay_ms=windows.closing_delay_ms,
        inclusive_end=not isinstance(windows, TimeWindows),
        emits_early_when_full=False,
        **settings,
    )
    return Operators(
        [operator(aggregation=COUNT, windows=windows, store="store"), suppress],
        [spec, store("buffer", "buffer")],
    )


def test_a_window_comes_once_when_time_reaches_its_end_and_grace() -> None:
    run = finals(TimeWindows.of_size(10, grace=5))
    for timestamp in (1, 12, 3, 14, 9):
        assert run.send("a", timestamp) == []
    assert run.send("b", 15) == [("a", 0, 10, 3, 9)]
    assert run.send("a", 9) == []
    assert run.send("b", 1_000) == [("a", 10, 20, 2, 14), ("b", 10, 20, 1, 15)]


def test_a_jump_of_time_loses_nothing_and_ties_leave_by_key() -> None:
    run = finals(TimeWindows.of_size(10))
    for key in ("b", "c", "a"):
        run.send(key, 100)
    assert [row[0] for row in run.send("z", 10**9)] == ["a", "b", "c"]


def test_headers_and_timestamp_are_those_of_the_last_update() -> None:
    run = finals(TimeWindows.of_size(10))
    run.send("a", 7, headers=(("first", b"1"),))
    run.send("a", 3, headers=(("x", b"\x00"), ("é", None)))
    run.reload()
    assert run.send("b", 10) == [("a", 0, 10, 2, 7)]
    assert run.out[-1].headers == (("x", b"\x00"), ("é", None))
    assert run.out[-1].value == Change(2, None)


def test_an_inclusive_end_is_closed_one_later() -> None:
    """A record at the very end plus gap and grace still counts for acceptance, so nothing is final yet."""
    sessions = finals(SessionWindows.of_gap(5, grace=3))
    sessions.send("a", 10)
    sessions.send("a", 14)
    assert sessions.send("b", 22) == []
    assert sessions.send("b", 23) == [("a", 10, 14, 2, 14)]
    sliding = finals(SlidingWindows.of_difference(10, grace=3))
    sliding.send("a", 100)
    assert sliding.send("b", 103) == []
    assert sliding.send("a", 100) == []
    assert sliding.send("b", 104) == [("a", 90, 100, 2, 100)]


def test_merged_sessions_have_no_final_result() -> None:
    run = finals(SessionWindows.of_gap(5))
    for timestamp in (10, 14, 12, 19):
        run.send("a", timestamp)
    assert len(run.store("buffer")) == 1
    assert run.send("b", 100) == [("a", 10, 19, 4, 19)]


def test_the_limit_runs_from_the_first_waiting_update() -> None:
    run = table(time_limit_ms=10)
    assert run.send("k", 100, 1) == []
    assert run.send("k", 105, 2) == []
    assert run.send("other", 109, 1) == []
    assert run.send("k", 110, 3) == [("k", 3, 110)]
    assert run.send("k", 111, 4) == []
    assert run.send("other", 120, 2) == [("other", 2, 120)]
    assert run.send("z", 121, 0) == [("k", 4, 111)]


def test_old_values_are_what_went_on_before() -> None:
    run = table(time_limit_ms=10)
    for timestamp, value in ((100, 1), (105, 2), (110, 3), (111, 4), (112, 5), (121, 6)):
        run.send("k", timestamp, value)
    assert [record.value for record in run.out] == [Change(3, None), Change(6, 3)]


def test_ties_leave_by_key_and_tombstones_of_unknown_keys_too() -> None:
    run = table(time_limit_ms=0, max_records=None)
    assert run.send("k", 1, None) == [("k", None, 1)]
    run = table(time_limit_ms=5)
    for key in ("c", "a", "b"):
        run.send(key, 1, None if key == "b" else key)
    assert run.send("z", 6, "z") == [("a", "a", 1), ("b", None, 1), ("c", "c", 1)]


def test_a_full_buffer_lets_the_oldest_go_early() -> None:
    run = table(max_records=1)
    assert run.send("a", 5, 1) == []
    assert run.send("a", 6, 2) == []
    assert run.send("b", 3, 1) == [("b", 1, 3)]
    assert run.send("c", 9, 1) == [("a", 2, 6)]


def test_a_buffer_limited_in_bytes() -> None:
    run = table(max_bytes=200)
    run.send("a", 1, "x" * 50)
    run.send("b", 2, "x" * 50)
    assert run.send("c", 3, "x" * 100) == [("a", "x" * 50, 1), ("b", "x" * 50, 2)]
    assert 0 < run.store("buffer").size_in_bytes <= 200
    assert run.send("d", 4, "x" * 500) == [("c", "x" * 100, 3), ("d", "x" * 500, 4)]
    assert run.store("buffer").size_in_bytes == 0


def test_a_full_buffer_of_final_results_stops_with_a_clear_error() -> None:
    run = finals(TimeWindows.of_size(10), max_records=2)
    run.send("a", 1)
    run.send("b", 1)
    with pytest.raises(ProcessingError, match=r"operator-1 is full: 3 records .* and 2 records may\. .*max_records"):
        run.send("c", 1)


def test_windows_that_close_make_room_first() -> None:
    run = finals(TimeWindows.of_size(10), max_records=1)
    run.send("a", 1)
    assert run.send("b", 10) == [("a", 0, 10, 1, 1)]


def test_only_windowed_tables_have_windows_that_close() -> None:
    run = table(closing_delay_ms=5)
    with pytest.raises(ProcessingError, match="only a windowed table"):
        run.send("a", 1, 1)


def test_what_waits_survives_reloads() -> None:
    runs = [table(time_limit_ms=7, max_records=3) for _ in range(2)]
    for number in range(60):
        for run in runs:
            run.send("abcdef"[number * 7 % 6], number * 5 % 17 + number, None if number % 5 == 0 else number)
        runs[1].reload()
    assert runs[0].out == runs[1].out
    assert len(runs[0].out) > 10


def test_a_suppressed_table_becomes_a_stream() -> None:
    specs = [store("key-value", "rows"), store("buffer", "buffer")]
    run = Operators([TableSource(store="rows"), Suppress(store="buffer", time_limit_ms=1), ToStream()], specs)
    run.send("a", 1, "x")
    assert run.send("a", 2, "y") == [("a", "y", 2)]
    assert run.out[-1].value == "y"


@pytest.mark.parametrize("windowed_serde", [False, True])
def test_windowed_keys_come_back_whatever_serde_the_buffer_has(windowed_serde: bool) -> None:
    windows = SessionWindows.of_gap(10)
    key: Any = serdes.session_windowed(serdes.string) if windowed_serde else serdes.string
    buffer = StoreSpec(name="buffer", kind="buffer", key=key, value=serdes.tagged)
    run = Operators(
        [
            SessionAggregate(aggregation=COUNT, windows=windows, store="store"),
            Suppress(store="buffer", closing_delay_ms=10, inclusive_end=True),
        ],
        [store("session", retention_ms=10), buffer],
    )
    run.send("a", 5)
    run.send("a", 9)
    run.reload()
    assert run.send("b", 100) == [("a", 5, 9, 2, 9)]
