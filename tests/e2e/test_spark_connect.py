"""Format suiro through Spark Connect: a server process, and a client that has no Spark of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suiro.client import Client, NewTopic
from suiro.node import NodeProcess
from tests.support.spark_cluster import HOME, kill_session, spark_environment
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(600)]

DEADLINE_S = 300.0
SETTINGS = {
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """What `start-connect-server.sh` starts, in the foreground; gives its address."""
    command = [HOME / "bin" / "spark-class", "org.apache.spark.deploy.SparkSubmit"]
    for name, value in SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=os.environ | spark_environment() | {"PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "1g"},
            cwd=tmp_path,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        found = wait_until(
            lambda: process.poll() is not None or address(log),
            DEADLINE_S,
            f"the server's address in {log}",
        )
        assert isinstance(found, str), log.read_text(errors="replace")[-4000:]
        yield f"sc://127.0.0.1:{found}"
    finally:
        kill_session(process.pid)
        process.wait()


def address(log: Path) -> str | None:
    found = re.search(r"server started at: .*:(\d+)", log.read_text(errors="replace"))
    return None if found is None else found[1]


def test_what_works_and_what_is_refused(server: str, tmp_path: Path) -> None:
    with NodeProcess.start(data=tmp_path / "log") as node:
        with Client(node.bootstrap_servers) as client:
            client.create_topics([NewTopic(name, 2) for name in ("in", "out")])
        done = subprocess.run(
            [sys.executable, "-m", "tests.e2e.connect_driver", server, node.bootstrap_servers, str(tmp_path)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:] + (tmp_path / "server.log").read_text()[-4000:]
        refused: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert {name: text.split(":")[0] for name, text in refused.items()} == {
            "KafkaStreams": "UsageError",
            "exactly_once": "UsageError",
        }
        assert "Spark Connect" in refused["KafkaStreams"]
        assert 'format("suiro")' in refused["exactly_once"]
