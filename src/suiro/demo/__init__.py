"""The demo on real data: every flight out of New York in 2013, from Postgres to a view whose bug is fixed.

- `dataset`, `database`, `feed`, `connectors`: the data, on its way into tables and files. `names`, `topics`: topics.
- `pipeline`, `verdict`, `schemas`: the topology. `driver`: the process that runs it on Spark. `receiver`: receives
  alerts.
- `carrier_delays`, `app`: the view, and the fix of its bug. `reader`: reads it all the time.
- `system`, `processes`, `child`: starts, kills and stops all processes. `faults`: finds the moments to kill them.
- `expected`, `reading`, `verify`, `anomalies`: computes the figures independently, and compares them with the topics.
- `view_figures`, `view_check`: the expected answers of each version of the view, and the comparison.
- `watch`, `view_watch`, `display`, `report`: the status while it runs, the result, and their output on a terminal.
- `story`: everything in order. `flow`, `change`: the two acts. `looking`: waits while the status is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.extras import require

if TYPE_CHECKING:
    from suiro.demo.story import DemoOptions, run

__all__ = ["DemoOptions", "run"]


def __getattr__(name: str) -> Any:
    """The story is imported when it is told: Spark's workers import the pipeline, and have no use for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("demo")
    from suiro.demo import story

    return getattr(story, name)
