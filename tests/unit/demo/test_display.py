"""How the view stands, out of what a host says; and how plain lines tell it."""

from __future__ import annotations

import io

from rich.console import Console

from suiro.demo.display import Display, Status, Version
from suiro.demo.names import RAW, STAGES

ROUTING = {"serving": 1, "candidate": 2, "share": 1_000}
READY = {
    "version": 1, "state": "ready", "lag_ms": 0, "input_lag_ms": 400, "cut": 9, "error": None,
    "progress": {"done": 10, "total": 12, "rate": 5.0, "left_s": 0.4}, "pipeline": {"pid": 7, "restarts": 1},
}  # fmt: skip


def test_shares_of_callers_come_from_the_routing() -> None:
    building = {"version": 2, "state": "building"}
    gone = {"version": 3, "state": "retired"}
    first, second = Version.all_of({"versions": [READY, building, gone], "routing": ROUTING})
    assert (first.share, first.cut, first.pipeline.pid, first.pipeline.restarts) == (0.9, 9, 7, 1)
    assert (first.progress.done, first.progress.total) == (10, 12)
    assert (second.share, second.pipeline.pid, second.progress.left_s) == (0.1, None, None)
    nobody = {"serving": None, "candidate": None, "share": 0}
    assert Version.all_of({"versions": [READY], "routing": nobody})[0].share == 0


def test_a_line_says_who_answers_and_how_far_the_other_is() -> None:
    out = io.StringIO()
    show = Display(Console(file=out, width=200))
    progress = {"done": 1_000, "total": 3_000, "rate": 500.0, "left_s": 4.0}
    building = {"version": 2, "state": "building", "progress": progress}
    status = Status(
        counts=dict.fromkeys(STAGES, 70),
        totals={RAW: 100},
        aggregated=60,
        delivered=50,
        micro_batches=2,
        versions=Version.all_of({"versions": [READY, building], "routing": ROUTING | {"share": 0}}),
        reading={"reads": 1_234, "errors": 0, "p99_ms": 2.5},
    )
    show.status(status)
    show.status(status)
    line, view = out.getvalue().splitlines()
    assert "of 100 | enriched 70 | aggregated 60 | alerts 70, sent 50 | 2 micro-batches" in line
    assert "v1 answers 100%, lag 0.4 s, start 2" in view
    assert "v2 is built: 1,000 of 3,000, 500/s, 4 s left" in view
    assert "1,234 reads, 0 errors, p99 2.5 ms" in view


def test_a_terminal_shows_the_same_as_tables() -> None:
    out = io.StringIO()
    status = Status(
        counts=dict.fromkeys(STAGES, 70),
        totals={RAW: 100},
        aggregated=60,
        delivered=50,
        micro_batches=2,
        versions=Version.all_of({"versions": [READY], "routing": ROUTING}),
    )
    console = Console(file=out, width=200, force_terminal=True, color_system=None)
    with Display(console, plain=False) as show:
        show.doing("something")
        show.status(status)
        show.done("a step")
    for table in status.tables():
        console.print(table)
    text = out.getvalue()
    assert all(part in text for part in (RAW, "50 alerts delivered", "answers 90%", "ok  a step"))
