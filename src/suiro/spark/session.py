"""A Spark session on this machine, tuned for many small micro-batches.

Spark's defaults suit clusters: Hadoop's local file system forks some forty processes a micro-batch, and shuffles
have 200 partitions. These settings take a stateless micro-batch from 131 ms to about 42 ms. They are for local
checkpoints only; on a cluster's shared file system, build the session yourself and call `suiro.spark.register`.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

from suiro.errors import UsageError
from suiro.spark import early_java
from suiro.spark.class_archive import RECORDING, archive_options
from suiro.spark.java import launching, set_in, use_java
from suiro.spark.python_server import launcher, python_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

_LOOK_S = 30.0
_LOOK = "import sys; print(*sys.version_info[:2], sep='.'); import suiro"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# The second compiler is for what runs often. With Java's own limits (a fifth of these) it takes a third of all
# processor time of a start, for methods of which most are hardly used again.
_SECOND_COMPILER_LATE = (
    "-XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=3000 "
    "-XX:Tier4CompileThreshold=75000 -XX:Tier4BackEdgeThreshold=200000"
)
# In a topology, Java plans micro-batches and moves bytes. Without the second compiler, and the counting that it needs,
# a start takes half of the processor time in Java, and a micro-batch takes no more after minutes either. The room for
# compiled code is that of both compilers: Java would have a fifth of it, which several views in one Java can fill.
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.python.daemon.module": "suiro.spark.worker_daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.ui.enabled": "false",
}


def register(spark: SparkSession) -> None:
    """Make format "suiro" known to a session, for `read`, `readStream`, `write` and `writeStream`.

    Raises `UsageError` if the workers on this machine run another Python, or one without suiro.
    """
    from suiro.spark.source import SuiroDataSource

    require_same_python(spark)
    spark.dataSource.register(SuiroDataSource)


def require_same_python(spark: SparkSession) -> None:
    """Raises `UsageError` with what to set. Only for workers on this machine: nobody here can look at others.

    Spark takes `PYSPARK_PYTHON`, else whatever `python3` is on the path. Where a virtual environment is not activated
    that is another Python, and the first query ends with "No module named 'suiro'" from a worker.
    """
    context = getattr(spark, "_sc", None)  # Spark Connect's client has none
    if context is None or not str(context.master).startswith("local"):
        return
    given = str(context.pythonExec)
    program = shutil.which(given)
    own = {os.path.abspath(sys.executable), str(launcher(os.environ))}
    if program is not None and os.path.abspath(program) in own:
        return
    what_to_do = (
        f"start the driver with PYSPARK_PYTHON={sys.executable} in its environment, or set it before the session is "
        'made: os.environ["PYSPARK_PYTHON"] = sys.executable'
    )
    if program is None:
        raise UsageError(f"Spark's workers would run {given!r}, which is not on the path; {what_to_do}")
    try:
        look = subprocess.run([program, "-c", _LOOK], capture_output=True, text=True, timeout=_LOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.warning("cannot tell whether %s, which Spark's workers run, has suiro: %s", program, error)
        return
    version = look.stdout.strip()
    drivers = ".".join(map(str, sys.version_info[:2]))
    if version != drivers:
        said = f"Python {version}" if version else "no Python that starts"
        raise UsageError(f"Spark's workers run {program}, which is {said}, and this is {drivers}; {what_to_do}")
    if look.returncode != 0:
        raise UsageError(f"Spark's workers run {program}, which has no suiro; {what_to_do}")


def spark_session(
    app_name: str,
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    topologies_only: bool = False,
) -> SparkSession:
    """A session with format "suiro" registered. `settings` override `LOCAL_SETTINGS`; they are Spark's names.
    `spark.driver.extraJavaOptions` among them are added after suiro's (Java uses the last one of a kind).

    `topologies_only`: the session runs topologies and nothing else. Java then compiles with its first compiler only,
    which takes seconds off the start. Queries of Spark's own do their work in Java, and run slower in such a session.

    Only for a `local` master. An existing session of this process is returned, with `settings` applied.
    """
    if not master.startswith("local"):
        raise UsageError(
            f"spark_session tunes Spark for one machine, not for {master!r}: build the session for your cluster, "
            "then call suiro.spark.register(spark)"
        )
    from pyspark.sql import SparkSession

    numpy_only_for_numpy()
    with _launch_settings(master, settings, topologies_only) as chosen, python_for_spark():
        early_java.take(chosen, os.environ)
        builder = SparkSession.builder.appName(app_name)
        for name, value in chosen.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    _log.debug("Java and the Spark session are started")
    _without_checksum_files(spark)
    quiet()
    register(spark)
    return spark


def quiet() -> None:
    """PySpark logs every failed call as one line of JSON with the JVM stack, beside raising it."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


