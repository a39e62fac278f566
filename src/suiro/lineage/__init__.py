"""Lineage: which input records a result of a topology is made of.

- `provenance`: an interpreter that links every row it writes with the input record and the rows it was made of.
- `prefilter`: the nodes of a topology above which records of other keys can be dropped, and what drops them.
- `inputs`: reads the input of a topology from the log. Only this module does I/O.
- `row_sources`: the input records of one row of a store, within limits.

Nothing here knows views; `suiro.views.analysis.explain` replays the log through it.
"""

from __future__ import annotations

from suiro.lineage.inputs import InputRecord, Inputs, Log, global_topics, merged, source_of
from suiro.lineage.prefilter import KeyPrefilter, RekeyPoints, rekey_points_of
from suiro.lineage.provenance import Link, Place, TracingInterpreter, sources_of
from suiro.lineage.row_sources import Bounds, RowSources, sources_of_row, topology_above

__all__ = [
    "Bounds",
    "InputRecord",
    "Inputs",
    "KeyPrefilter",
    "Link",
    "Log",
    "Place",
    "RekeyPoints",
    "RowSources",
    "TracingInterpreter",
    "global_topics",
    "merged",
    "rekey_points_of",
    "source_of",
    "sources_of",
    "sources_of_row",
    "topology_above",
]
