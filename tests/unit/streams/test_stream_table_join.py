"""Joins of a stream with a table: nulls, rows as of a time, and records that wait for late rows."""

from __future__ import annotations

from typing import Any

import pytest

from suiro.streams.topology.nodes import JoinType
from tests.support.join_topologies import Plan, Run, Running


def _run(join: JoinType, *, history: int | None = None, grace: int | None = None) -> Run:
    plan = Plan()
    table = plan.table("T", history=history)
    versioned = history is not None
    plan.to("out", plan.stream_table(join, plan.stream("S"), table, versioned=versioned, grace=grace), table=False)
    return Run(plan.topology())


def _global_run(join: JoinType, mapper: Any) -> Run:
    plan = Plan()
    plan.to("out", plan.stream_global(join, plan.stream("S"), plan.global_table("T"), mapper), table=False)
    return Run(plan.topology())


def test_the_current_row_is_joined_whatever_its_time() -> None:
    run = _run("inner")
    assert run.send("S", "k", "s", 1) == []
    assert run.send("T", "k", "t", 100) == []
    assert run.send("S", "k", "s", 2) == [("k", "s+t", 2)]
    run.send("T", "k", "older", 50)
    assert run.send("S", "k", "s", 3) == [("k", "s+older", 3)]
    run.send("T", "k", None, 60)
    assert run.send("S", "k", "s", 4) == []


@pytest.mark.parametrize(("join", "kept"), [("inner", []), ("left", [(None, "s+null", 1)])])
def test_nulls_of_the_stream(join: JoinType, kept: Any) -> None:
    run = _run(join)
    assert run.send("S", None, "s", 1) == kept
    assert run.send("S", "k", None, 2) == []
    assert run.send("S", None, None, 3) == []
    assert run.dropped == 3 - len(kept)


def test_a_versioned_row_is_the_one_of_the_records_time() -> None:
    run = _run("left", history=100)
    run.send("T", "k", "old", 10)
    run.send("T", "k", "new", 20)
    run.send("T", "k", "between", 15)
    results = [run.send("S", "k", "s", time)[0][1] for time in (9, 10, 14, 15, 19, 20, 99)]
    assert results == ["s+null", "s+old", "s+old", "s+between", "s+between", "s+new", "s+new"]


def test_before_the_history_there_is_no_row() -> None:
    run = _run("left", history=10)
    run.send("T", "k", "old", 0)
    run.send("T", "k", "new", 20)
    assert run.send("S", "k", "s", 9) == [("k", "s+null", 9)]
    assert run.send("S", "k", "s", 10) == [("k", "s+old", 10)]


def test_records_wait_for_late_rows() -> None:
    run = _run("inner", history=1000, grace=10)
    assert run.send("S", "k", "s", 100) == []
    run.send("T", "k", "late", 95)
    assert run.send("S", "other", "x", 109) == []
    assert run.send("S", "other", "x", 110) == [("k", "s+late", 100)]


def test_a_record_too_late_to_wait_is_joined_before_those_that_leave() -> None:
    run = _run("left", history=1000, grace=10)
    run.send("S", "b", "s", 100)
    assert run.send("S", "a", "late", 89) == [("a", "late+null", 89)]
    assert run.send("S", "a", "just", 90) == [("a", "just+null", 90)]


def test_waiting_records_leave_by_time_then_key() -> None:
    run = _run("left", history=1000, grace=10)
    for key, value, time in [("b", "1", 100), ("a", "2", 100), ("b", "3", 100), ("z", "4", 99)]:
        assert run.send("S", key, value, time) == []
    assert [row[:2] for row in run.send("S", "x", "y", 500)] == [
        ("z", "4+null"),
        ("a", "2+null"),
        ("b", "1+null"),
        ("b", "3+null"),
    ]


def test_only_waiting_records_make_time_pass() -> None:
    run = _run("left", history=1000, grace=10)
    run.send("S", "k", "s", 100)
    assert run.send("T", "k", "t", 500) == []
    assert run.send("S", "k", None, 500) == []
    assert run.send("S", "k", "s", 95) == []
    assert len(run.send("S", "k", "s", 500)) == 2


def test_a_record_without_a_key_does_not_wait() -> None:
    # Kafka Streams fails on it.
    run = _run("left", history=1000, grace=10)
    run.send("S", "k", "s", 100)
    assert run.send("S", None, "s", 500) == [(None, "s+null", 500)]
    assert run.send("S", "k", "s", 110) == [("k", "s+null", 100)]
    assert _run("inner", history=1000, grace=10).send("S", None, "s", 500) == []


def test_without_grace_records_leave_at_once() -> None:
    run = _run("inner", history=1000, grace=0)
    run.send("T", "k", "t", 1)
    assert run.send("S", "k", "s", 5) == [("k", "s+t", 5)]
    assert run.send("S", "k", "s", 4) == [("k", "s+t", 4)]


def _left_join_with_grace() -> Running:
    plan = Plan()
    table = plan.table("T", history=1000)
    joined = plan.stream_table("left", plan.stream("S"), table, versioned=True, grace=10)
    plan.to("out", joined, table=False)
    return Running(plan)


def test_records_leave_at_the_end_of_a_batch_when_time_passed_elsewhere() -> None:
    run = _left_join_with_grace()
    assert run.send("S", "a", "s", 5) == []
    assert run.send("S", "b", "s", 12) == []
    run.task.pass_to({"S": 16})
    run.task.end_of_batch()
    assert run.read() == [("a", "s+null", 5)]
    # A record that its partition has overtaken already waits for nothing.
    assert run.send("S", "c", "s", 17, 40) == [("c", "s+null", 17)]


def test_time_of_the_table_makes_none_pass_for_the_stream() -> None:
    run = _left_join_with_grace()
    assert run.send("S", "a", "s", 5) == []
    run.send("T", "b", "t", 900)
    run.task.pass_to({"T": 900})
    run.task.end_of_batch()
    assert run.read() == []
    assert run.send("S", "a", "s", 15) == [("a", "s+null", 5)]


def test_the_mapper_finds_the_row_of_a_global_table() -> None:
    run = _global_run("inner", lambda key, value: value["carrier"])
    run.send("T", "AA", "American", 0)
    assert run.send("S", 1, {"carrier": "AA"}, 5) == [(1, "{'carrier': 'AA'}+American", 5)]
    assert run.send("S", 1, {"carrier": "UA"}, 6) == []
    assert run.send("S", None, {"carrier": "AA"}, 7) == [(None, "{'carrier': 'AA'}+American", 7)]


@pytest.mark.parametrize(("join", "results"), [("inner", 0), ("left", 1)])
def test_without_a_mapped_key_only_a_left_join_has_a_result(join: JoinType, results: int) -> None:
    run = _global_run(join, lambda key, value: None)
    assert len(run.send("S", "k", "s", 1)) == results
    assert run.send("S", "k", None, 2) == []
    assert run.dropped == 2 - results
