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
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from suiro.connect.connectors import About
from suiro.connect.postgres.capture import PostgresCapture
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.task import TaskContext
from suiro.foundation.settings import SettingError, read_settings
from suiro.telemetry import Datasets

LOOK_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """Those of `CaptureOptions` that a file may give; None: as it has them."""

    dsn: str
    topic_prefix: str | None = None
    tables: tuple[str, ...] | None = None
    slot: str | None = None
    publication: str | None = None
    partitions: int | None = None
    decimals: str | None = None
    as_text: tuple[str, ...] | None = None
    compression: str | None = None
    snapshot: str | None = None
    state_directory: Path | None = None
    chunk_rows: int | None = None
    snapshot_readers: int | None = None
    heartbeat_s: float | None = None
    lag_alert_bytes: int | None = None
    catch_up_bytes: int | None = None
    memory_bytes: int | None = None
    owed_keys_max: int | None = None
    transaction_timeout_ms: int | None = None


class PostgresCaptureTask:
    """A task with a loop of its own: the capture's."""

    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._capture: PostgresCapture | None = None
        given = read_settings(_Settings, settings)
        self._options: dict[str, Any] = {
            item.name: getattr(given, item.name)
            for item in fields(_Settings)
            if getattr(given, item.name) is not None
        }
        self._options.setdefault("topic_prefix", about.name)
        if "state_directory" in self._options:
            self._options["state_directory"] = about.folder / self._options["state_directory"]
        CaptureOptions(bootstrap_servers="", registry="", **self._options)  # says what is wrong

    def datasets(self, context: TaskContext) -> Datasets:
        return Datasets() if self._capture is None else self._capture.datasets()

    def run(self, context: TaskContext) -> None:
        if context.registry is None:
            raise SettingError("registry", "is missing in section [connect]: what is captured is Avro")
        capture = self._capture = PostgresCapture(
            CaptureOptions(
                bootstrap_servers=context.bootstrap_servers,
                registry=context.registry,
                kafka_settings={name: str(value) for name, value in context.client_settings.items()},
                **self._options,
            ),
            traces=context.traces,
        )
        context.progress.capture = capture.progress
        ended = threading.Event()
        watching = threading.Thread(target=self._watch, args=(capture, context, ended), daemon=True)
        watching.start()
        try:
            capture.run()
        finally:
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
            progress.commits = commits + capture.status.kafka_transactions
            progress.lag = capture.status.lag_bytes
