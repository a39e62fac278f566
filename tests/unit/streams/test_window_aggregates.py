"""Aggregates in time, sliding and session windows: the known cases, bounds at their edges, lateness, final results."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from suiro.streams.records import Change, Windowed
from suiro.streams.topology.nodes import Aggregation, Suppress, TimeWindowAggregate
from suiro.streams.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows
from tests.support.stream_operators import AGGREGATE, COUNT, REDUCE, Operators, store, windowed

FINAL = EmitStrategy.ON_WINDOW_CLOSE
UPDATE = EmitStrategy.ON_WINDOW_UPDATE
VECTORS = Path(__file__).parents[2] / "vectors" / "streams"


# -- the known cases --------------------------------------------------------------------------------------------


def known_cases() -> list[Any]:
    groups = ("time-window", "sliding-window", "session-window", "late-drop", "suppress")
    found = [c for group in groups for c in json.loads((VECTORS / f"{group}.json").read_text())["cases"]]
    return [pytest.param(case, id=case["id"]) for case in found if case["id"] != "suppress/01"]  # a table's


def operators_of(node: Any) -> Operators:
    match node["op"]:
        case "to_stream":
            return operators_of(node["in"])
        case "suppress":
            window = node["in"]["in"]["window"]
            spec = store("buffer", "buffer")
            operator = Suppress(store="buffer", closing_delay_ms=window["grace"])
            return windowed(windows_of(window), then=([operator], [spec]))
    windows = windows_of(node["in"]["window"])
    emit = FINAL if node["in"].get("emit") == "on_window_close" else UPDATE
    if node["op"] == "count":
        return windowed(windows, COUNT, emit)
    if node["op"] == "reduce":
        return windowed(windows, REDUCE, emit)
    if node["init"] == "'0'":
        return windowed(windows, AGGREGATE, emit)
    assert (node["init"], node["adder"], node["merger_or_subtractor"]) == ("0", "acc+1", "left+right")
    count = Aggregation(
        kind="aggregate", initializer=lambda: 0, aggregators=(lambda key, value, aggregate: aggregate + 1,)
    )
    return windowed(windows, count, emit, merger=lambda key, left, right: left + right)


def windows_of(window: Any) -> Any:
    match window["type"]:
        case "time":
            return TimeWindows.of_size(window["size"], advance=window["advance"], grace=window["grace"])
        case "sliding":
            return SlidingWindows.of_difference(window["size"], grace=window["grace"])
        case "session":
            return SessionWindows.of_gap(window["gap"], grace=window["grace"])


@pytest.mark.parametrize("reloads", [False, True], ids=["one task", "reloaded"])
@pytest.mark.parametrize("case", known_cases())
def test_known_case(case: Any, reloads: bool) -> None:
    topology = case["topology"]
    sinks = {item["sink"]: item["from"] for item in topology} if isinstance(topology, list) else {None: topology}
    runs = {sink: operators_of(node) for sink, node in sinks.items()}
    for step in case["steps"]:
        if "send" in step:
            for run in runs.values():
                run.send(step["k"], step["ts"], step["v"])
                if reloads:
                    run.reload()
            continue
        run = runs[step.get("sink")]
        if "dropped_total" in step:
            assert run.dropped_total == step["dropped_total"]
            continue
        came = [(r.key.key, r.key.start, r.key.end, r.value.new, r.timestamp) for r in run.out]
        size = came[0][2] - came[0][1] if came else 0
        wanted = [
            (e["k"], *(e["w"] if "w" in e else (e["w_start"], e["w_start"] + size)), e["v"], e["ts"])
            for e in step["expect"]
        ]
        if step["mode"] in ("ordered", "all_ordered"):
            assert came == wanted
        elif step["mode"] == "unordered":
            assert Counter(came) == Counter(wanted)
        else:
            assert step["mode"] == "last_by_key_subset"
            last = {row[:3]: row for row in came}
            assert [last[row[:3]] for row in wanted] == wanted


# -- time windows -----------------------------------------------------------------------------------------------


def test_a_record_at_a_windows_end_is_in_the_next_one() -> None:
    run = windowed(TimeWindows.of_size(10))
    assert run.send("a", 9) == [("a", 0, 10, 1, 9)]
    assert run.send("a", 10) == [("a", 10, 20, 1, 10)]


def test_hopping_windows_of_one_record_oldest_first_and_none_before_zero() -> None:
    run = windowed(TimeWindows.of_size(10, advance=4, grace=100))
    assert [row[1:3] for row in run.send("a", 11)] == [(4, 14), (8, 18)]
    assert [row[1:3] for row in run.send("a", 3)] == [(0, 10)]
    assert [row[1:3] for row in run.send("a", 12)] == [(4, 14), (8, 18), (12, 22)]


def test_a_window_takes_records_until_time_reaches_its_end_and_grace() -> None:
    run = windowed(TimeWindows.of_size(10, grace=5))
    run.send("a", 14)
    assert run.send("a", 3) == [("a", 0, 10, 1, 3)]
    run.send("b", 15)
    assert run.send("a", 4) == []
    assert run.late == 1


def test_each_window_that_a_record_is_too_late_for_is_counted() -> None:
    run = windowed(TimeWindows.of_size(10, advance=5))
    run.send("a", 17)
    assert [row[1:3] for row in run.send("a", 12)] == [(10, 20)]
    assert run.late == 1
    assert run.send("a", 6) == []
    assert run.late == 3


def test_null_keys_do_not_advance_time_and_null_values_are_counted() -> None:
    run = windowed(TimeWindows.of_size(10))
    run.send(None, 1000)
    assert run.task.dropped == {"null key": 1}
    assert run.send("a", 1, None) == [("a", 0, 10, 1, 1)]


def test_a_null_value_reaches_the_reducer() -> None:
    run = windowed(TimeWindows.of_size(10), REDUCE)
    assert run.send("a", 1, None) == [("a", 0, 10, None, 1)]
    assert run.send("a", 2, "x") == [("a", 0, 10, "x", 2)]
    assert run.send("a", 3, None) == [("a", 0, 10, "x+None", 3)]


def test_an_aggregator_that_gives_none_deletes_the_row_and_its_timestamp() -> None:
    forgets = Aggregation(
        kind="aggregate",
        initializer=lambda: "",
        aggregators=(lambda key, value, aggregate: None if value == "x" else aggregate + value,),
    )
    run = windowed(TimeWindows.of_size(100), forgets)
    run.send("a", 50, "p")
    assert run.send("a", 20, "x") == [("a", 0, 100, None, 50)]
    assert run.store().fetch("a", 0) is None
    assert run.send("a", 10, "q") == [("a", 0, 100, "q", 10)]


@pytest.mark.parametrize("windows", [TimeWindows.of_size(10), SlidingWindows.of_difference(10)])
def test_old_values_are_the_rows_before(windows: Any) -> None:
    """Also where the aggregator changes the aggregate in place."""

    def append(key: str, value: str, aggregate: list[str]) -> list[str]:
        aggregate.append(value)
        return aggregate

    lists = Aggregation(kind="aggregate", initializer=list, aggregators=(append,))
    run = windowed(windows, lists)
    run.send("a", 15, "x")
    run.send("a", 15, "y")
    assert [record.value for record in run.out] == [Change(["x"], None), Change(["x", "y"], ["x"])]


def test_final_results_come_when_windows_close_by_start_and_key() -> None:
    run = windowed(TimeWindows.of_size(10, grace=2), emit=FINAL)
    for key, timestamp in (("b", 3), ("a", 4), ("c", 11), ("a", 1)):
        assert run.send(key, timestamp) == []
    headers = (("h", b"1"),)
    assert run.send("a", 12, headers=headers) == [("a", 0, 10, 2, 4), ("b", 0, 10, 1, 3)]
    assert [record.headers for record in run.out] == [headers, headers]
    assert [record.value.old for record in run.out] == [None, None]
    assert run.send("a", 1) == []
    assert run.late == 1
    assert run.send("a", 22) == [("a", 10, 20, 1, 12), ("c", 10, 20, 1, 11)]


@pytest.mark.parametrize("jump", [119, 120, 121, 10_000_000])
def test_final_results_survive_a_jump_of_time(jump: int) -> None:
    run = windowed(TimeWindows.of_size(10), emit=FINAL)
    run.send("a", 100)
    assert run.send("c", jump) == [("a", 100, 110, 1, 100)]
    assert dict(run.store().all()).keys() == {Windowed("c", jump // 10 * 10, jump // 10 * 10 + 10)}


def test_rows_stay_for_the_retention_and_results_are_final_once() -> None:
    run = windowed(TimeWindows.of_size(10), emit=FINAL, retention_ms=30)
    run.send("a", 5)
    assert run.send("b", 15) == [("a", 0, 10, 1, 5)]
    assert run.send("b", 29) == [("b", 10, 20, 1, 15)]
    assert run.store().fetch("a", 0) == 1
    assert run.send("b", 30) == [("b", 20, 30, 1, 29)]
    assert run.store().fetch("a", 0) is None


def test_a_co_group_has_one_time_and_one_aggregate_for_all_ports() -> None:
    both = Aggregation(
        kind="aggregate",
        initializer=lambda: "",
        aggregators=(lambda k, v, aggregate: aggregate + v, lambda k, v, aggregate: f"{aggregate}({v})"),
    )
    run = windowed(TimeWindows.of_size(10, grace=5), both, ports=2)
    run.send("a", 1, "x")
    assert run.send("a", 2, "y", port=1) == [("a", 0, 10, "x(y)", 2)]
    run.send("a", 15, "z")
    assert run.send("a", 3, "late", port=1) == []
    assert run.late == 1


def test_a_record_is_judged_by_the_time_it_carries_and_closes_windows_by_its_own() -> None:
    """Records of its partition went to other tasks; this one need not know of them yet."""
    run = windowed(TimeWindows.of_size(10), emit=FINAL)
    assert run.send("a", 5) == []
    assert run.send("a", 5, carried=10) == []
    assert run.late == 1
    assert run.send("a", 6, carried=9) == []
    run.task.pass_to({"in": 10})
    run.task.end_of_batch()
    assert run.drain()[-1:] == [("a", 0, 10, 2, 6)]
    run.reload()
    assert run.send("a", 7) == []
    assert run.late == 1  # a new count, in a new task


# -- sessions ---------------------------------------------------------------------------------------------------


def test_records_at_the_gap_merge_and_beyond_it_do_not() -> None:
    run = windowed(SessionWindows.of_gap(10, grace=100))
    run.send("a", 100)
    assert run.send("a", 110) == [("a", 100, 100, None, 100), ("a", 100, 110, 2, 110)]
    assert run.send("a", 121) == [("a", 121, 121, 1, 121)]
    assert run.send("a", 90)[-1] == ("a", 90, 110, 3, 110)
    assert run.send("a", 79) == [("a", 79, 79, 1, 79)]


def test_a_record_between_two_sessions_makes_them_one() -> None:
    run = windowed(SessionWindows.of_gap(10, grace=100), REDUCE)
    run.send("a", 100, "x")
    run.send("a", 120, "y")
    assert run.send("a", 110, "z") == [
        ("a", 100, 100, None, 100),
        ("a", 120, 120, None, 120),
        ("a", 100, 120, "x+y+z", 120),
    ]
    assert list(run.store().fetch("a")) == [(Windowed("a", 100, 120), "x+y+z")]


def test_a_session_of_one_time_is_updated_without_its_removal() -> None:
    run = windowed(SessionWindows.of_gap(10))
    run.send("a", 5)
    assert run.send("a", 5) == [("a", 5, 5, 2, 5)]
    assert run.out[-1].value == Change(2, 1)
    run.send("a", 7)
    assert run.send("a", 6) == [("a", 5, 7, None, 7), ("a", 5, 7, 4, 7)]


@pytest.mark.parametrize(("other", "wanted"), [(9, ("k", 0, 5, 2, 5)), (10, ("k", 5, 5, 1, 5))])
def test_a_session_that_time_has_passed_is_not_extended(other: int, wanted: tuple[Any, ...]) -> None:
    run = windowed(SessionWindows.of_gap(10))
    run.send("k", 0)
    run.send("b", other)
    assert run.send("k", 5)[-1] == wanted


def test_a_record_that_advances_time_itself_extends_its_session() -> None:
    run = windowed(SessionWindows.of_gap(10))
    run.send("k", 0)
    assert run.send("k", 10)[-1] == ("k", 0, 10, 2, 10)


def test_a_record_is_late_where_its_session_is_closed() -> None:
    run = windowed(SessionWindows.of_gap(10, grace=5))
    run.send("b", 100)
    assert run.send("a", 85) == [("a", 85, 85, 1, 85)]
    assert run.send("a", 84) == []
    assert run.late == 1
    assert run.send("a", 90)[-1] == ("a", 90, 90, 1, 90)


def test_final_sessions_come_once_by_end_start_and_key() -> None:
    run = windowed(SessionWindows.of_gap(10), emit=FINAL)
    for key, timestamp in (("c", 3), ("b", 3), ("a", 1), ("a", 3)):
        assert run.send(key, timestamp) == []
    assert run.send("z", 13) == []
    assert run.send("z", 14) == [("a", 1, 3, 2, 3), ("b", 3, 3, 1, 3), ("c", 3, 3, 1, 3)]
    assert run.send("z", 60_090) == [("z", 13, 14, 2, 14)]
    assert run.send("z", 10**9) == [("z", 60_090, 60_090, 1, 60_090)]


def test_a_null_session_is_told_of_but_not_kept() -> None:
    forgets = Aggregation(
        kind="aggregate",
        initializer=lambda: "",
        aggregators=(lambda key, value, aggregate: None if value == "x" else aggregate + value,),
    )
    run = windowed(SessionWindows.of_gap(10), forgets, merger=lambda key, left, right: left + right)
    run.send("a", 1, "p")
    assert run.send("a", 2, "x") == [("a", 1, 1, None, 1), ("a", 1, 2, None, 2)]
    assert list(run.store().fetch("a")) == []
    assert run.send("a", 3, "q") == [("a", 3, 3, "q", 3)]


def test_a_merger_that_changes_in_place_leaves_the_removed_values_as_they_were() -> None:
    def add(key: str, left: list[str], right: list[str] | str) -> list[str]:
        left.extend(right)
        return left

    lists = Aggregation(kind="aggregate", initializer=list, aggregators=(lambda k, v, aggregate: add(k, aggregate, v),))
    run = windowed(SessionWindows.of_gap(10), lists, merger=add)
    run.send("a", 1, "x")
    run.send("a", 5, "y")
    run.send("a", 9, "z")
    assert [record.value for record in run.out[3:]] == [Change(None, ["x", "y"]), Change(["x", "y", "z"])]


# -- sliding windows --------------------------------------------------------------------------------------------


def test_both_ends_of_a_sliding_window_are_in_it() -> None:
    run = windowed(SlidingWindows.of_difference(10, grace=100), AGGREGATE)
    run.send("a", 100, "x")
    assert run.send("a", 110, "y") == [("a", 101, 111, "0+y", 110), ("a", 100, 110, "0+x+y", 110)]
    run.send("b", 100, "x")
    assert run.send("b", 111, "y") == [("b", 101, 111, "0+y", 111)]


def test_a_record_before_another_gets_the_window_behind_it() -> None:
    run = windowed(SlidingWindows.of_difference(10, grace=100), AGGREGATE)
    run.send("a", 100, "x")
    assert run.send("a", 95, "y") == [
        ("a", 90, 100, "0+x+y", 100),
        ("a", 85, 95, "0+y", 95),
        ("a", 96, 106, "0+x", 100),
    ]


def test_null_keys_and_values_are_dropped_and_do_not_advance_time() -> None:
    run = windowed(SlidingWindows.of_difference(10))
    run.send(None, 1000)
    run.send("a", 1000, None)
    assert run.task.dropped == {"null key": 1, "null value": 1}
    assert run.send("a", 50) == [("a", 40, 50, 1, 50)]


def test_lateness_of_records_and_of_windows() -> None:
    """A record may be too late for the window that ends at it and not for those that end behind it."""
    run = windowed(SlidingWindows.of_difference(50, grace=50))
    assert run.send("k", 200) == [("k", 150, 200, 1, 200)]
    for timestamp in range(100, 106):
        assert run.send("k", timestamp) == []
    assert run.send("k", 15) == []
    assert run.late == 7
    assert run.send("k", 150) == [("k", 150, 200, 2, 200), ("k", 100, 150, 1, 150), ("k", 151, 201, 1, 200)]


def test_a_window_behind_a_record_of_long_ago_is_made() -> None:
    run = windowed(SlidingWindows.of_difference(6))
    run.send("k", 44)
    run.send("other", 51)
    assert run.send("k", 50) == [("k", 45, 51, 1, 50)]


@pytest.mark.parametrize("jump", [111, 112, 1_000_000])
def test_final_sliding_windows_survive_a_jump_of_time(jump: int) -> None:
    run = windowed(SlidingWindows.of_difference(10), emit=FINAL)
    run.send("a", 100)
    assert run.send("a", 104) == [("a", 90, 100, 1, 100)]
    wanted = [("a", 94, 104, 2, 104), ("a", 101, 111, 1, 104)]
    assert run.send("b", jump) == (wanted[:1] if jump == 111 else wanted)


def test_an_aggregator_that_changes_in_place_gives_every_window_its_own() -> None:
    def append(key: str, value: str, aggregate: list[str]) -> list[str]:
        aggregate.append(value)
        return aggregate

    lists = Aggregation(kind="aggregate", initializer=list, aggregators=(append,))
    for shift in (0, 100):
        run = windowed(SlidingWindows.of_difference(10, grace=100), lists)
        for timestamp in (3, 7, 5, 2):
            run.send("a", timestamp + shift, str(timestamp))
        for start, values in ((3, "375"), (4, "75"), (6, "7")):
            assert run.store().fetch("a", start + shift) == list(values)


# -- rows that another table needs ------------------------------------------------------------------------------


@pytest.mark.parametrize("reloads", [False, True], ids=["one task", "reloaded"])
def test_rows_stay_while_a_joined_table_lags(reloads: bool) -> None:
    """The left table is far ahead; a window that is closed there is still open on the right."""
    day = 86_400_000
    windows = TimeWindows.of_size(10)
    sides: Any = {}
    for port, side in enumerate(("left", "right")):
        spec = store("window", side, retention_ms=10, window_size_ms=10)
        sides[side] = spec, TimeWindowAggregate(aggregation=COUNT, windows=windows, store=side), port
    run = Operators.joined(*(sides[side][:2] for side in sides))
    run.send("a", 5)
    run.send("a", 1_000)
    if reloads:
        run.reload()
    assert run.send("a", 7, port=1) == [("a", 0, 10, (1, 1), 7)]
    run.send("a", 1_000, port=1)
    assert run.store("left").fetch("a", 0) is None
    run.send("a", 2 * day)
    assert run.store("left").fetch("a", 1_000) is None
