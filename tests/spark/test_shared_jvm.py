"""Two Python programs on one JVM: each has its own modules, settings, processes and end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from suiro.views.pipeline.shared_jvm import JvmProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DEADLINE_S = 240.0
PROGRAM = """
import json, sys
from pathlib import Path
from suiro.spark import session_on_shared_jvm

port, secret, folder, name, settings = sys.argv[1:]
folder = Path(folder)
sys.path.insert(0, str(folder))
import own_code  # both programs have a module of this name

spark = session_on_shared_jvm(int(port), secret, settings=json.loads(settings), folder=folder, log=folder / "log")
if spark is None:
    print(json.dumps({"refused": True}), flush=True)
    sys.exit()
has_pandas = "pandas" in sys.modules
told = [json.loads(row.told) for row in spark.range(1).mapInPandas(own_code.tell, "told string").collect()]
told[0]["has_pandas"] = has_pandas
told[0]["zone"] = spark.newSession().conf.get("spark.sql.session.timeZone")
print(json.dumps(told[0]), flush=True)

def each(rows, number):
    rows.count()
    print(json.dumps({"batch": number}), flush=True)

rate = spark.readStream.format("rate").load().mapInPandas(own_code.passes, "value long")
writer = rate.writeStream.queryName(name).option("checkpointLocation", str(folder / "checkpoint"))
query = writer.trigger(processingTime="300 milliseconds").foreachBatch(each).start()
sys.stdin.read()
query.stop()
"""
OWN_CODE = """
import json, os
NAME = {name!r}

def tell(frames):
    import pandas as pd
    for frame in frames:
        print("printed by", NAME)
        yield pd.DataFrame({{"told": [json.dumps({{"name": NAME, "folder": os.getcwd(), "pid": os.getpid()}})]}})

def passes(frames):
    for frame in frames:
        yield frame[["value"]]
"""


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JvmProcess]:
    folder = tmp_path_factory.mktemp("jvm")
    made = JvmProcess.start(folder, settings={"spark.driver.memory": "1g"})

    def runs() -> bool:
        assert made.is_alive, f"{made.status} {(folder / 'spark.log').read_text()[-3_000:]}"
        return made.status.state == "running"

    wait_until(runs, what="the JVM", deadline_s=DEADLINE_S)
    yield made
    made.stop()


@dataclass
class Program:
    jvm: JvmProcess
    folder: Path
    name: str

    def start(self, *, niceness: int = 0, **settings: str) -> dict[str, Any]:
        """Its first word."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "own_code.py").write_text(OWN_CODE.format(name=self.name))
        found = self.jvm.answer(
            "join", self.name, "joined", is_over=lambda: False, folder=str(self.folder), niceness=niceness
        )
        assert found is not None, self.jvm.status
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(found["port"]), found["secret"], str(self.folder), self.name,
             json.dumps(named)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        return self.word()

    def word(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{self.name} has ended"
        word: dict[str, Any] = json.loads(line)
        return word

    def batches(self, count: int) -> None:
        for _ in range(count):
            assert "batch" in self.word()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def leave(self) -> None:
        assert self.jvm.answer("leave", self.name, "left", is_over=lambda: False) is not None


@pytest.fixture
def programs(jvm: JvmProcess, tmp_path: Path) -> Iterator[tuple[Program, Program]]:
    made = Program(jvm, tmp_path / "one", "one"), Program(jvm, tmp_path / "two", "two")
    yield made
    for program in made:
        if hasattr(program, "process"):
            program.kill()
        program.leave()
        made[0].jvm.ask("forget", program.name, folder=str(program.folder))


def test_each_has_its_own_code_and_settings_and_a_kill_ends_what_is_its_own(
    programs: tuple[Program, Program],
) -> None:
    one, two = programs
    told = one.start(spark_sql_session_timeZone="Asia/Tokyo")
    assert (told["name"], told["folder"], told["zone"]) == ("one", str(one.folder), "Asia/Tokyo")
    assert not told["has_pandas"]  # which takes 0.3 s and 44 MiB, and this asked for nothing that needs it
    other = two.start()
    assert (other["name"], other["folder"], other["zone"]) == ("two", str(two.folder), "UTC")
    assert other["pid"] != told["pid"]
    assert "printed by one" in (one.folder / "log").read_text()
    assert "printed by two" in (two.folder / "log").read_text()
    one.batches(2)
    two.batches(2)

    one.kill()
    one.leave()
    wait_until(lambda: not is_there(told["pid"]), what="the worker of the killed program to be gone")
    two.batches(3)

    told = one.start()
    assert (told["name"], told["zone"]) == ("one", "UTC")
    one.batches(2)  # its query goes on, from its checkpoint
    two.batches(1)


def test_a_killed_program_that_nobody_made_leave_is_ended_by_its_successor(
    programs: tuple[Program, Program],
) -> None:
    one, _ = programs
    told = one.start()
    one.batches(1)
    one.kill()
    assert one.start()["name"] == "one"
    assert not is_there(told["pid"])
    one.batches(2)


def test_a_setting_of_a_jvm_is_refused(programs: tuple[Program, Program]) -> None:
    one, two = programs
    assert one.start(spark_sql_warehouse_dir="/elsewhere") == {"refused": True}
    assert two.start(spark_sql_shuffle_partitions="3")["name"] == "two"


def test_the_priority_of_one_program(programs: tuple[Program, Program]) -> None:
    one, two = programs
    slow, fast = one.start(niceness=5)["pid"], two.start()["pid"]
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, fast) == own
    assert os.getpriority(os.PRIO_PROCESS, slow) == min(19, own + 5)
    one.jvm.ask("niceness", "one", niceness=0)
    if os.geteuid() == 0:
        wait_until(lambda: os.getpriority(os.PRIO_PROCESS, slow) == 0, what="the normal priority")


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