@contextmanager
def java_started_early(
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    topologies_only: bool = False,
    pass_fds: Sequence[int] = (),
) -> Iterator[None]:
    """Starts Java now, for a `spark_session` inside with the same settings, while Python imports modules. If no session
    is made, Java ends with this block. `pass_fds`: files that it holds open until then."""
    with ExitStack() as stack:
        if not master.startswith("local"):  # `spark_session` refuses it
            yield
            return
        with _launch_settings(master, settings, topologies_only) as chosen, python_for_spark():
            stack.enter_context(early_java.started_early(chosen, os.environ, pass_fds=pass_fds))
        yield


@contextmanager
def _launch_settings(
    master: str, settings: Mapping[str, str] | None, topologies_only: bool
) -> Iterator[Mapping[str, str]]:
    """The settings for Spark, all but the application's name. Sets the variables that Java has to find in this
    process's environment."""
    java = use_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with as_file(files("suiro.spark") / "log4j2.properties") as log_settings:
        chosen = {"spark.master": master, **LOCAL_SETTINGS, **(settings or {})}
        added = chosen.get(_JAVA_OPTIONS, "")
        archive = "" if RECORDING in added else archive_options(java, os.environ)
        compiler = _FIRST_COMPILER if topologies_only else _SECOND_COMPILER_LATE
        options = (_java_options(str(log_settings)), compiler, archive, added)
        chosen[_JAVA_OPTIONS] = " ".join(filter(None, options))
        with set_in(os.environ, **_english(os.environ)), launching(java, os.environ):
            yield chosen


def require_classic(what: str, given: object = None, *, instead: str) -> None:
    """Raises `UsageError` under Spark Connect, whose client has no driver to commit from. `given`: a session or a
    frame, which the server's own Python has of its kind too."""
    from pyspark.sql import is_remote

    if is_remote() or type(given).__module__.startswith("pyspark.sql.connect"):
        raise UsageError(
            f"{what} does not run through Spark Connect: it commits from the driver, and this is a client of one. "
            f"{instead}"
        )


def _java_options(log_settings: str) -> str:
    return (
        "-Djdk.lang.Process.launchMechanism=VFORK "  # fork() of a large JVM is slow
        "-XX:+UseSerialGC "
        # When a query is stopped, Spark looks through what foreachBatch raised with a regular expression that goes some
        # frames deeper with each character. Only what is used of a stack takes memory.
        "-Xss32m "
        f'"-Dlog4j2.configurationFile={log_settings}"'
    )


def _english(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which Java has errors of the system in English (`is_of_the_disk` looks at their words), and
    all else as before."""
    others = ("CTYPE", "COLLATE", "MONETARY", "NUMERIC", "TIME")
    all_ = environment.get("LC_ALL")  # it is before all others, unless it is empty
    return {"LC_MESSAGES": "C"} | ({"LC_ALL": ""} | {f"LC_{one}": all_ for one in others} if all_ else {})


class _OfNumpy:
    """PySpark's converter of numpy values. At any argument it imports PySpark's test utilities, and with them pandas:
    0.3 s of a start and 44 MiB of the driver."""

    def __init__(self, converter: Any) -> None:
        self._converter = converter
        self.convert = converter.convert

    def can_convert(self, value: object) -> bool:
        numpy = sys.modules.get("numpy")
        # A module that another thread is importing has no names yet, and no values.
        kinds = getattr(numpy, "generic", ()), getattr(numpy, "ndarray", ())
        return isinstance(value, kinds) and self._converter.can_convert(value)


def numpy_only_for_numpy() -> None:
    """Calls of Java ask PySpark's converters of numpy values at those only."""
    from py4j.protocol import INPUT_CONVERTER

    for at, converter in enumerate(INPUT_CONVERTER):
        if type(converter).__name__ in ("NumpyArrayConverter", "NumpyScalarConverter"):
            INPUT_CONVERTER[at] = _OfNumpy(converter)


def _without_checksum_files(spark: SparkSession) -> None:
    """Hadoop keeps one local file system object for the process; it need not write `.crc` files beside ours."""
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None
    local = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), context._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)
    local.setVerifyChecksum(False)
