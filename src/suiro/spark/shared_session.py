"""A session of a Python program on a JVM that others use, too (`shared_jvm`).

It has settings, temporary views, functions and a streaming query manager of its own. Spark's context is the JVM's: its
settings are those that all share, and nobody may stop it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from suiro.spark.early_java import gateway_at
from suiro.spark.java import set_in
from suiro.spark.python_server import launcher
from suiro.spark.python_stub import FOLDER, LOG
from suiro.spark.session import numpy_only_for_numpy, quiet, register


def session_on_shared_jvm(
    port: int, secret: str, *, settings: Mapping[str, str], folder: Path, log: Path
) -> SparkSession | None:
    """A session with format "suiro" registered, by what `shared_jvm` answered to this program. Spark's Python processes
    for it run in `folder`, and print into `log`. None where `settings` has one that is not a session's own: it is of a
    JVM, which this program must have alone.
    """
    numpy_only_for_numpy()
    gateway = gateway_at(port, secret)
    jvm = gateway.jvm
    root = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    if not all(root.conf().isModifiable(name) for name in settings):
        gateway.shutdown()
        return None
    context = _context(gateway, root)
    context.environment |= {FOLDER: str(folder), LOG: str(log)}
    spark = _OfProgram(context, root.newSession())
    spark.take(settings)
    jvm.org.apache.spark.sql.classic.SparkSession.setDefaultSession(root)  # PySpark has put ours there
    quiet()
    register(spark)
    return spark


def is_jvm_gone() -> bool:
    """Whether the JVM of this program's session has ended, or its Spark is stopped."""
    context = SparkContext._active_spark_context
    if context is None:
        return False
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:  # noqa: BLE001 - py4j raises many kinds when its JVM ends
        return True


def _context(gateway: Any, root: Any) -> SparkContext:
    jvm, java_context = gateway.jvm, root.sparkContext()
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        with set_in(os.environ, PYSPARK_PYTHON=str(launcher(os.environ))):
            return SparkContext(
                gateway=gateway,
                jsc=jvm.JavaSparkContext(java_context),
                conf=SparkConf(_jvm=jvm, _jconf=java_context.conf()),
            )
    finally:
        signal.signal(signal.SIGINT, interrupted)  # PySpark's cancels the jobs of all programs


class _OfProgram(SparkSession):
    """Its settings are those of `newSession` as well, as a context's would be."""

    _own: Mapping[str, str] = {}

    def take(self, settings: Mapping[str, str]) -> None:
        self._own = settings
        for name, value in settings.items():
            self.conf.set(name, value)

    def newSession(self) -> SparkSession:
        session = super().newSession()
        assert isinstance(session, _OfProgram)
        session.take(self._own)
        return session
