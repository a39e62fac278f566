"""Kill -9 of everything that runs a topology, at points of a micro-batch: state and results stay exact.

With every update forwarded, a key's counts are 1, 2, 3, ...: one lost, one repeated, or state that is older or newer
than the output breaks the row.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from support.spark_streams import Outputs

from suiro.client import Client, NewTopic
from suiro.protocol.records import Record, encode_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 2
RECORDS = 600
KEYS = 13

APP = """
from suiro.streams import Materialized, serdes

application_id = "killed"

def build(builder):
    words = builder.stream("in", key=serdes.string, value=serdes.string)
    by_word = words.group_by(lambda key, value: value, name="words")
    by_word.count(materialized=Materialized.as_("counts")).to_stream().to("out")
"""

FAULTS = [
    "task_staged@batch=1:kill-session",  # staged, not committed; a bucket's state is perhaps written
    "after_end@batch=4:kill-session",  # in Kafka, unknown to Spark
    "task_start@batch=6:kill",  # one worker dies, and with it the query
]


@pytest.mark.soak  # CI's time: four starts of Spark. The demo kills a topology in every CI run, and compares its totals
def test_counts_have_no_gap_and_no_repetition(suiro_node: Any, tmp_path: Path) -> None:
    bootstrap = suiro_node.bootstrap_servers
    app = tmp_path / "killed_app.py"
    app.write_text(APP)
    with Client(bootstrap) as client:
        client.create_topics([NewTopic(name, PARTITIONS, configs={"retention.ms": "-1"}) for name in ("in", "out")])
        expected: dict[str, int] = defaultdict(int)
        for partition in range(PARTITIONS):
            words = [f"w{(n * 5 + partition) % KEYS}" for n in range(RECORDS // PARTITIONS)]
            for word in words:
                expected[word] += 1
            batch = [
                Record(offset=n, timestamp=1_700_000_000_000 + n, key=b"k", value=word.encode())
                for n, word in enumerate(words)
            ]
            client.produce({("in", partition): encode_batch(batch)})
        ends = [run(app, bootstrap, tmp_path, fault) for fault in FAULTS]
        assert all(code != 0 for code in ends), f"a fault was not reached: {list(zip(FAULTS, ends, strict=True))}"
        assert run(app, bootstrap, tmp_path, "") == 0, (tmp_path / "driver.log").read_text()[-4000:]
        found: dict[str, list[int]] = defaultdict(list)
        for item in Outputs(client, ["out"], PARTITIONS).read()["out"]:
            found[(item.key or b"").decode()].append(struct.unpack(">q", item.value or b"")[0])
    assert found == {word: list(range(1, count + 1)) for word, count in expected.items()}


def run(app: Path, bootstrap: str, directory: Path, fault: str) -> int:
    command = [sys.executable, "-m", "suiro", "run", str(app), "--until-done", "--emit", "every"]
    command += ["--bootstrap-servers", bootstrap, "--state-dir", str(directory / "state")]
    command += ["--max-offsets-per-trigger", "60"]
    with (directory / "driver.log").open("ab") as output:
        process = subprocess.Popen(
            command,
            env=os.environ | {"SUIRO_FAULT": fault},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        return process.wait(timeout=240)
