"""The demo on real data: every flight out of New York in 2013, from Postgres to a view whose bug is fixed.

- `story`: everything in order. `flow`, `change`: the two acts. `stage`: what they share.
- `dataset`, `database`: the data, on its way into tables and files. `names`: topics.
- `pipeline`: the topology. `driver`: the process that runs it on Spark.
- `carrier_delays`: the view. `reader`: reads it all the time.
- `system`, `processes`: starts and stops all processes, and finds the moments to kill them.
- `check`: the process that checks everything. `expected`: what must come out. `reading`, `verify`, `anomalies`: the
  topics. `view_check`: the view.
- `display`: the status while it runs, and the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.extras import on_first_use

if TYPE_CHECKING:
    from suiro.demo.story import DemoOptions, run

__all__ = ["DemoOptions", "run"]

# Spark's workers import the pipeline only.
__getattr__ = on_first_use(__name__, {"story": "DemoOptions run"}, extras="demo")
