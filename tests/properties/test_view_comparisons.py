"""For drawn logs and any two drawn topologies, comparing the versions' stores says what two offline runs say."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.drawn_topologies import Drawn, drawn
from support.view_logs import MemoryLog, as_version, built, log_of, rows_of

from suiro.views.analysis.compare.comparison import compare
from suiro.views.analysis.explain.replay import Side
from suiro.views.cuts import Cut
from suiro.views.store import open_store
from suiro.views.store.tables import Store

OUT = "p.out"
INPUT_CUT = {("p.in", 0): 100}


class Spec:
    view = "drawn"
    key = ("key",)
    serve = "sqlite"
    search: tuple[str, ...] = ()
    history_ms = 3_600_000
    journal_id = ""

    def __init__(self, version: int) -> None:
        self.version = version


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn(size=40), drawn(size=1), st.integers(1, 3), st.booleans())
def test_the_verdict_is_that_of_two_offline_runs(case: Drawn, other: Drawn, cuts: int, same: bool) -> None:
    sides = [as_version(n, built(each), OUT) for n, each in enumerate((case, case if same else other), 1)]
    log = log_of((sides[0], sides[1]), case)
    runs = [rows_of(side, log) for side in sides]
    with TemporaryDirectory() as folder:
        stores = [filled(side, run, log, cuts, Path(folder)) for side, run in zip(sides, runs, strict=True)]
        last = [Cut(number=cuts, inputs=INPUT_CUT, outputs={}, time_ms=0) for _ in stores]
        found = compare(*stores, old_cut=last[0], new_cut=last[1])
        for store in stores:
            store.close()
    old, new = ({key: json.loads(row) for key, row in run.items() if row is not None} for run in runs)
    both = old.keys() & new.keys()
    differing = {key for key in both if old[key] != new[key]}
    assert found.equal == len(both - differing)
    assert found.differing == len(differing)
    assert found.only_old.rows == len(old.keys() - new.keys())
    assert found.only_new.rows == len(new.keys() - old.keys())
    assert sum(pattern.rows for pattern in found.patterns) == len(differing)
    assert {example.key for pattern in found.patterns for example in pattern.examples} <= differing
    if same:
        assert found.unequal == 0


def filled(side: Side, rows: dict[Any, str | None], log: MemoryLog, cuts: int, folder: Path) -> Store:
    """The run's rows in several cuts; before each last state come others, which the comparison must not see."""
    place = folder / f"v{side.version}"
    place.mkdir()
    store = open_store(Spec(side.version), place)
    keys = list(rows)
    for number in range(cuts):
        inputs = {("p.in", 0): number + 1}
        values = ['{"value": "before"}' for _ in keys[: number + 1]]
        store.apply(Cut(number=number, inputs=inputs, outputs={}, time_ms=0), keys[: number + 1], values)
    last = Cut(number=cuts, inputs=INPUT_CUT, outputs={}, time_ms=0)
    store.apply(last, keys, [rows[key] for key in keys])
    after = Cut(number=cuts + 1, inputs={("p.in", 0): 101}, outputs={}, time_ms=0)
    store.apply(after, [("later",)], ['{"value": "after"}'])
    return store
