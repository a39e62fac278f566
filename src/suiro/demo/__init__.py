"""The main job of suiro on real data: every flight out of New York in 2013, from Postgres to a view that is mended.

- `dataset`, `database`, `feed`, `connectors`: the data on its way into tables and files. `names`, `topics`: topics.
- `pipeline`, `verdict`, `schemas`: the topology. `driver`: the process that runs it on Spark. `receiver`: gets alerts.
- `carrier_delays`, `app`: the view, and how its bug is mended. `reader`: who reads it all the time.
- `system`, `processes`, `child`: all processes, started, killed and stopped part by part. `faults`: when to kill them.
- `expected`, `reading`, `verify`: the figures by other means, and the comparison with what is in the topics.
- `view_figures`, `view_check`: what each version of the view must answer, and whether it did.
- `watch`, `view_watch`, `display`, `report`: how it stands while it runs and at its end, and how a terminal shows it.
- `story`: all of it in order; `flow`, `change`: the acts; `looking`: waiting while everything goes on.
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
