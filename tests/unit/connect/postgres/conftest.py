"""A connection for each module of tests of capture's parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.postgres import Postgres
from support.postgres_rows import Connection, connect


@pytest.fixture(scope="module")
def connection(postgres: Postgres) -> Iterator[Connection]:
    with connect(postgres.dsn) as connected:
        yield connected
