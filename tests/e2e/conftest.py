"""What tests of captures share: a registry, and a database of its own for each test. Also a host of views with what
feeds them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.capturing import CaptureScene, Connection, dsn_of
from support.postgres import Postgres, Standby, remove_database
from support.views import Feed, HostProcess, fed, hosted

from suiro.registry import RegistryProcess


@pytest.fixture(scope="module")
def standby(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standby]:
    made = Standby(postgres, tmp_path_factory.mktemp("standby") / "standby")
    yield made
    made.remove()


@pytest.fixture(scope="session")
def registry(suiro_node: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    running = RegistryProcess.start(suiro_node.bootstrap_servers, log=tmp_path_factory.mktemp("registry") / "log")
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


@pytest.fixture
def feed(suiro_node: Any) -> Iterator[Feed]:
    with fed(suiro_node.bootstrap_servers) as made:
        yield made


@pytest.fixture
def host(suiro_node: Any, tmp_path: Path) -> Iterator[HostProcess]:
    with hosted(suiro_node.bootstrap_servers, tmp_path / "views") as made:
        yield made
