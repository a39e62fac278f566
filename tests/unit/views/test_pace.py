"""The live version comes first; the one that is built gets on all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.errors import UsageError
from suiro.views.pipeline.pace import LIVE_LAG_MS, PAUSE_MS, THROTTLE, Pace, ask_throttle, read_throttle
from suiro.views.pipeline.progress import InputLag


def test_how_long_records_were_missing() -> None:
    lag = InputLag()
    lag.note(0, 100, 100)
    assert lag.ms == 0
    lag.note(1_000, 100, 150)
    lag.note(3_000, 100, 200)
    assert lag.ms == 2_000
    lag.note(4_000, 150, 200)
    assert lag.ms == 1_000
    lag.note(5_000, 200, 200)
    assert lag.ms == 0


def test_a_rest_is_no_lag() -> None:
    lag = InputLag()
    lag.note(0, 100, 100)
    lag.note(3_600_000, 100, 101)
    assert lag.ms == 0


def test_it_is_paused_while_the_live_one_lags_and_runs_in_between(tmp_path: Path) -> None:
    pace = Pace(tmp_path)
    seen = []
    for now in range(0, 6 * PAUSE_MS, PAUSE_MS // 4):
        pace.tend(now, LIVE_LAG_MS + 1)
        seen.append(read_throttle(tmp_path) == 0)
    assert seen == [False] * 4 + [True] * 4 + [False] * 4 + [True] * 4 + [False] * 4 + [True] * 4


def test_it_goes_on_at_once_when_the_live_one_is_current(tmp_path: Path) -> None:
    pace = Pace(tmp_path)
    pace.tend(0, LIVE_LAG_MS + 1)
    pace.tend(PAUSE_MS, LIVE_LAG_MS + 1)
    assert pace.is_paused
    pace.tend(PAUSE_MS + 1, 500)
    assert pace.is_paused
    pace.tend(PAUSE_MS + 2, 0)
    assert read_throttle(tmp_path) is None


@pytest.mark.parametrize("rate", [-1, 1 << 64])
def test_a_throttle_that_no_pipeline_can_read_is_refused(rate: int, tmp_path: Path) -> None:
    """The pipeline of the version ended at each start, and the version failed."""
    with pytest.raises(UsageError, match="a throttle is records a second"):
        ask_throttle(tmp_path, rate)
    assert read_throttle(tmp_path) is None


def test_what_was_asked_for_is_written_whole(tmp_path: Path) -> None:
    """A host that is killed in the middle of it finds what was asked for before."""
    ask_throttle(tmp_path, 500)
    with (tmp_path / THROTTLE).open() as before:
        ask_throttle(tmp_path, 60)
        assert before.read() == "500\n"
    assert [path.name for path in tmp_path.iterdir()] == [THROTTLE]


def test_what_is_asked_for_in_a_pause_applies_at_once(tmp_path: Path) -> None:
    pace = Pace(tmp_path)
    pace.tend(0, 0)
    pace.tend(PAUSE_MS, LIVE_LAG_MS + 1)
    assert read_throttle(tmp_path) == 0
    ask_throttle(tmp_path, 60)
    pace.tend(PAUSE_MS + 1, LIVE_LAG_MS + 1)
    assert read_throttle(tmp_path) == 60


def test_what_was_asked_for_comes_back(tmp_path: Path) -> None:
    ask_throttle(tmp_path, 500)
    pace = Pace(tmp_path)
    pace.tend(0, 0)
    pace.tend(PAUSE_MS, LIVE_LAG_MS + 1)
    assert read_throttle(tmp_path) == 0
    pace.tend(2 * PAUSE_MS, LIVE_LAG_MS + 1)
    assert read_throttle(tmp_path) == 500
    pace.tend(3 * PAUSE_MS, LIVE_LAG_MS + 1)
    assert pace.is_paused
    Pace(tmp_path)  # the host was killed in a pause
    assert read_throttle(tmp_path) == 500
    ask_throttle(tmp_path, None)
    assert read_throttle(tmp_path) is None
