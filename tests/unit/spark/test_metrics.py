"""Metrics of a query: lag out of Spark's progress, counts of sinks from their files, and Prometheus' text of both."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from suiro.clock import SystemClock
from suiro.spark.metrics import HELP, SinkCounts, query_metrics, serve_metrics


@dataclass
class Query:
    """As far as Spark's is used."""

    id: str = "q"
    runId: str = "run"
    name: str | None = "flights"
    lastProgress: dict[str, Any] | None = field(
        default_factory=lambda: {
            "batchId": 7,
            "timestamp": "2026-01-02T03:04:05.500Z",
            "numInputRows": 12,
            "inputRowsPerSecond": 3.5,
            "processedRowsPerSecond": 4.5,
            "durationMs": {"triggerExecution": 250},
            "sources": [
                {
                    "endOffset": json.dumps({"in": {"0": 10, "1": 5}, "@ids": {"in": "a"}}),
                    "latestOffset": json.dumps({"in": {"0": 12, "1": 5, "2": 4}, "@ids": {"in": "a"}}),
                },
                {"endOffset": "3", "latestOffset": "9"},  # another source, whose offsets are its own affair
                {"endOffset": None, "latestOffset": None},
            ],
        }
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_lag_is_the_end_less_what_was_read() -> None:
    found = query_metrics(Query())
    assert found.lag == {("in", 0): 2, ("in", 1): 0, ("in", 2): 4}
    assert found.values["micro_batch_seconds"] == 0.25
    assert found.values["last_progress_timestamp_seconds"] == 1_767_323_045.75
    assert query_metrics(Query(lastProgress=None)).values == {}


def test_counts_go_on_in_another_process_and_begin_anew_with_another_run() -> None:
    counts = SinkCounts.open("q", "run", "app/sink")
    counts.records += 5
    counts.save()
    again = SinkCounts.open("q", "run", "app/sink")
    assert again == counts
    assert SinkCounts.open("q", "later", "app/sink").records == 0
    assert [item.records for item in query_metrics(Query()).sinks] == [5]
    assert query_metrics(Query(runId="later")).sinks == ()


def test_a_wait_shows_and_a_process_that_takes_over_does_not_wait_yet() -> None:
    counts = SinkCounts.open("q", "run", "app/sink")
    counts.waiting_since = SystemClock().wall_ms() / 1000 - 60
    counts.save()
    (shown,) = query_metrics(Query()).sinks
    assert shown.waiting_seconds >= 60
    assert SinkCounts.open("q", "run", "app/sink").waiting_seconds == 0


def test_a_file_that_cannot_be_written_or_read_costs_nothing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    counts = SinkCounts.open("q", "run", "app/sink")
    counts.save()
    (file,) = folder.rglob("*.json")
    file.write_text("{")
    assert SinkCounts.open("q", "run", "app/sink").records == 0
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("in the way")
    counts.save()
    assert "sinks have no metrics" in caplog.text


def test_prometheus_reads_every_metric_and_only_of_queries_that_are_there() -> None:
    counts = SinkCounts.open("q", "run", "app/sink")
    counts.fences = 2
    counts.save()
    queries: list[Query] = []
    url = serve_metrics(lambda: queries, "127.0.0.1", 0)

    def scraped() -> str:
        with urlopen(url) as answer:
            text: str = answer.read().decode()
            return text

    assert "flights" not in scraped()
    queries.append(Query())
    text = scraped()
    assert 'suiro_query_lag_records{partition="2",query="flights",topic="in"} 4.0' in text
    assert 'suiro_query_fences_total{query="flights",transactional_id="app/sink"} 2.0' in text
    for name in HELP:
        assert f"\nsuiro_query_{name}{{" in text, name
