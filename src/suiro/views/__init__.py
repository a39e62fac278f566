"""Views: tables derived from the log, served to readers, and rebuilt next to the live version when their code changes.

    from suiro.views import view

    @view("carrier_delays", key=("carrier", "day"))
    def carrier_delays(builder):
        ...
        return table

Each version of a view is a separate pipeline with a separate output topic. The last record of each of its transactions
is a cut (`cuts`): it says which input offsets the output reflects.

- `definition`: views and versions. `state`: a view's versions and routing as a value. `cuts`: cuts.
- `pipeline`: runs a version on Spark. `leader` ends its micro-batches at the cuts of the serving version.
- `store`: rows and their history. `serving`: reads over HTTP, and the clients.
- `control`: `lifecycle` has the rules, `journal` the decisions, `reconciler` and `host` carry them out.
- `analysis`: compares two versions, and explains why a row differs.

A name's module is imported when the name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.extras import on_first_use

if TYPE_CHECKING:
    from suiro.views.control.adoption import Adoption
    from suiro.views.control.host import HostConfig
    from suiro.views.control.rollback_conditions import guards_of, steps_of
    from suiro.views.control.server import Listen, serve
    from suiro.views.cuts import Cut, CutLog
    from suiro.views.definition import RowCodec, VersionSpec, ViewDefinition, topology_of, view
    from suiro.views.serving.client import AsyncViews, Views

__all__ = [
    "Adoption",
    "AsyncViews",
    "Cut",
    "CutLog",
    "HostConfig",
    "Listen",
    "RowCodec",
    "VersionSpec",
    "ViewDefinition",
    "Views",
    "guards_of",
    "serve",
    "steps_of",
    "topology_of",
    "view",
]

# A view is written and tested, and asked for, where nothing runs it: that needs no Spark.
__getattr__ = on_first_use(
    __name__,
    {
        "control.adoption": "Adoption",
        "control.host": "HostConfig",
        "control.rollback_conditions": "guards_of steps_of",
        "control.server": "Listen serve",
        "cuts": "Cut CutLog",
        "definition": "RowCodec VersionSpec ViewDefinition topology_of view",
        "serving.client": "AsyncViews Views",
    },
    extras=dict.fromkeys(("control.adoption", "control.host", "control.server", "cuts"), "spark"),
)
