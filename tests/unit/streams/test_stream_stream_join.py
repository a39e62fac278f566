"""Joins of two streams: who is matched at the edges, when unmatched records leave and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from suiro.streams.durations import LONGEST_MS
from suiro.streams.records import Record
from suiro.streams.topology.nodes import JoinType
from suiro.streams.windows import JoinWindows
from tests.support.join_topologies import Plan, Run, Running


def _plan(join: JoinType, before: int, after: int, grace: int = 0) -> Plan:
    plan = Plan()
    windows = JoinWindows.of(before=before, after=after, grace=grace)
    plan.to("out", plan.stream_stream(join, plan.stream("L"), plan.stream("R"), windows), table=False)
    return plan


def _run(join: JoinType, before: int, after: int, grace: int = 0) -> Run:
    return Run(_plan(join, before, after, grace).topology())


def test_both_ends_of_the_window_belong_to_it() -> None:
    run = _run("inner", 5, 10)
    run.send("L", "k", "A", 20)
    results = [run.send("R", "k", f"r{time}", time) for time in (14, 15, 30, 31)]
    assert results == [[], [("k", "A+r15", 20)], [("k", "A+r30", 30)], []]


def test_records_of_the_same_key_and_time_are_all_kept() -> None:
    run = _run("inner", 5, 5)
    run.send("L", "k", "A", 3)
    run.send("L", "k", "A", 3)
    run.send("L", "k", "B", 1)
    assert run.send("R", "k", "r", 2) == [("k", "B+r", 2), ("k", "A+r", 3), ("k", "A+r", 3)]


def test_a_late_record_joins_what_the_other_store_still_has() -> None:
    run = _run("inner", 10, 10, grace=5)
    for time in (24, 25, 26, 50):
        run.send("L", "k", f"l{time}", time)
    # The left store reaches from 50 - 25 + 1.
    assert run.send("R", "k", "r", 25) == [("k", "l26+r", 26)]


def test_a_stores_time_is_its_own() -> None:
    run = _run("inner", 10, 10)
    run.send("L", "k", "A", 0)
    run.send("R", "k", "far", 1000)
    assert run.send("R", "k", "r", 5) == [("k", "A+r", 5)]


def test_a_join_without_width_joins_equal_times() -> None:
    run = _run("inner", 0, 0)
    run.send("L", "k", "A", 7)
    assert run.send("R", "k", "r", 7) == [("k", "A+r", 7)]
    assert run.send("R", "k", "r", 8) == []


def test_a_record_may_wait_beyond_the_end_of_all_time() -> None:
    run = _run("left", 0, LONGEST_MS)
    assert run.send("L", "k", "A", 20) == []
    assert run.send("R", "k", "r", 50) == [("k", "A+r", 50)]


def test_a_negative_bound_is_not_cut_at_time_zero() -> None:
    # Kafka Streams joins the first pair, and the second one not.
    run = _run("inner", -5, 10)
    run.send("L", "k", "A", 0)
    assert run.send("R", "k", "s", 4) == []
    run.send("L", "k", "A", 100)
    assert run.send("R", "k", "s", 104) == []
    assert run.send("R", "k", "s", 105) == [("k", "A+s", 105)]


def test_unmatched_records_leave_when_window_and_grace_have_passed() -> None:
    run = _run("left", 10, 10, grace=5)
    run.send("L", "k", "A", 0)
    assert run.send("R", "other", "r", 15) == []
    assert run.send("R", "other", "r", 16) == [("k", "A+null", 0)]
    assert run.send("R", "other", "r", 17) == []


def test_a_match_in_the_grace_keeps_the_null_away() -> None:
    run = _run("left", 10, 10, grace=5)
    run.send("L", "k", "A", 0)
    run.send("R", "other", "r", 15)
    assert run.send("R", "k", "late", 3) == [("k", "A+late", 3)]
    assert run.send("R", "other", "r", 100) == []


def test_a_record_whose_window_has_passed_does_not_wait() -> None:
    run = _run("left", 10, 10, grace=20)
    run.send("R", "other", "r", 30)
    assert run.send("L", "k", "B", 19) == [("k", "B+null", 19)]
    assert run.send("L", "k", "C", 20) == []
    # It may be matched yet, as in Kafka Streams.
    assert run.send("R", "k", "r", 15) == [("k", "B+r", 19), ("k", "C+r", 20)]


def test_unmatched_records_leave_by_time_then_side_then_key() -> None:
    run = _run("outer", 5, 5)
    for topic, key, time in [("L", "b", 2), ("L", "a", 2), ("R", "d", 2), ("R", "c", 2), ("L", "z", 1)]:
        run.send(topic, key, topic, time)
    assert run.send("L", "now", "x", 100) == [
        ("z", "L+null", 1),
        ("c", "null+R", 2),
        ("d", "null+R", 2),
        ("a", "L+null", 2),
        ("b", "L+null", 2),
    ]


def test_the_sides_of_an_asymmetric_window_wait_differently_long() -> None:
    run = _run("outer", 2, 20)
    run.send("L", "l", "A", 10)
    run.send("R", "r", "s", 11)
    assert run.send("R", "now", "x", 14) == [("r", "null+s", 11)]
    assert run.send("R", "now", "y", 30) == [("now", "null+x", 14)]
    assert run.send("R", "now", "z", 31) == [("l", "A+null", 10)]


def test_those_due_at_once_leave_in_the_order_of_their_own_times() -> None:
    run = _run("outer", 2, 20)
    run.send("L", "l", "A", 10)  # until 30
    run.send("R", "r", "s", 11)  # until 13
    assert run.send("R", "now", "x", 31) == [("l", "A+null", 10), ("r", "null+s", 11)]


def test_dropped_records_make_time_pass_but_wake_nobody() -> None:
    run = _run("left", 10, 10)
    run.send("L", "k", "A", 0)
    assert run.send("L", "k", None, 100) == []
    assert run.send("L", "k", "B", 50) == [("k", "B+null", 50)]
    assert run.send("R", None, "r", 120) == []
    assert run.send("L", "k", "C", 120) == [("k", "A+null", 0)]
    assert run.dropped == 2


@pytest.mark.parametrize(
    ("join", "left", "right"),
    [
        ("inner", [], []),
        ("left", [(None, "A+null", 1)], []),
        ("outer", [(None, "A+null", 1)], [(None, "null+r", 2)]),
    ],
)
def test_a_null_key_is_kept_by_a_side_that_may_stand_alone(join: JoinType, left: Any, right: Any) -> None:
    run = _run(join, 10, 10)
    assert run.send("L", None, "A", 1) == left
    assert run.send("R", None, "r", 2) == right
    assert run.send("L", None, None, 3) == []
    assert run.dropped == 3 - len(left) - len(right)


def test_a_stream_joined_with_itself() -> None:
    plan = Plan()
    stream = plan.stream("S")
    plan.to("out", plan.stream_stream("inner", stream, stream, JoinWindows.of(before=5, after=5)), table=False)
    run = Run(plan.topology())
    assert run.send("S", "k", "a", 1) == [("k", "a+a", 1)]
    assert run.send("S", "k", "b", 2) == [("k", "b+a", 2), ("k", "a+b", 2), ("k", "b+b", 2)]


def test_the_end_of_a_batch_removes_what_can_no_longer_be_joined() -> None:
    run = _run("outer", 5, 5)
    for time in range(0, 1000, 10):
        run.send("L", "k", "a", time)
        run.send("R", "k", "b", time)
        run.end_of_batch()
    sizes = {name: len(rows) for name, rows in run.maps().items()}
    assert sizes["join-this"] == sizes["join-other"] == 1
    assert sizes["join-unmatched"] == 0


# -- time that passes in other tasks ---------------------------------------------------------------------------


def test_unmatched_records_leave_at_the_end_of_a_batch_when_time_passed_elsewhere() -> None:
    run = Running(_plan("left", 5, 5))
    assert run.send("L", "k", "A", 1) == []
    run.task.pass_to({"L": 12})
    run.task.end_of_batch()
    assert run.read() == [("k", "A+null", 1)]


def test_time_that_passes_by_a_dropped_record_lets_none_leave_at_the_end_of_a_batch() -> None:
    run = Running(_plan("left", 5, 5))
    assert run.send("L", "k", "A", 1) == []
    run.task.process("R", Record("k", None, 100), None)
    run.task.end_of_batch()
    assert run.read() == []
    assert run.send("R", "x", "r", 101) == [("k", "A+null", 1)]


def test_headers_stay_with_a_record_that_waits() -> None:
    run = Running(_plan("left", 5, 5))
    headers = (("trace", b"1"), ("empty", None))
    run.task.process("L", Record("k", "A", 1, headers), None)
    run.task.process("R", Record("x", "r", 100, (("trace", b"2"),)), None)
    assert run.outputs.found == [Record("k", "A+null", 1, headers)]
