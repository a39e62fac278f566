"""`exactly_once` with producer.tasks: Spark's tasks send the records themselves, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import suiro.spark
from suiro.client import Client
from suiro.spark import faults
from suiro.spark.committer import MARKER_TOPIC
from suiro.spark.decide import Marker

pytestmark = pytest.mark.spark

RECORDS = 60
KEYS = 7


@pytest.fixture
def copy(
    stream_of: Callable[..., Any],
    produce: Callable[..., None],
    new_topic: Callable[..., str],
    bootstrap: str,
    tmp_path: Path,
    unique: str,
) -> Callable[[], tuple[str, str]]:
    """Copies a topic of two partitions into two others, in three micro-batches; again from where it stopped."""
    source, even, odd = new_topic(2), new_topic(3), new_topic(2)
    for number in range(RECORDS):
        produce(source, str(number), partition=number % 2, key=f"k{number % 2}-{number // 2 % KEYS}")
    write = suiro.spark.exactly_once(
        {
            "kafka.bootstrap.servers": bootstrap,
            "application.id": unique,
            "checkpointLocation": str(tmp_path),
            "producer.tasks": "2",
            "kafka.batch.size": "1024",
        }
    )
    rows = stream_of(source, maxOffsetsPerTrigger=str(RECORDS // 3)).selectExpr(
        "key", "value", f"if(cast(cast(value as string) as int) div 2 % 2 = 0, '{even}', '{odd}') topic"
    )

    def run() -> tuple[str, str]:
        query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
        started = query.trigger(availableNow=True).start()
        try:
            assert started.awaitTermination(240)
        finally:
            started.stop()
        return even, odd

    return run


def check(frame: Any) -> None:
    """Each once; of a key in the order of the source, whatever task encoded and sent it."""
    by_key: dict[str, list[int]] = {}
    for row in frame.orderBy("topic", "partition", "offset").collect():
        by_key.setdefault(f"{row.topic} {bytes(row.key).decode()}", []).append(int(bytes(row.value)))
    assert sorted(n for numbers in by_key.values() for n in numbers) == list(range(RECORDS))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_tasks_send_what_one_transaction_commits(
    copy: Callable[[], tuple[str, str]],
    rows_of: Callable[..., Any],
    client: Client,
    tmp_path: Path,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though a stage runs twice, all sent both times, a commit is not heard of, and Spark forgets another."""
    once = tmp_path / "faults"
    once.mkdir()
    monkeypatch.setenv(faults.ONCE_VARIABLE, str(once))
    monkeypatch.setenv(faults.VARIABLE, "all_sent@batch=0:raise,after_end@batch=1:raise")
    outputs = copy()
    check(rows_of(*outputs))
    assert len(list(once.iterdir())) == 2
    marker = client.offset_fetch(unique)[MARKER_TOPIC, 0]
    assert marker is not None
    newest = max((tmp_path / "commits").iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1)
    assert Marker.from_metadata(marker.metadata).batch_id == int(newest.name)
    newest.unlink()
    copy()
    check(rows_of(*outputs))
