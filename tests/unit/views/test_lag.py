"""How far behind a version is, told by cuts."""

from __future__ import annotations

from dataclasses import replace

from suiro.views.cuts import Cut
from suiro.views.pipeline.progress import SeenCuts, lag_of


def cut(*offsets: int, time_ms: int = 0, topic: str = "in") -> Cut:
    return Cut(number=0, inputs={(topic, n): offset for n, offset in enumerate(offsets)}, outputs={}, time_ms=time_ms)


SERVING = [
    cut(30, 30, time_ms=3_000),
    cut(20, 20, time_ms=2_000),
    cut(10, 10, time_ms=1_000),
]  # the newest first


def test_nothing_is_missing() -> None:
    assert lag_of(cut(30, 30), SERVING, 9_000) == 0
    assert lag_of(cut(40, 30), SERVING, 9_000) == 0
    assert lag_of(cut(1, 1), [], 9_000) == 0


def test_since_when_something_is_missing() -> None:
    assert lag_of(cut(20, 20), SERVING, 3_500) == 500
    assert lag_of(cut(29, 30), SERVING, 3_500) == 500
    assert lag_of(cut(10, 20), SERVING, 3_500) == 1_500
    assert lag_of(cut(0, 0), SERVING, 3_500) == 2_500  # at least: nothing older is kept


def test_a_rest_of_the_inputs_is_no_lag() -> None:
    """An hour without a record, then one: the candidate lacks it since it was there, not for an hour."""
    serving = [cut(31, 30, time_ms=3_600_000), *SERVING]
    assert lag_of(cut(30, 30), serving, 3_600_200) == 200


def test_no_more_is_asked_for_than_it_takes() -> None:
    asked = iter(SERVING)
    assert lag_of(cut(20, 20), asked, 3_500) == 500
    assert list(asked) == SERVING[2:]


def test_it_cannot_be_told() -> None:
    assert lag_of(None, SERVING, 9_000) is None


def test_only_topics_that_both_read_count() -> None:
    other = Cut(number=0, inputs={("in", 0): 5, ("more", 0): 7}, outputs={}, time_ms=0)
    assert cut(5).covers(other)
    assert not cut(4).covers(other)


def test_a_cut_is_as_old_as_it_was_seen_for_though_the_clock_was_set_back() -> None:
    seen = SeenCuts()
    for number in range(3):
        seen.note(replace(SERVING[-1], number=number), 100 * number)
    seen.note(replace(SERVING[-1], number=1), 1_000)
    ages = [seen.age_ms(replace(SERVING[-1], number=number), 1_000) for number in range(4)]
    assert ages == [1_000, 900, 800, 0]
    assert lag_of(cut(20, 20), SERVING, 0, age_ms=lambda _: 700) == 700
    assert lag_of(cut(20, 20), SERVING, 3_500, age_ms=lambda _: 100) == 500
