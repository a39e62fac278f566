"""The programs of one machine on a Spark cluster: a worker dies, tasks fail and are speculated, totals stay exact.

Driver, master and workers are processes of their own. Staged records travel in commit messages, or through a directory
that all of them see.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.spark_streams import Outputs

from suiro.client import Client, NewTopic
from suiro.node import NodeProcess
from suiro.protocol.records import Record, encode_batch
from tests.support.spark_cluster import StandaloneCluster, kill_session, spark_environment
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

PARTITIONS = 2
RECORDS = 600
KEYS = 13
KILL_AFTER = 4  # a micro-batch
DEADLINE_S = 600.0


@pytest.fixture
def node(tmp_path: Path) -> Any:
    with NodeProcess.start(data=tmp_path / "log") as process:
        with Client(process.bootstrap_servers) as client:
            topics = [NewTopic(name, PARTITIONS, configs={"retention.ms": "-1"}) for name in ("in", "out")]
            client.create_topics(topics)
            for partition in range(PARTITIONS):
                batch = [
                    Record(offset=n, timestamp=1_700_000_000_000 + n, key=b"%d" % n, value=word(n, partition))
                    for n in range(RECORDS // PARTITIONS)
                ]
                client.produce({("in", partition): encode_batch(batch)})
        yield process


def word(number: int, partition: int) -> bytes:
    return b"w%d" % ((number * 5 + partition) % KEYS)


@pytest.mark.parametrize("staging", ["messages", "shared directory"])
@pytest.mark.parametrize("kind", ["copy", "count"])
def test_a_worker_dies_midway(node: Any, tmp_path: Path, kind: str, staging: str) -> None:
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        shared = [str(tmp_path / "staging")] if staging == "shared directory" else []
        driver = start(tmp_path, kind, cluster.url, node.bootstrap_servers, *shared)
        checkpoint = tmp_path / "state" / kind
        try:
            wait_until(
                lambda: committed(checkpoint) >= KILL_AFTER or driver.poll() is not None,
                DEADLINE_S,
                "a few micro-batches",
            )
            assert driver.poll() is None, output(tmp_path)
            cluster.workers[0].kill()
            assert driver.wait(DEADLINE_S) == 0, output(tmp_path)
        finally:
            kill_session(driver.pid)
    assert committed(checkpoint) > KILL_AFTER + 2
    check(node, tmp_path, kind)
    if shared:
        assert list((tmp_path / "staging").rglob("*.batches")) == []


@pytest.mark.parametrize("kind", ["copy", "count"])
def test_local_cluster(node: Any, tmp_path: Path, kind: str) -> None:
    driver = start(tmp_path, kind, "local-cluster[2,1,1024]", node.bootstrap_servers)
    try:
        assert driver.wait(DEADLINE_S) == 0, output(tmp_path)
    finally:
        kill_session(driver.pid)
    check(node, tmp_path, kind)


def test_executors_come_and_go(node: Any, tmp_path: Path) -> None:
    """Dynamic allocation: none where nothing is to be done, new ones for what comes later."""

    def happened(event: str) -> int:
        return sum(
            path.read_text().count(f'"Event":"SparkListenerExecutor{event}"')
            for path in (tmp_path / "events").glob("*")
        )

    with Client(node.bootstrap_servers) as client, StandaloneCluster(tmp_path / "cluster") as cluster:
        driver = start(tmp_path, "elastic", cluster.url, node.bootstrap_servers)

        def until(done: Callable[[], bool], what: str) -> None:
            wait_until(lambda: done() or driver.poll() is not None, DEADLINE_S, what)
            assert driver.poll() is None, output(tmp_path)

        def written() -> list[Any]:
            return Outputs(client, ["out"], PARTITIONS).read()["out"]

        try:
            until(lambda: len(written()) >= RECORDS, "the first records")
            until(lambda: happened("Removed") >= 1 and happened("Removed") == happened("Added"), "idleness")
            before = happened("Added")
            late = [
                Record(offset=n, timestamp=1_700_000_000_000, key=b"late %d" % n, value=b"w") for n in range(RECORDS)
            ]
            client.produce({("in", 0): encode_batch(late)})
            until(lambda: len(written()) >= 2 * RECORDS, "the late records")
            assert happened("Added") > before
            (tmp_path / "done").touch()
            assert driver.wait(DEADLINE_S) == 0, output(tmp_path)
        finally:
            kill_session(driver.pid)
        keys = Counter((row.key, row.value) for row in written())
    expected = [
        (b"%d" % n, word(n, partition)) for partition in range(PARTITIONS) for n in range(RECORDS // PARTITIONS)
    ]
    assert keys == Counter(expected) + Counter((record.key, record.value) for record in late)


def start(directory: Path, *arguments: str) -> subprocess.Popen[bytes]:
    kind, master, bootstrap, *staging = arguments
    with (directory / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.e2e.cluster_driver",
                kind,
                master,
                bootstrap,
                str(directory),
                *staging,
            ],
            env=os.environ | spark_environment(),
            cwd=Path(__file__).parents[2],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def check(node: Any, directory: Path, kind: str) -> None:
    """Copies: each record once. Counts: 1, 2, 3, ... for each word, without gap or repetition."""
    marks = {name for name in ("speculated", "waited", "failed", "one-host") if (directory / name).exists()}
    expected_marks = {"failed", "one-host"} if "one-host" in marks else {"failed", "speculated", "waited"}
    assert marks == expected_marks, "what should happen to tasks did not"
    with Client(node.bootstrap_servers) as client:
        rows = Outputs(client, ["out"], PARTITIONS).read()["out"]
    if kind == "copy":
        expected = [
            (b"%d" % n, word(n, partition)) for partition in range(PARTITIONS) for n in range(RECORDS // PARTITIONS)
        ]
        assert sorted((row.key, row.value) for row in rows) == sorted(expected)
        return
    found: dict[bytes | None, list[int]] = defaultdict(list)
    for row in rows:
        found[row.key].append(int.from_bytes(row.value or b""))
    counts: dict[bytes, int] = defaultdict(int)
    for partition in range(PARTITIONS):
        for n in range(RECORDS // PARTITIONS):
            counts[word(n, partition)] += 1
    assert found == {key: list(range(1, count + 1)) for key, count in counts.items()}


def committed(checkpoint: Path) -> int:
    """The last micro-batch that Spark counts as done."""
    try:
        return max((int(item.name) for item in (checkpoint / "commits").iterdir() if item.name.isdigit()), default=-1)
    except FileNotFoundError:
        return -1


def output(directory: Path) -> str:
    return (directory / "driver.log").read_text(errors="replace")[-6000:]
