"""How long looks for records wait, when there are none."""

from __future__ import annotations

from suiro.spark import Idling


def test_the_first_empty_look_returns_at_once_and_later_ones_wait_longer_and_longer() -> None:
    idling = Idling()
    assert [idling.found_nothing() for _ in range(8)] == [0, 25, 50, 100, 200, 400, 500, 500]
    idling.found_something()
    assert [idling.found_nothing() for _ in range(3)] == [0, 25, 50]


def test_it_waits_no_longer_after_days() -> None:
    idling = Idling()
    assert max(idling.found_nothing() for _ in range(100_000)) == 500
