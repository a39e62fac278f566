"""A transactional id has 32,766 epochs under one producer id, and gets another one then: nobody notices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.batches import batch_of, read_all
from support.waiting import wait_until

from suiro.client import LATEST, Client, NewTopic
from suiro.spark.committer import MARKER_TOPIC, Committer, Destination, MicroBatch, Outcome
from suiro.spark.decide import Plan
from suiro.spark.staging import StagedWrites, StagingWriter

LAST_EPOCH = 32_766
BEFORE = 4  # epochs that are left when the query begins
MICRO_BATCHES = 12

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


def test_micro_batches_go_on_when_the_epochs_are_used_up(
    client: Client, new_topic: Callable[..., str], unique: str
) -> None:
    """On both brokers."""
    topic = new_topic(1)
    client.create_topics([NewTopic(MARKER_TOPIC, 1)], exist_ok=True)
    destination = Destination(application_id=unique)
    wearing = client.transaction(destination.transactional_id)
    identity = wearing.init()
    while identity.epoch < LAST_EPOCH - BEFORE:
        identity = wearing.init(identity)
    committer = Committer(client, destination)
    for number in range(MICRO_BATCHES):
        assert committer.process(micro_batch(topic, number)) is Outcome.PRODUCED
    assert committer.counts.fences == committer.counts.aborts == 0

    following = client.transaction(destination.transactional_id).init()
    assert following.id != identity.id
    assert following.epoch < 2 * MICRO_BATCHES

    def all_told() -> bool:
        place = (topic, 0)
        ends = [client.list_offsets({place: LATEST}, read_committed=it)[place].offset for it in (True, False)]
        return ends[0] == ends[1]

    wait_until(all_told, what="the last marker")
    assert read_all(client, topic) == [str(number) for number in range(MICRO_BATCHES)]


def micro_batch(topic: str, number: int) -> MicroBatch:
    with StagingWriter(None, "task") as writer:
        writer.add(topic, 0, batch_of(str(number)), 1)
        staged = writer.finish()
    plan = Plan(
        batch_id=number,
        lineage="query",
        run_id="run",
        start_digest=str(number - 1) if number else "",
        end_digest=str(number),
    )
    return MicroBatch(plan=plan, writes=StagedWrites([staged]))
