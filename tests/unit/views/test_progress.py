"""How far, how fast, and when a version has arrived at what moves on."""

from __future__ import annotations

from suiro.views.pipeline.progress import READY_WITHIN_MS, Arrival, Speed

A, B = ("a", 0), ("a", 1)


def test_rate_and_time_left_are_of_the_last_seconds() -> None:
    speed = Speed({A: 100, B: 0})
    first = speed.progress(0, {}, {A: 1_100, B: 0})
    assert (first.done, first.total, first.rate, first.left_s) == (0, 1_000, 0.0, None)
    half = speed.progress(5_000, {A: 600, B: 0}, {A: 1_100, B: 0})
    assert (half.done, half.total, half.rate, half.left_s) == (500, 1_000, 100.0, 5.0)
    for now in range(10_000, 60_000, 5_000):
        later = speed.progress(now, {A: 600}, {A: 1_100, B: 0})
    assert (later.rate, later.left_s) == (0.0, None), "it stands"
    done = speed.progress(61_000, {A: 1_100, B: 7}, {A: 1_100, B: 7})
    assert (done.done, done.left_s) == (done.total, 0.0)


def test_what_retention_took_or_another_partition_has_more_does_not_count() -> None:
    speed = Speed({A: 100})
    found = speed.progress(0, {A: 50, B: 99}, {A: 200, B: 10})
    assert (found.done, found.total) == (10, 110)


def test_it_has_arrived_when_it_reaches_what_was_there_a_moment_before() -> None:
    arrival = Arrival()
    assert not arrival.is_there(0, {A: 0}, {A: 100})
    assert not arrival.is_there(5_000, {A: 99}, {A: 500})
    assert arrival.is_there(6_000, {A: 100}, {A: 600})


def test_what_it_reaches_too_late_is_no_arrival_and_a_new_target_is_set() -> None:
    arrival = Arrival()
    assert not arrival.is_there(0, {}, {A: 100})
    late = READY_WITHIN_MS + 1
    assert not arrival.is_there(late, {A: 100}, {A: 500})
    assert not arrival.is_there(late + 1_000, {A: 499}, {A: 600})
    assert arrival.is_there(late + 2_000, {A: 500}, {A: 700})


def test_where_nothing_moves_it_arrives_however_long_it_took() -> None:
    arrival = Arrival()
    assert not arrival.is_there(0, {}, {A: 100})
    assert arrival.is_there(1_000_000, {A: 100}, {A: 100})
    assert Arrival().is_there(0, {}, {A: 0}), "there is nothing to read"
