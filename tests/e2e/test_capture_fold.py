"""The fold test: whatever dies when, the topics folded from offset 0 are the tables."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.capturing import Capture, Topics, difference, first_difference, table_rows
from support.postgres import VERSION, Postgres
from support.postgres_versions import PostgresUnavailable
from support.waiting import wait_until
from support.workload import Workload

from suiro.node import NodeProcess
from suiro.registry import RegistryProcess

PREFIX = "db"


class Scene:
    """Postgres, node, registry and capture, each of which may be killed and started again."""

    def __init__(self, folder: Path, seed: int, version: int = VERSION) -> None:
        self.random = random.Random(seed)
        self._catch_up_mb = 16 if seed % 2 else 1  # with 1 much of the work comes by SQL
        self.folder = folder
        self.postgres = Postgres(folder / "postgres", version)
        self.node = NodeProcess.start(data=folder / "node", log=folder / "node.log")
        self._listen = self.node.bootstrap_servers
        self.registry = RegistryProcess.start(self._listen, log=folder / "registry.log")
        self.topics = Topics(self._listen, self.registry.url)
        self.workload = Workload(seed)
        self.connection = self._connect()
        self.connection.execute("alter system set logical_decoding_work_mem = '64kB'")
        self.connection.execute("select pg_reload_conf()")
        self.workload.create(self.connection)
        self.capture: Capture | None = None
        self.kills = {"capture": 0, "node": 0, "postgres": 0}
        self.steps = 0
        self.pauses = 0  # at which topics and tables were compared

    def close(self) -> None:
        if self.capture is not None and self.capture.process.poll() is None:
            self.capture.kill()
        self.connection.close()
        self.topics.close()
        self.registry.stop()
        self.node.kill()
        self.postgres.stop()

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.postgres.dsn, autocommit=True, options="-c timezone=UTC")

    def start(self) -> None:
        self.capture = Capture(
            self.folder / "capture.log",
            dsn=self.postgres.dsn,
            bootstrap=self._listen,
            registry=self.registry.url,
            topic_prefix=PREFIX,
            heartbeat=0.5,
            catch_up_mb=self._catch_up_mb,
        )

    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.workload.step(self.connection)
            self.steps += 1

    def kill(self, what: str) -> None:
        self.kills[what] += 1
        if what == "capture":
            assert self.capture is not None
            self.capture.kill()
            self.work(self.random.randrange(20))
            self.start()
        elif what == "node":
            self.node.kill()
            self.work(self.random.randrange(20))
            self.node = NodeProcess.start(data=self.folder / "node", listen=self._listen, log=self.folder / "node.log")
        else:
            # The postmaster's death ends its children; what was committed is in the log.
            os.kill(self.postgres.server.get_pid(), signal.SIGKILL)
            self.connection.close()
            wait_until(self._start_postgres, 60, "Postgres up again")

    def _start_postgres(self) -> bool:
        try:
            self.postgres.start()
            self.connection = self._connect()
        except Exception:
            return False
        return True

    def same(self, deadline_s: float = 90.0) -> None:
        """Waits until the topics are the tables; says where they are not."""
        said = ""

        def compared() -> bool:
            nonlocal said
            assert self.capture is not None
            assert self.capture.process.poll() is None, self.capture.said()[-4000:]
            said = ""
            for table, key in self.workload.keys.items():
                folded = self.topics.fold(f"{PREFIX}.{table}")
                rows = table_rows(self.connection, table, key)
                found = difference(folded, rows)
                if found:
                    wrong = first_difference(folded, rows)
                    said += f"{table}: {found}\n{self.topics.history(f'{PREFIX}.{table}', wrong)}"
            return not said

        try:
            wait_until(compared, deadline_s, "topics equal to tables")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{said}\n{self.capture.said()[-3000:] if self.capture else ''}") from None
        self.pauses += 1

    def counts(self) -> str:
        return (
            f"{self.steps} transactions of {self.workload.changes} changes, kills {self.kills}, compared at "
            f"{self.pauses} pauses"
        )


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    made = Scene(tmp_path, getattr(request, "param", 1))
    yield made
    made.close()


@pytest.mark.parametrize("scene", [11], indirect=True)
def test_topics_are_tables_whatever_dies(scene: Scene) -> None:
    whatever_dies(scene)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", [14, 15, 16, 17])
def test_topics_are_tables_on_older_servers(tmp_path: Path, version: int) -> None:
    """Others too: SUIRO_POSTGRES=14 pytest tests/e2e/test_capture.py tests/unit/connect/postgres"""
    try:
        scene = Scene(tmp_path, 20 + version, version)
    except PostgresUnavailable as error:
        pytest.skip(str(error))
    try:
        assert scene.connection.info.server_version // 10_000 == version
        whatever_dies(scene)
    finally:
        scene.close()


def whatever_dies(scene: Scene) -> None:
    scene.work(60)
    scene.start()
    scene.work(20)
    assert scene.capture is not None
    scene.capture.ready()
    for what in ("node", "capture", "postgres"):
        scene.work(40)
        scene.kill(what)
        scene.work(40)
        scene.same()
    scene.capture.ready()
    assert scene.capture.stop() == 0, scene.capture.said()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", [int(os.environ.get("SUIRO_SEED", "1"))], indirect=True)
def test_topics_are_tables_for_long(scene: Scene) -> None:
    seed = int(os.environ.get("SUIRO_SEED", "1"))
    rounds = int(os.environ.get("SUIRO_ROUNDS", "30"))
    scene.work(300)
    scene.start()
    assert scene.capture is not None
    if seed % 2:  # else the first kill may come in the middle of the snapshot
        scene.capture.ready()
    for _ in range(rounds):
        scene.work(scene.random.randrange(5, 150))
        scene.kill(scene.random.choice(("capture", "capture", "node", "postgres")))
        scene.work(scene.random.randrange(100))
        if scene.random.random() < 0.4:
            scene.same()
    scene.same()
    print(scene.counts())
