"""Lineage: which input records a result of a topology is made of.

- `provenance`: an interpreter that links every row it writes with the input record and the rows it was made of.
- `rekey_point`: the nodes of a topology above which records of other keys can be dropped.

Nothing here does I/O or knows views; `suiro.views.analysis.explain` replays the log through it.
"""

from __future__ import annotations

from suiro.lineage.provenance import Link, Place, TracingInterpreter, sources_of
from suiro.lineage.rekey_point import RekeyPoints, rekey_points_of

__all__ = ["Link", "Place", "RekeyPoints", "TracingInterpreter", "rekey_points_of", "sources_of"]
