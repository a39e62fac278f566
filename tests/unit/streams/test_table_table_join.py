"""Joins of two tables: which updates give a result, with which old row and timestamp, and versioned sides."""

from __future__ import annotations

from typing import Any

import pytest

from suiro.streams import serdes
from suiro.streams.records import Change, Record, Windowed
from suiro.streams.topology.nodes import Aggregation, JoinType, Process, TimeWindowAggregate
from suiro.streams.windows import TimeWindows
from tests.support.join_topologies import Plan, Run


class _Seen:
    """A processor that keeps what it is given."""

    def __init__(self, seen: list[Record]) -> None:
        self._seen = seen

    def init(self, context: Any) -> None:
        pass

    def process(self, record: Record) -> None:
        self._seen.append(record)

    def close(self) -> None:
        pass


def _watched(
    join: JoinType, *, left: int | None = None, right: int | None = None, named: bool = False
) -> tuple[Run, list[Record]]:
    """Updates of the join as they come out of it. `left`, `right`: the history of a versioned side."""
    plan = Plan()
    seen: list[Record] = []
    joined = plan.table_table(
        join,
        plan.table("L", history=left),
        plan.table("R", history=right),
        left_versioned=left is not None,
        right_versioned=right is not None,
        named=named,
    )
    plan.add("seen", Process(supplier=lambda: _Seen(seen)), joined)
    return Run(plan.topology()), seen


def test_updates_carry_the_result_they_replace() -> None:
    run, seen = _watched("inner")
    for topic, value in [("L", "a"), ("R", "x"), ("L", "b"), ("R", "y"), ("L", None), ("R", None)]:
        run.send(topic, "k", value, 1)
    assert [record.value for record in seen] == [
        Change("a+x", None),
        Change("b+x", "a+x"),
        Change("b+y", "b+x"),
        Change(None, "b+y"),
    ]


@pytest.mark.parametrize(
    ("join", "wanted"),
    [
        ("inner", [None, None, "a+x", "a+y", (None, "a+y"), None, None, None]),
        ("left", ["a+null", None, "a+x", "a+y", (None, "a+y"), None, None, None]),
        ("outer", ["a+null", None, "a+x", "a+y", "null+y", None, (None, "null+y"), None]),
    ],
)
def test_which_updates_give_results(join: JoinType, wanted: list[Any]) -> None:
    run, seen = _watched(join)
    steps = [("L", "a"), ("N", 0), ("R", "x"), ("R", "y"), ("L", None), ("N", 0), ("R", None), ("R", None)]
    for (topic, value), want in zip(steps, wanted, strict=True):
        if topic != "N":
            run.send(topic, "k", value, 1)
        if want is None:
            assert seen == []
        elif isinstance(want, tuple):
            assert (seen[0].value.new, seen[0].value.old) == want
        else:
            assert seen[0].value.new == want
        seen.clear()


def test_a_tombstone_meets_a_row_though_there_was_no_result() -> None:
    run, seen = _watched("inner")
    run.send("R", "k", "x", 1)
    run.send("L", "k", None, 2)
    assert [record.value for record in seen] == [Change(None, None)]


def test_a_result_has_the_later_timestamp_of_both_rows() -> None:
    run, seen = _watched("outer")
    run.send("L", "k", "a", 5)
    run.send("R", "k", "x", 3)
    run.send("L", "k", None, 4)
    run.send("R", "k", None, 2)
    assert [record.timestamp for record in seen] == [5, 5, 4, 2]


@pytest.mark.parametrize(("named", "timestamp"), [(False, 3), (True, 9)])
def test_the_timestamp_a_further_join_sees(named: bool, timestamp: int) -> None:
    """Only a store that was asked for has the timestamp of the tombstone; otherwise it is that of what is left."""
    run, seen = _watched("outer", named=named)
    run.send("R", "k", "x", 3)
    run.send("L", "k", "a", 1)
    run.send("L", "k", None, 9)
    assert seen[-1].timestamp == 9
    assert run.store("L-table-outer-R-table-rows").get_with_timestamp("k") == ("null+x", timestamp)


def test_late_updates_overwrite_unless_the_side_is_versioned() -> None:
    run, seen = _watched("inner")
    run.send("R", "k", "x", 0)
    run.send("L", "k", "new", 10)
    run.send("L", "k", "old", 5)
    assert seen[-1].value == Change("old+x", "new+x")
    run, seen = _watched("inner", left=100)
    run.send("R", "k", "x", 0)
    run.send("L", "k", "new", 10)
    run.send("L", "k", "old", 5)
    assert [record.value for record in seen] == [Change("new+x")]
    assert run.dropped == 1
    run.send("R", "k", "y", 1)  # the other side is not versioned
    assert seen[-1].value == Change("new+y", "new+x")


def test_an_update_beyond_the_history_is_dropped() -> None:
    run, seen = _watched("left", left=10)
    run.send("L", "k", "a", 100)
    run.send("L", "j", "b", 89)
    assert [record.key for record in seen] == ["k"]
    assert run.dropped == 1


def test_a_table_joined_with_itself() -> None:
    plan = Plan()
    table = plan.table("T")
    plan.to("out", plan.table_table("inner", table, table), table=True)
    run = Run(plan.topology())
    assert run.send("T", "k", "a", 1) == [("k", "a+a", 1)] * 2


def _windowed(plan: Plan, topic: str) -> str:
    """A count in windows of 10 ms, no grace."""
    operator = TimeWindowAggregate(
        aggregation=Aggregation(kind="count"),
        windows=TimeWindows.of_size(10),
        store=plan.store(f"{topic}-count-rows", "window", retention_ms=10, window_size_ms=10),
    )
    return plan.add(f"{topic}-count", operator, plan.stream(topic))


def test_windowed_tables_are_joined_by_key_and_window() -> None:
    plan = Plan()
    seen: list[Record] = []
    joined = plan.table_table("left", _windowed(plan, "L"), _windowed(plan, "R"), serde=serdes.tagged)
    plan.add("seen", Process(supplier=lambda: _Seen(seen)), joined)
    run = Run(plan.topology())
    for topic, time in [("L", 1), ("R", 12), ("R", 3), ("R", 8), ("L", 15)]:
        run.send(topic, "k", "v", time)
    assert [(record.key, record.value.new) for record in seen] == [
        (Windowed("k", 0, 10), "1+null"),
        (Windowed("k", 10, 20), "1+1"),
    ]
