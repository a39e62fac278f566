"""What `suiro view status` shows."""

from __future__ import annotations

from typing import Any

import pytest

from suiro.cli.view_output import print_status


def version(number: int, state: str, **more: Any) -> dict[str, Any]:
    progress = {"done": 1_000, "total": 4_000, "rate": 1_500.0, "left_s": 2.0}
    return {"version": number, "state": state, "paused": False, "progress": progress} | more


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        (version(2, "building"), "1,000 of 4,000; 1,500 records/s, 2 s left"),
        (version(2, "building", paused=True), "1,000 of 4,000; waits for the live version"),
        (version(2, "building", progress=None), ""),
    ],
)
def test_how_long_building_will_take(
    candidate: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    routing = {"serving": 1, "candidate": 2, "share": 0, "guide": None}
    versions = [version(1, "ready"), candidate]
    print_status({"view": "delays", "position": "building", "routing": routing, "versions": versions})
    shown = capsys.readouterr().out
    assert said in shown
    assert "1,000 of 4,000\n" in shown  # of a version that is built, no more than that
