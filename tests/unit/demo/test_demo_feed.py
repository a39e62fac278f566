"""How fast flights are inserted: at once, or so many a second, and never beyond what is allowed."""

from __future__ import annotations

import pytest

from suiro.demo.feed import FeedRate


@pytest.mark.parametrize(
    ("inserted", "allowed"), [(0, 1_000), (1_500, 1_000), (2_400, 100), (2_500, 0), (2_600, 0)]
)
def test_without_a_pace_whole_transactions_go_until_the_limit(inserted: int, allowed: int) -> None:
    assert FeedRate(until=2_500).allowed(inserted, 0, 0.0) == allowed


def test_by_the_clock_a_transaction_goes_when_it_is_due() -> None:
    rate = FeedRate(until=2_000, per_second=100)
    assert rate.allowed(1_000, 1_000, 0.4) == 0
    assert rate.allowed(1_000, 1_000, 0.5) == 50
    assert rate.allowed(1_050, 1_000, 0.9) == 0
    assert rate.allowed(1_050, 1_000, 60.0) == 50, "what was missed goes in transactions of the same size"
    assert rate.allowed(1_980, 1_000, 10.0) == 20, "the last one is smaller"
    assert rate.allowed(2_000, 1_000, 60.0) == 0
    assert FeedRate(until=10, per_second=0.5).allowed(0, 0, 1.9) == 0
    assert FeedRate(until=10, per_second=0.5).allowed(0, 0, 2.0) == 1
