"""Data in and out: sources and sinks beside the log, each exactly once or said plainly what it is instead.

- `connectors`: what a source and a sink are; the values that pass. `settings`, `configuration`: the TOML file.
- `source_task`, `sink_task`: run one, transaction by transaction. `task`: what both share. `positions`: where a source
  goes on. `values`: formats. `runtime`: many of them, restarted, paused. `control`, `http_server`: over HTTP.
- `sources`, `sinks`: those that come along, one file each, loaded when a configuration names them. `postgres`: capture.
"""

from importlib import import_module
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
    from suiro.connect.http_server import BackgroundServer
    from suiro.connect.postgres.capture import PostgresCapture
    from suiro.connect.postgres.options import CaptureOptions
    from suiro.connect.postgres.requests import request_snapshot
    from suiro.connect.postgres.status import serve_metrics as serve_capture_metrics

__all__ = [
    "About",
    "BackgroundServer",
    "BadRecordError",
    "CaptureOptions",
    "Configuration",
    "Connector",
    "HearsOfCommits",
    "HoldsOffsets",
    "KeepsParts",
    "KnowsItsLag",
    "Polled",
    "PostgresCapture",
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
    "request_snapshot",
    "serve_capture_metrics",
    "serve_control",
    "summary",
]

_SERVERS = {"BackgroundServer": "http_server", "serve_control": "control"}
_CAPTURE = {
    "CaptureOptions": ("options", "CaptureOptions"),
    "PostgresCapture": ("capture", "PostgresCapture"),
    "request_snapshot": ("requests", "request_snapshot"),
    "serve_capture_metrics": ("status", "serve_metrics"),
}


def __getattr__(name: str) -> Any:
    if name in _SERVERS:  # Starlette and uvicorn, only where somebody listens
        return getattr(import_module(f"suiro.connect.{_SERVERS[name]}"), name)
    if name in _CAPTURE:  # psycopg2, NumPy and Arrow, only where a database is captured
        module, attribute = _CAPTURE[name]
        return getattr(import_module(f"suiro.connect.postgres.{module}"), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
