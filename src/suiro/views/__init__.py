"""Views: data derived from the log and served to readers, rebuilt beside the live one when its code was wrong.

    from suiro.views import view

    @view("carrier_delays", key=("carrier", "day"))
    def carrier_delays(builder):
        ...
        return table

A version of a view is a pipeline of its own, with its own output topic; the last record of each of its transactions is
a cut (`cuts`), which says what of the inputs the output reflects.

- `definition`: what a view is, and a version of it. `archive`: its code. `cuts`: which inputs an output reflects.
- `pipeline`, `process`: a version runs. `leader`: it ends its micro-batches where another's ended.
- `store`, `follower`, `reads`: its rows are kept, and served.
- `lifecycle`: the rules of a change. `journal`: what was decided, in the log. `reconciler`, `host`: it is made so.
- `compare`, `explain`: two versions beside each other. `client`, `async_client`: all of it from elsewhere.

A name's module is imported when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from suiro.extras import require

if TYPE_CHECKING:
    from suiro.views.control.adoption import Adoption
    from suiro.views.control.host import HostConfig
    from suiro.views.control.rollback_conditions import guards_of, steps_of
    from suiro.views.control.server import Listen, serve
    from suiro.views.cuts import Cut, CutLog
    from suiro.views.definition import RowCodec, VersionSpec, ViewDefinition, topology_of, view
    from suiro.views.serving.async_client import AsyncViews
    from suiro.views.serving.client import Views

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

_HOMES = {
    "Adoption": "control.adoption",
    "AsyncViews": "serving.async_client",
    "Cut": "cuts",
    "CutLog": "cuts",
    "HostConfig": "control.host",
    "Listen": "control.server",
    "RowCodec": "definition",
    "VersionSpec": "definition",
    "ViewDefinition": "definition",
    "Views": "serving.client",
    "guards_of": "control.rollback_conditions",
    "serve": "control.server",
    "steps_of": "control.rollback_conditions",
    "topology_of": "definition",
    "view": "definition",
}
_LIGHT = ("serving.async_client", "serving.client", "definition")
"""They need no Spark: a view is written and tested, and asked for, where nothing runs it."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        if _HOMES[name] not in _LIGHT:
            require("spark")
        return getattr(import_module(f"suiro.views.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
