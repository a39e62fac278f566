"""Spark on an Apache Kafka of three brokers (three copies, two of them needed): each dies once in the midst of it.

So every leader that a micro-batch writes to, the coordinator of its transaction and that of its group are killed with
`kill -9`, each with micro-batches under way, and others take their places. In the end the matrix's checker looks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from suiro.client import Client, NewTopic
from suiro.kafka import KafkaCluster
from tests.matrix import checker, spark_cells
from tests.matrix.spark_cells import PARTITIONS, RECORDS
from tests.support.spark_cluster import kill_session
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1200)]

SOURCE, APPLICATION = "source", "copy-source"
BATCHES = 500
EACH_TIME = 3  # micro-batches before a death, and behind it
DEADLINE_S = 300  # of a machine that has much else to do


@pytest.mark.parametrize("kind", ["format", "state"])
def test_each_of_three_brokers_dies_and_the_query_goes_on(tmp_path: Path, kind: str) -> None:
    source, outputs = SOURCE, ("even", "odd")
    cluster = KafkaCluster.start(tmp_path / "kafka", brokers=3, listen="127.0.0.1:0", heap="400m")
    with cluster:
        with Client(cluster.bootstrap_servers) as client:
            client.create_topics([NewTopic(topic, PARTITIONS) for topic in (source, *outputs)])
        spark_cells._fill(cluster.bootstrap_servers, source, BATCHES * RECORDS)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        wait_until(lambda: in_sync(admin, set(outputs)), DEADLINE_S, "three copies of everything")
        with (tmp_path / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [
                    sys.executable, "-m", "tests.e2e.exactly_once_driver", cluster.bootstrap_servers,
                    str(tmp_path / APPLICATION), source, *outputs, str(RECORDS), "local[2]", APPLICATION, kind,
                ],
                cwd=Path(__file__).parents[2], stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            for process in cluster.brokers.values():
                go_on(tmp_path, driver)
                process.kill()
                go_on(tmp_path, driver)
                process.restart()
                wait_until(lambda: in_sync(admin, {*outputs, "__transaction_state"}), DEADLINE_S, "its copies")
            assert driver.wait(DEADLINE_S) == 0, said(tmp_path)
        finally:
            kill_session(driver.pid)
        seen = spark_cells._observe(cluster, tmp_path, source, outputs)  # type: ignore[arg-type]
    assert checker.check(seen) == []
    assert len(seen.expected) == BATCHES * RECORDS
    assert "restart:" not in said(tmp_path), "a broker's death is waited out, the query does not fail"


def go_on(directory: Path, driver: subprocess.Popen[bytes]) -> None:
    """Until some micro-batches more are finished."""
    before = finished(directory)
    wait_until(
        lambda: finished(directory) >= before + EACH_TIME or driver.poll() is not None,
        DEADLINE_S,
        "micro-batches",
    )
    assert driver.poll() is None, f"it ended before every broker had died\n{said(directory)}"


def finished(directory: Path) -> int:
    notes = directory / APPLICATION / "commits"
    return max((int(name) for name in os.listdir(notes) if name.isdigit()), default=-1) if notes.exists() else -1


def in_sync(admin: AdminClient, wanted: set[str]) -> bool:
    """Whether every partition has three copies that are up to date, and these topics are there."""
    topics = admin.list_topics(timeout=30).topics
    everything = [partition for topic in topics.values() for partition in topic.partitions.values()]
    return wanted <= topics.keys() and all(len(partition.isrs) == 3 for partition in everything)


def said(directory: Path) -> str:
    return (directory / "driver.log").read_text(errors="replace")[-3000:]
