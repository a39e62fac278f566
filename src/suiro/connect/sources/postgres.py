"""Source `postgres`: `suiro.connect.postgres` (capture of a database) as one of the connectors of a file.

    [source.shop]
    kind = "postgres"
    dsn = "postgresql://user@host/database"
    topic_prefix = "shop"            # by default the connector's name
    tables = ["public.orders"]

Settings are those of `suiro capture`. Keys and values are Avro, so `registry` in section [connect] is needed. The
capture's position lies under its own name (TOPIC_PREFIX.SLOT), the same as with `suiro capture`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from suiro.connect.connectors import About
from suiro.connect.postgres.capture import PostgresCapture
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.task import TaskContext
from suiro.foundation.settings import SettingError, check_names, read_settings
from suiro.telemetry import Datasets

LOOK_S = 0.2
OF_THE_FILE = ("bootstrap_servers", "registry", "kafka_settings")
"""Options that section [connect] gives."""


class PostgresCaptureTask:
    """A task with a loop of its own: the capture's."""

    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._capture: PostgresCapture | None = None
        check_names(settings, {item.name: item for item in fields(CaptureOptions) if item.name not in OF_THE_FILE})
        given = {"topic_prefix": about.name, **settings, "bootstrap_servers": "", "registry": ""}
        options = read_settings(CaptureOptions, given)
        if options.state_directory is not None:
            options = replace(options, state_directory=about.folder / options.state_directory)
        self._options = options

    def datasets(self, context: TaskContext) -> Datasets:
        return Datasets() if self._capture is None else self._capture.datasets()

    def run(self, context: TaskContext) -> None:
        if context.registry is None:
            raise SettingError("registry", "is missing in section [connect]: what is captured is Avro")
        capture = self._capture = PostgresCapture(
            replace(
                self._options,
                bootstrap_servers=context.bootstrap_servers,
                registry=context.registry,
                kafka_settings={name: str(value) for name, value in context.client_settings.items()},
            ),
            traces=context.traces,
        )
        context.progress.capture = capture.progress
        context.progress.capture_metrics = (capture.options.name, capture.status)
        ended = threading.Event()
        watching = threading.Thread(target=self._watch, args=(capture, context, ended), daemon=True)
        watching.start()
        try:
            capture.run()
        finally:
            self._options = replace(self._options, snapshot=capture.snapshot)  # a restart begins no new one again
            ended.set()
            watching.join()

    def _watch(self, capture: PostgresCapture, context: TaskContext, ended: threading.Event) -> None:
        """Hands the stop on, and the numbers back."""
        progress = context.progress
        records, commits = progress.records, progress.commits  # of earlier runs
        while not ended.is_set():
            if context.stopping.wait(LOOK_S):
                capture.stop()
                ended.wait()
            progress.records = records + capture.status.records
            # A session begins with a commit of its position alone, which is no progress if each fails at one place.
            progress.commits = commits + (capture.status.kafka_transactions if capture.status.records else 0)
            progress.lag = capture.status.lag_bytes
