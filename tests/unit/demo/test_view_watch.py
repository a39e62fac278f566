"""How the view stands, out of what a host says; and how plain lines tell it."""

from __future__ import annotations

import io

from rich.console import Console

from suiro.clock import ManualClock
from suiro.demo.display import Display
from suiro.demo.view_watch import Reading, VersionState, ViewState

ROUTING = {"serving": 1, "candidate": 2, "share": 1_000}
READY = {
    "version": 1, "state": "ready", "lag_ms": 0, "input_lag_ms": 400, "cut": 9, "error": None,
    "progress": {"done": 10, "total": 12, "rate": 5.0, "left_s": 0.4}, "pipeline": {"pid": 7, "restarts": 1},
}  # fmt: skip


def test_shares_of_callers_come_from_the_routing() -> None:
    first = VersionState.of(READY, ROUTING)
    assert (first.share, first.pid, first.restarts, first.done, first.total) == (0.9, 7, 1, 10, 12)
    second = VersionState.of({"version": 2, "state": "building"}, ROUTING)
    assert (second.share, second.pid, second.left_s) == (0.1, None, None)
    assert VersionState.of(READY, {"serving": None, "candidate": None, "share": 0}).share == 0
    assert ViewState(versions=(first, second)).version(2) is second
    assert ViewState().version(1) is None


def test_a_line_says_who_answers_and_how_far_the_other_is() -> None:
    clock, out = ManualClock(), io.StringIO()
    show = Display(Console(file=out, width=200), clock=clock)
    progress = {"done": 1_000, "total": 3_000, "rate": 500.0, "left_s": 4.0}
    state = ViewState(
        versions=(
            VersionState.of(READY, ROUTING | {"share": 0}),
            VersionState.of(
                {"version": 2, "state": "building", "progress": progress}, ROUTING | {"share": 0}
            ),
        ),
        reading=Reading.of(
            {
                "reads": 1_234,
                "errors": 0,
                "p50_ms": 1.0,
                "p99_ms": 2.5,
                "turns": [1, 2],
                "callers": {"1": 3},
                "last_s": {"1": 0.1},
            }
        ),
    )
    clock.advance(5_000)
    show.view(state)
    show.view(state)
    (line,) = out.getvalue().splitlines()
    assert "v1 answers 100%, lag 0.4 s, start 2" in line
    assert "v2 is built: 1,000 of 3,000, 500/s, 4 s left" in line
    assert "1,234 reads, 0 errors, p99 2.5 ms" in line
