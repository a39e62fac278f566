"""Groups whose records cannot be read: how long one has waited, and the lag of the others."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from support.batches import batch_of

from suiro.client import (
    Client,
    CommittedOffset,
    Fetched,
    GroupDescription,
    ListedOffset,
    PartitionInfo,
    TopicInfo,
)
from suiro.console.groups import describe_group, first_waits_since
from suiro.errors import DeadlineExceededError, OffsetOutOfRangeError
from suiro.foundation.types import TopicPartition

PLACE = ("t", 0)


def told(fetch: Any) -> Client:
    listed = {PLACE: ListedOffset(offset=0, timestamp=-1, leader_epoch=-1)}
    return SimpleNamespace(list_offsets=lambda wanted, **more: listed, fetch=fetch)  # type: ignore[return-value]


def fetched(data: bytes) -> Fetched:
    return Fetched(
        data=memoryview(data), aborted=(), high_watermark=1, last_stable_offset=1, log_start_offset=0
    )


def gone(*arguments: Any, **more: Any) -> Any:
    raise OffsetOutOfRangeError(*PLACE, 0, 5, 9)


@pytest.mark.parametrize(
    "client",
    [
        told(lambda offsets, **more: {PLACE: fetched(batch_of("a")[:-1] + b"\1")}),
        told(gone),
    ],
    ids=["damaged", "gone by now"],
)
def test_a_record_that_cannot_be_read_has_no_time(client: Client) -> None:
    """A group whose next record is damaged must not take the list of all groups with it."""
    assert first_waits_since(client, PLACE, 0) is None


def test_a_partition_without_a_leader_hides_no_other() -> None:
    """The whole group was an error, after 20 s, until the partition had a leader again."""

    def list_offsets(wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        if ("t", 1) in wanted:
            raise DeadlineExceededError("partition t-1 has no leader")
        return {place: ListedOffset(offset=9, timestamp=-1, leader_epoch=-1) for place in wanted}

    described = GroupDescription(
        group="g",
        state="Empty",
        type="classic",
        protocol_type="consumer",
        assignor="",
        coordinator="",
        members=(),
    )
    partitions = tuple(
        PartitionInfo(partition=number, leader=leader, leader_epoch=0) for number, leader in ((0, 1), (1, -1))
    )
    topic = TopicInfo(name="t", topic_id=None, internal=False, partitions=partitions)
    committed = CommittedOffset(offset=4, metadata="", leader_epoch=-1)
    client: Any = SimpleNamespace(
        admin=SimpleNamespace(describe_group=lambda group: described),
        offset_fetch=lambda group, require_stable: {("t", 0): committed, ("t", 1): committed},
        metadata=lambda topics: {"t": topic},
        list_offsets=list_offsets,
    )
    found = describe_group(client, "g")
    assert [(one.committed, one.end_offset, one.lag) for one in found.partitions] == [
        (4, 9, 5),
        (4, None, None),
    ]
