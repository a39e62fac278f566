"""In what condition a task leaves a micro-batch, and whom it tells."""

from __future__ import annotations

import pytest

from suiro.streams_spark.condition import CONDITIONS, Condition, condition_after, tells


@pytest.mark.parametrize(
    ("is_behind", "is_at_boundary", "is_buffered", "condition"),
    [
        (False, False, False, Condition.RUNNING),
        (False, False, True, Condition.IDLING),
        (False, True, False, Condition.RESTORING),
        (False, True, True, Condition.RESTORING),
        (True, False, False, Condition.IDLING),
        (True, False, True, Condition.IDLING),
        (True, True, False, Condition.IDLING),
        (True, True, True, Condition.IDLING),
    ],
)
def test_what_it_saw_decides(is_behind: bool, is_at_boundary: bool, is_buffered: bool, condition: Condition) -> None:
    found = condition_after(is_behind=is_behind, is_at_boundary=is_at_boundary, is_buffered=is_buffered)
    assert found is condition


def test_those_below_are_told_until_they_know_that_it_is_running_again() -> None:
    was_told = False
    told = []
    for first in Condition:
        for condition in (first, Condition.RUNNING, Condition.RUNNING):
            told.append(tells(condition, was_told=was_told))
            was_told = condition is not Condition.RUNNING
    assert told == [False, False, False, True, True, False, True, True, False]


def test_every_condition_has_its_meaning() -> None:
    assert set(CONDITIONS) == set(Condition)
