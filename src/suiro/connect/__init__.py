"""Moves data in and out: sources and sinks next to the log, and change data capture from Postgres.

- `connectors`: interfaces and values. `settings`, `configuration`: the TOML file.
- `source_task`, `sink_task`: run a connector, transaction by transaction. `task`: shared code. `positions`: positions
  of sources. `values`: formats. `runtime`: many connectors, with restart and pause. `control`: the REST API.
- `sources`, `sinks`: the included connectors, loaded when a configuration names them. `postgres`: capture.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from suiro.extras import require
from suiro.foundation.settings import SettingError, read_settings

if TYPE_CHECKING:
    from suiro.connect.configuration import Configuration, Connector, read_configuration
    from suiro.connect.connectors import (
        About,
        BadRecordError,
        CommitListener,
        DatasetReporter,
        LagReporter,
        MultiPartSource,
        OffsetStoringSink,
        Polled,
        Sink,
        SinkBatch,
        SinkRecord,
        Source,
        SourceRecord,
        check_expected,
    )
    from suiro.connect.control import push_metrics as push_connect_metrics
    from suiro.connect.control import serve_control
    from suiro.connect.postgres.capture import PostgresCapture
    from suiro.connect.postgres.options import CaptureOptions
    from suiro.connect.postgres.requests import request_snapshot
    from suiro.connect.postgres.status import push_metrics as push_capture_metrics
    from suiro.connect.postgres.status import serve_metrics as serve_capture_metrics
    from suiro.connect.rules import rule
    from suiro.connect.runtime import Runtime, UnknownConnectorError, summary
    from suiro.connect.values import plain_json

__all__ = [
    "About",
    "BadRecordError",
    "CaptureOptions",
    "CommitListener",
    "Configuration",
    "Connector",
    "DatasetReporter",
    "LagReporter",
    "MultiPartSource",
    "OffsetStoringSink",
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
    "plain_json",
    "push_capture_metrics",
    "push_connect_metrics",
    "read_configuration",
    "read_settings",
    "request_snapshot",
    "rule",
    "serve_capture_metrics",
    "serve_control",
    "summary",
]

# Each from its own module when it is asked for: a capture loads no connectors, and a file of connectors no psycopg2.
_CONNECTORS = (
    "About",
    "BadRecordError",
    "CommitListener",
    "OffsetStoringSink",
    "MultiPartSource",
    "DatasetReporter",
    "LagReporter",
    "Polled",
    "Sink",
    "SinkBatch",
    "SinkRecord",
    "Source",
    "SourceRecord",
    "check_expected",
)
_PLACES = {
    **{name: ("connectors", name) for name in _CONNECTORS},
    **{name: ("configuration", name) for name in ("Configuration", "Connector", "read_configuration")},
    **{name: ("runtime", name) for name in ("Runtime", "UnknownConnectorError", "summary")},
    "serve_control": ("control", "serve_control"),
    "plain_json": ("values", "plain_json"),
    "rule": ("rules", "rule"),
    "CaptureOptions": ("postgres.options", "CaptureOptions"),
    "PostgresCapture": ("postgres.capture", "PostgresCapture"),
    "push_connect_metrics": ("control", "push_metrics"),
    "request_snapshot": ("postgres.requests", "request_snapshot"),
    "push_capture_metrics": ("postgres.status", "push_metrics"),
    "serve_capture_metrics": ("postgres.status", "serve_metrics"),
}
_NEEDS = {
    **dict.fromkeys(("configuration", "control", "runtime"), "connect"),
    **dict.fromkeys(("postgres.capture", "postgres.requests"), "capture"),
}
"""The extras of modules that load what is not in every installation."""


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        module, attribute = _PLACES[name]
        if module in _NEEDS:
            require(_NEEDS[module])
        return getattr(import_module(f"suiro.connect.{module}"), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
