"""Topologies, and reads and writes of the format "suiro", by the session of all tests (`spark`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest


@pytest.fixture
def name() -> str:
    return f"app-{uuid4().hex[:8]}"


@pytest.fixture
def run(spark: Any, suiro_node: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a topology on the node (`support.spark_streams.Running`); it ends with the test."""
    from support.spark_streams import Running

    running: list[Running] = []

    def start(topology: Any, name: str, **options: Any) -> Running:
        node = {"bootstrap_servers": suiro_node.bootstrap_servers, "directory": tmp_path}
        running.append(Running(spark, topology, application_id=name, **(node | options)))
        return running[-1]

    yield start
    for item in running:
        item.close()


@pytest.fixture
def rows_of(spark: Any, bootstrap: str) -> Callable[..., Any]:
    """A batch read of topics, by format "suiro"."""

    def read(*topics: str, **options: str) -> Any:
        reader = spark.read.format("suiro").option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", ",".join(topics)).options(**options).load()

    return read


@pytest.fixture
def stream_of(spark: Any, bootstrap: str) -> Callable[..., Any]:
    def read(*topics: str, **options: str) -> Any:
        reader = spark.readStream.format("suiro").option("kafka.bootstrap.servers", bootstrap)
        chosen = {"startingOffsets": "earliest"} | options
        return reader.option("subscribe", ",".join(topics)).options(**chosen).load()

    return read


@pytest.fixture
def produce(client: Any) -> Callable[..., None]:
    """Appends records to a partition, one batch a call."""
    from suiro.protocol.records import Record, encode_batch

    def append(topic: str, *values: str | None, partition: int = 0, key: str | None = None, timestamp: int = 0) -> None:
        records = [
            Record(
                offset=index,
                timestamp=timestamp or 1_700_000_000_000 + index,
                key=None if key is None else key.encode(),
                value=None if value is None else value.encode(),
            )
            for index, value in enumerate(values)
        ]
        client.produce({(topic, partition): encode_batch(records)})

    return append


@pytest.fixture
def run_stream(bootstrap: str) -> Callable[..., Any]:
    """Writes a streaming DataFrame to Kafka until nothing is left; returns the finished query."""

    def run(frame: Any, *, checkpoint: Any, application: str, **options: str) -> Any:
        writer = frame.writeStream.format("suiro").option("kafka.bootstrap.servers", bootstrap)
        chosen = {"application.id": application, "checkpointLocation": str(checkpoint)} | options
        query = writer.options(**chosen).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60), "the query did not end in a minute"
        finally:
            query.stop()
        return query

    return run
