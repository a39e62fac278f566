"""Checks that Spark's workers run the driver's Python version with suiro installed.

Spark takes `PYSPARK_PYTHON`, else whatever `python3` is on the path. Where a virtual environment is not activated that
is another Python, and the first query ends with "No module named 'suiro'" from a worker.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from suiro.errors import UsageError
from suiro.spark.python_server import launcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 30.0
_LOOK = "import sys; print(*sys.version_info[:2], sep='.'); import suiro"
_log = logging.getLogger(__name__)


def require_same_python(spark: SparkSession) -> None:
    """Raises `UsageError` with what to set. Only for workers on this machine: nobody here can look at others."""
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
        look = subprocess.run([program, "-c", _LOOK], capture_output=True, text=True, timeout=LOOK_S, check=False)
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
