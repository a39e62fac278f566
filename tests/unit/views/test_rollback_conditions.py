"""When a guard trips, and what texts say guards, steps and times."""

from __future__ import annotations

import pytest

from suiro.errors import UsageError
from suiro.views.control.rollback_conditions import FEWEST_READS, Sample, broken, guards_of, steps_of
from suiro.views.state import RollbackConditions

ALL = RollbackConditions(errors=0.01, p99_ms=50.0, difference=0.2, lag_ms=10_000)
WELL = Sample(reads=1_000, errors=10, p99_ms=50.0, difference=0.2, lag_ms=10_000)


def test_what_is_within_holds() -> None:
    assert broken(ALL, WELL, version=2) is None
    assert (
        broken(
            RollbackConditions(),
            Sample(reads=100, errors=100, p99_ms=1e9, difference=1.0, lag_ms=None),
            version=2,
        )
        is None
    )


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (
            Sample(reads=1_000, errors=11),
            "11 of 1000 reads from version 2 failed, 1.10%; the guard allows 1.00%",
        ),
        (
            Sample(reads=1_000, p99_ms=50.1),
            "p99 of 1000 reads from version 2 is 50.1 ms; the guard allows 50 ms",
        ),
        (Sample(difference=0.21), "21.00% of the rows of version 2 differ; the guard allows 20.00%"),
        (Sample(lag_ms=10_001), "version 2 lags by 10.0 s; the guard allows 10 s"),
        (Sample(lag_ms=None), "version 2 lags by an unknown time"),
    ],
)
def test_what_is_beyond_trips(sample: Sample, said: str) -> None:
    reason = broken(ALL, sample, version=2)
    assert reason is not None
    assert said in reason


def test_few_reads_say_nothing() -> None:
    few = Sample(reads=FEWEST_READS - 1, errors=FEWEST_READS - 1, p99_ms=1_000.0)
    assert broken(ALL, few, version=2) is None
    assert broken(ALL, Sample(reads=FEWEST_READS, errors=1), version=2) is not None


def test_texts() -> None:
    assert guards_of(["errors=1%", "p99=50ms", "difference=0.2", "lag=10s"]) == ALL
    assert guards_of([]) == RollbackConditions()
    assert steps_of("1, 10%,50,100") == (100, 1_000, 5_000, 10_000)
    assert steps_of("0.5") == (50,)


@pytest.mark.parametrize(
    "text", ["errors", "speed=3", "errors=2", "errors=x", "p99=50", "p99=0.5ms", "lag=-1s", "difference=101%"]
)
def test_guards_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="guard '"):
        guards_of([text])


@pytest.mark.parametrize("text", ["", "a", "0,10", "101", "10;20", "nan", "inf", "1e308", "1_0", "\u0661"])
def test_steps_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="expected percents"):
        steps_of(text)
