"""A micro-batch whose plan is gone from the checkpoint: a driver that slept too long is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.errors import FatalError
from suiro.spark import CommitMessage, SinkOptions, StagedRecords, commit_micro_batch
from suiro.spark.reports import MicroBatchIdentity


def commit(directory: Path, batch_id: int) -> None:
    identity = MicroBatchIdentity(query_id="q", run_id="r", batch_id=batch_id)
    options = {"kafka.bootstrap.servers": "b:1", "application.id": "a", "checkpointLocation": str(directory)}
    messages = [CommitMessage(StagedRecords(), identity, None)]
    commit_micro_batch(messages, batch_id, SinkOptions.parse(options).for_stream())


def test_another_driver_has_removed_it(tmp_path: Path) -> None:
    """The soak found a driver that was stopped until its successor was 40 micro-batches ahead, and blamed the path."""
    (tmp_path / "offsets").mkdir()
    for number in range(78, 98):
        (tmp_path / "offsets" / str(number)).touch()
    with pytest.raises(FatalError, match=r"another driver took over .* is at micro-batch 97, .* of micro-batch 57"):
        commit(tmp_path, 57)


def test_the_checkpoint_cannot_be_seen(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="visible to the driver's Python"):
        commit(tmp_path / "of another machine", 57)
