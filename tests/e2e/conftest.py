"""What tests of captures share: a Postgres and a registry for a module, a database of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.capturing import CaptureScene, Connection, dsn_of
from support.postgres import Postgres, Standby, remove_database

from suiro.registry import RegistryProcess


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    server = Postgres(tmp_path_factory.mktemp("server") / "postgres")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def standby(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standby]:
    made = Standby(postgres, tmp_path_factory.mktemp("standby") / "standby")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def registry(suiro_node: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    running = RegistryProcess.start(
        suiro_node.bootstrap_servers, log=tmp_path_factory.mktemp("registry") / "log"
    )
    yield running
    running.stop()


@pytest.fixture
def prefix(unique: str) -> str:
    return unique.replace("-", "")


@pytest.fixture
def connection(postgres: Postgres, prefix: str) -> Iterator[Connection]:
    """To a database of this test's own. It goes with the test, and its slots, of which a server has few."""
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute(f"create database {prefix}".encode())
    try:
        with psycopg.connect(postgres.dsn, dbname=prefix, autocommit=True) as made:
            yield made
    finally:
        remove_database(postgres, prefix)


@pytest.fixture
def scene(
    suiro_node: Any,
    registry: RegistryProcess,
    postgres: Postgres,
    connection: Connection,
    prefix: str,
    tmp_path: Path,
) -> Iterator[CaptureScene]:
    made = CaptureScene(
        suiro_node.bootstrap_servers, registry.url, dsn_of(postgres, prefix), prefix, tmp_path / "capture.log"
    )
    yield made
    made.close()
