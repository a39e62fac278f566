"""Durations: what is taken, what is refused, and that nothing is rounded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from suiro.errors import UsageError
from suiro.streams.durations import milliseconds


@pytest.mark.parametrize(
    ("duration", "wanted"),
    [
        ("5 minutes", 300_000),
        ("1 day", 86_400_000),
        ("2 hours", 7_200_000),
        ("500 ms", 500),
        ("1.5 s", 1_500),
        ("  10seconds ", 10_000),
        ("0.001 Seconds", 1),
        ("1 WEEK", 604_800_000),
        ("0 ms", 0),
        (0, 0),
        (1234, 1234),
        (timedelta(days=1, milliseconds=7), 86_400_007),
        (timedelta(milliseconds=0.5) * 2, 1),
        ((1 << 63) - 1, (1 << 63) - 1),
    ],
)
def test_a_duration_is_taken(duration: str | timedelta | int, wanted: int) -> None:
    assert milliseconds(duration, what="the grace") == wanted


@pytest.mark.parametrize(
    "duration",
    [
        True,
        False,
        None,
        1.5,
        "",
        "5",
        "minutes",
        "5 fortnights",
        "5 minutes 3 s",
        "1e3 ms",
        "\u0665 ms",
        "0.5 ms",
        "mss 1",
        "1 ss",
        "1 mss",
        "1000000000000 weeks",
        "9" * 5_000 + " s",
        b"1 s",
        timedelta(microseconds=1),
        1 << 63,
    ],
)
def test_anything_else_is_refused_by_name(duration: Any) -> None:
    with pytest.raises(UsageError, match="the grace"):
        milliseconds(duration, what="the grace")


@pytest.mark.parametrize("duration", [-1, "-1 s", timedelta(seconds=-1)])
def test_negative_only_where_it_is_allowed(duration: str | timedelta | int) -> None:
    with pytest.raises(UsageError, match=r"the size.*negative"):
        milliseconds(duration, what="the size")
    assert milliseconds(duration, what="before", allow_negative=True) in (-1, -1_000)


def test_the_message_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"fortnights.*use ms, seconds"):
        milliseconds("5 fortnights", what="the size")
