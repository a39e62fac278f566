from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from suiro.errors import TransientError, UsageError
from suiro.spark import faults


def test_nothing_happens_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(faults.VARIABLE, raising=False)
    faults.reach("after_end", 3)


def test_a_fault_happens_at_its_point_and_micro_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(faults.VARIABLE, "after_end@batch=3:raise, before_fence:raise")
    faults.reach("after_end", 2)
    with pytest.raises(TransientError, match="after_end@batch=3"):
        faults.reach("after_end", 3)
    monkeypatch.setenv(faults.ONCE_VARIABLE, str(tmp_path))
    with pytest.raises(TransientError):
        faults.reach("before_fence", 0)
    faults.reach("before_fence", 1)


def test_a_stopped_process_goes_on_when_it_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(faults.VARIABLE, "after_end@batch=3:stop")
    child = os.fork()
    if child == 0:
        faults.reach("after_end", 3)
        os._exit(7)
    _, status = os.waitpid(child, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(child, signal.SIGCONT)
    _, status = os.waitpid(child, 0)
    assert os.WEXITSTATUS(status) == 7


@pytest.mark.parametrize("text", ["after_end", "after_end:explode", "after_end@batch=x:kill", "after_end@batch=:kill"])
def test_a_misspelt_fault_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="SUIRO_FAULT"):
        faults.parse(text)
