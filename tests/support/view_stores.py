"""Stores of views for tests: a version's description as small as a store needs it, and cuts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from suiro.views.cuts import Cut
from suiro.views.store import open_store
from suiro.views.store.tables import Store
from support.postgres import Postgres


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    view: str = "flights"
    version: int = 1
    key: tuple[str, ...] = ("carrier", "day")
    serve: str = "sqlite"
    search: tuple[str, ...] = ()
    history_ms: int = 3_600_000
    journal_id: str = ""

    @property
    def output_topic(self) -> str:
        return f"{self.view}.v{self.version}"


def cut(
    number: int,
    *,
    time_ms: int | None = None,
    inputs: Mapping[tuple[str, int], int] | None = None,
    behind: Iterable[tuple[str, int]] = (),
) -> Cut:
    return Cut(
        number=number,
        inputs=inputs or {("in", 0): 10 * number + 10},
        outputs={0: number + 1},
        time_ms=1_000 * number if time_ms is None else time_ms,
        behind=frozenset(behind),
    )


def opened(spec: Described, folder: Path, postgres: Postgres | None) -> Store:
    """Where both `serve` lead to places of this test alone; `postgres` only where it is asked for."""
    if spec.serve == "sqlite":
        return open_store(spec, folder)
    return open_store(spec, postgres.dsn)
