from __future__ import annotations

from pathlib import Path

import pytest

from suiro.errors import TransientError, UsageError
from suiro.spark import faults


def test_nothing_happens_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(faults.VARIABLE, raising=False)
    faults.reach("after_end", 3)


def test_a_fault_happens_at_its_point_and_micro_batch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(faults.VARIABLE, "after_end@batch=3:raise, before_fence:raise")
    faults.reach("after_end", 2)
    with pytest.raises(TransientError, match="after_end@batch=3"):
        faults.reach("after_end", 3)
    monkeypatch.setenv(faults.ONCE_VARIABLE, str(tmp_path))
    with pytest.raises(TransientError):
        faults.reach("before_fence", 0)
    faults.reach("before_fence", 1)


@pytest.mark.parametrize(
    "text", ["after_end", "after_end:explode", "after_end@batch=x:kill", "after_end@batch=:kill"]
)
def test_a_misspelt_fault_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="SUIRO_FAULT"):
        faults.parse(text)
