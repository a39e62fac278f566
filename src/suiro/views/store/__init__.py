"""The rows of a version, in a SQLite file or in Postgres, with the cut that they reflect and a history of cuts.

- `tables`: the store. `sqlite`, `postgres`: the connections and statements that differ.
- `keys`: the order of keys, and keys in a path. `conditions`: those of readers.
- `json_text`: the JSON of rows. `rows`: the values that a store takes and gives.
- `meeting`: the common cuts of two stores.

`open_store` is the entry point. Equal cuts give byte-equal answers in both kinds of store.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from suiro.errors import ConfigError
from suiro.extras import require
from suiro.views.store.tables import Store

if TYPE_CHECKING:
    from suiro.views.definition import VersionSpec

FILE_NAME = "store.sqlite"


def open_store(spec: VersionSpec, location: str | Path) -> Store:
    """Opens the store, and creates it if it does not exist. `location`: the folder of the version for `serve="sqlite"`,
    a DSN for `serve="postgres"`.

    A store may be open any number of times, in any process, but only one of them should apply cuts. Raises
    `StoreBrokenError`, `StoreUnavailableError`.
    """
    serve: Any = spec.serve  # as it was recorded
    if serve == "sqlite":
        from suiro.views.store.sqlite import SqliteStore

        return SqliteStore(spec, Path(location) / FILE_NAME)
    if serve == "postgres":
        require("connect")
        from suiro.views.store.postgres import PostgresStore

        return PostgresStore(spec, str(location))
    raise ConfigError(f"view {spec.view!r} is served from {serve!r}; there are sqlite and postgres")
