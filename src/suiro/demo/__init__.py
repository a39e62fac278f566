"""The main job of suiro on real data: every flight out of New York in 2013, from log to result, exactly once.

- `dataset`, `names`, `load`: the records, the topics, and how they get there.
- `pipeline`, `verdict`: the topology; which flights are valid. `driver`: the process that runs it on Spark.
- `processes`, `faults`: the driver as a child process, and when and how it and the node are killed.
- `expected`, `verify`: the figures by other means, and the comparison with what is in the topics.
- `watch`, `display`: the counts while it runs, and how a terminal shows them.
- `story`: all of it in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suiro.demo.story import DemoOptions, run

__all__ = ["DemoOptions", "run"]


def __getattr__(name: str) -> Any:
    """The story is imported when it is told: Spark's workers import the pipeline, and have no use for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from suiro.demo import story

    return getattr(story, name)
