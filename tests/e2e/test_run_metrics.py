"""`suiro run --metrics`: Prometheus sees what a topology does while it runs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from suiro.client import Client, NewTopic
from suiro.node import NodeProcess
from suiro.protocol.records import Record, encode_batch
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.soak]

APP = """
from suiro.streams import serdes

def build(builder):
    builder.stream("in", key=serdes.string, value=serdes.string).to("out")
"""
RECORDS = 50


def test_records_transactions_and_lag(tmp_path: Path) -> None:
    (tmp_path / "copying.py").write_text(APP)
    with NodeProcess.start(data=tmp_path / "log") as node:
        with Client(node.bootstrap_servers) as client:
            client.create_topics([NewTopic(name, 1) for name in ("in", "out")])
            records = [Record(offset=n, timestamp=1_700_000_000_000, key=b"k", value=b"v") for n in range(RECORDS)]
            client.produce({("in", 0): encode_batch(records)})
        command = [sys.executable, "-m", "suiro", "run", str(tmp_path / "copying.py")]
        command += ["--bootstrap-servers", node.bootstrap_servers, "--state-dir", str(tmp_path / "state")]
        with (tmp_path / "run.log").open("wb") as output:
            process = subprocess.Popen([*command, "--metrics", "127.0.0.1:0"], stderr=output)
        try:
            wanted = {
                f'suiro_query_records_total{{query="copying",transactional_id="copying/sink"}} {RECORDS}.0',
                'suiro_query_lag_records{partition="0",query="copying",topic="in"} 0.0',
            }
            wait_until(lambda: wanted <= set(scraped(tmp_path / "run.log")), 200, f"{wanted} in /metrics")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (tmp_path / "run.log").read_text()
        finally:
            process.kill()
            process.wait()


def scraped(log: Path) -> list[str]:
    found = re.search(r"metrics: (http\S+)", log.read_text())
    if found is None:
        return []
    with urlopen(found[1]) as answer:
        text: str = answer.read().decode()
    return text.splitlines()
