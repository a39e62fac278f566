"""For drawn logs and any two drawn topologies: the records that an explanation names, alone, make both rows again."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.drawn_topologies import Drawn, drawn
from support.share import examples
from support.view_logs import MemoryLog, as_version, built, is_windowed, log_of, rows_from, rows_of

from suiro.views.analysis.compare.values import Comparator, columns_of
from suiro.views.analysis.explain.replay import Side
from suiro.views.analysis.explain.result import Explanation, text_of
from suiro.views.analysis.explain.rows import explain

OUT = "p.out"
KEYS_EXPLAINED = 3


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn(size=30), drawn(size=1), st.booleans())
def test_named_records_alone_make_both_rows(case: Drawn, other: Drawn, with_rows: bool) -> None:
    topologies = [built(case), built(other)]
    windowed = all(is_windowed(topology, OUT) for topology in topologies)
    old, new = (as_version(number, topology, OUT, windowed=windowed) for number, topology in enumerate(topologies, 1))
    log = log_of((old, new), case)
    rows = [rows_of(side, log) for side in (old, new)]
    keys = sorted(rows[0].keys() | rows[1].keys(), key=str)[:KEYS_EXPLAINED]
    if with_rows:
        old, new = (
            Side(
                version=side.version,
                topology=side.topology,
                codec=side.codec,
                rows={key: found.get(key) for key in keys},
            )
            for side, found in zip((old, new), rows, strict=True)
        )
    for found in explain(keys, old, new, log, Comparator()):
        assert found.old_row == shown(rows[0].get(found.key))
        assert found.new_row == shown(rows[1].get(found.key))
        assert found.is_proven
        assert found.matches_store is (True if with_rows else None)
        for side, wanted in zip((old, new), rows, strict=True):
            assert alone(side, log, found).get(found.key) == wanted.get(found.key)
        assert found.is_explained
        assert json.loads(json.dumps(found.to_json()))["records"] == len(found.named)
        assert text_of(found, full=True)


def alone(side: Side, log: MemoryLog, found: Explanation) -> dict[Any, str | None]:
    """Only the named records, in the order in which the version takes them from the whole log."""
    named = set(found.named)
    return rows_from(side, [record for record in log.read(side.topology) if record.place in named])


def shown(row: str | None) -> Any:
    return None if row is None else columns_of(row)
