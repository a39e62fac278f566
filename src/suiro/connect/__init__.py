"""Data in and out: sources and sinks beside the log, each exactly once or said plainly what it is instead.

- `connectors`: what a source and a sink are; the values that pass. `settings`, `configuration`: the TOML file.
- `source_task`, `sink_task`: run one, transaction by transaction. `task`: what both share. `positions`: where a source
  goes on. `values`: formats. `runtime`: many of them, restarted, paused. `control`, `http_server`: over HTTP.
- `sources`, `sinks`: those that come along, one file each, loaded when a configuration names them. `postgres`: capture.
"""

from typing import TYPE_CHECKING, Any

from suiro.connect.configuration import Configuration, Connector, read_configuration
from suiro.connect.connectors import (
    About,
    BadRecordError,
    HearsOfCommits,
    HoldsOffsets,
    KeepsParts,
    KnowsItsLag,
    Polled,
    Sink,
    SinkBatch,
    SinkRecord,
    Source,
    SourceRecord,
    check_expected,
)
from suiro.connect.runtime import Runtime, UnknownConnectorError, summary
from suiro.connect.settings import SettingError, read_settings

if TYPE_CHECKING:
    from suiro.connect.control import serve_control

__all__ = [
    "About",
    "BadRecordError",
    "Configuration",
    "Connector",
    "HearsOfCommits",
    "HoldsOffsets",
    "KeepsParts",
    "KnowsItsLag",
    "Polled",
    "Runtime",
    "SettingError",
    "Sink",
    "SinkBatch",
    "SinkRecord",
    "Source",
    "SourceRecord",
    "UnknownConnectorError",
    "check_expected",
    "read_configuration",
    "read_settings",
    "serve_control",
    "summary",
]


def __getattr__(name: str) -> Any:
    if name == "serve_control":  # Starlette and uvicorn, only where somebody listens
        from suiro.connect.control import serve_control

        return serve_control
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
