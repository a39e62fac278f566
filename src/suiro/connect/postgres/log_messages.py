"""A capture's messages to itself in Postgres's log. The stream brings them back, in order with the changes.

| message | says |
|---|---|
| `{"heartbeat": true}` | nothing: with it the stream comes to this place, though nobody changes anything |
| `{"capture": NAME, "mark": TOKEN}` | the rows of a snapshot window were read before this place |
| `{"capture": NAME, "snapshot": TABLE}` | the table is to be read again |

All belong to a transaction; others are ignored. Every role of the database may write such messages. Only a mark has a
token that nobody else can know.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.postgres.server.database import Database
from suiro.errors import ConfigError
from suiro.foundation.nesting import parse_json

PREFIX = "suiro"
MAX_BYTES = 64 << 10  # a capture's own messages are short

logger = logging.getLogger(__name__)


def request_snapshot(dsn: str, *, topic_prefix: str, table: str, slot: str = "") -> None:
    """Requests a new snapshot of the table while changes flow. Keys that the table no longer has get tombstones. Raises
    `ConfigError` for a table that does not exist. Nothing answers for the capture, so a wrong prefix is a warning."""
    options = CaptureOptions(
        dsn=dsn, bootstrap_servers="", registry="", topic_prefix=topic_prefix, slot=slot, tables=(table,)
    )
    with Database(dsn) as database:
        found = database.row(
            "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname || '.' || c.relname = %s and c.relkind in ('r', 'p')),"
            " exists (select from pg_replication_slots where slot_name = %s)",
            (options.tables[0], options.slot),
            what=f"look for table {options.tables[0]}",
        )
        has_table, has_slot = found or (False, False)
        if not has_table:
            raise ConfigError(
                f"table {options.tables[0]} does not exist in this database; name it as schema.table, in the case of "
                "the database and without quotes"
            )
        if not has_slot:
            logger.warning(
                "there is no slot %s on this server, so no capture reads this request, unless it reads from a standby; "
                "is its topic prefix, or its slot, another one?",
                options.slot,
            )
        _emit(database, {"capture": options.name, "snapshot": options.tables[0]})


def emit_heartbeat(database: Database) -> None:
    _emit(database, {"heartbeat": True})


def emit_mark(database: Database, capture: str, mark: str) -> None:
    _emit(database, {"capture": capture, "mark": mark})


def _emit(database: Database, message: dict[str, Any]) -> None:
    statement = "select pg_logical_emit_message(true, %s, %s)"
    database.rows(statement, (PREFIX, json.dumps(message)), what="write a message into Postgres's log")


def parse_message(content: bytes) -> dict[str, Any] | None:
    """Returns None for a message with the prefix that no capture has written, and logs why."""
    try:
        if len(content) > MAX_BYTES:
            raise ValueError(f"has {len(content):,} bytes, and {MAX_BYTES:,} are the limit")
        message = parse_json(content)
        if not isinstance(message, dict):
            raise ValueError("is no JSON object")
    except ValueError as error:
        logger.warning(
            "a message with prefix %r in Postgres's log is no message of a capture and is left: it %s",
            PREFIX,
            error,
        )
        return None
    return message
