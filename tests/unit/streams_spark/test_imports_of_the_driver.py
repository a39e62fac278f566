"""What the driver of a topology with state does not load: its tasks work elsewhere, in processes that have it all."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from suiro.spark.session import _OfNumpy

DRIVER = """
import sys
import suiro.cli.run, suiro.client, suiro.streams
from suiro.streams import KafkaStreams
import suiro.streams_spark.description, suiro.streams_spark.kafka_streams, suiro.streams_spark.plan
import suiro.streams_spark.program, suiro.streams_spark.rebuild, suiro.streams_spark.runner
import suiro.spark.session, suiro.spark.sink
print(*sys.modules)
"""
TASKS = """
import sys
import suiro.streams_spark.processor, suiro.streams_spark.run_task
print(*sys.modules)
"""
JAVA_FIRST = """
import sys
import suiro.cli.run
from suiro.spark import java_started_early
print(*sys.modules)
"""

CALLS = """
import sys
import pyspark.sql
from py4j.protocol import INPUT_CONVERTER
from suiro.spark.session import numpy_only_for_numpy
numpy_only_for_numpy()
assert not any(converter.can_convert("text") for converter in INPUT_CONVERTER)
print(*sys.modules)
import numpy
for value in (numpy.int64(5), numpy.arange(3)):
    assert any(type(converter).__name__ == "_OfNumpy" and converter.can_convert(value) for converter in INPUT_CONVERTER)
"""


def loaded(program: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_task_loads_nothing_that_builds_topologies() -> None:
    found = loaded(TASKS)
    assert "suiro.streams_spark.plan" in found
    assert not {"suiro.streams.dsl.builder", "suiro.streams.dsl.kstream", "suiro.streams.dsl.loops"} & found


def test_a_driver_loads_no_kernels_and_no_pandas() -> None:
    found = loaded(DRIVER)
    assert "suiro.streams_spark.runner" in found
    heavy = {
        "numba",
        "llvmlite",
        "pandas",
        "pyarrow.compute",
        "suiro.protocol.kernels",
        "fastavro",
        "hypothesis",
    }
    assert not heavy & found


def test_a_call_of_java_loads_no_pandas() -> None:
    assert not {"pandas", "pyspark.testing"} & loaded(CALLS)


def test_a_call_of_java_does_not_fail_while_another_thread_imports_numpy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))
    assert not _OfNumpy(SimpleNamespace(convert=None)).can_convert("text")


def test_java_is_started_before_anything_that_takes_long_is_imported() -> None:
    heavy = {"numpy", "pyarrow", "pyspark", "kio", "suiro.client", "suiro.streams"}
    assert not heavy & loaded(JAVA_FIRST)
