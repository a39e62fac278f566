"""Moves data in and out: sources and sinks next to the log, and change data capture from Postgres.

- `connectors`: interfaces and values. `settings`, `configuration`: the TOML file.
- `source_task`, `sink_task`: run a connector, transaction by transaction. `task`: shared code. `positions`: positions
  of sources. `values`: formats. `runtime`: many connectors, with restart and pause. `control`: the REST API.
- `sources`, `sinks`: the included connectors, loaded when a configuration names them. `postgres`: capture.
"""

from typing import TYPE_CHECKING

from suiro.extras import on_first_use
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
    from suiro.connect.control import push_connect_metrics, serve_control
    from suiro.connect.postgres.capture import PostgresCapture
    from suiro.connect.postgres.log_messages import request_snapshot
    from suiro.connect.postgres.options import CaptureOptions
    from suiro.connect.postgres.status import push_capture_metrics, serve_capture_metrics
    from suiro.connect.rules import rule_expression
    from suiro.connect.runtime import Runtime, UnknownConnectorError
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
    "rule_expression",
    "serve_capture_metrics",
    "serve_control",
]

# A capture loads no connectors, and a file of connectors no psycopg2.
__getattr__ = on_first_use(
    __name__,
    {
        "configuration": "Configuration Connector read_configuration",
        "connectors": "About BadRecordError CommitListener DatasetReporter LagReporter MultiPartSource "
        "OffsetStoringSink Polled Sink SinkBatch SinkRecord Source SourceRecord check_expected",
        "control": "push_connect_metrics serve_control",
        "postgres.capture": "PostgresCapture",
        "postgres.log_messages": "request_snapshot",
        "postgres.options": "CaptureOptions",
        "postgres.status": "push_capture_metrics serve_capture_metrics",
        "rules": "rule_expression",
        "runtime": "Runtime UnknownConnectorError",
        "values": "plain_json",
    },
    extras={
        **dict.fromkeys(("configuration", "control", "runtime"), "connect"),
        **dict.fromkeys(("postgres.capture", "postgres.log_messages"), "capture"),
    },
)
