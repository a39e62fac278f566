"""Requests to a running capture. They are written to the WAL, in order with the changes."""

from __future__ import annotations

import json

from suiro.connect.postgres.changes import MESSAGE_PREFIX
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.postgres.server.database import Database


def request_snapshot(dsn: str, *, topic_prefix: str, table: str, slot: str = "") -> None:
    """Requests a new snapshot of the table while changes flow. Keys that the table no longer has get tombstones."""
    options = CaptureOptions(
        dsn=dsn, bootstrap_servers="", registry="", topic_prefix=topic_prefix, slot=slot, tables=(table,)
    )
    with Database(dsn) as database:
        database.emit(MESSAGE_PREFIX, json.dumps({"capture": options.name, "snapshot": options.tables[0]}))
