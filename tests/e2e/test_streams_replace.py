"""A running application is replaced by a changed one, whose processes are killed at every step of it: each record's
results are written once, by the old topology up to the switch and by the new one after it."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.spark_streams import Got, Outputs
from support.waiting import wait_until

from suiro.cli.run import REPLACED
from suiro.client import Client, NewTopic
from suiro.protocol.records import Record, encode_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 2
KEYS = 13

OLD = """
from suiro.streams import Materialized, serdes

application_id = "replaced"

def build(builder):
    words = builder.stream("in", key=serdes.string, value=serdes.string)
    words.map_values(lambda value: "old " + value).to("words")
    by_word = words.group_by(lambda key, value: value.split()[0], name="words")
    by_word.count(materialized=Materialized.as_("counts")).to_stream().to("counts")
"""
NEW = OLD.replace('"old "', '"new "').replace(
    "words.group_by", 'words.filter(lambda key, value: value[0] != "a").group_by'
)


class Processes:
    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._all: list[subprocess.Popen[bytes]] = []
        (directory / "old.py").write_text(OLD)
        (directory / "new.py").write_text(NEW)

    def start(self, name: str, *options: str, fault: str = "") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "suiro", "run", str(self._directory / f"{name}.py"), *options]
        command += ["--emit", "every", "--bootstrap-servers", self._bootstrap]
        command += ["--state-dir", str(self._directory / name), "--max-offsets-per-trigger", "60"]
        with (self._directory / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(
                command,
                env=os.environ | {"SUIRO_FAULT": fault},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._all.append(process)
        return process

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")

    def end(self) -> None:
        for process in self._all:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def processes(suiro_node: Any, tmp_path: Path) -> Iterator[Processes]:
    found = Processes(suiro_node.bootstrap_servers, tmp_path)
    yield found
    found.end()


class Log:
    """Numbered words, and what came of them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.sent: list[str] = []
        self.words: list[Got] = []
        self._outputs = Outputs(client, ["words"], PARTITIONS)

    def send(self, count: int) -> None:
        first = len(self.sent)
        words = [f"{'abc'[n % 3]}{n % KEYS} {n}" for n in range(first, first + count)]
        self.sent += words
        for partition in range(PARTITIONS):
            batch = [
                Record(offset=n, timestamp=1_700_000_000_000 + n, key=b"k", value=word.encode())
                for n, word in enumerate(words[partition::PARTITIONS])
            ]
            self._client.produce({("in", partition): encode_batch(batch)})

    def has_all(self) -> bool:
        self.words += self._outputs.read()["words"]
        return len(self.words) >= len(self.sent)


@pytest.mark.soak  # CI's time: eight starts of Spark. test_streams_replace of tests/spark replaces one without a kill
def test_each_record_is_written_once_whoever_is_killed(suiro_node: Any, processes: Processes) -> None:
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics(
            [NewTopic(name, PARTITIONS, configs={"retention.ms": "-1"}) for name in ("in", "words", "counts")]
        )
        log = Log(client)
        log.send(200)
        old = processes.start("old")
        wait_until(log.has_all, 120, "the old topology's words")
        for fault in ("before_switch", "after_switch_fence"):
            killed = processes.start("new", "--replace", fault=f"{fault}:kill-session")
            log.send(50)
            assert killed.wait(timeout=240) == -9, processes.log("new")[-4000:]
            log.send(50)
            wait_until(log.has_all, 120, f"the old topology's words after {fault}")
            assert old.poll() is None, processes.log("old")[-4000:]
        assert all((row.value or b"").startswith(b"old ") for row in log.words)
        # The switch is done, and nobody knows but Kafka.
        killed = processes.start("new", "--replace", fault="after_switch:kill-session")
        assert killed.wait(timeout=240) == -9, processes.log("new")[-4000:]
        log.send(50)
        assert old.wait(timeout=120) == REPLACED, processes.log("old")[-4000:]
        assert "suiro run: replaced ended: application 'replaced' was replaced" in processes.log("old")
        assert "Traceback" not in processes.log("old")
        assert processes.start("old").wait(timeout=120) == REPLACED
        # In the first micro-batch after it, with the whole changelogs; then again, committed and not noted.
        for fault in ("after_produce", "after_end"):
            killed = processes.start("new", "--replace", fault=f"{fault}:kill-session")
            assert killed.wait(timeout=240) == -9, processes.log("new")[-4000:]
        assert processes.start("new", "--until-done").wait(timeout=240) == 0, processes.log("new")[-4000:]
        assert log.has_all()
        check(client, log)


def check(client: Client, log: Log) -> None:
    assert Counter((row.value or b"").decode()[4:] for row in log.words) == Counter(log.sent)
    of_old = Counter[str]()
    for partition in range(PARTITIONS):
        names = [(row.value or b"").decode().split()[0] for row in log.words if row.partition == partition]
        assert names == sorted(names, reverse=True)
    for row in log.words:
        name, word, _ = (row.value or b"").decode().split()
        of_old[word] += name == "old"
    assert sum(of_old.values()) == 400
    counts: dict[str, list[int]] = defaultdict(list)
    for row in Outputs(client, ["counts"], PARTITIONS).read()["counts"]:
        counts[(row.key or b"").decode()].append(struct.unpack(">q", row.value or b"")[0])
    total = Counter(word.split()[0] for word in log.sent)
    wanted = {word: of_old[word] if word[0] == "a" else count for word, count in total.items()}
    assert counts == {word: list(range(1, count + 1)) for word, count in wanted.items()}
    topic = "replaced-counts-changelog"
    rows: dict[bytes | None, bytes | None] = {}
    for row in Outputs(client, [topic], PARTITIONS).read()[topic]:
        rows[row.key] = row.value
    kept = {key.decode()[1:]: struct.unpack(">q", value)[0] for key, value in rows.items() if key and value}
    assert kept == {word: count for word, count in wanted.items() if word[0] != "a"}
