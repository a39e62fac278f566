"""Taking over a checkpoint of Spark's own connector: what is written, and what is refused before anything is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from suiro.client import Client
from suiro.errors import UsageError
from suiro.spark import MARKER_TOPIC, Positions, adopt
from suiro.spark.checkpoint import read_planned
from suiro.spark.decide import Marker, Plan, Produce, decide

QUERY = "1f0c7b1e-0000-4000-8000-000000000001"


def checkpoint_of(folder: Path, *batches: dict[str, dict[str, int]], commits: int | None = None) -> str:
    """As the connector's query leaves it: the last of `batches` is planned, `commits` of them are done."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    done = len(batches) if commits is None else commits
    for number, offsets in enumerate(batches):
        write_batch(folder, number, offsets)
        if number < done:
            (folder / "commits" / str(number)).write_text("v1\n{}")
    return str(folder)


def write_batch(folder: Path, number: int, offsets: object) -> None:
    (folder / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}")


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(partitions=2)


def test_the_next_micro_batch_is_one_to_write(tmp_path: Path, topic: str, client: Client, bootstrap: str) -> None:
    checkpoint = checkpoint_of(tmp_path / "c", {topic: {"0": 1, "1": 0}}, {topic: {"0": 5, "1": 2}})
    application = f"adopted-{topic}"
    for _ in range(2):  # said twice, it is the same
        adopted = adopt(checkpoint, application_id=application, bootstrap_servers=bootstrap)
    assert (adopted.query_id, adopted.micro_batch) == (QUERY, 1)
    assert adopted.offsets == {(topic, 0): 5, (topic, 1): 2}
    committed = client.offset_fetch(application, [(topic, 0), (topic, 1), (MARKER_TOPIC, 0)])
    assert [committed[topic, partition].offset for partition in (0, 1)] == [5, 2]
    marker = Marker.from_metadata(committed[MARKER_TOPIC, 0].metadata)
    before = read_planned(checkpoint, 1)
    assert before is not None
    plan = Plan(batch_id=2, lineage=QUERY, run_id="r", start_digest=before.digest, end_digest="next")
    assert decide(marker, plan) == Produce()


def test_a_micro_batch_half_written_is_a_choice(tmp_path: Path, topic: str, bootstrap: str) -> None:
    batches = [{topic: {"0": 1, "1": 0}}, {topic: {"0": 5, "1": 2}}]
    checkpoint = checkpoint_of(tmp_path / "c", *batches, commits=1)
    with pytest.raises(UsageError, match=r"micro-batch 1 of .* was begun and not finished.*--rewrite-last"):
        adopt(checkpoint, application_id=f"half-{topic}", bootstrap_servers=bootstrap)
    adopted = adopt(checkpoint, application_id=f"half-{topic}", bootstrap_servers=bootstrap, rewrite_last=True)
    assert adopted.micro_batch == 0
    assert adopted.offsets == {(topic, 0): 1, (topic, 1): 0}


def test_a_start_that_was_refused_for_want_of_a_marker_is_no_hindrance(
    tmp_path: Path, topic: str, bootstrap: str
) -> None:
    checkpoint = checkpoint_of(tmp_path / "c", {topic: {"0": 1, "1": 0}})
    ours = Positions(offsets={(topic, 0): 4, (topic, 1): 0}, topic_ids={topic: "00"})
    write_batch(tmp_path / "c", 1, ours.to_json())
    adopted = adopt(checkpoint, application_id=f"tried-{topic}", bootstrap_servers=bootstrap)
    assert adopted.micro_batch == 0


def test_what_cannot_be_adopted_is_refused_with_the_reason(
    tmp_path: Path, topic: str, client: Client, bootstrap: str
) -> None:
    def refused(folder: str, application: str, reason: str) -> None:
        with pytest.raises(UsageError, match=reason):
            adopt(folder, application_id=application, bootstrap_servers=bootstrap)

    offsets = {topic: {"0": 1, "1": 0}}
    name = f"refused-{topic}"
    refused(str(tmp_path), name, "no file metadata")
    refused(checkpoint_of(tmp_path / "never"), name, "has never run")
    refused(
        checkpoint_of(tmp_path / "files", {"logOffset": 3}),
        name,
        "no source of .* is Spark's Kafka connector",
    )  # type: ignore[arg-type]
    refused(
        checkpoint_of(tmp_path / "gone", {topic: {"0": 1, "7": 3}}),
        name,
        f"reads {topic}-7, which this cluster",
    )
    ours = Positions(offsets={(topic, 0): 4}, topic_ids={topic: "00"})
    refused(checkpoint_of(tmp_path / "ours", ours.to_json()), name, "nothing to adopt")
    place = (MARKER_TOPIC, 0)
    assert client.offset_fetch(name, [place])[place] is None

    adopt(checkpoint_of(tmp_path / "one", offsets), application_id=name, bootstrap_servers=bootstrap)
    refused(checkpoint_of(tmp_path / "two", offsets, offsets), name, "is used already: Kafka holds micro-batch 0")
