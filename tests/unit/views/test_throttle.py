"""The budget: what was not read yet and what was read too much both even out, and nothing is saved up for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.errors import ConfigError
from suiro.views.pipeline.pace import SAVED_MS, Budget, ask_throttle, read_throttle


def test_a_throttled_reader_takes_its_rate_over_time() -> None:
    budget, position, now = Budget(), 0, 0
    backlog = 1_000_000
    while now < 60_000:
        taken = budget.allowed(1_000, now, position, backlog - position)
        assert taken == 0 or taken >= 500, "a micro-batch that is not worth its cost"
        position += taken
        now += 7
    assert 58_500 <= position <= 60_000


def test_what_a_micro_batch_read_beyond_its_budget_is_waited_for() -> None:
    budget = Budget()
    assert budget.allowed(100, 0, 0, 10_000) == 0
    assert budget.allowed(100, 1_000, 0, 10_000) == 100
    assert budget.allowed(100, 2_000, 400, 10_000) == 0, "it read 400: 3 seconds are owed"
    assert budget.allowed(100, 4_400, 400, 10_000) == 0
    assert budget.allowed(100, 4_500, 400, 10_000) == 50


def test_little_is_read_at_once_and_a_pause_saves_up_only_so_much() -> None:
    budget = Budget()
    budget.allowed(1_000, 0, 0, 0)
    assert budget.allowed(1_000, 100, 0, 3) == 100, "what comes live does not wait for a large micro-batch"
    assert budget.allowed(1_000, 3_600_000, 0, 1_000_000) == SAVED_MS


def test_zero_pauses() -> None:
    budget = Budget()
    assert budget.allowed(0, 0, 0, 5) == 0
    assert budget.allowed(0, 1_000_000, 0, 5) == 0


def test_the_file(tmp_path: Path) -> None:
    assert read_throttle(tmp_path) is None
    ask_throttle(tmp_path, 500)
    assert read_throttle(tmp_path) == 500
    ask_throttle(tmp_path, None)
    assert read_throttle(tmp_path) is None
    (tmp_path / "throttle").write_text("fast")
    with pytest.raises(ConfigError, match="'fast'"):
        read_throttle(tmp_path)
