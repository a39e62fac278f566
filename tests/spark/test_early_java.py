"""A session in a process of its own takes the Java that was started before PySpark was imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from suiro.spark import java_started_early
with java_started_early(settings={"spark.driver.memory": "512m"}, topologies_only=ONLY):
    from suiro.spark import early_java
    (java,) = early_java._waiting
    assert "pyspark" not in sys.modules and "pyarrow" not in sys.modules
    import suiro.streams, suiro.client  # what an application imports changes nothing of what was started
    from suiro.spark import spark_session
    spark = spark_session("early", settings={"spark.driver.memory": "512m"}, topologies_only=True)
assert (spark.sparkContext._gateway.proc is java.process) is TAKES
assert (java.process.poll() is None) is TAKES
assert spark.sparkContext.getConf().get("spark.driver.memory") == "512m"
assert spark.sparkContext.appName == "early"
assert spark.range(3).count() == 3
java_options = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
assert "-XX:TieredStopAtLevel=1" in list(java_options)
process = spark.sparkContext._gateway.proc
spark.stop()
process.stdin.close()
assert process.wait(60) is not None
print("done")
"""


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_it_is_taken() -> None:
    assert "done" in run(SCRIPT.replace("ONLY", "True", 1).replace("TAKES", "True"))


@pytest.mark.soak  # CI's time
def test_one_of_other_settings_ends_and_the_session_has_its_own() -> None:
    assert "done" in run(SCRIPT.replace("ONLY", "False", 1).replace("TAKES", "False"))
