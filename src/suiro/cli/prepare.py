"""`suiro prepare`: does once the work that every first start would otherwise repeat.

The command is optional. Without it, the first process that needs a kernel compiles it, and Spark starts slower.
"""

from __future__ import annotations

import compileall
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import suiro
from suiro.cli.command_groups import Group, option
from suiro.errors import SuiroError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Modules that compile when they are imported, the slowest first. Others are compiled on first use.
KERNELS = (
    "suiro.connect.postgres.encoding.kernels",
    "suiro.streams.vectorised.kernels",
    "suiro.log.cleaning_kernels",
    "suiro.protocol.kernels",
    "suiro.registry.codecs.avro_kernels",
)
MICRO_BATCHES = 3
TEXT, COUNTS = "text", "counts"


prepare = Group("prepare")


@prepare.itself
def prepare_(spark: bool = option(True, "Also archive Spark's classes (170 MB).")) -> None:
    """Compile the kernels and archive Spark's classes, so that later starts are faster.

    This takes a minute. The results are next to suiro's code and in your cache folder. Run it again after an update.
    """
    try:
        print("compiling modules and kernels", file=sys.stderr)
        _compile_modules(Path(suiro.__file__).parent)
        _compile_kernels()
        if spark:
            print("archiving Spark's classes", file=sys.stderr)
            print(_archive())
    except (SuiroError, subprocess.CalledProcessError) as error:
        print(f"suiro prepare: {error}", file=sys.stderr)
        sys.exit(1)


def _compile_modules(folder: Path) -> None:
    """Compiles byte code, because with PYTHONDONTWRITEBYTECODE each start would compile all its imports."""
    compileall.compile_dir(folder, quiet=2)


def _compile_kernels() -> None:
    """Compiles in separate processes, because compiling holds the lock of the Python interpreter."""
    running: list[subprocess.Popen[bytes]] = []
    ending = threading.Event()

    def compile_(module: str) -> None:
        # Only this process gets Ctrl-C, and ends the others.
        process = subprocess.Popen([sys.executable, "-c", f"import {module}"], start_new_session=True)
        running.append(process)
        if ending.is_set():
            process.kill()
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, process.args)

    with ThreadPoolExecutor(2) as workers:
        try:
            list(workers.map(compile_, KERNELS))
        except BaseException:
            ending.set()
            workers.shutdown(wait=False, cancel_futures=True)
            for one in list(running):
                one.kill()
            raise


def _archive() -> Path:
    from suiro.node import InProcessNode
    from suiro.spark import recorded, spark_session

    with InProcessNode.start() as node, tempfile.TemporaryDirectory() as state:
        return recorded(
            lambda settings: spark_session("suiro prepare", settings=settings),
            lambda session: _count_words(session, node.bootstrap_servers, Path(state)),
        )


def _count_words(session: SparkSession, bootstrap_servers: str, state_dir: Path) -> None:
    """Runs a topology of two levels, and writes with format "suiro", so that Spark loads the classes that both need."""
    from suiro.client import Client, NewTopic
    from suiro.streams import KafkaStreams, StreamsBuilder, serdes

    builder = StreamsBuilder()
    words = builder.stream(TEXT, key=serdes.string, value=serdes.string)
    counts = words.select_key(lambda key, word: word).group_by_key(key=serdes.string, value=serdes.string)
    counts.count().to_stream().to(COUNTS, key=serdes.string, value=serdes.json)
    with Client(bootstrap_servers) as client:
        client.create_topics([NewTopic(TEXT, 2), NewTopic(COUNTS, 2)])
    streams = KafkaStreams(
        builder.build(),
        application_id="suiro-prepare",
        bootstrap_servers=bootstrap_servers,
        spark=session,
        state_dir=state_dir,
    )
    rows = session.range(100).selectExpr("cast(id as string) key", "cast(id % 7 as string) value")
    sink = rows.write.format("suiro").option("kafka.bootstrap.servers", bootstrap_servers)
    streams.start()
    try:
        for _ in range(MICRO_BATCHES):
            sink.option("topic", TEXT).mode("append").save()
            streams.process_all_available()
    finally:
        streams.close()
