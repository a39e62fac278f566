"""`suiro run` on a new user's terminal: topics that are missing are made if he says so, and nobody but suiro speaks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from suiro.client import Client, NewTopic
from suiro.node import NodeProcess
from suiro.protocol.records import Record, encode_batch

pytestmark = pytest.mark.spark

APP = """
import atexit, sys
from pathlib import Path
from suiro.streams import serdes

def build(builder):
    atexit.register(lambda: Path(__file__).with_suffix(".modules").write_text(" ".join(sys.modules)))
    words = builder.stream("in", key=serdes.string, value=serdes.string)
    words.group_by_key().count().to_stream().to("out", key=serdes.string, value=serdes.long)
"""


def test_a_topology_with_state_runs_with_one_line_on_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(APP)
    with NodeProcess.start(data=tmp_path / "log") as node, Client(node.bootstrap_servers) as client:
        client.create_topics([NewTopic("in", 2)])
        record = Record(offset=0, timestamp=1_700_000_000_000, key=b"k", value=b"v")
        client.produce({("in", 0): encode_batch([record])})
        command = [sys.executable, "-m", "suiro", "run", str(tmp_path / "counting.py"), "--until-done"]
        command += ["--bootstrap-servers", node.bootstrap_servers, "--state-dir", str(tmp_path / "state")]
        run = subprocess.run([*command, "--create-topics"], capture_output=True, text=True, timeout=300, check=False)
        assert run.returncode == 0, run.stderr
        place = tmp_path / "state" / "counting"
        # JAVA_TOOL_OPTIONS are the tests' own.
        spoken = [line for line in run.stderr.splitlines() if "JAVA_TOOL_OPTIONS" not in line]
        assert (run.stdout, spoken) == ("", [f"suiro run: counting runs; its state is in {place}"])
        created = client.metadata(["out"])["out"]
        assert len(created.partitions) == 2  # as many as what is read has
        of_the_driver = (tmp_path / "counting.modules").read_text().split()
        assert "pyspark.sql" in of_the_driver
        assert not {"pandas", "numba", "hypothesis"} & set(of_the_driver)
        answer = client.fetch({("out", partition): 0 for partition in (0, 1)})
        assert sum(len(one.data) > 0 for one in answer.values()) == 1
