"""Two queries of one driver have one application id, because somebody forgot `sink.name`: they fence each other as two
drivers do."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from suiro.errors import FatalError
from suiro.spark import CommitMessage, SinkOptions, commit_micro_batch
from suiro.spark.committer import Outcome
from suiro.spark.reports import MicroBatchIdentity
from suiro.spark.staging import StagingWriter
from tests.unit.spark.kafka_double import KafkaDouble, Place

OUT = ("out", 0)


class Log(KafkaDouble):
    def metadata(self, topics: Sequence[str]) -> Mapping[str, Any]:
        return dict.fromkeys(topics)

    def close(self) -> None: ...


@dataclass
class Meanwhile:
    """The last record of a transaction, which is made when the others are sent."""

    calls: list[Callable[[], None]]
    partition: Place = OUT

    def batch(self, *, is_fresh: bool) -> tuple[str, int, bytes, int]:
        while self.calls:
            self.calls.pop()()
        return (*OUT, b"last", 1)


def test_what_one_aborts_is_not_committed_by_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second query's fence aborted the first one's records. Its marker was committed under the new epoch."""
    log = Log()
    monkeypatch.setattr("suiro.client.Client", lambda *of, **more: log)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def commit(query: str, number: int, *meanwhile: Callable[[], None]) -> Outcome:
        checkpoint = tmp_path / query
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps({'in': {'0': number}})}")
        options = {
            "kafka.bootstrap.servers": "b:1",
            "application.id": "one",
            "checkpointLocation": str(checkpoint),
        }
        identity = MicroBatchIdentity(query_id=query, run_id=f"run of {query}", batch_id=number)
        with StagingWriter(None, "task") as writer:
            writer.add(*OUT, f"{query} {number}".encode(), 1)
        return commit_micro_batch(
            [CommitMessage(writer.finish(), identity, None)],
            number,
            SinkOptions.parse(options).for_stream(),
            trailing_record=lambda planned: Meanwhile(list(meanwhile)),
        )

    def another() -> None:
        with pytest.raises(FatalError, match="this checkpoint is new"):
            commit("second", 0)

    commit("first", 0)
    assert commit("first", 1, another) is Outcome.PRODUCED
    assert [data for _, _, data in log.records] == [b"first 0", b"last", b"first 1", b"last"]
