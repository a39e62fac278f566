"""The rows of a version, in a SQLite file or in Postgres, with the cut that they reflect and a history of cuts.

- `tables`: the store, and all reading. `sqlite`, `postgres`: writing, and the differences between the two.
- `places`: the order of keys. `key_text`: keys in a path. `conditions`: the queries of readers.
- `json_text`: values. `rows`: the values that go in and out.
- `meeting`: cuts that two stores share. `buckets`: rows of two stores by range of key.

`open_store` is the entry point. Both stores keep one contract: equal cuts give byte-equal answers in any store.
"""

from __future__ import annotations

from pathlib import Path

from suiro.errors import ConfigError
from suiro.extras import require
from suiro.views.store.buckets import Buckets, same_buckets
from suiro.views.store.conditions import DEFAULT_LIMIT, MAX_LIMIT, Condition
from suiro.views.store.meeting import Meeting, common_cut, no_common_cut
from suiro.views.store.rows import (
    Change,
    CutGoneError,
    Digest,
    Found,
    NoCutError,
    Page,
    QuestionTooLargeError,
    Row,
    StoreBrokenError,
    StoreFullError,
    StoreOfAnotherError,
    StoreUnavailableError,
)
from suiro.views.store.tables import StoreSpec
from suiro.views.store.tables import TableStore as Store

__all__ = [
    "DEFAULT_LIMIT",
    "MAX_LIMIT",
    "Buckets",
    "Change",
    "Condition",
    "CutGoneError",
    "Digest",
    "Found",
    "Meeting",
    "NoCutError",
    "Page",
    "QuestionTooLargeError",
    "Row",
    "Store",
    "StoreBrokenError",
    "StoreFullError",
    "StoreOfAnotherError",
    "StoreSpec",
    "StoreUnavailableError",
    "common_cut",
    "no_common_cut",
    "open_store",
    "same_buckets",
]

FILE_NAME = "store.sqlite"


def open_store(spec: StoreSpec, location: str | Path) -> Store:
    """`location`: of `serve="sqlite"` the folder of the version, of `serve="postgres"` a DSN. Made where there is none.

    Any number may be open, in any process; whoever applies cuts should be one. Raises `StoreBrokenError`,
    `StoreUnavailableError`.
    """
    if spec.serve == "sqlite":
        from suiro.views.store.sqlite import SqliteStore

        return SqliteStore(spec, Path(location) / FILE_NAME)
    if spec.serve == "postgres":
        require("connect")
        from suiro.views.store.postgres import PostgresStore

        return PostgresStore(spec, str(location))
    raise ConfigError(f"view {spec.view!r} is served from {spec.serve!r}; there are sqlite and postgres")
